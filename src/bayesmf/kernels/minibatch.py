"""Compiled loops over the ratings of a mini-batch: errors, and the gradients of all its rows.

Rows are padded to whole vectors. The number of vectors is the length of a tuple, a compile-time
constant, so that loops over a row are unrolled.

A user's ratings are one segment of a mini-batch. While it lasts, the user's row has 1 for its bias:
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
from bayesmf.kernels.noise import NoiseScratch, fill_noise, make_noise_scratch
from bayesmf.kernels.simd import LANES, fma, load, prefetch, splat, store, total
from bayesmf.kernels.types import Rows

# Items' rows are prefetched some ratings ahead: as many as fill BYTES_AHEAD, at most MOST_AHEAD.
# Measured: 136K items of 30 factors take 42 ns a rating so, against 70 without. (Ordering a
# mini-batch by stripes of items makes segments short: 60 ns with 4 stripes, 70 with 16, against 57
# with none, all at 4 ratings ahead.)
BYTES_AHEAD = 2400
MOST_AHEAD = 16  # ratings
LINE = 64  # bytes

_U = np.uint64
_LANES = np.uint64(LANES)


class Batches(NamedTuple):
    """Mini-batches of a block: segments of one user's ratings, one after the other.

    Segment k has the ratings from segment_starts[k] to segment_starts[k + 1], mini-batch b the
    segments from starts[b] to starts[b + 1]. Users and items are positions in the block.
    """

    segment_user: NDArray[np.int32]
    segment_starts: NDArray[np.int64]
    item: NDArray[np.int32]
    value: NDArray[Any]  # codes of the ratings (uint8), or the ratings themselves (float32)
    levels: NDArray[np.float32]  # what the codes stand for
    starts: NDArray[np.int64]


class PaddedColumns(NamedTuple):
    """Kinds of the columns of padded rows, as ones and zeros."""

    n_factors: int
    width: int  # true columns: features, and a bias where there is one more
    lanes: tuple[int, ...]  # as many as a padded row has vectors
    features: Rows  # 1 for a feature, 0 elsewhere; padded
    bias: Rows  # 1 for the bias, 0 elsewhere; padded


def make_columns(n_factors: int, width: int, dtype: Any) -> PaddedColumns:
    """Describe rows with features, and a bias where `width` is one more than `n_factors`."""
    padded_width = padded(width)
    features, bias = np.zeros((2, padded_width), dtype)
    features[:n_factors] = 1.0
    bias[n_factors:width] = 1.0
    return PaddedColumns(n_factors, width, (0,) * (padded_width // LANES), features, bias)


def pad(rows: NDArray[Any], padded_width: int, dtype: Any = None) -> NDArray[Any]:
    """Copy with columns of zeros at the end: np.pad of the last axis, in another precision."""
    out = np.zeros((*rows.shape[:-1], padded_width), dtype or rows.dtype)
    out[..., : rows.shape[-1]] = rows
    return out


class Scratch(NamedTuple):
    """Buffers of a round, allocated once, in the precision of the rows."""

    x: Rows  # the user's row, with 1 for its bias
    gradient: Rows  # of the user
    item_gradients: Rows  # of all items, flat; zero between mini-batches
    touched: NDArray[np.int32]  # items of the mini-batch, in the order in which they came
    is_touched: NDArray[np.uint8]  # of each item; 0 between mini-batches
    pull: Rows  # of the prior on a row
    noise: NoiseScratch


def make_scratch(n_items: int, columns: PaddedColumns) -> Scratch:
    """Allocate for `n_items` items."""
    padded_width, dtype = len(columns.features), columns.features.dtype
    return Scratch(
        np.zeros(padded_width, dtype),
        np.zeros(padded_width, dtype),
        np.zeros(n_items * padded_width, dtype),
        np.zeros(n_items + 1, np.int32),
        np.zeros(n_items, np.uint8),
        np.zeros(padded_width, dtype),
        make_noise_scratch(columns.width, padded_width, dtype),
    )


class FlatRow(NamedTuple):
    """A padded row inside a flat array: array[start : start + padded_width]."""

    array: Rows
    start: np.uint64


@njit(**PART)
def open_segment(X, at, x, gradient, columns):
    """x = the user's row X[at:] with 1 for its bias, gradient = 0."""
    features, bias = columns.features, columns.bias
    zero = splat(X.dtype.type(0.0))
    for v in range(len(columns.lanes)):
        c = _U(LANES * v)
        store(x, c, fma(load(X, at + c), load(features, c), load(bias, c)))
        store(gradient, c, zero)


