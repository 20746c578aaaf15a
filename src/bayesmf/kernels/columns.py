"""Compiled draws of rows a few columns at a time: O(N D) a sweep instead of O(N D^2).

A row's columns are drawn in groups of four, each given the rest of the row. The errors of the row's
ratings are kept up to date, so a group's conditional distribution needs its own columns only.
A group is drawn jointly, or (coordinate Gibbs) one column after the other.

The parts that do not depend on the errors are computed first: the 4 x 4 matrices of all groups,
factored eight at a time, and the noise. This keeps the sequential part short.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.gather import BB, BT, FB, FF, FT, SSE, Gathered, gather, padded
from bayesmf.kernels.jit import ENTRY, PART, njit
from bayesmf.kernels.keys import fill_normals
from bayesmf.kernels.simd import LANES, fma, load, root, splat, store, total
from bayesmf.kernels.types import Rows

GROUP = 4  # columns
PARTS = 10  # of the lower half of a group's matrix, row by row
LOWER = [index[:, None] for index in np.tril_indices(GROUP)]
# Ratings whose terms are summed in single precision before they join the total.
CHUNK = 4096
# Numbers in the buffer of regressors, 64 MB; rows with more ratings are drawn whole.
BUFFER = 1 << 24
# A pivot below this share of its diagonal has lost four of the seven digits of float32.
LOST_PIVOT = 1e-4

_U = np.uint64
_LANES = np.uint64(LANES)


def longest_row(n_factors: int) -> int:
    """Most ratings that a row may have to be drawn by columns."""
    return BUFFER // padded(n_factors + 1 + GROUP) - 2 * LANES


@njit(**PART)
def clear(array):
    """array[:] = 0."""
    # Not a slice: assignments to slices take long to compile.
    for k in range(_U(array.shape[0])):
        array[k] = np.float32(0.0)


@njit(**PART)
def fill_column(x, first, column, up):
    """x[first + k] = column[k], or 0 if `column` is empty."""
    for k in range(up):
        x[first + k] = column[k] if column.shape[0] > 0 else np.float32(0.0)


@njit(**PART)
def add_group(P, g, groups, x, stride, column, n):
    """Products of the four columns with each other, added to part g of P."""
    p = column * stride
    q, r, s = p + stride, p + _U(2) * stride, p + _U(3) * stride
    zero = splat(np.float32(0.0))
    for first in range(_U(0), n, _U(CHUNK)):
        a00 = a10 = a11 = a20 = a21 = a22 = a30 = a31 = a32 = a33 = zero
        for k in range(first, min(first + _U(CHUNK), n), _LANES):
            x0, x1, x2, x3 = load(x, p + k), load(x, q + k), load(x, r + k), load(x, s + k)
            a00 = fma(x0, x0, a00)
            a10 = fma(x1, x0, a10)
            a11 = fma(x1, x1, a11)
            a20 = fma(x2, x0, a20)
            a21 = fma(x2, x1, a21)
            a22 = fma(x2, x2, a22)
            a30 = fma(x3, x0, a30)
            a31 = fma(x3, x1, a31)
            a32 = fma(x3, x2, a32)
            a33 = fma(x3, x3, a33)
        P[g] += total(a00)
        P[g + groups] += total(a10)
        P[g + _U(2) * groups] += total(a11)
        P[g + _U(3) * groups] += total(a20)
        P[g + _U(4) * groups] += total(a21)
        P[g + _U(5) * groups] += total(a22)
        P[g + _U(6) * groups] += total(a30)
        P[g + _U(7) * groups] += total(a31)
        P[g + _U(8) * groups] += total(a32)
        P[g + _U(9) * groups] += total(a33)


@njit(**PART)
def read_parts(P, prior, scale, g, groups):
    """The lower half of A = scale P + prior of eight groups from g."""
    return (
        fma(scale, load(P, g), load(prior, g)),
        fma(scale, load(P, g + groups), load(prior, g + groups)),
        fma(scale, load(P, g + _U(2) * groups), load(prior, g + _U(2) * groups)),
        fma(scale, load(P, g + _U(3) * groups), load(prior, g + _U(3) * groups)),
        fma(scale, load(P, g + _U(4) * groups), load(prior, g + _U(4) * groups)),
        fma(scale, load(P, g + _U(5) * groups), load(prior, g + _U(5) * groups)),
        fma(scale, load(P, g + _U(6) * groups), load(prior, g + _U(6) * groups)),
        fma(scale, load(P, g + _U(7) * groups), load(prior, g + _U(7) * groups)),
        fma(scale, load(P, g + _U(8) * groups), load(prior, g + _U(8) * groups)),
        fma(scale, load(P, g + _U(9) * groups), load(prior, g + _U(9) * groups)),
    )


@njit(**PART)
def factor_groups(P, prior, tau, z, groups):
    """For eight groups at a time: P becomes the inverse of A = L L^T, z becomes L^-T z.

    Returns whether all pivots are accurate.
    """
    one, least = splat(np.float32(1.0)), np.float32(1.0)
    for g in range(_U(0), groups, _LANES):
        a00, a10, a11, a20, a21, a22, a30, a31, a32, a33 = read_parts(
            P, prior, splat(tau), g, groups
        )
        # L, with the inverse of its diagonal.
        i0 = one / root(a00)
        l10, l20, l30 = a10 * i0, a20 * i0, a30 * i0
        p1 = a11 - l10 * l10
        i1 = one / root(p1)
        l21, l31 = (a21 - l20 * l10) * i1, (a31 - l30 * l10) * i1
        p2 = a22 - l20 * l20 - l21 * l21
        i2 = one / root(p2)
        l32 = (a32 - l30 * l20 - l31 * l21) * i2
        p3 = a33 - l30 * l30 - l31 * l31 - l32 * l32
        i3 = one / root(p3)
        least = lowest(P, g, p1 / a11, least)
        least = lowest(P, g, p2 / a22, least)
        least = lowest(P, g, p3 / a33, least)
        # L^-1, without the minus that its entries below the diagonal have.
        m10, m21, m32 = l10 * i0 * i1, l21 * i1 * i2, l32 * i2 * i3
        m20, m31 = (l20 * i0 - l21 * m10) * i2, (l31 * i1 - l32 * m21) * i3
        m30 = (l30 * i0 - l31 * m10 - l32 * m20) * i3
        z0, z1 = load(z, g), load(z, g + groups)
        z2, z3 = load(z, g + _U(2) * groups), load(z, g + _U(3) * groups)
        store(z, g, i0 * z0 - m10 * z1 - m20 * z2 - m30 * z3)
        store(z, g + groups, i1 * z1 - m21 * z2 - m31 * z3)
        store(z, g + _U(2) * groups, i2 * z2 - m32 * z3)
        store(z, g + _U(3) * groups, i3 * z3)
        store(P, g, i0 * i0 + m10 * m10 + m20 * m20 + m30 * m30)
        store(P, g + groups, m20 * m21 + m30 * m31 - m10 * i1)
        store(P, g + _U(2) * groups, i1 * i1 + m21 * m21 + m31 * m31)
        store(P, g + _U(3) * groups, m30 * m32 - m20 * i2)
        store(P, g + _U(4) * groups, m31 * m32 - m21 * i2)
        store(P, g + _U(5) * groups, i2 * i2 + m32 * m32)
        minus = i3 - i3 - i3
        store(P, g + _U(6) * groups, m30 * minus)
        store(P, g + _U(7) * groups, m31 * minus)
        store(P, g + _U(8) * groups, m32 * minus)
        store(P, g + _U(9) * groups, i3 * i3)
    # This comparison is False for NaN.
    return least > LOST_PIVOT


@njit(**PART)
def lowest(scratch, g, vector, least):
    """The least of a number and the lanes of a vector; NaN if one of them is."""
    store(scratch, g, vector)
    for k in range(g, g + _LANES):
        least = least if scratch[k] >= least else scratch[k]
    return least


@njit(**PART)
def scale_columns(P, prior, tau, z, groups):
    """For columns drawn one by one: A's diagonal becomes its inverse, z is divided by its root."""
    one = splat(np.float32(1.0))
    for g in range(_U(0), groups, _LANES):
        a00, a10, a11, a20, a21, a22, a30, a31, a32, a33 = read_parts(
            P, prior, splat(tau), g, groups
        )
        i0, i1, i2, i3 = one / a00, one / a11, one / a22, one / a33
        store(z, g, load(z, g) * root(i0))
        store(z, g + groups, load(z, g + groups) * root(i1))
        store(z, g + _U(2) * groups, load(z, g + _U(2) * groups) * root(i2))
        store(z, g + _U(3) * groups, load(z, g + _U(3) * groups) * root(i3))
        store(P, g, i0)
        store(P, g + groups, a10)
        store(P, g + _U(2) * groups, i1)
        store(P, g + _U(3) * groups, a20)
        store(P, g + _U(4) * groups, a21)
        store(P, g + _U(5) * groups, i2)
        store(P, g + _U(6) * groups, a30)
        store(P, g + _U(7) * groups, a31)
        store(P, g + _U(8) * groups, a32)
        store(P, g + _U(9) * groups, i3)


