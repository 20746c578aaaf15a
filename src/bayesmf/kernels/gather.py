"""Regressors of a row: the other side's rows, gathered column by column.

A half-sweep reads rows of the other side in the order of each row's ratings, at random addresses.
This happens once, here; later arithmetic reads a contiguous buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.csr import rating_at
from bayesmf.kernels.jit import APART, njit
from bayesmf.kernels.keys import StreamCounter
from bayesmf.kernels.simd import LANES, fma, load, prefetch, splat, store, transpose
from bayesmf.kernels.types import Rows

NEAR = 1 << 18  # float32 numbers that fit the second-level cache, 1 MB
AHEAD = 16  # ratings between the prefetch and the read of a row of larger tables
LINE = 16  # float32 numbers in a cache line

_U = np.uint64
_LANES = np.uint64(LANES)


class Regressors(NamedTuple):
    """The other side as regressors; the last row is zero, for padding.

    Features are flat; rows are padded to whole vectors and aligned to cache lines if possible.
    Biases are separate: they are subtracted from the ratings. `root` is the square root of the
    weight of a row's ratings, 1 if all are equal.
    """

    features: Rows
    bias: Rows
    root: Rows


class RowRatings(NamedTuple):
    """The ratings of rows to draw, row by row, and the `Regressors` of the other side.

    Row k has the ratings from starts[k] to starts[k + 1].
    """

    number: NDArray[np.int32]  # row numbers in the whole matrix: the random numbers' keys
    starts: NDArray[np.int64]
    other: NDArray[np.int32]  # rows of the other side
    value: NDArray[Any]  # codes of the ratings (uint8), or the ratings themselves (float32)
    levels: NDArray[np.float32]  # ratings by code
    features: Rows
    bias: Rows
    root: Rows


class HalfSweep(NamedTuple):
    """Settings common to the draws of all rows of one side, except the prior."""

    n_factors: int
    tau: NDArray[np.float64]  # precision of a rating of weight one, for each row
    relax: float  # over-relaxation, from 0 (none) to below 1
    counter: StreamCounter


# Weighted sums over the ratings of a drawn row: squared errors; and, with f the features' part of a
# prediction, b the row's bias and t the rating minus the other side's bias, sums of f t, b t, f f,
# f b and b b.
SSE, FT, BT, FF, FB, BB = range(6)
N_SUMS = 6


class Gathered(NamedTuple):
    """Buffers for the ratings of one row: their regressors, column by column, and their errors.

    All are multiplied by the roots of the ratings' weights, which are the regressor of a bias.
    """

    x: Rows  # flat: column c from c * stride on
    stride: np.uint64
    e: Rows  # like `at`, with room for eight more than the ratings
    at: NDArray[np.uint64]  # where the partners' features begin
    root: Rows  # of the weights
    t: Rows  # ratings minus the partners' biases; skipped if empty


def padded(width: int) -> int:
    """Width of rows that end with a whole vector."""
    return -(-width // LANES) * LANES


def regressors(rows: Rows, n_factors: int, weight: Rows | None = None) -> Regressors:
    """Copy the rows of the other side; `weight` is that of the ratings of each."""
    return regressors_of([rows], n_factors, [weight])


def regressors_of(
    parts: Sequence[Rows], n_factors: int, weights: Sequence[Rows | float | None]
) -> Regressors:
    """`regressors` of rows given in consecutive parts, each with its weights."""
    n, padded_width = sum(map(len, parts)), padded(n_factors)
    # np.empty, not np.zeros: uncleared memory gets huge pages, which makes random reads cheaper.
    room = np.empty(4 * padded_width * (n + 1) + 64, np.uint8)
    first = -room.ctypes.data % 64
    features = room[first : first + 4 * padded_width * (n + 1)].view(np.float32)
    table = features.reshape(n + 1, padded_width)
    table[:, n_factors:], table[n] = 0.0, 0.0
    bias, root = np.zeros(n + 1, np.float32), np.ones(n + 1, np.float32)
    at = 0
    for rows, weight in zip(parts, weights, strict=True):
        own = slice(at, at + len(rows))
        table[own, :n_factors] = rows[:, :n_factors]
        if rows.shape[1] > n_factors:
            bias[own] = rows[:, n_factors]
        if weight is not None:
            root[own] = np.sqrt(np.asarray(weight, np.float32))
        at += len(rows)
    root[n] = 0.0
    return Regressors(features, bias, root)


@njit(**APART)
def gather(out, ratings, width, lo, n, u, own_bias):
    """Gather the regressors of the n ratings from lo on; `width` is that of the padded features.

    Times root[partner of k], which out.root[k] becomes:
    out.x[c * stride + k] = features[partner of k, c] and
    out.e[k] = rating[k] - bias[partner of k] + own_bias + features[partner of k] . u, and
    out.t[k] = rating[k] - bias[partner of k].
    Ratings are rounded up to whole vectors, by zeros.
    """
    R, bias, index, weight = ratings.features, ratings.bias, ratings.other, ratings.root
    value, levels, e, at, root = ratings.value, ratings.levels, out.e, out.at, out.root
    t, wanted = out.t, out.t.shape[0] > 0
    far, up = R.shape[0] > NEAR, _U((n + LANES - 1) // LANES * LANES)
    for k in range(_U(n)):
        j = _U(index[_U(lo) + k])
        at[k], root[k] = j * width, weight[j]
        left = (rating_at(value, levels, _U(lo) + k) - bias[j]) * weight[j]
        if wanted:
            t[k] = left
        e[k] = left + own_bias * weight[j]
    for k in range(_U(n), up):
        at[k], e[k], root[k] = _U(R.shape[0]) - width, np.float32(0.0), np.float32(0.0)
        if wanted:
            t[k] = np.float32(0.0)
    for k in range(_U(0), up, _LANES):
        if far and k + _U(AHEAD) < up:
            for later in range(k + _U(AHEAD), k + _U(AHEAD) + _LANES):
                for c in range(_U(0), width, _U(LINE)):
                    prefetch(R, at[later] + c)
        transpose_rows(out, R, width, k, u)


@njit(**APART, forceinline=True)
def transpose_rows(out, R, width, k, u):
    """Transpose the rows of R at out.at[k : k + 8] into eight entries of each column, and of e.

    They are multiplied by out.root on the way.
    """
    x, stride, e, at, root, _ = out
    zero, w = splat(np.float32(0.0)), load(root, k)
    e0, e1, e2, e3 = load(e, k), zero, zero, zero
    a0, a1, a2, a3 = at[k], at[k + _U(1)], at[k + _U(2)], at[k + _U(3)]
    a4, a5, a6, a7 = at[k + _U(4)], at[k + _U(5)], at[k + _U(6)], at[k + _U(7)]
    for c in range(_U(0), width, _LANES):
        t = transpose(
            load(R, a0 + c), load(R, a1 + c), load(R, a2 + c), load(R, a3 + c),
            load(R, a4 + c), load(R, a5 + c), load(R, a6 + c), load(R, a7 + c),
        )  # fmt: skip
        t0, t1, t2, t3 = t[0] * w, t[1] * w, t[2] * w, t[3] * w
        t4, t5, t6, t7 = t[4] * w, t[5] * w, t[6] * w, t[7] * w
        # Four independent sums, to hide the latency of the addition.
        e0 = fma(splat(u[c]), t0, e0)
        e1 = fma(splat(u[c + _U(1)]), t1, e1)
        e2 = fma(splat(u[c + _U(2)]), t2, e2)
        e3 = fma(splat(u[c + _U(3)]), t3, e3)
        e0 = fma(splat(u[c + _U(4)]), t4, e0)
        e1 = fma(splat(u[c + _U(5)]), t5, e1)
        e2 = fma(splat(u[c + _U(6)]), t6, e2)
        e3 = fma(splat(u[c + _U(7)]), t7, e3)
        p = c * stride + k
        store(x, p, t0)
        store(x, p + stride, t1)
        store(x, p + _U(2) * stride, t2)
        store(x, p + _U(3) * stride, t3)
        store(x, p + _U(4) * stride, t4)
        store(x, p + _U(5) * stride, t5)
        store(x, p + _U(6) * stride, t6)
        store(x, p + _U(7) * stride, t7)
    store(e, k, (e0 + e1) + (e2 + e3))
