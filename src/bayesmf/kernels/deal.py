"""Compiled passes that deal ratings to the mini-batches of blocks, and count what was dealt.

Ratings are read in the order in which they are kept, by user, and go where they belong at once:
nothing is sorted and no permutation is held. A rating's mini-batch is drawn with the chances of a
shuffled pack of cards, in proportion to the places left: all ways of dealing mini-batches of just
these sizes are equally likely. The draw is repeatable, so it is made twice, once to count.
"""

from __future__ import annotations

import numpy as np

from bayesmf.kernels.jit import APART, EXACT, njit

_U = np.uint64
_S32, _MASK = np.uint64(32), np.uint64(0xFFFFFFFF)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@njit(inline="always")
def mix(x):
    """64 bits that look random from a counter: the finalizer of splitmix64."""
    x = (x ^ (x >> _U(30))) * _U(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> _U(27))) * _U(0x94D049BB133111EB)
    return x ^ (x >> _U(31))


@njit(**APART)
def draw_batch(left, most, tries, block, n_batches, seed):
    """A mini-batch of the block, with probability in proportion to the places `left` in it.

    By rejection: one is proposed, all alike, and taken with probability left / most. Places left
    differ little before the very end.
    """
    while True:
        tries[block] += _U(1)
        word = mix(seed[block] + tries[block] * _GOLDEN)
        b = block * n_batches + np.int64(((word >> _S32) * _U(n_batches)) >> _S32)
        if ((word & _MASK) * most[block]) >> _S32 < left[b]:
            left[b] -= _U(1)
            return b


@njit(**EXACT)
def places(sizes, n_batches):
    """Places in each mini-batch: equal shares of the blocks' sizes, to one rating."""
    left = np.empty(len(sizes) * n_batches, np.uint64)
    for s in range(len(sizes)):
        for b in range(n_batches):
            left[s * n_batches + b] = (b + 1) * sizes[s] // n_batches - b * sizes[s] // n_batches
    return left


@njit(**APART)
def keep_most(left, most, dealt, block, n_batches):
    """Bring the bound on the places left up to date, now and then."""
    if dealt[block] == 0:
        largest = _U(0)
        for b in range(block * n_batches, (block + 1) * n_batches):
            largest = max(largest, left[b])
        most[block], dealt[block] = largest, n_batches
    dealt[block] -= 1


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
    left, most = places(sizes, n_batches), np.zeros(n_blocks, np.uint64)
    dealt, tries = np.zeros(n_blocks, np.int64), np.zeros(n_blocks, np.uint64)
    last, segments = np.full(len(left), -1, np.int64), np.zeros(len(left), np.int64)
    for i in range(len(starts) - 1):
        first = user_stripe[i] * n_cols
        for k in range(starts[i], starts[i + 1]):
            block = first + item_stripe[other[k]]
            keep_most(left, most, dealt, block, n_batches)
            b = draw_batch(left, most, tries, block, n_batches, seed)
            if last[b] != i:
                last[b] = i
                segments[b] += 1
    return segments


@njit(**EXACT)
def deal(
    starts, other, value, user_stripe, item_stripe, user_position, item_position, n_cols, sizes,
    n_batches, seed, segments, segment_user, segment_starts, item_out, value_out,
):  # fmt: skip
    """Put every rating into its mini-batch, and note where a user's run begins.

    Blocks stand one after the other, and so do the mini-batches in them. Starts of segments count
    from the block's beginning; a block has one more of them, its size.
    """
    n_blocks = len(sizes)
    left, most = places(sizes, n_batches), np.zeros(n_blocks, np.uint64)
    dealt, tries = np.zeros(n_blocks, np.int64), np.zeros(n_blocks, np.uint64)
    last = np.full(len(left), -1, np.int64)
    free, next_run, base = np.empty_like(last), np.empty_like(last), np.empty(n_blocks, np.int64)
    at, run = 0, 0
    for b in range(len(left)):
        if b % n_batches == 0:
            base[b // n_batches] = at
        free[b], next_run[b] = at, run
        at += np.int64(left[b])
        run += segments[b]
        if (b + 1) % n_batches == 0:
            segment_starts[run + b // n_batches] = sizes[b // n_batches]
    for i in range(len(starts) - 1):
        first = user_stripe[i] * n_cols
        for k in range(starts[i], starts[i + 1]):
            j = other[k]
            block = first + item_stripe[j]
            keep_most(left, most, dealt, block, n_batches)
            b = draw_batch(left, most, tries, block, n_batches, seed)
            at = free[b]
            free[b] = at + 1
            item_out[at] = item_position[j]
            value_out[at] = value[k]
            if last[b] != i:
                last[b] = i
                segment_user[next_run[b]] = user_position[i]
                segment_starts[next_run[b] + block] = at - base[block]
                next_run[b] += 1


@njit(**EXACT)
def count_users(segment_user, segment_starts, visits, counts):
    """Mini-batches that hold each user, and ratings of each: a run is a user in a mini-batch."""
    for r in range(len(segment_user)):
        visits[segment_user[r]] += 1
        counts[segment_user[r]] += segment_starts[r + 1] - segment_starts[r]


@njit(**EXACT)
def count_items(item, rating_starts, visits, counts):
    """The same for items."""
    last = np.full(len(visits), -1, np.int64)
    for b in range(len(rating_starts) - 1):
        for n in range(rating_starts[b], rating_starts[b + 1]):
            j = item[n]
            counts[j] += 1
            if last[j] != b:
                last[j] = b
                visits[j] += 1