@njit(**PART)
def move(x, stride, e, column, n, delta):
    """e -= (four columns of x) . delta. Returns the sum of squares of what is left."""
    d0, d1, d2, d3 = splat(-delta[0]), splat(-delta[1]), splat(-delta[2]), splat(-delta[3])
    p = column * stride
    q, r, s = p + stride, p + _U(2) * stride, p + _U(3) * stride
    squares = np.float64(0.0)
    for first in range(_U(0), n, _U(CHUNK)):
        lanes = splat(np.float32(0.0))
        for k in range(first, min(first + _U(CHUNK), n), _LANES):
            left = fma(d0, load(x, p + k), fma(d1, load(x, q + k), load(e, k)))
            left = fma(d2, load(x, r + k), fma(d3, load(x, s + k), left))
            store(e, k, left)
            lanes = fma(left, left, lanes)
        squares += total(lanes)
    return squares


@njit(**PART)
def move_and_project(x, stride, e, column, n, delta, target):
    """e -= (the four columns before `column`) . delta; target = (four columns from there) . e.

    For the first group `delta` is zero.
    """
    d0, d1, d2, d3 = splat(-delta[0]), splat(-delta[1]), splat(-delta[2]), splat(-delta[3])
    p = column * stride
    q, r, s = p + stride, p + _U(2) * stride, p + _U(3) * stride
    back = _U(GROUP) * stride if column > _U(0) else _U(0)
    clear(target)
    for first in range(_U(0), n, _U(CHUNK)):
        t0 = t1 = t2 = t3 = splat(np.float32(0.0))
        for k in range(first, min(first + _U(CHUNK), n), _LANES):
            j = k - back
            left = fma(d0, load(x, p + j), fma(d1, load(x, q + j), load(e, k)))
            left = fma(d2, load(x, r + j), fma(d3, load(x, s + j), left))
            store(e, k, left)
            t0 = fma(left, load(x, p + k), t0)
            t1 = fma(left, load(x, q + k), t1)
            t2 = fma(left, load(x, r + k), t2)
            t3 = fma(left, load(x, s + k), t3)
        target[0] += total(t0)
        target[1] += total(t1)
        target[2] += total(t2)
        target[3] += total(t3)


