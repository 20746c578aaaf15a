"""Compiled predictions of pairs, row by row: means, and variances due to the row itself.

Pairs are in the order of their rows, those of row k from starts[k] to starts[k + 1]; `slot` is the
row of the other side in a `PaddedRows`, whose last row is zero. Row k is stored at place[k]. The
result for a pair does not depend on the other pairs.
"""

from __future__ import annotations

import numpy as np

from bayesmf.kernels.gather import Gathered, transpose_rows
from bayesmf.kernels.jit import ENTRY, PART, njit
from bayesmf.kernels.simd import LANES, fma, load, splat, store
from bayesmf.kernels.simd import total as lane_sum

_U = np.uint64
_LANES = np.uint64(LANES)
MOST = 128  # pairs processed together: their regressors fit the first-level cache


@njit(**ENTRY)
def pad_draws(rows, which, n_factors, features, bias):
    """Fill a `PaddedRows` with rows which[k] of each draw; those of -1, and the last, are zero.

    features[t] has a padded row for each of `which` and one more, bias[t] as many numbers.
    """
    width = features.shape[1] // bias.shape[1]
    for t in range(rows.shape[0]):
        for k in range(bias.shape[1]):
            j = which[k] if k < which.shape[0] else -1
            for d in range(width):
                known = j >= 0 and d < n_factors
                features[t, k * width + d] = rows[t, j, d] if known else np.float32(0.0)
            has_bias = j >= 0 and rows.shape[2] > n_factors
            bias[t, k] = rows[t, j, n_factors] if has_bias else np.float32(0.0)


@njit(**PART)
def pad_row(rows, k, t, n_factors, u):
    """u = the features of row k under draw t, then zeros; returns its bias, 0 where it has none."""
    for d in range(u.shape[0]):
        u[d] = rows[k, t, d] if d < n_factors else np.float32(0.0)
    return rows[k, t, n_factors] if rows.shape[2] > n_factors else np.float32(0.0)


