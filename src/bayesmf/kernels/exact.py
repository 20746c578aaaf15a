"""Exact sums, independent of the order and the partition of their terms.

Workers sum their own terms, and the server sums the results. Float sums would depend on the
partition. Here a term is split into whole multiples of a few powers of two, and whole numbers are
added, so rows can be divided into any number of stripes on any number of machines.

A term that is NaN, infinite or too large makes its sum NaN.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.jit import ENTRY, EXACT, WITHIN, njit
from bayesmf.kernels.simd import LANES, fma, load, splat, store

# Units of the parts of a term, each part the remainder of the one before: 2^27 terms below LARGEST
# can be added.
UNITS = (2.0**16, 2.0**-20, 2.0**-56)
LARGEST = 2.0**51
SPOILT = np.iinfo(np.int64).min // 2  # marks an invalid sum; no valid sum reaches half of it
# Rows over which second moments are summed in single precision; stripes of rows must begin at a
# multiple of it. Such a sum is a whole number of two units.
LEAF = 32
LEAF_UNITS = (2.0**2, 2.0**-34)
LARGEST_LEAF = 2.0**41  # 2^21 of these can be added

Whole = NDArray[np.int64]
_TOP, _MIDDLE, _LOW = UNITS
_COARSE, _FINE = LEAF_UNITS


@njit(**WITHIN)
def add_term(out, x, times):
    """Add times * x to the three whole numbers `out`; returns whether x is valid."""
    if not abs(x) < LARGEST:
        out[0] = SPOILT
        return False
    top = np.rint(x / _TOP)
    rest = x - top * _TOP
    middle = np.rint(rest / _MIDDLE)
    out[0] += times * np.int64(top)
    out[1] += times * np.int64(middle)
    out[2] += times * np.int64(np.rint((rest - middle * _MIDDLE) / _LOW))
    return True


@njit(**EXACT)
def add_terms(out, terms):
    """Add the terms of column c to the whole numbers out[c]."""
    n, width = terms.shape
    for c in range(width):
        for i in range(n):
            if not add_term(out[c], terms[i, c], np.int64(1)):
                break


def exact_sums(terms: NDArray[np.float64]) -> Whole:
    """Sums of the columns of (n, k) terms, or of n terms, as whole numbers (k, 3)."""
    terms = np.ascontiguousarray(terms, np.float64)
    if terms.ndim == 1:
        terms = terms[:, None]
    out = np.zeros((terms.shape[1], len(UNITS)), np.int64)
    add_terms(out, terms)
    return out


def add_whole(parts: Iterable[Whole | None]) -> Whole:
    """The sum of whole numbers; an invalid part makes it invalid. None parts are skipped."""
    found = np.array([part for part in parts if part is not None])
    spoilt = (found < SPOILT // 2).any(axis=0)
    return np.where(spoilt, SPOILT, np.where(spoilt, 0, found).sum(axis=0))


def total(parts: Iterable[Whole | None]) -> NDArray[np.float64]:
    """The sums over all parts, as floats; NaN for invalid sums. None parts are skipped."""
    return _as_floats(add_whole(parts), UNITS)


def _as_floats(added: Whole, units: tuple[float, ...]) -> NDArray[np.float64]:
    found = sum(added[..., k] * unit for k, unit in reversed(list(enumerate(units))))
    return np.where(added[..., 0] < SPOILT // 2, np.nan, found)


@njit(**ENTRY)
def exact_moments(rows, full):
    """Sum of the rows and rows.T @ rows, below and on the diagonal: (width + 1, width, 2) whole.

    The last row is the sum. With `full` False only the diagonal is computed. In single precision
    over LEAF rows, which lie in the first-level cache, four entries of a row times eight at once.
    """
    n, width = rows.shape
    wide = np.uint64((width + LANES - 1) // LANES * LANES)
    out = np.zeros((width + 1, width, 2), np.int64)
    x, lane = np.zeros(np.uint64(LEAF) * wide, np.float32), np.empty(LANES, np.float32)
    for first in range(0, n, LEAF):
        few = min(LEAF, n - first)
        for d in range(width):
            sum_, square = 0.0, 0.0
            for i in range(few):
                value = rows[first + i, d]
                x[np.uint64(i) * wide + np.uint64(d)] = value
                sum_ += np.float64(value)
                square += np.float64(value) * np.float64(value)
            if not (abs(sum_) < LARGEST_LEAF and square < LARGEST_LEAF):
                out[:] = SPOILT
                return out
            _add_leaf(out[width, d], sum_)
            _add_leaf(out[d, d], square)
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
                _add_lanes(out, d, e, a0, lane)
                _add_lanes(out, d + np.uint64(1), e, a1, lane)
                _add_lanes(out, d + np.uint64(2), e, a2, lane)
                _add_lanes(out, d + np.uint64(3), e, a3, lane)
    return out


@njit(inline="always")
def _add_leaf(out, x):
    """Add a sum over a leaf, smaller than LARGEST_LEAF."""
    coarse = np.rint(x / _COARSE)
    out[0] += np.int64(coarse)
    out[1] += np.int64(np.rint((x - coarse * _COARSE) / _FINE))


@njit(inline="always")
def _add_lanes(out, d, e, vector, lane):
    """out[d, e : e + 8] += vector below the diagonal, by way of the buffer `lane`.

    By the Cauchy-Schwarz inequality these are no larger than the squares, which were checked.
    """
    store(lane, np.uint64(0), vector)
    for k in range(LANES):
        column = e + np.uint64(k)
        if column < d and d < np.uint64(out.shape[1]):
            _add_leaf(out[d, column], np.float64(lane[k]))


def packed_moments(rows: NDArray[np.float32], full: bool) -> Whole:
    """`exact_moments` of some rows, without symmetric duplicates, for sending."""
    found = exact_moments(rows, full)
    width = rows.shape[1]
    at: Any = np.tril_indices(width) if full else np.diag_indices(width)
    return np.concatenate([found[width], found[at]])


def unpacked_moments(parts: Iterable[Whole | None], width: int, full: bool) -> tuple[Any, Any]:
    """Sum of all rows, and their second moments: a matrix, or its diagonal."""
    found = _as_floats(add_whole(parts), LEAF_UNITS)
    if not full:
        return found[:width], found[width:]
    cross = np.zeros((width, width))
    cross[np.tril_indices(width)] = found[width:]
    return found[:width], cross + np.tril(cross, -1).T
