"""A block's ratings, laid out as the mini-batches in which they will be read.

Ratings are dealt into mini-batches once. Inside a mini-batch they stand by user, then item, so that
an update streams through memory and meets each user in one segment. Mini-batches are then
visited in a new random order for each pass (random reshuffling).

Only rows in a mini-batch are updated, so the prior's gradient arrives on visits only; divided by
the probability of a visit, h-bar, it is unbiased (estimator G3, Section 3.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.blocks.grid import Grid
from bayesmf.data.training import TrainingData
from bayesmf.kernels.csr import RowLists
from bayesmf.kernels.deal import (
    Cut,
    Dealt,
    Lists,
    count_blocks,
    count_items,
    count_segments,
    count_users,
    deal,
    take_block,
)
from bayesmf.kernels.keys import STREAM_BATCH, STREAM_LAYOUT, STREAM_STRIPES, generator
from bayesmf.kernels.minibatch import Batches

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Block:
    """The ratings X^(s) of some users for some items, as segments of one user's ratings.

    `user_rows` and `item_rows` are the rows of the chain's parameters that belong to the block;
    in `batches`, `segment_user` and `item` are positions in these. Segment k has the ratings from
    segment_starts[k] to segment_starts[k + 1], mini-batch b the segments from starts[b] to
    starts[b + 1], users ascending. `value` are ratings or their codes.
    """

    number: int
    user_rows: NDArray[np.int32]
    item_rows: NDArray[np.int32]
    batches: Batches

    def __len__(self) -> int:
        return len(self.batches.item)

    @property
    def n_batches(self) -> int:
        return len(self.batches.starts) - 1

    @property
    def rating_starts(self) -> NDArray[np.int64]:
        """Where mini-batches begin among the ratings."""
        return self.batches.segment_starts[self.batches.starts]

    def triples(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[Any]]:
        """Positions of user and item, and the rating, of all ratings: for small data alone."""
        own = self.batches
        value = own.levels[own.value] if own.value.dtype == np.uint8 else own.value
        return np.repeat(own.segment_user, np.diff(own.segment_starts)), own.item, value

    @cached_property
    def _found(self) -> NDArray[np.int64]:
        sizes = len(self.user_rows), len(self.item_rows)
        out = np.zeros((2, sum(sizes)), np.int64)
        own, users, items = self.batches, out[:, : sizes[0]], out[:, sizes[0] :]
        count_users(own.segment_user, own.segment_starts, users[0], users[1])
        count_items(own.item, self.rating_starts, items[0], items[1])
        return out

    def visits(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Mini-batches that hold each user and each item."""
        return self._found[0, : len(self.user_rows)], self._found[0, len(self.user_rows) :]

    def counts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Ratings of each user and of each item."""
        return self._found[1, : len(self.user_rows)], self._found[1, len(self.user_rows) :]


def make_blocks(data: TrainingData, grid: Grid, n_batches: int, seed: int) -> list[Block]:
    """Cut the ratings into the grid's blocks, each laid out in `n_batches` mini-batches.

    Every block has the same number of mini-batches, of size N_s / n_batches: so a round of a given
    length is the same share of a pass everywhere, and visit rates stay what the scheduler says.
    Blocks are stretches of arrays that are made once for all of them.
    """
    user_stripe, item_stripe = _cut(data, grid, seed)
    users = [np.flatnonzero(user_stripe == r).astype(np.int32) for r in range(grid.rows)]
    items = [np.flatnonzero(item_stripe == c).astype(np.int32) for c in range(grid.cols)]
    lists, seeds = data.by_user, _block_seeds(grid, seed)
    sizes = count_blocks(lists.starts, lists.other, user_stripe, item_stripe, grid.cols, len(grid))
    positions = _positions(users, data.n_users), _positions(items, data.n_items)
    cut = Cut(user_stripe, item_stripe, grid.cols, *positions)
    segments, dealt = _deal(lists, cut, sizes, n_batches, seeds)
    blocks, at, first = [], 0, 0
    for number, size in enumerate(sizes):
        starts = np.zeros(n_batches + 1, np.int64)
        np.cumsum(segments[number * n_batches : (number + 1) * n_batches], out=starts[1:])
        own, end = slice(at, at + size), first + starts[-1]
        blocks.append(
            Block(
                number,
                users[number // grid.cols],
                items[number % grid.cols],
                Batches(
                    dealt.segment_user[first:end],
                    dealt.segment_starts[first + number : end + number + 1],
                    dealt.item[own],
                    dealt.value[own],
                    data.levels,
                    starts,
                ),
            )
        )
        at, first = at + size, end
    return blocks


def make_block(data: TrainingData, grid: Grid, n_batches: int, seed: int, number: int) -> Block:
    """One of the blocks of `make_blocks`, without making the others.

    Every block is dealt by its own random numbers, so it can be dealt alone.
    """
    row, col = divmod(number, grid.cols)
    user_stripe, item_stripe = _cut(data, grid, seed)
    users, items = (
        np.flatnonzero(of == own).astype(np.int32)
        for of, own in ((user_stripe, row), (item_stripe, col))
    )
    position = np.full(data.n_items, -1, np.int32)
    position[items] = np.arange(len(items), dtype=np.int32)
    lists = data.by_user
    own = RowLists(*take_block(lists.starts, lists.other, lists.value, users, position))
    same = np.arange(len(users), dtype=np.int32), np.arange(len(items), dtype=np.int32)
    cut = Cut(np.zeros(len(users), np.int32), np.zeros(len(items), np.int32), 1, *same)
    seeds = _block_seeds(grid, seed)[number : number + 1]
    segments, dealt = _deal(own, cut, np.array([len(own)], np.int64), n_batches, seeds)
    starts = np.zeros(n_batches + 1, np.int64)
    np.cumsum(segments, out=starts[1:])
    return Block(number, users, items, Batches(*dealt, data.levels, starts))


def _deal(
    lists: RowLists,
    cut: Cut,
    sizes: NDArray[np.int64],
    n_batches: int,
    seeds: NDArray[np.uint64],
) -> tuple[NDArray[np.int64], Dealt]:
    """Numbers of segments of all mini-batches, and the dealt ratings of all blocks."""
    pack = lists.starts, lists.other
    segments = count_segments(*pack, *cut[:3], sizes, n_batches, seeds)
    n = int(segments.sum())
    dealt = Dealt(
        np.empty(n, np.int32), np.empty(n + len(sizes), np.int64),
        np.empty(len(lists), np.int32), np.empty(len(lists), lists.value.dtype),
    )  # fmt: skip
    deal(Lists(*pack, lists.value), cut, sizes, n_batches, seeds, segments, dealt)
    return segments, dealt


def _cut(data: TrainingData, grid: Grid, seed: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The block row of each user, the block column of each item."""
    users = stripes(data.user_counts(), grid.rows, 2 * seed).astype(np.int32)
    return users, stripes(data.item_counts(), grid.cols, 2 * seed + 1).astype(np.int32)