@njit(**PART)
def step_joint(P, z, g, groups, target, more, fresh, mean, delta):
    """Step to the group's conditional mean, and step to the draw (over-relaxed, with noise)."""
    t0, t1, t2, t3 = target[0], target[1], target[2], target[3]
    p10, p20, p30 = P[g + groups], P[g + _U(3) * groups], P[g + _U(6) * groups]
    p21, p31, p32 = P[g + _U(4) * groups], P[g + _U(7) * groups], P[g + _U(8) * groups]
    mean[0] = P[g] * t0 + p10 * t1 + p20 * t2 + p30 * t3
    mean[1] = p10 * t0 + P[g + _U(2) * groups] * t1 + p21 * t2 + p31 * t3
    mean[2] = p20 * t0 + p21 * t1 + P[g + _U(5) * groups] * t2 + p32 * t3
    mean[3] = p30 * t0 + p31 * t1 + p32 * t2 + P[g + _U(9) * groups] * t3
    for c in range(_U(GROUP)):
        delta[c] = more * mean[c] + fresh * z[g + c * groups]


@njit(**PART)
def step_single(P, z, g, groups, target, more, fresh, mean, delta):
    """Steps to each column's conditional mean and to its draw, one column after the other."""
    at = g
    for c in range(_U(GROUP)):
        for b in range(c):
            target[c] -= P[at] * delta[b]
            at += groups
        mean[c] = P[at] * target[c]
        at += groups
        delta[c] = more * mean[c] + fresh * z[g + c * groups]


