"""Sums that come out the same in whatever order, and however cut, their terms are added.

Workers add up what they hold, and the server adds up what they tell. Sums of floats would depend
on who held what. Here terms are rounded to whole multiples of a small power of two, and whole
numbers are added: so rows can be cut into any number of stripes, on any number of machines.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.jit import ENTRY, EXACT, njit
from bayesmf.kernels.simd import LANES, fma, load, splat, store

# A term is a whole multiple of COARSE, and a rest in whole multiples of FINE.
COARSE, FINE = 2.0**-20, 2.0**-56
LARGEST = 2.0**32  # a larger term, or one that is no number, spoils the sum, which is then NaN
SPOILT = np.iinfo(np.int64).min // 4
# Second moments are added up in single precision over so many rows, which begin at a multiple of
# that number: stripes of rows must begin there too.
LEAF = 32
MEAN_SQUARE_BITS = 14  # mean squares of columns up to 2^14 can be added up

Whole = NDArray[np.int64]


@njit(**EXACT)
def add_terms(out, terms):
    """out[c] += the terms of column c, as (coarse, fine) whole numbers."""
    n, width = terms.shape
    for c in range(width):
        coarse, fine = np.int64(0), np.int64(0)
        for i in range(n):
            x = terms[i, c]
            if not abs(x) < LARGEST:
                coarse, fine = np.int64(SPOILT), np.int64(0)
                break
            whole = np.rint(x / COARSE)
            coarse += np.int64(whole)
            fine += np.int64(np.rint((x - whole * COARSE) / FINE))
        out[c, 0] += coarse
        out[c, 1] += fine


def exact_sums(terms: NDArray[np.float64]) -> Whole:
    """Sums of the columns of (n, k) terms, or of n terms, as whole numbers (k, 2)."""
    terms = np.ascontiguousarray(terms, np.float64)
    if terms.ndim == 1:
        terms = terms[:, None]
    out = np.zeros((terms.shape[1], 2), np.int64)
    add_terms(out, terms)
    return out


def total(parts: Iterable[Whole | None]) -> NDArray[np.float64]:
    """The sums that several parts make up, as floats; NaN where a term could not be added.

    Parts that are None have been added to others.
    """
    added = _added(parts)
    found = added[..., 0] * COARSE + added[..., 1] * FINE
    return np.where(added[..., 0] < SPOILT // 2, np.nan, found)


def _added(parts: Iterable[Whole | None]) -> Whole:
    return np.asarray(np.sum([part for part in parts if part is not None], axis=0))


def quantum_bits(n_rows: int) -> int:
    """Second moments of so many rows are whole multiples of 2^-bits."""
    return 62 - MEAN_SQUARE_BITS - int(n_rows).bit_length()


@njit(**ENTRY)
def exact_moments(rows, bits, full):
    """Sum of the rows and rows.T @ rows as whole multiples of 2^-bits: (width + 1, width).

    The last row is the sum. With `full` False only the diagonal is found. In single precision
    over LEAF rows, which lie in the first-level cache, four entries of a row times eight at once.
    """
    n, width = rows.shape
    wide = np.uint64((width + LANES - 1) // LANES * LANES)
    out = np.zeros((width + 1, width), np.int64)
    scale, most = 2.0**bits, np.float32(2.0) ** (MEAN_SQUARE_BITS - 1) * LEAF
    x, lane = np.zeros(np.uint64(LEAF) * wide, np.float32), np.empty(LANES, np.float32)
    spoilt = False
    for first in range(0, n, LEAF):
        few = min(LEAF, n - first)
        for d in range(width):
            sum_, square = 0.0, 0.0
            for i in range(few):
                value = rows[first + i, d]
                x[np.uint64(i) * wide + np.uint64(d)] = value
                sum_ += np.float64(value)
                square += np.float64(value) * np.float64(value)
            if not (abs(sum_) < most and square < most):
                spoilt = True
                break
            out[width, d] += np.int64(np.rint(sum_ * scale))
            out[d, d] += np.int64(np.rint(square * scale))
        if spoilt:
            break
        if not full:
            continue
        for d in range(np.uint64(0), wide, np.uint64(4)):
            for e in range(np.uint64(0), d + np.uint64(4), np.uint64(LANES)):
                a0 = a1 = a2 = a3 = splat(np.float32(0.0))
                for at in range(np.uint64(0), np.uint64(few) * wide, wide):
                    own = load(x, at + e)
                    a0 = fma(splat(x[at + d]), own, a0)
                    a1 = fma(splat(x[at + d + np.uint64(1)]), own, a1)
                    a2 = fma(splat(x[at + d + np.uint64(2)]), own, a2)
                    a3 = fma(splat(x[at + d + np.uint64(3)]), own, a3)
                _add_lanes(out, d, e, a0, lane, scale)
                _add_lanes(out, d + np.uint64(1), e, a1, lane, scale)
                _add_lanes(out, d + np.uint64(2), e, a2, lane, scale)
                _add_lanes(out, d + np.uint64(3), e, a3, lane, scale)
    if spoilt:
        out[:] = SPOILT
    return out


@njit(inline="always")
def _add_lanes(out, d, e, vector, lane, scale):
    """out[d, e : e + 8] += vector below the diagonal, by way of the buffer `lane`."""
    store(lane, np.uint64(0), vector)
    for k in range(LANES):
        column = e + np.uint64(k)
        if column < d and d < np.uint64(out.shape[1]):
            out[d, column] += np.int64(np.rint(np.float64(lane[k]) * scale))


def packed_moments(rows: NDArray[np.float32], n_rows: int, full: bool) -> Whole:
    """`exact_moments` of some of n_rows rows, without what is known by symmetry: for a message."""
    found = exact_moments(rows, quantum_bits(n_rows), full)
    width = rows.shape[1]
    if not full:
        return np.concatenate([found[width], np.diagonal(found)])
    return np.concatenate([found[width], found[np.tril_indices(width)]])


def unpacked_moments(
    parts: Iterable[Whole | None], width: int, n_rows: int, full: bool
) -> tuple[Any, Any]:
    """Sum of all rows, and their second moments: a matrix, or its diagonal."""
    added = _added(parts)
    found = np.where(added < SPOILT // 2, np.nan, added * 2.0 ** -quantum_bits(n_rows))
    if not full:
        return found[:width], found[width:]
    cross = np.zeros((width, width))
    cross[np.tril_indices(width)] = found[width:]
    return found[:width], cross + np.tril(cross, -1).T
