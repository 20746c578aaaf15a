"""Compiled mini-batch updates of the rules in samplers/clocks.py: every row runs by its own clock.

One row step serves three rules. It is the splitting "kick, drift, friction and noise, drift" of
Langevin dynamics (BAOAB, Leimkuhler and Matthews 2013) with a diagonal preconditioner P:

    kick      u1 = u + r g            r = sqrt(eta P)
    friction  u2 = c u1 + sqrt(1 - c^2) sqrt(1 - s) z
    drift     x += r (u1 + u2) / 2,   u = u2

For a Gaussian posterior the law of x is exact in every direction, whatever its curvature and
however long the step, up to where it is no longer stable: no error of discretisation is left, only
the mini-batch's noise, which s takes away. At c = 0 (RowClock) u is the last visit's noise and
this is x += eta/2 P g + sqrt(eta P) (z_before + z) / 2. tests/behaviour/test_row_clock.py has a
plain twin.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.jit import ENTRY, PART, njit
from bayesmf.kernels.minibatch import (
    close_run,
    draw_batch,
    draw_noise,
    gather_segment,
    open_run,
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
    n: NDArray[np.float32]  # ratings of the row in all blocks
    factor: NDArray[np.float32]  # of the likelihood's gradient, with tau in it
    eta: NDArray[np.float32]  # step; 0 holds the row
    keep: NDArray[np.float32]  # c, the share of the momentum that friction leaves
    share: NDArray[np.float32]  # s, before the likelihood's share of the curvature
    mu: NDArray[np.float32]
    Lambda: NDArray[np.float32]  # diagonal or matrix
    diagonal: NDArray[np.float32]  # of Lambda; 1 beyond the last column
    stiffness: NDArray[np.float32]  # tau m_d: curvature that one rating brings to a column
    gain: np.float32  # of the thermostat; 0 for a friction that stays
    stream: np.uint32


@njit(**PART)
def step_row(
    X, M, heat, i, at, gradient, from_, z, noise, row, mu, Lambda, diagonal, stiffness, gain, pull,
    features, bias, width, lanes,
):  # fmt: skip
    """One visit to row i; `row` is (factor, n, eta, keep, share), its own numbers.

    With a thermostat (gain > 0) the friction is what the thermostat has come to, the noise as for
    friction `keep`: heat that mini-batches bring is met by friction without being known beforehand.
    `share` is then what the momenta may be hotter than one.
    """
    kind = X.dtype.type
    factor, n, eta, keep, share = row
    set_pull(pull, X, at, mu, Lambda, lanes)
    known, pace = share, np.sqrt(eta)
    friction = keep
    if gain > 0:
        friction = keep * np.exp(-pace * heat[i])
        share = kind(0.0)
    zero, one, half = splat(kind(0.0)), splat(kind(1.0)), splat(kind(0.5))
    each, step, forth = splat(kind(n)), splat(kind(eta)), splat(kind(factor))
    left, spread = splat(kind(friction)), splat(kind(kind(1.0) - keep * keep))
    there, goal, kinetic = splat(kind(share)), zero, zero
    for v in range(len(lanes)):
        c = _U(LANES * v)
        data = each * load(stiffness, c)
        P = one / (data + load(diagonal, c))
        part = data * P
        rate = root(step * P)
        own = load(features, c) + load(bias, c)  # beyond the last column stays zero
        random = root(spread * larger(one - there * part, zero)) * own * load(z, noise + c)
        force = forth * load(gradient, from_ + c) - load(pull, c)
        before = fma(rate, force, load(M, at + c))
        after = fma(left, before, random)
        store(M, at + c, after)
        store(X, at + c, fma(rate * half, before + after, load(X, at + c)))
        goal = goal + part
        kinetic = fma(before, before, fma(after, after, kinetic))
    if gain > 0:
        # Bounded: a row that sets out far from home must not take long to cool down from its fall.
        hotter = kind(0.5) * total(kinetic) / width - (kind(1.0) + known * total(goal) / width)
        heat[i] += gain * pace * min(hotter, kind(4.0))


@njit(**PART)
def update_batch(data, lo, hi, users, items, columns, iteration, key, work):
    """One mini-batch, the segments from lo to hi: gradients at the old state, then updates.

    A user is updated when its run ends and its old row is needed no more; items gather their
    gradients until the end. Returns the sum of squared errors.
    """
    # Local names: a tuple's array costs a reference count each time it is named in a loop.
    segment_user, segment_starts, item = data.segment_user, data.segment_starts, data.item
    value, levels = data.value, data.levels
    lanes, features, bias = columns.lanes, columns.features, columns.bias
    x, gradient, gradients, touched, seen, pull, number, row, quad, planes, z = work
    X, Y, M = users.rows.reshape(-1), items.rows.reshape(-1), users.momenta.reshape(-1)
    factor, n, eta, keep, share = row_arrays(users)
    mu, Lambda, diagonal, stiffness = column_arrays(users)
    heat, numbers, gain = users.heat, users.numbers, users.gain
    room, wide = _U(number.shape[0]), _U(LANES * len(lanes))
    width, n_factors, zero = X.dtype.type(columns.width), columns.n_factors, X.dtype.type(0.0)
    sse, n_touched, place = 0.0, _U(0), (iteration, users.stream)
    for first in range(_U(lo), _U(hi), room):
        last = min(first + room, _U(hi))
        draw_noise(
            segment_user, first, last, eta, numbers, number, row, quad, planes, z, columns.width,
            wide, place, key,
        )  # fmt: skip
        drawn = _U(0)
        for r in range(first, last):
            i = _U(segment_user[r])
            at = i * wide
            open_run(X, at, x, gradient, features, bias, lanes)
            a = X[at + _U(n_factors)] if columns.width > n_factors else zero
            n_touched, errors, squares = gather_segment(
                item, value, levels, segment_starts[r], segment_starts[r + _U(1)], a, x, Y,
                gradient, gradients, touched, n_touched, seen, lanes,
            )  # fmt: skip
            sse += np.float64(squares)
            if eta[i] > 0:
                close_run(gradient, errors, features, bias, lanes)
                step_row(
                    X, M, heat, i, at, gradient, _U(0), z, drawn,
                    (factor[i], n[i], eta[i], keep[i], share[i]), mu, Lambda, diagonal, stiffness,
                    gain, pull, features, bias, width, lanes,
                )  # fmt: skip
                drawn += wide
    update_items(Y, n_touched, items, columns, iteration, key, work)
    return sse


@njit(**PART)
def update_items(Y, n_touched, items, columns, iteration, key, work):
    """Items that a mini-batch has touched, by the gradients they have gathered."""
    lanes, features, bias = columns.lanes, columns.features, columns.bias
    _, _, gradients, touched, seen, pull, number, row, quad, planes, z = work
    factor, n, eta, keep, share = row_arrays(items)
    mu, Lambda, diagonal, stiffness = column_arrays(items)
    M, heat, numbers, gain = items.momenta.reshape(-1), items.heat, items.numbers, items.gain
    room, wide = _U(number.shape[0]), _U(LANES * len(lanes))
    width, place = Y.dtype.type(columns.width), (iteration, items.stream)
    for first in range(_U(0), n_touched, room):
        last = min(first + room, n_touched)
        draw_noise(
            touched, first, last, eta, numbers, number, row, quad, planes, z, columns.width, wide,
            place, key,
        )  # fmt: skip
        drawn = _U(0)
        for t in range(first, last):
            j = _U(touched[t])
            seen[j], at = 0, j * wide
            if eta[j] > 0:
                step_row(
                    Y, M, heat, j, at, gradients, at, z, drawn,
                    (factor[j], n[j], eta[j], keep[j], share[j]), mu, Lambda, diagonal, stiffness,
                    gain, pull, features, bias, width, lanes,
                )  # fmt: skip
                drawn += wide
            for v in range(len(lanes)):
                store(gradients, at + _U(LANES * v), splat(Y.dtype.type(0.0)))


@njit(inline="always")
def row_arrays(side):
    return side.factor, side.n, side.eta, side.keep, side.share


@njit(inline="always")
def column_arrays(side):
    return side.mu, side.Lambda, side.diagonal, side.stiffness


@njit(**ENTRY)
def run_clock_dealt(data, order, users, items, columns, first, key, work):
    """A round over dealt mini-batches, in the given order. Returns (sse, ratings read)."""
    sse, count = 0.0, 0
    for k in range(order.shape[0]):
        lo, hi = data.starts[order[k]], data.starts[order[k] + 1]
        sse += update_batch(data, lo, hi, users, items, columns, first + k, key, work)
        count += data.segment_starts[hi] - data.segment_starts[lo]
    return sse, count


@njit(**ENTRY)
def run_clock_replacement(data, room, length, block, users, items, columns, first, key, work):
    """A round of mini-batches drawn with replacement."""
    index, drawn = room
    sse = 0.0
    for k in range(length):
        segments = draw_batch(index, drawn, data, first + k, block, key)
        sse += update_batch(
            drawn, 0, np.int64(segments), users, items, columns, first + k, key, work
        )
    return sse, length * index.shape[0]
