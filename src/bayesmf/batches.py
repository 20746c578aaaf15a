"""A block's ratings, laid out as the mini-batches in which they will be read.

Ratings are dealt into mini-batches once. Inside a mini-batch they stand by user, then item, so that
an update streams through memory and meets each user in one run. Mini-batches are then
visited in an order drawn anew for each pass (random reshuffling).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from bayesmf.grid import Grid, stripes
from bayesmf.keys import STREAM_BATCH, STREAM_LAYOUT, generator


@dataclass(frozen=True)
class TrainingData:
    """Ratings in the units of the chain: centred and scaled, row numbers instead of ids."""

    user: NDArray[np.int32]
    item: NDArray[np.int32]
    value: NDArray[np.float32]
    n_users: int
    n_items: int

    def __len__(self) -> int:
        return len(self.value)

    def user_counts(self) -> NDArray[np.int64]:
        """Ratings of each user."""
        return np.bincount(self.user, minlength=self.n_users)

    def item_counts(self) -> NDArray[np.int64]:
        """Ratings of each item."""
        return np.bincount(self.item, minlength=self.n_items)


@dataclass(frozen=True)
class Block:
    """The ratings X^(s) where some users and some items meet.

    `user_rows` and `item_rows` are the rows of the chain's parameters that belong to the block;
    `user` and `item` are positions in these. `starts` delimits the mini-batches.
    """

    number: int
    user_rows: NDArray[np.int32]
    item_rows: NDArray[np.int32]
    user: NDArray[np.int32]
    item: NDArray[np.int32]
    value: NDArray[np.float32]
    starts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.value)

    @property
    def n_batches(self) -> int:
        return len(self.starts) - 1


def make_blocks(data: TrainingData, grid: Grid, n_batches: int, seed: int) -> list[Block]:
    """Cut the ratings into the grid's blocks, each laid out in `n_batches` mini-batches.

    Every block has the same number of mini-batches, of size N_s / n_batches: so a round of a given
    length is the same share of a pass everywhere, and visit rates stay what the scheduler says.
    """
    user_stripe = stripes(data.user_counts(), grid.rows, 2 * seed)
    item_stripe = stripes(data.item_counts(), grid.cols, 2 * seed + 1)
    users = [np.flatnonzero(user_stripe == r).astype(np.int32) for r in range(grid.rows)]
    items = [np.flatnonzero(item_stripe == c).astype(np.int32) for c in range(grid.cols)]
    user_position = _positions(users, data.n_users)
    item_position = _positions(items, data.n_items)
    owner = user_stripe[data.user] * grid.cols + item_stripe[data.item]
    by_block = np.argsort(owner, kind="stable")
    ends = np.cumsum(np.bincount(owner, minlength=len(grid)))
    blocks = []
    for number, members in enumerate(np.split(by_block, ends[:-1])):
        rows, cols = users[number // grid.cols], items[number % grid.cols]
        user = user_position[data.user[members]]
        item = item_position[data.item[members]]
        order, starts = _deal(user, item, n_batches, seed, number)
        value = data.value[members]
        blocks.append(Block(number, rows, cols, user[order], item[order], value[order], starts))
    return blocks


def _positions(groups: list[NDArray[np.int32]], n: int) -> NDArray[np.int32]:
    out = np.empty(n, dtype=np.int32)
    for rows in groups:
        out[rows] = np.arange(len(rows), dtype=np.int32)
    return out


def _deal(
    user: NDArray[np.int32], item: NDArray[np.int32], n_batches: int, seed: int, block: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Order of the ratings by (mini-batch, user, item), and where each mini-batch starts."""
    n = len(user)
    starts = (np.arange(n_batches + 1, dtype=np.int64) * n) // n_batches
    batch = np.empty(n, dtype=np.int64)
    rng = generator(np.zeros(2, np.uint32), seed, STREAM_LAYOUT, block + 1)
    batch[rng.permutation(n)] = np.repeat(np.arange(n_batches), np.diff(starts))
    return np.lexsort((item, user, batch)), starts


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


@dataclass(frozen=True)
class Stripe:
    """The ratings of some rows of one side, row by row: what a Gibbs half-sweep needs.

    `rows` are row numbers of this side; ratings of rows[k] are at [starts[k], starts[k + 1]),
    `other` are row numbers of the other side.
    """

    rows: NDArray[np.int32]
    starts: NDArray[np.int64]
    other: NDArray[np.int32]
    value: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.value)


def make_stripes(
    row: NDArray[np.int32],
    other: NDArray[np.int32],
    value: NDArray[np.float32],
    n_rows: int,
    n_stripes: int,
) -> list[Stripe]:
    """Cut one side into stripes of consecutive rows with near-equal numbers of ratings."""
    order = np.lexsort((other, row))
    starts = np.zeros(n_rows + 1, dtype=np.int64)
    np.cumsum(np.bincount(row, minlength=n_rows), out=starts[1:])
    other, value = other[order], value[order]
    goals = (np.arange(1, n_stripes) * len(value)) // n_stripes
    cuts = np.unique(np.concatenate([[0], np.searchsorted(starts, goals), [n_rows]]))
    return [
        Stripe(
            np.arange(lo, hi, dtype=np.int32),
            starts[lo : hi + 1] - starts[lo],
            other[starts[lo] : starts[hi]],
            value[starts[lo] : starts[hi]],
        )
        for lo, hi in pairwise(cuts)
    ]