def stripes(counts: NDArray[np.int64], n_stripes: int, seed: int) -> NDArray[np.int32]:
    """The stripe of each row, so that stripes hold near-equal numbers of ratings.

    Rows are dealt in order of their counts, forth and back over the stripes, ties in random order.
    Random order also spreads related rows, for even blocks.
    """
    tie = generator(np.zeros(2, np.uint32), seed, STREAM_STRIPES).random(len(counts))
    order = np.lexsort((tie, -counts))
    deal = np.arange(len(counts)) % (2 * n_stripes)
    snake = np.where(deal < n_stripes, deal, 2 * n_stripes - 1 - deal)
    out = np.empty(len(counts), dtype=np.int32)
    out[order] = snake
    return out


def _block_seeds(grid: Grid, seed: int) -> NDArray[np.uint64]:
    rng = generator(np.zeros(2, np.uint32), seed, STREAM_LAYOUT)
    return rng.integers(0, 2**64, len(grid), np.uint64)


def _positions(groups: list[NDArray[np.int32]], n: int) -> NDArray[np.int32]:
    out = np.empty(n, dtype=np.int32)
    for rows in groups:
        out[rows] = np.arange(len(rows), dtype=np.int32)
    return out


def batch_order(
    key: NDArray[np.uint32], block: int, n_batches: int, first: int, length: int
) -> NDArray[np.int64]:
    """Which mini-batches the iterations first, first + 1, ... of a chain in a block read.

    Every pass over the block is a permutation of its mini-batches, keyed by the pass: it can be
    found from the iteration number alone.
    """
    out = np.empty(length, dtype=np.int64)
    done = 0
    while done < length:
        lap, at = divmod(first + done, n_batches)
        order = generator(key, lap, STREAM_BATCH, block).permutation(n_batches)
        part = order[at : at + length - done]
        out[done : done + len(part)] = part
        done += len(part)
    return out


def h_replacement(counts: NDArray[np.int64], n: int, m: int) -> Array:
    """The printed h = 1 - (1 - N_i/N)^m, for m ratings drawn with replacement."""
    if n == 0:
        return np.zeros(len(counts))
    with np.errstate(divide="ignore"):  # a row that has the whole block: log(0), h = 1
        return np.asarray(-np.expm1(m * np.log1p(-counts / n)))


def block_h(block: Block, batch_size: int | None) -> tuple[Array, Array]:
    """(h_user, h_item) of the block's rows.

    Of dealt mini-batches (`batch_size=None`), the share that hold the row: exact, by counting.
    """
    if batch_size is None:
        user, item = (visits / block.n_batches for visits in block.visits())
    else:
        user, item = (h_replacement(n, len(block), batch_size) for n in block.counts())
    return user, item


def h_bar(
    blocks: Sequence[Block],
    visit_rate: Array,
    n_users: int,
    n_items: int,
    batch_size: int | None,
) -> tuple[Array, Array]:
    """hbar_user, hbar_item = sum over blocks of v^(s) h^(s)."""
    hbar_user, hbar_item = np.zeros(n_users), np.zeros(n_items)
    for block, v in zip(blocks, visit_rate, strict=True):
        h_user, h_item = block_h(block, batch_size)
        hbar_user[block.user_rows] += v * h_user
        hbar_item[block.item_rows] += v * h_item
    return hbar_user, hbar_item


def inverse(hbar: Array) -> Array:
    """1/hbar; 0 for rows without ratings, which no mini-batch has."""
    return np.asarray(np.divide(1.0, hbar, out=np.zeros_like(hbar), where=hbar > 0))
