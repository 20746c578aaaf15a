"""Compiled predictions of pairs, row by row: their means, and what is not known of the row itself.

Pairs stand in the order of their rows, those of row k from starts[k] to starts[k + 1]; `slot` tells
the row of the other side in a `Given`, whose last row is zero. Rows are read at place[k]: they may
lie anywhere. What is computed for a pair does not depend on which others are asked for.
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


@njit(**ENTRY)
def lay_out_draws(rows, which, n_factors, features, bias):
    """Fill a `Given` with rows which[k] of each draw; those of -1, and the last, are zero.

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
def lay_row(rows, k, t, n_factors, u):
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
            own = lay_row(rows, place[k], t, n_factors, u)
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
    variance is |L^-1 x|^2 + noise[t], x = [features, 1]. Without factors rows are points.
    """
    row_width, spread = rows.shape[2], factors.shape[0] > 0
    width = _U((n_factors + LANES - 1) // LANES * LANES)
    # An odd number of vectors: columns that are a power of two apart would share cache sets.
    stride = _U(MOST + LANES)
    x = np.empty(max(width, _U(row_width)) * stride, np.float32)
    e, at = np.empty(MOST, np.float32), np.empty(MOST, np.uint64)
    u = np.zeros(width, np.float32)
    for t in range(rows.shape[1]):
        features, bias = given.features[t], given.bias[t]
        for k in range(place.shape[0]):
            if starts[k] == starts[k + 1]:
                continue
            own = lay_row(rows, place[k], t, n_factors, u)
            for lo in range(starts[k], starts[k + 1], MOST):
                n = min(MOST, starts[k + 1] - lo)
                up = bring(x, stride, e, at, features, bias, slot, lo, n, u, own)
                for p in range(n):
                    mu[t, lo + p] = e[p]
                    var[t, lo + p] = noise[t]
                if spread:
                    if row_width > n_factors:
                        for p in range(up):
                            x[_U(n_factors) * stride + p] = np.float32(1.0)
                    add_spreads(factors[place[k], t], x, stride, _U(row_width), up, e)
                    for p in range(n):
                        var[t, lo + p] += e[p]


@njit(**PART)
def bring(x, stride, e, at, features, bias, slot, lo, n, u, own):
    """Regressors of n pairs from lo on, column by column, and e = their predictions.

    Pairs are rounded up, by zeros, to what `add_spreads` takes at a time; that is returned.
    """
    width, up = _U(u.shape[0]), _U((n + 4 * LANES - 1) // (4 * LANES) * (4 * LANES))
    for p in range(_U(n)):
        j = _U(slot[_U(lo) + p])
        at[p], e[p] = j * width, own + bias[j]
    for p in range(_U(n), up):
        at[p], e[p] = _U(bias.shape[0] - 1) * width, np.float32(0.0)
    for p in range(_U(0), up, _LANES):
        turn_rows(Gathered(x, stride, e, at), features, width, p, u)
    return up


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
def unseen_spreads(rows, factors, place, covariance, roots, n_factors, out):
    """out[k, t] = what a partner that nobody has seen adds to the variance of row k's rating.

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
