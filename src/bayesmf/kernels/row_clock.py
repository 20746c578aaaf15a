"""Compiled mini-batch updates of the rules in samplers/clocks.py: every row runs by its own clock.

One row step serves three rules. It is the splitting "kick, drift, friction and noise, drift" of
Langevin dynamics (BAOAB, Leimkuhler and Matthews 2013) with a diagonal preconditioner P:

    kick      u1 = u + r g            r = sqrt(eta P)
    friction  u2 = c u1 + sqrt(1 - c^2) sqrt(1 - s) z
    drift     x += r (u1 + u2) / 2,   u = u2

A Gaussian posterior is the exact distribution of x in every direction, whatever its curvature and
however long the step, up to where it is no longer stable: no error of discretisation is left, only
the mini-batch's noise, which s takes away. At c = 0 (RowClock) u is the last visit's noise and
this is x += eta/2 P g + sqrt(eta P) (z_before + z) / 2. tests/helpers/batch_twins.py has a
plain twin.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.jit import ENTRY, PART, njit
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


class ClockSide(NamedTuple):
    """One side (users or items) of a block, as an update sees it; columns are padded."""

    rows: Rows  # updated in place
    momenta: Rows  # updated in place
    heat: Rows  # of each row's thermostat, updated in place
    numbers: NDArray[np.int32]  # row numbers in the whole matrix: the random numbers' keys
    n: NDArray[np.float32]  # ratings of the row in all blocks, by weight
    weight: NDArray[np.float32]  # of the row's ratings: their precision over tau
    factor: NDArray[np.float32]  # of the likelihood's gradient, with tau in it
    eta: NDArray[np.float32]  # step; 0 holds the row
    persistence: NDArray[np.float32]  # c, the share of the momentum that friction leaves
    share: NDArray[np.float32]  # s, before the likelihood's share of the curvature
    mu: NDArray[np.float32]
    Lambda: NDArray[np.float32]  # diagonal or matrix
    diagonal: NDArray[np.float32]  # of Lambda; 1 beyond the last column
    stiffness: NDArray[np.float32]  # tau m_d: curvature that one rating brings to a column
    gain: np.float32  # of the thermostat; 0 for a friction that stays
    stream: np.uint32


@njit(**PART)
def step_row(row, i, M, gradient, z, side, pull, columns):
    """One visit to row i of a side: kick, drift, friction and noise, drift; see above.

    `row` and its `gradient` and noise `z` are `FlatRow`; M are all momenta, flat as the rows are.
    With a thermostat (gain > 0) the friction is what the thermostat has come to, the noise that of
    the friction `persistence`: heat that mini-batches bring is met by friction without being known
    beforehand. `share` is then by how much the momenta may be hotter than one.
    """
    X, at, z_array, z_at, g, g_at = (
        row.array, row.start, z.array, z.start, gradient.array, gradient.start,
    )  # fmt: skip
    kind, width = X.dtype.type, X.dtype.type(columns.width)
    diagonal, stiffness, heat = side.diagonal, side.stiffness, side.heat
    features, bias = columns.features, columns.bias
    eta, persistence, share = side.eta[i], side.persistence[i], side.share[i]
    set_pull(pull, X, at, side.mu, side.Lambda, columns.lanes)
    known, pace = share, np.sqrt(eta)
    friction = persistence
    if side.gain > 0:
        friction = persistence * np.exp(-pace * heat[i])
        share = kind(0.0)
    zero, one, half = splat(kind(0.0)), splat(kind(1.0)), splat(kind(0.5))
    each, step, forth = splat(kind(side.n[i])), splat(kind(eta)), splat(kind(side.factor[i]))
    left, spread = splat(kind(friction)), splat(kind(kind(1.0) - persistence * persistence))
    there, goal, kinetic = splat(kind(share)), zero, zero
    for v in range(len(columns.lanes)):
        c = _U(LANES * v)
        data = each * load(stiffness, c)
        P = one / (data + load(diagonal, c))
        part = data * P
        rate = root(step * P)
        own = load(features, c) + load(bias, c)  # beyond the last column stays zero
        random = root(spread * larger(one - there * part, zero)) * own * load(z_array, z_at + c)
        force = forth * load(g, g_at + c) - load(pull, c)
        before = fma(rate, force, load(M, at + c))
        after = fma(left, before, random)
        store(M, at + c, after)
        store(X, at + c, fma(rate * half, before + after, load(X, at + c)))
        goal = goal + part
        kinetic = fma(before, before, fma(after, after, kinetic))
    if side.gain > 0:
        # Bounded: a row that sets out far from home must not take long to cool down from its fall.
        hotter = kind(0.5) * total(kinetic) / width - (kind(1.0) + known * total(goal) / width)
        heat[i] += side.gain * pace * min(hotter, kind(4.0))


@njit(**PART)
def update_batch(batches, segments, users, items, columns, iteration, key, scratch):
    """One mini-batch, the segments (first, end): gradients at the old state, then updates.

    A user is updated when its segment ends and its old row is needed no more; items gather their
    gradients until the end. Returns the sum of squared errors.
    """
    # Local names: a tuple's array costs a reference count each time it is named in a loop.
    segment_user, lanes, eta = batches.segment_user, columns.lanes, users.eta
    gradient, z, n_factors = scratch.gradient, scratch.noise.z, columns.n_factors
    X, Y, M = users.rows.reshape(-1), items.rows.reshape(-1), users.momenta.reshape(-1)
    room, padded_width = _U(scratch.noise.number.shape[0]), _U(LANES * len(lanes))
    zero, own, other = X.dtype.type(0.0), users.weight, items.weight
    sse, n_touched, counter = 0.0, _U(0), StreamCounter(iteration, users.stream, key)
    for first in range(_U(segments[0]), _U(segments[1]), room):
        last = min(first + room, _U(segments[1]))
        draw_noise(segment_user, first, last, eta, users.numbers, scratch.noise, columns, counter)
        drawn = _U(0)
        for k in range(first, last):
            i = _U(segment_user[k])
            at = i * padded_width
            open_segment(X, at, scratch.x, gradient, columns)
            a = X[at + _U(n_factors)] if columns.width > n_factors else zero
            n_touched, errors, squares = gather_segment(
                batches, k, a, own[i], Y, other, n_touched, scratch, lanes
            )
            sse += np.float64(squares)
            if eta[i] > 0:
                close_segment(gradient, errors, columns)
                step_row(
                    FlatRow(X, at), i, M, FlatRow(gradient, _U(0)), FlatRow(z, drawn), users,
                    scratch.pull, columns,
                )  # fmt: skip
                drawn += padded_width
    update_items(Y, n_touched, items, columns, StreamCounter(iteration, items.stream, key), scratch)
    return sse


@njit(**PART)
def update_items(Y, n_touched, items, columns, counter, scratch):
    """Update the items that a mini-batch has touched, by the gradients they have gathered."""
    lanes, eta, M, z = columns.lanes, items.eta, items.momenta.reshape(-1), scratch.noise.z
    gradients, touched, is_touched = scratch.item_gradients, scratch.touched, scratch.is_touched
    room, padded_width = _U(scratch.noise.number.shape[0]), _U(LANES * len(lanes))
    for first in range(_U(0), n_touched, room):
        last = min(first + room, n_touched)
        draw_noise(touched, first, last, eta, items.numbers, scratch.noise, columns, counter)
        drawn = _U(0)
        for t in range(first, last):
            j = _U(touched[t])
            is_touched[j], at = 0, j * padded_width
            if eta[j] > 0:
                step_row(
                    FlatRow(Y, at), j, M, FlatRow(gradients, at), FlatRow(z, drawn), items,
                    scratch.pull, columns,
                )  # fmt: skip
                drawn += padded_width
            for v in range(len(lanes)):
                store(gradients, at + _U(LANES * v), splat(Y.dtype.type(0.0)))


@njit(**ENTRY)
def run_clock_dealt(batches, order, users, items, columns, first, key, scratch):
    """Update by the dealt mini-batches order[0], order[1], ..., in iterations from `first` on.

    Returns the sum of the squared errors met on the way, and the number of ratings read.
    """
    sse, count = 0.0, 0
    for k in range(order.shape[0]):
        own = batches.starts[order[k]], batches.starts[order[k] + 1]
        sse += update_batch(batches, own, users, items, columns, first + k, key, scratch)
        count += batches.segment_starts[own[1]] - batches.segment_starts[own[0]]
    return sse, count


@njit(**ENTRY)
def run_clock_replacement(batches, room, length, block, users, items, columns, first, key, scratch):
    """Update by `length` mini-batches drawn with replacement.

    `room` is that of `room_for`. Returns what `run_clock_dealt` does.
    """
    index, drawn = room
    sse = 0.0
    for k in range(length):
        own = np.int64(0), np.int64(draw_batch(index, drawn, batches, first + k, block, key))
        sse += update_batch(drawn, own, users, items, columns, first + k, key, scratch)
    return sse, length * index.shape[0]
