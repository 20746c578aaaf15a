"""Compiled loops over the ratings of a mini-batch: errors, and the gradients of all its rows.

Rows are padded to whole vectors. How many vectors a row has is the length of a tuple: a constant
when this is compiled, so that the loops over a row have no ends to look for.

A user's ratings are one run. While it lasts, the user's row stands with 1 in the place of its bias:
times an item's row that is the prediction without a_i, and times the error it is the gradient of
the item. The user's own gradient comes out the same way from the items' rows, but for the bias,
whose gradient is the sum of the errors.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.csr import rating_at
from bayesmf.kernels.gather import padded
from bayesmf.kernels.jit import APART, ENTRY, EXACT, PART, njit
from bayesmf.kernels.keys import STREAM_BATCH, philox, stream_word
from bayesmf.kernels.noise import draw_rows, make_noise_room
from bayesmf.kernels.simd import LANES, fma, load, prefetch, splat, store, total
from bayesmf.kernels.types import Rows

# Items' rows are asked for some ratings before they are read: as many as these bytes of rows, at
# most so many. Measured: with 136K items of 30 factors that is 42 ns a rating against 70 without.
# (Ordering a mini-batch by stripes of items makes segments short: 60 ns with 4 stripes, 70 with 16,
# against 57 with none, all at 4 ratings ahead.)
BYTES_AHEAD = 2400
MOST_AHEAD = 16
LINE = 64  # bytes

_U = np.uint64
_LANES = np.uint64(LANES)


class Batches(NamedTuple):
    """Mini-batches of a block: segments of one user's ratings; see `Block`."""

    segment_user: NDArray[np.int32]
    segment_starts: NDArray[np.int64]
    item: NDArray[np.int32]
    value: NDArray[Any]
    levels: NDArray[np.float32]
    starts: NDArray[np.int64]


class Columns(NamedTuple):
    """What stands in the columns of padded rows, as ones and zeros."""

    n_factors: int
    width: int
    lanes: tuple[int, ...]  # as many as a row has vectors
    features: Rows
    bias: Rows


