"""Compiled loops over all draws of one user: as fast as memory gives the items' rows.

What is summed for an item does not depend on which others are asked for: sums are taken in the
order written here, so that an item has the same bits in any company.
"""

from __future__ import annotations

import numpy as np

from bayesmf.kernels.jit import EXACT, njit
from bayesmf.kernels.simd import LANES, fma, load, splat
from bayesmf.kernels.simd import total as lane_sum

_U = np.uint64


@njit(inline="always")
def laid_dot(X, x, Y, y, width, full, last):
    """x . y, where a row of X was laid out by `lay_out_user` and one of Y was not.

    The last eight columns of y are read at once, so nothing beyond a row is.
    """
    if width < _U(LANES):
        found = np.float32(0.0)
        for d in range(width):
            found += X[x + d] * Y[y + d]
        return found
    sums = splat(np.float32(0.0))
    for v in range(full):
        c = _U(LANES) * v
        sums = fma(load(X, x + c), load(Y, y + c), sums)
    return lane_sum(fma(load(X, x + _U(LANES) * full), load(Y, y + last), sums))


@njit(**EXACT)
def sum_scores(X, rows, items, out):
    """out[k] += the sum over draws t of X_t . rows_t,items[k]."""
    draws, n, width = rows.shape
    flat_X, flat = X.reshape(-1), rows.reshape(-1)
    padded_width, full, last = _U(X.shape[1]), _U(X.shape[1] // LANES - 1), _U(width - LANES)
    for t in range(_U(draws)):
        first = t * _U(n)
        for k in range(items.shape[0]):
            y = (first + _U(items[k])) * _U(width)
            out[k] += np.float64(laid_dot(flat_X, t * padded_width, flat, y, _U(width), full, last))


@njit(**EXACT)
def sum_moments(X, bias, rows, items, first, total, squares):
    """Predictions of the first draw; sums of all draws' from there on, and of their squares."""
    draws, n, width = rows.shape
    flat_X, flat = X.reshape(-1), rows.reshape(-1)
    padded_width, full, last = _U(X.shape[1]), _U(X.shape[1] // LANES - 1), _U(width - LANES)
    for t in range(_U(draws)):
        begin, offset = t * _U(n), bias[t]
        for k in range(items.shape[0]):
            y = (begin + _U(items[k])) * _U(width)
            found = laid_dot(flat_X, t * padded_width, flat, y, _U(width), full, last)
            score = np.float64(offset) + np.float64(found)
            if t == _U(0):
                first[k] = score
            change = score - first[k]
            total[k] += change
            squares[k] += change * change
