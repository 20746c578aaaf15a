"""Compiled mini-batch updates of SGD and SGLD; pair predictions, column moments.

float32, no allocation inside a loop, the interpreter's lock released. (Given float64 rows they
compute in float64: so are they checked to the last digit, as plain Python.) Plain twins:
tests/helpers/naive.py.
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
from bayesmf.kernels.simd import LANES, fma, load, splat, store
from bayesmf.kernels.types import Rows

_U = np.uint64


class Side(NamedTuple):
    """One side (users or items) of a block, as an update sees it; columns are padded."""

    rows: Rows  # updated in place
    numbers: NDArray[np.int32]  # row numbers in the whole matrix: the random numbers' keys
    prior_weight: NDArray[np.float32]  # 1 / hbar
    weight: NDArray[np.float32]  # of the row's ratings: their precision over tau
    noise: NDArray[np.float32]  # noise variance in units of the step: 0, 1 or 1 / hbar
    mu: NDArray[np.float32]
    Lambda: NDArray[np.float32]  # diagonal or matrix
    step: np.float32  # epsilon; 0 holds this side fixed
    stream: np.uint32


class Step(NamedTuple):
    """Factors of the three terms of a row's step."""

    likelihood: np.float32  # eps/2 times the scale of the mini-batch's gradient
    prior: np.float32  # eps/2 times the row's prior weight
    noise: np.float32  # standard deviation


@njit(**PART)
def step_row(row, gradient, z, step, side, pull, columns):
    """x += step.likelihood * gradient - step.prior * Lambda (x - mu) + step.noise * z.

    `row`, `gradient` and `z` are `FlatRow`; x is what stands in `row`.
    """
    X, at, z_array, z_at, g, g_at = (
        row.array, row.start, z.array, z.start, gradient.array, gradient.start,
    )  # fmt: skip
    set_pull(pull, X, at, side.mu, side.Lambda, columns.lanes)
    kind, features, bias = X.dtype.type, columns.features, columns.bias
    forth, back = splat(kind(step.likelihood)), splat(kind(step.prior))
    spread = splat(kind(step.noise))
    for v in range(len(columns.lanes)):
        c = _U(LANES * v)
        new = fma(forth, load(g, g_at + c), load(X, at + c)) - back * load(pull, c)
        own = load(features, c) + load(bias, c)  # beyond the last column stays zero
        store(X, at + c, fma(spread * own, load(z_array, z_at + c), new))


@njit(**ENTRY, forceinline=True)
def update_batch(batches, segments, users, items, columns, scale, iteration, key, scratch):
    """One mini-batch, the segments (first, end): gradients at the old state, then updates.

    A user is updated when its segment ends and its old row is needed no more; items gather their
    gradients until the end. Returns the sum of squared errors.
    """
    # Local names: a tuple's array costs a reference count each time it is named in a loop.
    segment_user, lanes, noise = batches.segment_user, columns.lanes, users.noise
    gradient, z, weight = scratch.gradient, scratch.noise.z, users.prior_weight
    X, Y = users.rows.reshape(-1), items.rows.reshape(-1)
    own, other = users.weight, items.weight
    room, padded_width = _U(scratch.noise.number.shape[0]), _U(LANES * len(lanes))
    biased, zero = columns.width > columns.n_factors, X.dtype.type(0.0)
    half_step, still = X.dtype.type(0.5) * users.step, _U(z.shape[0]) - padded_width
    sse, n_touched, counter = 0.0, _U(0), StreamCounter(iteration, users.stream, key)
    for first in range(_U(segments[0]), _U(segments[1]), room):
        last = min(first + room, _U(segments[1]))
        if users.step > 0:
            draw_noise(
                segment_user, first, last, noise, users.numbers, scratch.noise, columns, counter
            )
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
            if users.step > 0:
                close_segment(gradient, errors, columns)
                noisy = noise[i] > 0
                step = Step(
                    half_step * scale, half_step * weight[i], np.sqrt(users.step * noise[i])
                )
                step_row(
                    FlatRow(X, at), FlatRow(gradient, _U(0)),
                    FlatRow(z, drawn if noisy else still), step, users, scratch.pull, columns,
                )  # fmt: skip
                drawn += padded_width if noisy else _U(0)
    counter = StreamCounter(iteration, items.stream, key)
    update_items(Y, n_touched, items, columns, scale, counter, scratch)
    return sse


@njit(**PART)
def update_items(Y, n_touched, items, columns, scale, counter, scratch):
    """Update the items that a mini-batch has touched, by the gradients they have gathered."""
    lanes, noise, weight = columns.lanes, items.noise, items.prior_weight
    gradients, touched, is_touched = scratch.item_gradients, scratch.touched, scratch.is_touched
    z = scratch.noise.z
    room, padded_width = _U(scratch.noise.number.shape[0]), _U(LANES * len(lanes))
    half_step, still = Y.dtype.type(0.5) * items.step, _U(z.shape[0]) - padded_width
    for first in range(_U(0), n_touched, room):
        last = min(first + room, n_touched)
        if items.step > 0:
            draw_noise(touched, first, last, noise, items.numbers, scratch.noise, columns, counter)
        drawn = _U(0)
        for t in range(first, last):
            j = _U(touched[t])
            is_touched[j], at = 0, j * padded_width
            if items.step > 0:
                noisy = noise[j] > 0
                step = Step(
                    half_step * scale, half_step * weight[j], np.sqrt(items.step * noise[j])
                )
                step_row(
                    FlatRow(Y, at), FlatRow(gradients, at), FlatRow(z, drawn if noisy else still),
                    step, items, scratch.pull, columns,
                )  # fmt: skip
                drawn += padded_width if noisy else _U(0)
            for v in range(len(lanes)):
                store(gradients, at + _U(LANES * v), splat(Y.dtype.type(0.0)))


@njit(**ENTRY)
def run_dealt(batches, order, users, items, columns, scale, first, key, scratch):
    """Update by the dealt mini-batches order[0], order[1], ..., in iterations from `first` on.

    Returns the sum of the squared errors met on the way, and the number of ratings read.
    """
    sse, count = 0.0, 0
    for k in range(order.shape[0]):
        own = batches.starts[order[k]], batches.starts[order[k] + 1]
        sse += update_batch(batches, own, users, items, columns, scale, first + k, key, scratch)
        count += batches.segment_starts[own[1]] - batches.segment_starts[own[0]]
    return sse, count


@njit(**ENTRY)
def run_replacement(
    batches, room, length, block, users, items, columns, scale, first, key, scratch
):
    """Update by `length` mini-batches drawn with replacement, as the paper samples them.

    `room` is that of `room_for`. Returns what `run_dealt` does.
    """
    index, drawn = room
    sse = 0.0
    for k in range(length):
        own = np.int64(0), np.int64(draw_batch(index, drawn, batches, first + k, block, key))
        sse += update_batch(drawn, own, users, items, columns, scale, first + k, key, scratch)
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