def make_columns(n_factors: int, width: int, dtype: Any) -> Columns:
    """Columns of rows with features, and a bias where there is one more column."""
    wide = padded(width)
    features, bias = np.zeros((2, wide), dtype)
    features[:n_factors] = 1.0
    bias[n_factors:width] = 1.0
    return Columns(n_factors, width, (0,) * (wide // LANES), features, bias)


def pad(rows: NDArray[Any], wide: int, dtype: Any = None) -> NDArray[Any]:
    """A copy with columns of zeros at the end."""
    out = np.zeros((*rows.shape[:-1], wide), dtype or rows.dtype)
    out[..., : rows.shape[-1]] = rows
    return out


class Work(NamedTuple):
    """Scratch space of a round, allocated once, in the precision of the rows."""

    x: Rows
    gradient: Rows
    item_gradients: Rows
    touched: NDArray[np.int32]
    seen: NDArray[np.uint8]
    pull: Rows
    number: NDArray[np.uint32]
    row: NDArray[np.uint32]
    quad: NDArray[np.uint32]
    planes: NDArray[np.float32]
    z: Rows


def make_work(n_items: int, columns: Columns) -> Work:
    """For so many items."""
    wide, dtype = len(columns.features), columns.features.dtype
    return Work(
        np.zeros(wide, dtype),
        np.zeros(wide, dtype),
        np.zeros(n_items * wide, dtype),
        np.zeros(n_items + 1, np.int32),
        np.zeros(n_items, np.uint8),
        np.zeros(wide, dtype),
        *make_noise_room(columns.width, wide, dtype),
    )


@njit(**PART)
def open_run(X, at, x, gradient, features, bias, lanes):
    """The user's row with its bias replaced by one, and no gradient yet."""
    zero = splat(X.dtype.type(0.0))
    for v in range(len(lanes)):
        c = _U(LANES * v)
        store(x, c, fma(load(X, at + c), load(features, c), load(bias, c)))
        store(gradient, c, zero)


@njit(**PART)
def close_run(gradient, errors, features, bias, lanes):
    """The gradient of the user's bias is the sum of errors."""
    errors = splat(errors)
    for v in range(len(lanes)):
        c = _U(LANES * v)
        store(gradient, c, fma(load(gradient, c), load(features, c), errors * load(bias, c)))


@njit(**PART)
def gather_segment(
    item, value, levels, lo, hi, a, x, Y, gradient, item_gradients, touched, n_touched, seen, lanes
):
    """Gradients of one user and of the items of its ratings from lo to hi; a is the user's bias.

    Returns how many items are touched now, the sum of errors and that of their squares.
    """
    zero = Y.dtype.type(0.0)
    nothing, wide = splat(zero), _U(LANES * len(lanes))
    errors, squares, last = zero, zero, _U(item.shape[0] - 1)
    far = _U(max(2, min(BYTES_AHEAD // (LANES * len(lanes) * Y.itemsize), MOST_AHEAD)))
    for n in range(_U(lo), _U(hi)):
        j = _U(item[n])
        at = j * wide
        ahead = _U(item[min(n + far, last)]) * wide
        for c in range(0, LANES * len(lanes), LINE // Y.itemsize):
            prefetch(Y, ahead + _U(c))
            prefetch(item_gradients, ahead + _U(c))
        # Without a branch: most items have been seen, but which cannot be foretold.
        touched[n_touched] = j
        n_touched += _U(1) - _U(seen[j])
        seen[j] = 1
        dot = nothing
        for v in range(len(lanes)):
            c = _U(LANES * v)
            dot = fma(load(x, c), load(Y, at + c), dot)
        error = Y.dtype.type(rating_at(value, levels, n)) - a - total(dot)
        errors += error
        squares += error * error
        e = splat(error)
        for v in range(len(lanes)):
            c = _U(LANES * v)
            store(gradient, c, fma(e, load(Y, at + c), load(gradient, c)))
        for v in range(len(lanes)):
            c = _U(LANES * v)
            store(item_gradients, at + c, fma(e, load(x, c), load(item_gradients, at + c)))
    return n_touched, errors, squares


@njit(**PART)
def set_pull(pull, X, at, mu, Lambda, lanes):
    """pull = Lambda (x - mu), for a diagonal or a matrix."""
    wide = LANES * len(lanes)
    if Lambda.ndim == 1:
        for v in range(len(lanes)):
            c = _U(LANES * v)
            store(pull, c, load(Lambda, c) * (load(X, at + c) - load(mu, c)))
    else:
        for v in range(len(lanes)):
            store(pull, _U(LANES * v), splat(X.dtype.type(0.0)))
        for e in range(_U(wide)):
            away = splat(X[at + e] - mu[e])
            for v in range(len(lanes)):
                c = _U(LANES * v)
                store(pull, c, fma(away, load(Lambda, e * _U(wide) + c), load(pull, c)))


@njit(**APART)
def draw_noise(
    positions, lo, hi, wanted, numbers, number, row, quad, planes, z, width, wide, place, key
):
    """Noise for those of the rows positions[lo:hi] that want some, in this order."""
    k = _U(0)
    for t in range(_U(lo), _U(hi)):
        i = _U(positions[t])
        number[k] = numbers[i]
        k += _U(wanted[i] > 0)
    if k > _U(0):
        draw_rows(row, quad, planes, z, number, k, width, wide, place[0], place[1], key)


@njit(**ENTRY)
def sum_squared_errors(data, X, Y, columns):
    """Sum of squared errors of all ratings of a block, at one state."""
    lanes, features, bias = columns.lanes, columns.features, columns.bias
    segment_user, segment_starts, item = data.segment_user, data.segment_starts, data.item
    value, levels, biased = data.value, data.levels, columns.width > columns.n_factors
    X, Y = X.reshape(-1), Y.reshape(-1)
    x, unused = np.empty_like(features), np.empty_like(features)
    wide, sse, last = _U(LANES * len(lanes)), 0.0, _U(max(item.shape[0], 1) - 1)
    zero = Y.dtype.type(0.0)
    far = _U(max(2, min(BYTES_AHEAD // (LANES * len(lanes) * Y.itemsize), MOST_AHEAD)))
    for k in range(_U(segment_user.shape[0])):
        at = _U(segment_user[k]) * wide
        open_run(X, at, x, unused, features, bias, lanes)
        a = X[at + _U(columns.n_factors)] if biased else zero
        squares = zero
        for n in range(_U(segment_starts[k]), _U(segment_starts[k + _U(1)])):
            at = _U(item[n]) * wide
            ahead = _U(item[min(n + far, last)]) * wide
            for c in range(0, LANES * len(lanes), LINE // Y.itemsize):
                prefetch(Y, ahead + _U(c))
            dot = splat(zero)
            for v in range(len(lanes)):
                c = _U(LANES * v)
                dot = fma(load(x, c), load(Y, at + c), dot)
            error = Y.dtype.type(rating_at(value, levels, n)) - a - total(dot)
            squares += error * error
        sse += np.float64(squares)
    return sse


def room_for(m: int, data: Batches) -> tuple[NDArray[np.int64], Batches]:
    """For m ratings drawn from a block: where they stand there, and a mini-batch of them."""
    drawn = Batches(
        np.empty(m, np.int32),
        np.empty(m + 1, np.int64),
        np.empty(m, np.int32),
        np.empty(m, data.value.dtype),
        data.levels,
        data.starts,
    )
    return np.empty(m, np.int64), drawn


@njit(**APART)
def draw_batch(index, drawn, data, iteration, block, key):
    """Ratings drawn with replacement, as segments. Returns how many segments."""
    segment_user, segment_starts, item, value = (
        drawn.segment_user,
        drawn.segment_starts,
        drawn.item,
        drawn.value,
    )
    users, starts, items, values = data.segment_user, data.segment_starts, data.item, data.value
    draw_sorted(index, items.shape[0], iteration, block, key)
    segments, end = 0, np.int64(-1)
    for t in range(index.shape[0]):
        n = index[t]
        if n >= end:
            run = np.searchsorted(starts, n, side="right") - 1
            segment_user[segments], segment_starts[segments], end = users[run], t, starts[run + 1]
            segments += 1
        item[t], value[t] = items[n], values[n]
    segment_starts[segments] = index.shape[0]
    return segments


@njit(**EXACT)
def draw_sorted(index, n, iteration, block, key):
    """len(index) uniform draws from range(n), with replacement, in ascending order.

    Ordered uniforms are running sums of exponentials over their total, so no sort is needed and
    the gather that follows goes through memory in order.
    """
    m = index.shape[0]
    word = stream_word(STREAM_BATCH, block)
    scale = 1.0 / 18446744073709551616.0
    total = 0.0
    for lap in range(2):
        running = 0.0
        for q in range(m // 2 + 1):
            w0, w1, w2, w3 = philox(
                np.uint32(q), np.uint32(0), np.uint32(iteration), word, key[0], key[1]
            )
            for half in range(2):
                t = 2 * q + half
                high, low = (w0, w1) if half == 0 else (w2, w3)
                bits = (np.uint64(high) << np.uint64(32)) | np.uint64(low)
                if t <= m:
                    running -= np.log((np.float64(bits) + 1.0) * scale)
                if lap == 1 and t < m:
                    index[t] = min(np.int64(running / total * n), n - 1)
        total = running