@njit(**ENTRY)
def sum_pair_means(rows, place, starts, slot, given, n_factors, out):
    """out[n] += row . features + both biases, for the pairs of all rows, summed over draws."""
    width = _U((n_factors + LANES - 1) // LANES * LANES)
    u = np.zeros(width, np.float32)
    for t in range(rows.shape[1]):
        features, bias = given.features[t], given.bias[t]
        for k in range(place.shape[0]):
            if starts[k] == starts[k + 1]:
                continue
            own = pad_row(rows, place[k], t, n_factors, u)
            for n in range(starts[k], starts[k + 1]):
                out[n] += np.float64(own + bias[_U(slot[n])] + dot(u, features, slot[n], width))


@njit(**PART)
def dot(u, features, j, width):
    """u . features of row j."""
    sums, at = splat(np.float32(0.0)), _U(j) * width
    for c in range(_U(0), width, _LANES):
        sums = fma(load(u, c), load(features, at + c), sums)
    return lane_sum(sums)


@njit(**ENTRY)
def pair_components(rows, factors, place, starts, slot, given, n_factors, noise, mu, var):
    """Mean mu[t, n] and variance var[t, n] of a new rating of pair n under draw t.

    Row k is N(rows[place[k], t], (L L^T)^-1) with L from `factors`, those of `solve_rows`: so the
    variance is |L^-1 x|^2 + noise[k, t] / w, x = [features, 1], w the weight of the partner's
    ratings. Without factors rows are points.
    """
    row_width, spread = rows.shape[2], factors.shape[0] > 0
    width = _U((n_factors + LANES - 1) // LANES * LANES)
    # An odd number of vectors, because columns a power of two apart share cache sets.
    stride = _U(MOST + LANES)
    x = np.empty(max(width, _U(row_width)) * stride, np.float32)
    e, at = np.empty(MOST, np.float32), np.empty(MOST, np.uint64)
    u, root = np.zeros(width, np.float32), np.ones(MOST, np.float32)
    for t in range(rows.shape[1]):
        features, bias, weight = given.features[t], given.bias[t], given.root[t]
        for k in range(place.shape[0]):
            if starts[k] == starts[k + 1]:
                continue
            own = pad_row(rows, place[k], t, n_factors, u)
            for lo in range(starts[k], starts[k + 1], MOST):
                n = min(MOST, starts[k + 1] - lo)
                up = gather_pairs(x, stride, e, at, root, features, bias, slot, lo, n, u, own)
                for p in range(n):
                    w = weight[_U(slot[lo + p])]
                    mu[t, lo + p] = e[p]
                    var[t, lo + p] = noise[k, t] / (w * w)
                if spread:
                    if row_width > n_factors:
                        for p in range(up):
                            x[_U(n_factors) * stride + p] = np.float32(1.0)
                    add_spreads(factors[place[k], t], x, stride, _U(row_width), up, e)
                    for p in range(n):
                        var[t, lo + p] += e[p]


@njit(**PART)
def gather_pairs(x, stride, e, at, root, features, bias, slot, lo, n, u, own):
    """Regressors of n pairs from lo on, column by column, and e = their predictions.

    Pairs are padded with zeros to a multiple for `add_spreads`; returns the padded number.
    """
    width, up = _U(u.shape[0]), _U((n + 2 * LANES - 1) // (2 * LANES) * (2 * LANES))
    for p in range(_U(n)):
        j = _U(slot[_U(lo) + p])
        at[p], e[p] = j * width, own + bias[j]
    for p in range(_U(n), up):
        at[p], e[p] = _U(bias.shape[0] - 1) * width, np.float32(0.0)
    for p in range(_U(0), up, _LANES):
        transpose_rows(Gathered(x, stride, e, at, root, root[:0]), features, width, p, u)
    return up


@njit(**PART)
def add_spreads(factor, x, stride, width, n, out):
    """out = |L^-1 x|^2 of each column vector of x, which is overwritten: by four vectors, then two.

    Both sum in the same order.
    """
    p = _U(0)
    while p + _U(4) * _LANES <= n:
        spread_four(factor, x, stride, width, p, out)
        p += _U(4) * _LANES
    while p < n:
        spread_two(factor, x, stride, width, p, out)
        p += _U(2) * _LANES


@njit(**PART)
def spread_four(factor, x, stride, width, p, out):
    """`add_spreads` for four vectors of pairs from p on, two rows of L at a time.

    Loaded values serve both rows; eight running sums hide latency.
    """
    q0 = q1 = q2 = q3 = splat(np.float32(0.0))
    p1, p2, p3 = p + _LANES, p + _U(2) * _LANES, p + _U(3) * _LANES
    for c in range(_U(0), width & ~_U(1), _U(2)):
        f = c * (c + _U(1)) // _U(2)
        g = f + c + _U(1)
        y = c * stride
        a0, a1, a2, a3 = load(x, y + p), load(x, y + p1), load(x, y + p2), load(x, y + p3)
        y += stride
        b0, b1, b2, b3 = load(x, y + p), load(x, y + p1), load(x, y + p2), load(x, y + p3)
        for d in range(c):
            s, r, z = splat(-factor[f + d]), splat(-factor[g + d]), d * stride
            v0, v1, v2, v3 = load(x, z + p), load(x, z + p1), load(x, z + p2), load(x, z + p3)
            a0, a1, a2, a3 = fma(s, v0, a0), fma(s, v1, a1), fma(s, v2, a2), fma(s, v3, a3)
            b0, b1, b2, b3 = fma(r, v0, b0), fma(r, v1, b1), fma(r, v2, b2), fma(r, v3, b3)
        s, r = splat(factor[f + c]), splat(-factor[g + c])
        a0, a1, a2, a3 = a0 * s, a1 * s, a2 * s, a3 * s
        q0, q1, q2, q3 = fma(a0, a0, q0), fma(a1, a1, q1), fma(a2, a2, q2), fma(a3, a3, q3)
        b0, b1, b2, b3 = fma(r, a0, b0), fma(r, a1, b1), fma(r, a2, b2), fma(r, a3, b3)
        s = splat(factor[g + c + _U(1)])
        b0, b1, b2, b3 = b0 * s, b1 * s, b2 * s, b3 * s
        q0, q1, q2, q3 = fma(b0, b0, q0), fma(b1, b1, q1), fma(b2, b2, q2), fma(b3, b3, q3)
        store(x, y + p, b0)
        store(x, y + p1, b1)
        store(x, y + p2, b2)
        store(x, y + p3, b3)
        y -= stride
        store(x, y + p, a0)
        store(x, y + p1, a1)
        store(x, y + p2, a2)
        store(x, y + p3, a3)
    if width & _U(1):
        y0, y1 = last_row(factor, x, stride, width, p), last_row(factor, x, stride, width, p1)
        y2, y3 = last_row(factor, x, stride, width, p2), last_row(factor, x, stride, width, p3)
        q0, q1, q2, q3 = fma(y0, y0, q0), fma(y1, y1, q1), fma(y2, y2, q2), fma(y3, y3, q3)
    store(out, p, q0)
    store(out, p1, q1)
    store(out, p2, q2)
    store(out, p3, q3)


@njit(**PART)
def last_row(factor, x, stride, width, p):
    """Entry width - 1 of L^-1 x, given those before it, for a vector of pairs from p on."""
    c = width - _U(1)
    f = c * width // _U(2)
    a = load(x, c * stride + p)
    for d in range(c):
        a = fma(splat(-factor[f + d]), load(x, d * stride + p), a)
    return a * splat(factor[f + c])


@njit(**PART)
def spread_two(factor, x, stride, width, p, out):
    """`add_spreads` for two vectors of pairs from p on, two rows of L at a time."""
    q0 = q1 = splat(np.float32(0.0))
    p1 = p + _LANES
    for c in range(_U(0), width & ~_U(1), _U(2)):
        f = c * (c + _U(1)) // _U(2)
        g = f + c + _U(1)
        y = c * stride
        a0, a1 = load(x, y + p), load(x, y + p1)
        b0, b1 = load(x, y + stride + p), load(x, y + stride + p1)
        for d in range(c):
            s, r, z = splat(-factor[f + d]), splat(-factor[g + d]), d * stride
            v0, v1 = load(x, z + p), load(x, z + p1)
            a0, a1, b0, b1 = fma(s, v0, a0), fma(s, v1, a1), fma(r, v0, b0), fma(r, v1, b1)
        s, r = splat(factor[f + c]), splat(-factor[g + c])
        a0, a1 = a0 * s, a1 * s
        q0, q1, b0, b1 = fma(a0, a0, q0), fma(a1, a1, q1), fma(r, a0, b0), fma(r, a1, b1)
        s = splat(factor[g + c + _U(1)])
        b0, b1 = b0 * s, b1 * s
        q0, q1 = fma(b0, b0, q0), fma(b1, b1, q1)
        store(x, y + p, a0)
        store(x, y + p1, a1)
        store(x, y + stride + p, b0)
        store(x, y + stride + p1, b1)
    if width & _U(1):
        y0, y1 = last_row(factor, x, stride, width, p), last_row(factor, x, stride, width, p1)
        q0, q1 = fma(y0, y0, q0), fma(y1, y1, q1)
    store(out, p, q0)
    store(out, p1, q1)


@njit(**ENTRY)
def unseen_spreads(rows, factors, place, covariance, roots, n_factors, out):
    """out[k, t] = variance that an unseen partner adds to a rating of row k.

    The partner's row is N(., covariance[t]), and roots[t] the Cholesky factor of its features'
    covariance C: that is x^T covariance x with x = [row's features, 1], and tr(A^-1 C).
    """
    width, spread = rows.shape[2], factors.shape[0] > 0
    x, y = np.empty(width), np.empty(width)
    for k in range(place.shape[0]):
        for t in range(rows.shape[1]):
            total = 0.0
            for d in range(width):
                x[d] = np.float64(rows[place[k], t, d]) if d < n_factors else 1.0
            for d in range(width):
                for e in range(width):
                    total += x[d] * covariance[t, d, e] * x[e]
            for c in range(n_factors if spread else 0):
                at = 0
                for d in range(width):
                    value = roots[t, d, c] if d < n_factors else 0.0
                    for e in range(d):
                        value -= factors[place[k], t, at] * y[e]
                        at += 1
                    y[d] = value * factors[place[k], t, at]
                    at += 1
                    total += y[d] * y[d]
            out[k, t] = total


@njit(**ENTRY)
def draw_from_factors(rows, factors, z, out):
    """out[k, t] = rows[k, t] + L^-T z[k, t]: draws from the posteriors of rows."""
    width = rows.shape[2]
    y = np.empty(width)
    for k in range(rows.shape[0]):
        for t in range(rows.shape[1]):
            for d in range(width):
                y[d] = z[k, t, d]
            for d in range(width - 1, -1, -1):
                first = d * (d + 1) // 2
                y[d] *= np.float64(factors[k, t, first + d])
                for e in range(d):
                    y[e] -= np.float64(factors[k, t, first + e]) * y[d]
            for d in range(width):
                out[k, t, d] = rows[k, t, d] + y[d]
