"""What a row is drawn from: the other side's rows, brought together column by column.

A half-sweep reads the rows of the other side in the order of each row's ratings: jumps through
memory. They are made once, here; all arithmetic that follows goes straight through a buffer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bayesmf.kernels.csr import rating_at
from bayesmf.kernels.jit import APART, njit
from bayesmf.kernels.simd import LANES, fma, load, prefetch, splat, store, transpose
from bayesmf.kernels.types import Rows

# Numbers that fit the second-level cache. Of larger tables rows are asked for ahead of time.
NEAR = 1 << 18
AHEAD = 16
LINE = 16  # float32 numbers in a cache line

_U = np.uint64
_LANES = np.uint64(LANES)


class Regressors(NamedTuple):
    """The other side as a row's ratings meet it; the last row is zero, for what is not there.

    Features, flat: a row ends with a whole vector and begins with a cache line where it can. Biases
    are apart: they are taken off the ratings, and would make most rows a vector longer.
    """

    features: Rows
    bias: Rows


def padded(width: int) -> int:
    """Width of rows that end with a whole vector."""
    return -(-width // LANES) * LANES


def regressors(rows: Rows, n_factors: int) -> Regressors:
    """Copy the rows of the other side."""
    n, wide = len(rows), padded(n_factors)
    # Not zeros: large pages are asked for where nothing is cleared, and jumps then cost less.
    room = np.empty(4 * wide * (n + 1) + 64, np.uint8)
    first = -room.ctypes.data % 64
    features = room[first : first + 4 * wide * (n + 1)].view(np.float32)
    table = features.reshape(n + 1, wide)
    table[:n, :n_factors], table[:n, n_factors:], table[n] = rows[:, :n_factors], 0.0, 0.0
    bias = np.zeros(n + 1, np.float32)
    if rows.shape[1] > n_factors:
        bias[:n] = rows[:, n_factors]
    return Regressors(features, bias)


@njit(**APART)
def gather(x, stride, e, at, ratings, width, lo, n, u, own_bias):
    """Columns of x, one every `stride`: features of the n ratings' partners from lo on.

    e becomes rating - bias + own_bias + x . u. Ratings are rounded up to whole vectors, by zeros.
    `at` is scratch space for places in the table; like e it has room for eight more than n.
    """
    R, bias, index, value, levels = ratings
    far, up = R.shape[0] > NEAR, _U((n + LANES - 1) // LANES * LANES)
    for k in range(_U(n)):
        j = _U(index[_U(lo) + k])
        at[k], e[k] = j * width, rating_at(value, levels, _U(lo) + k) - bias[j] + own_bias
    for k in range(_U(n), up):
        at[k], e[k] = _U(R.shape[0]) - width, np.float32(0.0)
    for k in range(_U(0), up, _LANES):
        if far and k + _U(AHEAD) < up:
            for t in range(k + _U(AHEAD), k + _U(AHEAD) + _LANES):
                for c in range(_U(0), width, _U(LINE)):
                    prefetch(R, at[t] + c)
        turn_rows(x, stride, e, R, width, at, k, u)


@njit(**APART, forceinline=True)
def turn_rows(x, stride, e, R, width, at, k, u):
    """Eight rows of R become eight entries of each column, and of e."""
    zero = splat(np.float32(0.0))
    e0, e1, e2, e3 = load(e, k), zero, zero, zero
    a0, a1, a2, a3 = at[k], at[k + _U(1)], at[k + _U(2)], at[k + _U(3)]
    a4, a5, a6, a7 = at[k + _U(4)], at[k + _U(5)], at[k + _U(6)], at[k + _U(7)]
    for c in range(_U(0), width, _LANES):
        t = transpose(
            load(R, a0 + c), load(R, a1 + c), load(R, a2 + c), load(R, a3 + c),
            load(R, a4 + c), load(R, a5 + c), load(R, a6 + c), load(R, a7 + c),
        )  # fmt: skip
        # Four sums: one alone would wait for itself.
        e0 = fma(splat(u[c]), t[0], e0)
        e1 = fma(splat(u[c + _U(1)]), t[1], e1)
        e2 = fma(splat(u[c + _U(2)]), t[2], e2)
        e3 = fma(splat(u[c + _U(3)]), t[3], e3)
        e0 = fma(splat(u[c + _U(4)]), t[4], e0)
        e1 = fma(splat(u[c + _U(5)]), t[5], e1)
        e2 = fma(splat(u[c + _U(6)]), t[6], e2)
        e3 = fma(splat(u[c + _U(7)]), t[7], e3)
        p = c * stride + k
        store(x, p, t[0])
        store(x, p + stride, t[1])
        store(x, p + _U(2) * stride, t[2])
        store(x, p + _U(3) * stride, t[3])
        store(x, p + _U(4) * stride, t[4])
        store(x, p + _U(5) * stride, t[5])
        store(x, p + _U(6) * stride, t[6])
        store(x, p + _U(7) * stride, t[7])
    store(e, k, (e0 + e1) + (e2 + e3))
