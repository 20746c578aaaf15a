"""Compiled mini-batch updates of the rules in clocks.py: every row runs by its own clock.

One row step serves three rules. It is the splitting "kick, drift, friction and noise, drift" of
Langevin dynamics (BAOAB, Leimkuhler and Matthews 2013) with a diagonal preconditioner P:

    kick      u1 = u + r g            r = sqrt(eta P)
    friction  u2 = c u1 + sqrt(1 - c^2) sqrt(1 - s) z
    drift     x += r (u1 + u2) / 2,   u = u2

For a Gaussian posterior the law of x is exact in every direction, whatever its curvature and
however long the step, up to where it is no longer stable: no error of discretisation is left, only
the mini-batch's noise, which s takes away. At c = 0 (RowClock) u is the last visit's noise and
this is x += eta/2 P g + sqrt(eta P) (z_before + z) / 2. A plain twin is in tests/test_row_clock.py.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bayesmf.kernels import Batches, draw_sorted, gather_run, make_work
from bayesmf.keys import FAST, fill_normals

_JIT: Any = {"nogil": True, "cache": True, "fastmath": FAST, "error_model": "numpy"}


class ClockSide(NamedTuple):
    """One side (users or items) of a block, as an update sees it."""

    rows: NDArray[np.float32]  # updated in place
    momenta: NDArray[np.float32]  # updated in place; the column after the last is the thermostat
    numbers: NDArray[np.int32]  # row numbers in the whole matrix: the random numbers' keys
    n: NDArray[np.float32]  # ratings of the row in all blocks
    factor: NDArray[np.float32]  # of the likelihood's gradient, with tau in it
    eta: NDArray[np.float32]  # step; 0 holds the row
    keep: NDArray[np.float32]  # c, the share of the momentum that friction leaves
    share: NDArray[np.float32]  # s, before the likelihood's share of the curvature
    mu: NDArray[np.float32]
    Lambda: NDArray[np.float32]  # diagonal or matrix
    diagonal: NDArray[np.float32]  # of Lambda
    stiffness: NDArray[np.float32]  # tau m_d: curvature that one rating brings to a column
    gain: np.float32  # of the thermostat; 0 for a friction that stays
    stream: np.uint32


@njit(**_JIT)
def step_row(X, M, i, gradient, pull, rate, z, row, mu, Lambda, diagonal, stiffness, gain):
    """One visit to a row; `row` is (factor, n, eta, keep, share), its own numbers.

    With a thermostat (gain > 0) the friction is what the thermostat has come to, the noise as for
    friction `keep`: heat that mini-batches bring is met by friction without being known beforehand.
    `share` is then what the momenta may be hotter than one.
    """
    factor, n, eta, keep, share = row
    width = X.shape[1]
    one, half, zero = np.float32(1.0), np.float32(0.5), np.float32(0.0)
    if Lambda.ndim == 1:
        for d in range(width):
            pull[d] = Lambda[d] * (X[i, d] - mu[d])
    else:
        for d in range(width):
            pull[d] = zero
            for e in range(width):
                pull[d] += Lambda[d, e] * (X[i, e] - mu[e])
    known, pace = share, np.sqrt(eta)
    friction, spread = keep, one - keep * keep
    if gain > 0:
        friction = keep * np.exp(-pace * M[i, width])
        share = zero
    # Short loops that each write to one or two arrays: more, and the compiler gives up proving
    # that they do not overlap, and with it vector code.
    goal = zero
    for d in range(width):
        data = n * stiffness[d]
        P = one / (data + diagonal[d])
        rate[d] = math.sqrt(eta * P)
        z[d] *= math.sqrt(spread * max(one - share * data * P, zero))
        goal += data * P
    kinetic = zero
    for d in range(width):
        before = M[i, d] + rate[d] * (factor * gradient[d] - pull[d])
        after = friction * before + z[d]
        M[i, d] = after
        pull[d] = half * (before + after)
        kinetic += before * before + after * after
    for d in range(width):
        X[i, d] += rate[d] * pull[d]
    if gain > 0:
        # Bounded: a row that sets out far from home must not take long to cool down from its fall.
        heat = half * kinetic / width - (one + known * goal / width)
        M[i, width] += gain * pace * min(heat, np.float32(4.0))


@njit(**_JIT)
def update_batch(data, lo, hi, users, items, n_factors, iteration, key, work):
    """One mini-batch: gradients of all its rows at the old state, then their updates.

    A user's ratings are one run, so a user is updated when its run ends and its old row is
    needed no more; items gather their gradients until the end. Returns the sum of squared errors.
    """
    gradient, item_gradient, touched, seen, z, pull = work
    rate = np.empty_like(pull)
    # Local names: a tuple's array costs a reference count each time it is named in a loop.
    user, item, value = data.user, data.item, data.value
    X, x_M, x_eta, x_n, x_factor, x_keep, x_share = row_arrays(users)
    Y, y_M, y_eta, y_n, y_factor, y_keep, y_share = row_arrays(items)
    x_mu, x_Lambda, x_diagonal, x_stiffness = column_arrays(users)
    y_mu, y_Lambda, y_diagonal, y_stiffness = column_arrays(items)
    n_quads = (X.shape[1] + 3) // 4
    sse = 0.0
    n_touched = 0
    n = lo
    while n < hi:
        i = user[n]
        gradient[:] = np.float32(0.0)
        n, n_touched, run_sse = gather_run(
            user, item, value, n, hi, X, Y, n_factors, gradient, item_gradient, touched, n_touched,
            seen,
        )  # fmt: skip
        sse += run_sse
        if x_eta[i] > 0:
            fill_normals(z, n_quads, users.numbers[i], iteration, users.stream, key[0], key[1])
            row = (x_factor[i], x_n[i], x_eta[i], x_keep[i], x_share[i])
            step_row(
                X, x_M, i, gradient, pull, rate, z, row, x_mu, x_Lambda, x_diagonal, x_stiffness,
                users.gain,
            )  # fmt: skip
    for t in range(n_touched):
        j = touched[t]
        seen[j] = False
        sums = item_gradient[j]
        if y_eta[j] > 0:
            fill_normals(z, n_quads, items.numbers[j], iteration, items.stream, key[0], key[1])
            row = (y_factor[j], y_n[j], y_eta[j], y_keep[j], y_share[j])
            step_row(
                Y, y_M, j, sums, pull, rate, z, row, y_mu, y_Lambda, y_diagonal, y_stiffness,
                items.gain,
            )  # fmt: skip
        sums[:] = np.float32(0.0)
    return sse


@njit(inline="always")
def row_arrays(side):
    return side.rows, side.momenta, side.eta, side.n, side.factor, side.keep, side.share


@njit(inline="always")
def column_arrays(side):
    return side.mu, side.Lambda, side.diagonal, side.stiffness


@njit(**_JIT)
def run_clock_dealt(data, order, users, items, n_factors, first, key):
    """A round over dealt mini-batches, in the given order. Returns (sse, ratings read)."""
    work = make_work(items)
    sse, count = 0.0, 0
    for k in range(order.shape[0]):
        lo, hi = data.starts[order[k]], data.starts[order[k] + 1]
        sse += update_batch(data, lo, hi, users, items, n_factors, first + k, key, work)
        count += hi - lo
    return sse, count


@njit(**_JIT)
def run_clock_replacement(data, m, length, block, users, items, n_factors, first, key):
    """A round of mini-batches of m ratings drawn with replacement."""
    n = data.value.shape[0]
    work = make_work(items)
    index = np.empty(m, np.int64)
    drawn = Batches(
        np.empty(m, np.int32), np.empty(m, np.int32), np.empty(m, np.float32), data.starts
    )
    sse = 0.0
    for k in range(length):
        draw_sorted(index, n, first + k, block, key)
        for t in range(m):
            drawn.user[t] = data.user[index[t]]
            drawn.item[t] = data.item[index[t]]
            drawn.value[t] = data.value[index[t]]
        sse += update_batch(drawn, 0, m, users, items, n_factors, first + k, key, work)
    return sse, length * m
