"""Compiled passes that deal ratings into the mini-batches of blocks, and count them.

Ratings are read once in storage order, by user, without sorting or a permutation array. A rating's
mini-batch is drawn with probability proportional to its remaining size, so all partitions into
mini-batches of the given sizes are equally likely. The draw is deterministic and made twice, the
first time to count.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.jit import APART, EXACT, njit

_U = np.uint64
_S32, _MASK = np.uint64(32), np.uint64(0xFFFFFFFF)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class Lists(NamedTuple):
    """Ratings by user, as in `RowLists`."""

    starts: NDArray[np.int64]
    other: NDArray[np.int32]
    value: NDArray[Any]


class Cut(NamedTuple):
    """How users and items are cut into stripes; a block is a stripe of each."""

    user_stripe: NDArray[np.int32]  # of each user
    item_stripe: NDArray[np.int32]  # of each item
    n_cols: int  # stripes of items
    user_position: NDArray[np.int32]  # of each user in its stripe
    item_position: NDArray[np.int32]  # of each item in its stripe


class Dealt(NamedTuple):
    """Mini-batches of all blocks, one after the other; see `Batches`."""

    segment_user: NDArray[np.int32]
    segment_starts: NDArray[np.int64]  # from the block's beginning; a block has one more, its size
    item: NDArray[np.int32]
    value: NDArray[Any]


@njit(inline="always")
def mix(x):
    """64 pseudo-random bits from a counter: the finalizer of splitmix64."""
    x = (x ^ (x >> _U(30))) * _U(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> _U(27))) * _U(0x94D049BB133111EB)
    return x ^ (x >> _U(31))


@njit(**APART)
def draw_batch(left, most, tries, block, n_batches, seed):
    """Draw a mini-batch of the block, in proportion to the number of ratings `left` to it.

    By rejection: a uniform proposal is accepted with probability left / most. Remaining sizes
    differ little until the end.
    """
    while True:
        tries[block] += _U(1)
        word = mix(seed[block] + tries[block] * _GOLDEN)
        b = block * n_batches + np.int64(((word >> _S32) * _U(n_batches)) >> _S32)
        if ((word & _MASK) * most[block]) >> _S32 < left[b]:
            left[b] -= _U(1)
            return b


@njit(**EXACT)
def batch_sizes(sizes, n_batches):
    """Ratings of each mini-batch: equal shares of the blocks' sizes, to one rating."""
    left = np.empty(len(sizes) * n_batches, np.uint64)
    for s in range(len(sizes)):
        for b in range(n_batches):
            left[s * n_batches + b] = (b + 1) * sizes[s] // n_batches - b * sizes[s] // n_batches
    return left


@njit(**APART)
def update_most(left, most, due, block, n_batches):
    """most[block] = left[mini-batches of the block].max(), every n_batches ratings of the block.

    In between it is an upper bound, because `left` only decreases.
    """
    if due[block] == 0:
        largest = _U(0)
        for b in range(block * n_batches, (block + 1) * n_batches):
            largest = max(largest, left[b])
        most[block], due[block] = largest, n_batches
    due[block] -= 1


@njit(**EXACT)
def count_blocks(starts, other, user_stripe, item_stripe, n_cols, n_blocks):
    """Ratings of each block."""
    sizes = np.zeros(n_blocks, np.int64)
    for i in range(len(starts) - 1):
        first = user_stripe[i] * n_cols
        for k in range(starts[i], starts[i + 1]):
            sizes[first + item_stripe[other[k]]] += 1
    return sizes


@njit(**EXACT)
def take_block(starts, other, value, users, item_position):
    """Row lists of some users with those of their items that have a position, by that position."""
    own = np.zeros(len(users) + 1, np.int64)
    for r in range(len(users)):
        n = 0
        for k in range(starts[users[r]], starts[users[r] + 1]):
            n += item_position[other[k]] >= 0
        own[r + 1] = own[r] + n
    item, rating = np.empty(own[-1], np.int32), np.empty(own[-1], value.dtype)
    at = 0
    for r in range(len(users)):
        for k in range(starts[users[r]], starts[users[r] + 1]):
            j = item_position[other[k]]
            if j >= 0:
                item[at], rating[at] = j, value[k]
                at += 1
    return own, item, rating