@njit(**PART)
def add_pull(pull, Lambda, width, column, delta, at):
    """pull += Lambda[:, four columns] . delta[at : at + 4]."""
    d0, d1 = splat(delta[at]), splat(delta[at + _U(1)])
    d2, d3 = splat(delta[at + _U(2)]), splat(delta[at + _U(3)])
    p = column * width
    for d in range(_U(0), width, _LANES):
        new = fma(d0, load(Lambda, p + d), load(pull, d))
        new = fma(d1, load(Lambda, p + width + d), new)
        new = fma(d2, load(Lambda, p + _U(2) * width + d), new)
        store(pull, d, fma(d3, load(Lambda, p + _U(3) * width + d), new))


@njit(**PART)
def set_sums(row_stats, e, root, t, up, own_bias):
    """Set the sums of a row's ratings from their errors e and targets t (gather.FT ...)."""
    b = splat(own_bias)
    ft = rt = ff = fr = rr = np.float64(0.0)
    for first in range(_U(0), up, _U(CHUNK)):
        v0 = v1 = v2 = v3 = v4 = splat(np.float32(0.0))
        for k in range(first, min(first + _U(CHUNK), up), _LANES):
            r, x = load(root, k), load(t, k)
            f = x - b * r - load(e, k)
            v0 = fma(f, x, v0)
            v1 = fma(r, x, v1)
            v2 = fma(f, f, v2)
            v3 = fma(f, r, v3)
            v4 = fma(r, r, v4)
        ft += total(v0)
        rt += total(v1)
        ff += total(v2)
        fr += total(v3)
        rr += total(v4)
    row_stats[FT], row_stats[FF] = ft, ff
    row_stats[BT], row_stats[FB], row_stats[BB] = (
        own_bias * rt,
        own_bias * fr,
        own_bias * own_bias * rr,
    )


