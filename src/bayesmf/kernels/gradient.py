"""Compiled mini-batch updates of SGD, SGLD, SGHMC and SGNHT; pair predictions, column moments.

float32, no allocation inside a loop, the GIL released. (With float64 rows they compute in float64,
for tests to the last digit.) Plain twins: tests/helpers/naive.py and tests/helpers/batch_twins.py.

The rules differ only in the step of a row. With one step size for all rows it is a Langevin step,
or gradient ascent without noise (`langevin_step`). With momenta (`momentum_step`) it is the
splitting "kick, drift, friction and noise, drift" of Langevin dynamics (BAOAB, Leimkuhler
and Matthews 2013) with a diagonal preconditioner P:

    kick      u1 = u + r g            r = sqrt(eta P)
    friction  u2 = c u1 + sqrt(1 - c^2) sqrt(1 - s) z
    drift     x += r (u1 + u2) / 2,   u = u2

For a Gaussian posterior the stationary distribution of x is exact in every direction for any
curvature and any stable step: the only error is the mini-batch's noise, which s removes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.jit import ENTRY, EXACT, PART, njit
from bayesmf.kernels.keys import StreamCounter
from bayesmf.kernels.minibatch import (
    FlatRow,
    close_segment,
    draw_batch,
    draw_noise,
    gather_segment,
    open_segment,
    set_pull,
)
from bayesmf.kernels.simd import LANES, fma, larger, load, root, splat, store, total
from bayesmf.kernels.types import Rows

_U = np.uint64


class LangevinSide(NamedTuple):
    """One side (users or items) of a block under one step size; columns are padded."""

    rows: Rows  # updated in place
    numbers: NDArray[np.int32]  # row numbers in the whole matrix: the random numbers' keys
    weight: NDArray[np.float32]  # of the row's ratings: their precision over tau
    noise: NDArray[np.float32]  # noise variance in units of the step: 0, 1 or 1 / hbar
    mu: NDArray[np.float32]
    Lambda: NDArray[np.float32]  # diagonal or matrix
    stream: np.uint32
    step: np.float32  # epsilon; 0 holds this side fixed
    scale: np.float32  # of the mini-batch's gradient
    prior_weight: NDArray[np.float32]  # 1 / hbar
    momenta: None = None


class MomentumSide(NamedTuple):
    """One side of a block whose rows have momenta and steps of their own; columns are padded."""

    rows: Rows  # updated in place
    numbers: NDArray[np.int32]  # row numbers in the whole matrix: the random numbers' keys
    weight: NDArray[np.float32]  # of the row's ratings: their precision over tau
    noise: NDArray[np.float32]  # eta, the step; 0 holds the row and draws no noise
    mu: NDArray[np.float32]
    Lambda: NDArray[np.float32]  # diagonal or matrix
    stream: np.uint32
    momenta: Rows  # flat, updated in place
    heat: Rows  # of each row's thermostat, updated in place
    n: NDArray[np.float32]  # ratings of the row in all blocks, by weight
    factor: NDArray[np.float32]  # of the likelihood's gradient, with tau in it
    persistence: NDArray[np.float32]  # c, the share of the momentum that friction leaves
    share: NDArray[np.float32]  # s, before the likelihood's share of the curvature
    diagonal: NDArray[np.float32]  # of Lambda; 1 beyond the last column
    stiffness: NDArray[np.float32]  # tau m_d: curvature that one rating brings to a column
    gain: np.float32  # of the thermostat; 0 for constant friction
    step: None = None


@njit(**PART)
def step_row(row, i, step, momenta, gradient, z, side, pull, columns):
    """One visit to row i of a side; `row`, its `gradient` and noise `z` are `FlatRow`."""
    # One of `step` and `momenta` is None, and its branch is not compiled. An eta of 0 holds a row.
    if step is not None:
        langevin_step(row, i, step, gradient, z, side, pull, columns)
    if momenta is not None and side.noise[i] > 0:
        momentum_step(row, i, momenta, gradient, z, side, pull, columns)


@njit(**PART)
def langevin_step(row, i, epsilon, gradient, z, side, pull, columns):
    """x += epsilon/2 (scale gradient - prior_weight Lambda (x - mu)) + sqrt(epsilon noise) z."""
    X, at, z_array, z_at, g, g_at = (
        row.array, row.start, z.array, z.start, gradient.array, gradient.start,
    )  # fmt: skip
    kind, features, bias = X.dtype.type, columns.features, columns.bias
    half_step = kind(0.5) * epsilon
    likelihood, prior = half_step * side.scale, half_step * side.prior_weight[i]
    deviation = np.sqrt(epsilon * side.noise[i])
    set_pull(pull, X, at, side.mu, side.Lambda, columns.lanes)
    forth, back = splat(kind(likelihood)), splat(kind(prior))
    spread = splat(kind(deviation))
    for v in range(len(columns.lanes)):
        c = _U(LANES * v)
        new = fma(forth, load(g, g_at + c), load(X, at + c)) - back * load(pull, c)
        own = load(features, c) + load(bias, c)  # padding columns stay zero
        store(X, at + c, fma(spread * own, load(z_array, z_at + c), new))


@njit(**PART)
def momentum_step(row, i, M, gradient, z, side, pull, columns):
    """Kick, drift, friction and noise, drift; see above.

    With a thermostat (gain > 0) the friction is that of the thermostat, the noise that of the
    friction `persistence`: friction balances the unknown noise of mini-batches. `share` is then the
    excess temperature of the momenta.
    """
    X, at, z_array, z_at, g, g_at = (
        row.array, row.start, z.array, z.start, gradient.array, gradient.start,
    )  # fmt: skip
    kind, width = X.dtype.type, X.dtype.type(columns.width)
    diagonal, stiffness, heat = side.diagonal, side.stiffness, side.heat
    features, bias = columns.features, columns.bias
    eta, persistence, share = side.noise[i], side.persistence[i], side.share[i]
    set_pull(pull, X, at, side.mu, side.Lambda, columns.lanes)
    known, rate_of_row = share, np.sqrt(eta)
    friction = persistence
    if side.gain > 0:
        friction = persistence * np.exp(-rate_of_row * heat[i])
        share = kind(0.0)
    zero, one, half = splat(kind(0.0)), splat(kind(1.0)), splat(kind(0.5))
    each, delta, forth = splat(kind(side.n[i])), splat(kind(eta)), splat(kind(side.factor[i]))
    left, spread = splat(kind(friction)), splat(kind(kind(1.0) - persistence * persistence))
    there, goal, kinetic = splat(kind(share)), zero, zero
    for v in range(len(columns.lanes)):
        c = _U(LANES * v)
        data = each * load(stiffness, c)
        P = one / (data + load(diagonal, c))
        part = data * P
        rate = root(delta * P)
        own = load(features, c) + load(bias, c)  # padding columns stay zero
        random = root(spread * larger(one - there * part, zero)) * own * load(z_array, z_at + c)
        force = forth * load(g, g_at + c) - load(pull, c)
        before = fma(rate, force, load(M, at + c))
        after = fma(left, before, random)
        store(M, at + c, after)
        store(X, at + c, fma(rate * half, before + after, load(X, at + c)))
        goal = goal + part
        kinetic = fma(before, before, fma(after, after, kinetic))
    if side.gain > 0:
        # Bounded, so that bad starts do not overheat.
        hotter = kind(0.5) * total(kinetic) / width - (kind(1.0) + known * total(goal) / width)
        heat[i] += side.gain * rate_of_row * min(hotter, kind(4.0))


@njit(**ENTRY, forceinline=True)
def update_batch(batches, segments, users, items, columns, iteration, key, scratch):
    """One mini-batch, the segments (first, end): gradients at the old state, then updates.

    A user is updated at the end of its segment; items accumulate gradients until the end of the
    mini-batch. Returns the sum of squared errors.
    """
    # Local names avoid a reference count for each access to a tuple's array in a loop.
    segment_user, lanes, noise = batches.segment_user, columns.lanes, users.noise
    gradient, z, momenta = scratch.gradient, scratch.noise.z, users.momenta
    X, Y = users.rows.reshape(-1), items.rows.reshape(-1)
    own, other = users.weight, items.weight
    room, padded_width = _U(scratch.noise.number.shape[0]), _U(LANES * len(lanes))
    biased, zero = columns.width > columns.n_factors, X.dtype.type(0.0)
    still = _U(z.shape[0]) - padded_width
    sse, n_touched, counter = 0.0, _U(0), StreamCounter(iteration, users.stream, key)
    for first in range(_U(segments[0]), _U(segments[1]), room):
        last = min(first + room, _U(segments[1]))
        draw_noise(segment_user, first, last, noise, users.numbers, scratch.noise, columns, counter)
        drawn = _U(0)
        for k in range(first, last):
            i = _U(segment_user[k])
            at = i * padded_width
            open_segment(X, at, scratch.x, gradient, columns)
            a = X[at + _U(columns.n_factors)] if biased else zero
            n_touched, errors, squares = gather_segment(
                batches, k, a, own[i], Y, other, n_touched, scratch, lanes
            )
            sse += np.float64(squares)
            close_segment(gradient, errors, columns)
            noisy = noise[i] > 0
            step_row(
                FlatRow(X, at), i, users.step, momenta, FlatRow(gradient, _U(0)),
                FlatRow(z, drawn if noisy else still), users, scratch.pull, columns,
            )  # fmt: skip
            drawn += padded_width if noisy else _U(0)
    update_items(Y, n_touched, items, columns, StreamCounter(iteration, items.stream, key), scratch)
    return sse


@njit(**PART)
def update_items(Y, n_touched, items, columns, counter, scratch):
    """Update the items of a mini-batch by their accumulated gradients."""
    lanes, noise, z, momenta = columns.lanes, items.noise, scratch.noise.z, items.momenta
    gradients, touched, is_touched = scratch.item_gradients, scratch.touched, scratch.is_touched
    room, padded_width = _U(scratch.noise.number.shape[0]), _U(LANES * len(lanes))
    still = _U(z.shape[0]) - padded_width
    for first in range(_U(0), n_touched, room):
        last = min(first + room, n_touched)
        draw_noise(touched, first, last, noise, items.numbers, scratch.noise, columns, counter)
        drawn = _U(0)
        for t in range(first, last):
            j = _U(touched[t])
            is_touched[j], at = 0, j * padded_width
            noisy = noise[j] > 0
            step_row(
                FlatRow(Y, at), j, items.step, momenta, FlatRow(gradients, at),
                FlatRow(z, drawn if noisy else still), items, scratch.pull, columns,
            )  # fmt: skip
            drawn += padded_width if noisy else _U(0)
            for v in range(len(lanes)):
                store(gradients, at + _U(LANES * v), splat(Y.dtype.type(0.0)))


@njit(**ENTRY)
def run_dealt(batches, order, users, items, columns, first, key, scratch):
    """Update by the dealt mini-batches order[0], order[1], ..., in iterations from `first` on.

    Returns the sum of squared errors along the way, and the number of ratings read.
    """
    sse, count = 0.0, 0
    for k in range(order.shape[0]):
        own = batches.starts[order[k]], batches.starts[order[k] + 1]
        sse += update_batch(batches, own, users, items, columns, first + k, key, scratch)
        count += batches.segment_starts[own[1]] - batches.segment_starts[own[0]]
    return sse, count


@njit(**ENTRY)
def run_replacement(batches, room, length, block, users, items, columns, first, key, scratch):
    """Update by `length` mini-batches drawn with replacement, as the paper samples them.

    `room` is that of `room_for`. Returns what `run_dealt` does.
    """
    index, drawn = room
    sse = 0.0
    for k in range(length):
        own = np.int64(0), np.int64(draw_batch(index, drawn, batches, first + k, block, key))
        sse += update_batch(drawn, own, users, items, columns, first + k, key, scratch)
    return sse, length * index.shape[0]


@njit(inline="always")
def predict(X, i, Y, j, n_factors):
    """U_i . V_j + a_i + b_j."""
    total = np.float32(0.0)
    for d in range(n_factors):
        total += X[i, d] * Y[j, d]
    if X.shape[1] > n_factors:
        total += X[i, n_factors] + Y[j, n_factors]
    return total


@njit(**ENTRY)
def predict_pairs(user_rows, item_rows, user, item, n_factors, out):
    """out[n] = prediction of the pair (user[n], item[n]), for known rows."""
    for n in range(user.shape[0]):
        out[n] = predict(user_rows, user[n], item_rows, item[n], n_factors)


@njit(**EXACT)
def column_squares(rows):
    """(rows.astype(np.float64) ** 2).sum(axis=0), without the copy."""
    out = np.zeros(rows.shape[1], np.float64)
    for i in range(rows.shape[0]):
        for d in range(rows.shape[1]):
            out[d] += np.float64(rows[i, d]) * np.float64(rows[i, d])
    return out