@njit(**EXACT)
def count_segments(starts, other, user_stripe, item_stripe, n_cols, sizes, n_batches, seed):
    """Users met in each mini-batch of each block."""
    n_blocks = len(sizes)
    left, most = batch_sizes(sizes, n_batches), np.zeros(n_blocks, np.uint64)
    due, tries = np.zeros(n_blocks, np.int64), np.zeros(n_blocks, np.uint64)
    last, segments = np.full(len(left), -1, np.int64), np.zeros(len(left), np.int64)
    for i in range(len(starts) - 1):
        first = user_stripe[i] * n_cols
        for k in range(starts[i], starts[i + 1]):
            block = first + item_stripe[other[k]]
            update_most(left, most, due, block, n_batches)
            b = draw_batch(left, most, tries, block, n_batches, seed)
            if last[b] != i:
                last[b] = i
                segments[b] += 1
    return segments


@njit(**EXACT)
def deal(lists, cut, sizes, n_batches, seed, segments, out):
    """Write each rating to its mini-batch, and record where segments begin.

    `sizes` are those of `count_blocks`, `segments` those of `count_segments`. Blocks, and the
    mini-batches in them, are consecutive in `out`.
    """
    starts, other, value = lists
    user_stripe, item_stripe, n_cols, user_position, item_position = cut
    segment_user, segment_starts, item_out, value_out = out
    n_blocks = len(sizes)
    left, most = batch_sizes(sizes, n_batches), np.zeros(n_blocks, np.uint64)
    due, tries = np.zeros(n_blocks, np.int64), np.zeros(n_blocks, np.uint64)
    last = np.full(len(left), -1, np.int64)
    free, next_one, base = np.empty_like(last), np.empty_like(last), np.empty(n_blocks, np.int64)
    at, segment = 0, 0
    for b in range(len(left)):
        if b % n_batches == 0:
            base[b // n_batches] = at
        free[b], next_one[b] = at, segment
        at += np.int64(left[b])
        segment += segments[b]
        if (b + 1) % n_batches == 0:
            segment_starts[segment + b // n_batches] = sizes[b // n_batches]
    for i in range(len(starts) - 1):
        first = user_stripe[i] * n_cols
        for k in range(starts[i], starts[i + 1]):
            j = other[k]
            block = first + item_stripe[j]
            update_most(left, most, due, block, n_batches)
            b = draw_batch(left, most, tries, block, n_batches, seed)
            at = free[b]
            free[b] = at + 1
            item_out[at] = item_position[j]
            value_out[at] = value[k]
            if last[b] != i:
                last[b] = i
                segment_user[next_one[b]] = user_position[i]
                segment_starts[next_one[b] + block] = at - base[block]
                next_one[b] += 1


@njit(**EXACT)
def count_users(segment_user, segment_starts, visits, counts):
    """Mini-batches that hold each user, and ratings of each: visits[i] += ..., counts[i] += ..."""
    for r in range(len(segment_user)):
        visits[segment_user[r]] += 1
        counts[segment_user[r]] += segment_starts[r + 1] - segment_starts[r]


@njit(**EXACT)
def count_items(item, rating_starts, visits, counts):
    """Mini-batches that hold each item, and ratings of each: visits[j] += ..., counts[j] += ..."""
    last = np.full(len(visits), -1, np.int64)
    for b in range(len(rating_starts) - 1):
        for n in range(rating_starts[b], rating_starts[b + 1]):
            j = item[n]
            counts[j] += 1
            if last[j] != b:
                last[j] = b
                visits[j] += 1