@njit(**ENTRY)
def draw_columns(out, means, row_stats, chosen, ratings, prior, sweep, single, lost):
    """Draw the chosen rows by columns.

    `prior` is that of `column_prior`. `out` holds the old rows and gets the new ones, `means` gets
    the conditional means, `row_stats` the sums of each row's ratings (gather.SSE and so on, or that
    alone). Columns are drawn in groups, or each by itself if `single`. A row whose matrices single
    precision cannot factor stays as it is, and is marked as `lost`.
    """
    number, starts = ratings.number, ratings.starts
    n_factors, taus, relax, (round_, word, key) = sweep
    mu, Lambda, blocks = prior
    width, padded_width = out.shape[1], _U(mu.shape[0])
    gathered = _U((n_factors + LANES - 1) // LANES * LANES)
    groups, most = _U(blocks.shape[0] // PARTS), 0
    n_groups = _U((width + GROUP - 1) // GROUP)
    for row in chosen:
        n = starts[row + 1] - starts[row]
        most = n if n > most else most
    x = np.empty((padded_width + _LANES) * _U(most + 2 * LANES), np.float32)
    e, at = np.empty(most + LANES, np.float32), np.empty(most + LANES, np.uint64)
    root = np.empty(most + LANES, np.float32)
    t = np.empty(most + LANES if row_stats.shape[1] > 1 else 0, np.float32)
    nothing = np.empty(0, np.float32)
    P, z = np.empty(PARTS * groups, np.float32), np.empty(GROUP * groups, np.float32)
    u, dev = np.zeros(padded_width, np.float32), np.zeros(padded_width, np.float32)
    mid, pull = np.zeros(padded_width, np.float32), np.zeros(padded_width, np.float32)
    delta, target = np.zeros(GROUP, np.float32), np.zeros(GROUP, np.float32)
    mean = np.zeros(GROUP, np.float32)
    more, fresh = np.float32(1.0 + relax), np.float32(np.sqrt(1.0 - relax * relax))
    own_bias = np.float32(0.0)
    for row in chosen:
        lo, n, tau = starts[row], starts[row + 1] - starts[row], np.float32(taus[row])
        up = _U((n + LANES - 1) // LANES * LANES)
        # An odd number of vectors, because columns a power of two apart share cache sets.
        stride = up if up // _LANES % _U(2) == _U(1) else up + _LANES
        for d in range(width):
            u[d], dev[d] = -out[row, d], out[row, d] - mu[d]
        if width > n_factors:
            u[n_factors] = np.float32(0.0)
            own_bias = -out[row, n_factors]
        gather(Gathered(x, stride, e, at, root, t), ratings, gathered, lo, n, u, own_bias)
        if width > n_factors:
            fill_column(x, _U(n_factors) * stride, root, up)
        for c in range(max(gathered, _U(width)), _U(GROUP) * n_groups):
            fill_column(x, c * stride, nothing, up)
        fill_normals(z, groups, number[row], round_, word, key[0], key[1])
        clear(P)
        clear(pull)
        clear(delta)
        for g in range(n_groups):
            add_group(P, g, groups, x, stride, _U(GROUP) * g, up)
        if single:
            scale_columns(P, blocks, tau, z, groups)
        elif not factor_groups(P, blocks, tau, z, groups):
            lost[row] = True
            continue
        for g in range(n_groups):
            add_pull(pull, Lambda, padded_width, _U(GROUP) * g, dev, _U(GROUP) * g)
        for g in range(n_groups):
            c = _U(GROUP) * g
            move_and_project(x, stride, e, c, up, delta, target)
            for d in range(_U(GROUP)):
                target[d] = tau * target[d] - pull[c + d]
            if single:
                step_single(P, z, g, groups, target, more, fresh, mean, delta)
            else:
                step_joint(P, z, g, groups, target, more, fresh, mean, delta)
            add_pull(pull, Lambda, padded_width, c, delta, _U(0))
            for d in range(_U(GROUP)):
                mid[c + d] = dev[c + d] + mean[d]
                dev[c + d] += delta[d]
        row_stats[row, SSE] = move(x, stride, e, _U(GROUP) * (n_groups - _U(1)), up, delta)
        for d in range(width):
            out[row, d], means[row, d] = dev[d] + mu[d], mid[d] + mu[d]
        own_bias = out[row, n_factors] if width > n_factors else np.float32(0.0)
        if row_stats.shape[1] > 1:
            set_sums(row_stats[row], e, root, t, up, own_bias)


def column_prior(mu: NDArray[np.float64], Lambda: NDArray[np.float64]) -> tuple[Rows, Rows, Rows]:
    """Mean, matrix of precisions, and its blocks, group by group: padded, and flat."""
    width, padded_width = len(mu), padded(len(mu))
    matrix = np.eye(padded_width, dtype=np.float32)
    matrix[:width, :width] = np.diag(Lambda) if Lambda.ndim == 1 else Lambda
    n_groups = -(-width // GROUP)
    # Padding groups have the identity.
    blocks = np.repeat((LOWER[0] == LOWER[1]).astype(np.float32), padded(n_groups), axis=1)
    at = GROUP * np.arange(n_groups)
    blocks[:, :n_groups] = matrix[LOWER[0] + at, LOWER[1] + at]
    mean = np.zeros(padded_width, np.float32)
    mean[:width] = mu
    return mean, matrix.ravel(), blocks.ravel()