@njit(**PART)
def close_segment(gradient, errors, columns):
    """Set the gradient of the user's bias, which is the sum of the errors."""
    features, bias, errors = columns.features, columns.bias, splat(errors)
    for v in range(len(columns.lanes)):
        c = _U(LANES * v)
        store(gradient, c, fma(load(gradient, c), load(features, c), errors * load(bias, c)))


@njit(**PART)
def gather_segment(batches, segment, a, own, Y, weight, n_touched, scratch, lanes):
    """Add up the gradients of one user and of its items over the ratings of a segment.

    For e = rating - a - x . Y[item], where a is the user's bias, and g = own weight[item] e, where
    `own` is the weight of the user's ratings: gradient += g Y[item], item_gradients[item] += g x.
    Returns the number of touched items, sum(g) and sum(e ** 2).
    """
    item, value, levels = batches.item, batches.value, batches.levels
    x, gradient, item_gradients = scratch.x, scratch.gradient, scratch.item_gradients
    touched, is_touched = scratch.touched, scratch.is_touched
    lo, hi = batches.segment_starts[segment], batches.segment_starts[segment + _U(1)]
    zero = Y.dtype.type(0.0)
    nothing, padded_width = splat(zero), _U(LANES * len(lanes))
    errors, squares, last = zero, zero, _U(item.shape[0] - 1)
    far = _U(max(2, min(BYTES_AHEAD // (LANES * len(lanes) * Y.itemsize), MOST_AHEAD)))
    for n in range(_U(lo), _U(hi)):
        j = _U(item[n])
        at = j * padded_width
        ahead = _U(item[min(n + far, last)]) * padded_width
        for c in range(0, LANES * len(lanes), LINE // Y.itemsize):
            prefetch(Y, ahead + _U(c))
            prefetch(item_gradients, ahead + _U(c))
        # Without a branch, which would be mispredicted.
        touched[n_touched] = j
        n_touched += _U(1) - _U(is_touched[j])
        is_touched[j] = 1
        dot = nothing
        for v in range(len(lanes)):
            c = _U(LANES * v)
            dot = fma(load(x, c), load(Y, at + c), dot)
        error = Y.dtype.type(rating_at(value, levels, n)) - a - total(dot)
        squares += error * error
        error *= own * weight[j]  # ones if all ratings have the same noise
        errors += error
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
    """pull = Lambda (x - mu) for the row x = X[at:], Lambda a diagonal or a matrix."""
    padded_width = LANES * len(lanes)
    if Lambda.ndim == 1:
        for v in range(len(lanes)):
            c = _U(LANES * v)
            store(pull, c, load(Lambda, c) * (load(X, at + c) - load(mu, c)))
    else:
        for v in range(len(lanes)):
            store(pull, _U(LANES * v), splat(X.dtype.type(0.0)))
        for e in range(_U(padded_width)):
            away = splat(X[at + e] - mu[e])
            for v in range(len(lanes)):
                c = _U(LANES * v)
                store(pull, c, fma(away, load(Lambda, e * _U(padded_width) + c), load(pull, c)))


@njit(**APART)
def draw_noise(positions, lo, hi, wanted, numbers, noise, columns, counter):
    """Draw noise for those rows i of positions[lo:hi] with wanted[i] > 0, in this order.

    `numbers` are the rows' numbers in the whole matrix, by which a row's noise is the same in any
    block; the noise of the k-th row goes to noise.z[k * padded_width :].
    """
    number, k = noise.number, _U(0)
    for t in range(_U(lo), _U(hi)):
        i = _U(positions[t])
        number[k] = numbers[i]
        k += _U(wanted[i] > 0)
    if k > _U(0):
        fill_noise(noise, k, columns.width, _U(LANES * len(columns.lanes)), counter)


@njit(**ENTRY)
def sum_squared_errors(batches, X, Y, columns, weights, sums):
    """Sum over all ratings of a block of e ** 2 = (rating - prediction) ** 2, at one state.

    X and Y are padded rows of users and items. Where `weights` of their ratings are given, (users,
    items), e ** 2 is also added to `sums`, (users, items): to the user's times the item's weight,
    to the item's times the user's. Without weights both are None, compiled separately.
    """
    lanes, features = columns.lanes, columns.features
    segment_user, segment_starts, item = batches.segment_user, batches.segment_starts, batches.item
    value, levels, biased = batches.value, batches.levels, columns.width > columns.n_factors
    X, Y = X.reshape(-1), Y.reshape(-1)
    x, unused = np.empty_like(features), np.empty_like(features)
    padded_width, sse, last = _U(LANES * len(lanes)), 0.0, _U(max(item.shape[0], 1) - 1)
    zero = Y.dtype.type(0.0)
    far = _U(max(2, min(BYTES_AHEAD // (LANES * len(lanes) * Y.itemsize), MOST_AHEAD)))
    for k in range(_U(segment_user.shape[0])):
        at = _U(segment_user[k]) * padded_width
        open_segment(X, at, x, unused, columns)
        a = X[at + _U(columns.n_factors)] if biased else zero
        squares = zero
        for n in range(_U(segment_starts[k]), _U(segment_starts[k + _U(1)])):
            at = _U(item[n]) * padded_width
            ahead = _U(item[min(n + far, last)]) * padded_width
            for c in range(0, LANES * len(lanes), LINE // Y.itemsize):
                prefetch(Y, ahead + _U(c))
            dot = splat(zero)
            for v in range(len(lanes)):
                c = _U(LANES * v)
                dot = fma(load(x, c), load(Y, at + c), dot)
            error = Y.dtype.type(rating_at(value, levels, n)) - a - total(dot)
            squares += error * error
            if weights is not None:
                i, j, square = _U(segment_user[k]), _U(item[n]), np.float64(error * error)
                sums[0][i] += np.float64(weights[1][j]) * square
                sums[1][j] += np.float64(weights[0][i]) * square
        sse += np.float64(squares)
    return sse


@njit(**EXACT)
def sum_weights(batches, own, other, of_users, of_items):
    """of_users[i] += other[j] and of_items[j] += own[i] for each rating of a block."""
    segment_user, segment_starts, item = batches.segment_user, batches.segment_starts, batches.item
    for k in range(segment_user.shape[0]):
        i, total = segment_user[k], 0.0
        for n in range(segment_starts[k], segment_starts[k + 1]):
            total += np.float64(other[item[n]])
            of_items[item[n]] += np.float64(own[i])
        of_users[i] += total


def room_for(m: int, batches: Batches) -> tuple[NDArray[np.int64], Batches]:
    """Allocate for m ratings drawn from a block: their indices there, and a mini-batch of them."""
    drawn = Batches(
        np.empty(m, np.int32),
        np.empty(m + 1, np.int64),
        np.empty(m, np.int32),
        np.empty(m, batches.value.dtype),
        batches.levels,
        batches.starts,
    )
    return np.empty(m, np.int64), drawn


@njit(**APART)
def draw_batch(index, drawn, batches, iteration, block, key):
    """Draw len(index) ratings of a block with replacement, as the segments of one mini-batch.

    `index` and `drawn` are those of `room_for`, to be filled. Returns how many segments there are.
    """
    segment_user, segment_starts, item, value, _, _ = drawn
    users, starts, items, values, _, _ = batches
    draw_sorted(index, items.shape[0], iteration, block, key)
    segments, end = 0, np.int64(-1)
    for t in range(index.shape[0]):
        n = index[t]
        if n >= end:
            k = np.searchsorted(starts, n, side="right") - 1
            segment_user[segments], segment_starts[segments], end = users[k], t, starts[k + 1]
            segments += 1
        item[t], value[t] = items[n], values[n]
    segment_starts[segments] = index.shape[0]
    return segments


@njit(**EXACT)
def draw_sorted(index, n, iteration, block, key):
    """index = np.sort(rng.integers(n, size=len(index))): uniform draws, with replacement.

    Ordered uniforms are running sums of exponentials over their total, so no sort is needed and
    the gather that follows goes through memory in order.
    """
    m = index.shape[0]
    word = stream_word(STREAM_BATCH, block)
    scale = 1.0 / 18446744073709551616.0  # 2^-64: 64 random bits become uniform on (0, 1]
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
