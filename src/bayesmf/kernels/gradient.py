"""Compiled mini-batch updates of SGD and SGLD; pair predictions, column moments.

float32, no allocation inside a loop, the interpreter's lock released. (Given float64 rows they
compute in float64: so are they checked to the last digit.) Plain twins: tests/helpers/naive.py.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.jit import ENTRY, EXACT, PART, njit
from bayesmf.kernels.minibatch import (
    close_run,
    draw_batch,
    draw_noise,
    gather_segment,
    open_run,
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
    noise: NDArray[np.float32]  # noise variance in units of the step: 0, 1 or 1 / hbar
    mu: NDArray[np.float32]
    Lambda: NDArray[np.float32]  # diagonal or matrix
    step: np.float32  # epsilon; 0 holds this side fixed
    stream: np.uint32


@njit(**PART)
def step_row(
    X, at, gradient, from_, z, noise, scale, half_step, weight, spread, mu, Lambda, pull, features,
    bias, lanes,
):  # fmt: skip
    """X_i += eps/2 (scale * gradient - weight * Lambda (X_i - mu)) + spread * z."""
    set_pull(pull, X, at, mu, Lambda, lanes)
    kind = X.dtype.type
    forth, back = splat(kind(half_step * scale)), splat(kind(half_step * weight))
    spread = splat(kind(spread))
    for v in range(len(lanes)):
        c = _U(LANES * v)
        new = fma(forth, load(gradient, from_ + c), load(X, at + c)) - back * load(pull, c)
        own = load(features, c) + load(bias, c)  # beyond the last column stays zero
        store(X, at + c, fma(spread * own, load(z, noise + c), new))


@njit(**ENTRY, forceinline=True)
def update_batch(data, lo, hi, users, items, columns, scale, iteration, key, work):
    """One mini-batch, the segments from lo to hi: gradients at the old state, then updates.

    A user is updated when its run ends and its old row is needed no more; items gather their
    gradients until the end. Returns the sum of squared errors.
    """
    # Local names: a tuple's array costs a reference count each time it is named in a loop.
    segment_user, segment_starts, item = data.segment_user, data.segment_starts, data.item
    value, levels = data.value, data.levels
    lanes, features, bias = columns.lanes, columns.features, columns.bias
    x, gradient, gradients, touched, seen, pull, number, row, quad, planes, z = work
    X, Y = users.rows.reshape(-1), items.rows.reshape(-1)
    weight, noise, mu, Lambda = users.prior_weight, users.noise, users.mu, users.Lambda
    room, wide = _U(number.shape[0]), _U(LANES * len(lanes))
    biased, zero = columns.width > columns.n_factors, X.dtype.type(0.0)
    half_step, still = X.dtype.type(0.5) * users.step, _U(z.shape[0]) - wide
    sse, n_touched, place = 0.0, _U(0), (iteration, users.stream)
    for first in range(_U(lo), _U(hi), room):
        last = min(first + room, _U(hi))
        if users.step > 0:
            draw_noise(
                segment_user, first, last, noise, users.numbers, number, row, quad, planes, z,
                columns.width, wide, place, key,
            )  # fmt: skip
        drawn = _U(0)
        for r in range(first, last):
            i = _U(segment_user[r])
            at = i * wide
            open_run(X, at, x, gradient, features, bias, lanes)
            a = X[at + _U(columns.n_factors)] if biased else zero
            n_touched, errors, squares = gather_segment(
                item, value, levels, segment_starts[r], segment_starts[r + _U(1)], a, x, Y,
                gradient, gradients, touched, n_touched, seen, lanes,
            )  # fmt: skip
            sse += np.float64(squares)
            if users.step > 0:
                close_run(gradient, errors, features, bias, lanes)
                noisy = noise[i] > 0
                step_row(
                    X, at, gradient, _U(0), z, drawn if noisy else still, scale, half_step,
                    weight[i], np.sqrt(users.step * noise[i]), mu, Lambda, pull, features, bias,
                    lanes,
                )  # fmt: skip
                drawn += wide if noisy else _U(0)
    update_items(Y, n_touched, items, columns, scale, iteration, key, work)
    return sse


@njit(**PART)
def update_items(Y, n_touched, items, columns, scale, iteration, key, work):
    """Items that a mini-batch has touched, by the gradients they have gathered."""
    lanes, features, bias = columns.lanes, columns.features, columns.bias
    _, _, gradients, touched, seen, pull, number, row, quad, planes, z = work
    weight, noise, mu, Lambda = items.prior_weight, items.noise, items.mu, items.Lambda
    room, wide = _U(number.shape[0]), _U(LANES * len(lanes))
    place = iteration, items.stream
    half_step, still = Y.dtype.type(0.5) * items.step, _U(z.shape[0]) - wide
    for first in range(_U(0), n_touched, room):
        last = min(first + room, n_touched)
        if items.step > 0:
            draw_noise(
                touched, first, last, noise, items.numbers, number, row, quad, planes, z,
                columns.width, wide, place, key,
            )  # fmt: skip
        drawn = _U(0)
        for t in range(first, last):
            j = _U(touched[t])
            seen[j], at = 0, j * wide
            if items.step > 0:
                noisy = noise[j] > 0
                step_row(
                    Y, at, gradients, at, z, drawn if noisy else still, scale, half_step, weight[j],
                    np.sqrt(items.step * noise[j]), mu, Lambda, pull, features, bias, lanes,
                )  # fmt: skip
                drawn += wide if noisy else _U(0)
            for v in range(len(lanes)):
                store(gradients, at + _U(LANES * v), splat(Y.dtype.type(0.0)))


@njit(**ENTRY)
def run_dealt(data, order, users, items, columns, scale, first, key, work):
    """A round over dealt mini-batches, in the given order. Returns (sse, ratings read)."""
    sse, count = 0.0, 0
    for k in range(order.shape[0]):
        lo, hi = data.starts[order[k]], data.starts[order[k] + 1]
        sse += update_batch(data, lo, hi, users, items, columns, scale, first + k, key, work)
        count += data.segment_starts[hi] - data.segment_starts[lo]
    return sse, count


@njit(**ENTRY)
def run_replacement(data, room, length, block, users, items, columns, scale, first, key, work):
    """A round of mini-batches drawn with replacement, as the paper samples them."""
    index, drawn = room
    sse = 0.0
    for k in range(length):
        segments = draw_batch(index, drawn, data, first + k, block, key)
        sse += update_batch(
            drawn, 0, np.int64(segments), users, items, columns, scale, first + k, key, work
        )
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
    """Sum of squares of each column, in float64."""
    out = np.zeros(rows.shape[1], np.float64)
    for i in range(rows.shape[0]):
        for d in range(rows.shape[1]):
            out[d] += np.float64(rows[i, d]) * np.float64(rows[i, d])
    return out
