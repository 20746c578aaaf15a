"""Compiled predictions of pairs, row by row: their means, and what is not known of the row itself.

Pairs stand in the order of their rows, those of row k from starts[k] to starts[k + 1]; `slot` tells
the row of the other side, whose features are laid out by `regressors`. What is computed for a pair
does not depend on which others are asked for.
"""

from __future__ import annotations

import numpy as np

from bayesmf.kernels.gather import Gathered, turn_rows
from bayesmf.kernels.jit import ENTRY, PART, njit
from bayesmf.kernels.simd import LANES, fma, load, splat, store
from bayesmf.kernels.simd import total as lane_sum

_U = np.uint64
_LANES = np.uint64(LANES)
MOST = 256  # pairs that are worked on together: their regressors fit the first-level cache


@njit(**PART)
def lay_row(rows, k, n_factors, u):
    """u = the features of row k, then zeros; returns its bias, 0 where it has none."""
    for d in range(u.shape[0]):
        u[d] = rows[k, d] if d < n_factors else np.float32(0.0)
    return rows[k, n_factors] if rows.shape[1] > n_factors else np.float32(0.0)


@njit(**ENTRY)
def pair_means(rows, starts, slot, given, n_factors, out):
    """out[n] = row . features + both biases, for the pairs of all rows."""
    features, bias = given
    width = _U((n_factors + LANES - 1) // LANES * LANES)
    u = np.zeros(width, np.float32)
    for k in range(rows.shape[0]):
        if starts[k] == starts[k + 1]:
            continue
        own = lay_row(rows, k, n_factors, u)
        for n in range(starts[k], starts[k + 1]):
            j = _U(slot[n])
            sums = splat(np.float32(0.0))
            for c in range(_U(0), width, _LANES):
                sums = fma(load(u, c), load(features, j * width + c), sums)
            out[n] = own + bias[j] + lane_sum(sums)


@njit(**ENTRY)
def pair_spreads(rows, factors, starts, slot, given, n_factors, noise, mu, var):
    """Mean mu[n] and variance var[n] of a new rating, where row k is N(rows[k], (L L^T)^-1).

    `factors` are those of `solve_rows`. The variance is |L^-1 x|^2 + noise with x = [features, 1].
    """
    features, bias = given
    row_width = rows.shape[1]
    width = _U((n_factors + LANES - 1) // LANES * LANES)
    columns = max(width, _U(row_width))
    # An odd number of vectors: columns that are a power of two apart would share cache sets.
    stride = _U(MOST + LANES)
    x, e = np.empty(columns * stride, np.float32), np.empty(MOST + LANES, np.float32)
    at, u = np.empty(MOST + LANES, np.uint64), np.zeros(width, np.float32)
    last = _U(bias.shape[0] - 1)
    for k in range(rows.shape[0]):
        if starts[k] == starts[k + 1]:
            continue
        own = lay_row(rows, k, n_factors, u)
        for lo in range(starts[k], starts[k + 1], MOST):
            n = min(MOST, starts[k + 1] - lo)
            up = _U((n + 4 * LANES - 1) // (4 * LANES) * (4 * LANES))
            for p in range(_U(n)):
                j = _U(slot[_U(lo) + p])
                at[p], e[p] = j * width, own + bias[j]
            for p in range(_U(n), up):
                at[p], e[p] = last * width, np.float32(0.0)
            for p in range(_U(0), up, _LANES):
                turn_rows(Gathered(x, stride, e, at), features, width, p, u)
            for p in range(_U(n)):
                mu[_U(lo) + p] = e[p]
            if row_width > n_factors:
                for p in range(up):
                    x[_U(n_factors) * stride + p] = np.float32(1.0)
            add_spreads(factors[k], x, stride, _U(row_width), up, e)
            for p in range(_U(n)):
                var[_U(lo) + p] = e[p] + noise


@njit(**PART)
def add_spreads(factor, x, stride, width, n, out):
    """out = |L^-1 x|^2 of each column vector of x, which is overwritten; four vectors at a time."""
    zero = splat(np.float32(0.0))
    for p in range(_U(0), n, _U(4) * _LANES):
        q0 = q1 = q2 = q3 = zero
        at = _U(0)
        for c in range(width):
            y = c * stride + p
            a0, a1 = load(x, y), load(x, y + _LANES)
            a2, a3 = load(x, y + _U(2) * _LANES), load(x, y + _U(3) * _LANES)
            for d in range(c):
                s, z = splat(-factor[at]), d * stride + p
                a0 = fma(s, load(x, z), a0)
                a1 = fma(s, load(x, z + _LANES), a1)
                a2 = fma(s, load(x, z + _U(2) * _LANES), a2)
                a3 = fma(s, load(x, z + _U(3) * _LANES), a3)
                at += _U(1)
            s = splat(factor[at])
            at += _U(1)
            a0, a1, a2, a3 = a0 * s, a1 * s, a2 * s, a3 * s
            store(x, y, a0)
            store(x, y + _LANES, a1)
            store(x, y + _U(2) * _LANES, a2)
            store(x, y + _U(3) * _LANES, a3)
            q0, q1, q2, q3 = fma(a0, a0, q0), fma(a1, a1, q1), fma(a2, a2, q2), fma(a3, a3, q3)
        store(out, p, q0)
        store(out, p + _LANES, q1)
        store(out, p + _U(2) * _LANES, q2)
        store(out, p + _U(3) * _LANES, q3)


@njit(**ENTRY)
def add_draw(mu, var, t, first, total, squares, within):
    """Sums over draws of pairs' means, from the first draw's on, of their squares, and of variances.

    Measured from the first draw's nothing large cancels, so one pass is as good as two.
    """
    for n in range(mu.shape[0]):
        if t == 0:
            first[n] = mu[n]
        change = np.float64(mu[n] - first[n])
        total[n] += change
        squares[n] += change * change
        within[n] += np.float64(var[n])
