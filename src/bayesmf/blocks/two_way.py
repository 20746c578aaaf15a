"""Blocks whose ratings are listed both by user and by item: a whole chain can run in one.

Stripes are cut so that the first block is the best known: its users are the busiest, its items the
most popular. What is learnt there anchors all others (docs/propagation.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bayesmf.blocks.blocks import stripes
from bayesmf.blocks.grid import Grid
from bayesmf.blocks.stripes import Stripe
from bayesmf.data.training import TrainingData
from bayesmf.kernels.csr import RowLists, transpose
from bayesmf.kernels.deal import take_block

Stripes = tuple[list[NDArray[np.int32]], list[NDArray[np.int32]]]


@dataclass(frozen=True)
class TwoWayBlock:
    """The ratings where some users and some items meet, by user and by item.

    Row numbers of the stripes are those of the whole matrix, those of the other side positions in
    the block.
    """

    number: int
    users: Stripe
    items: Stripe

    def __len__(self) -> int:
        return len(self.users)

    def side(self, side: int) -> Stripe:
        """By user (0) or by item (1)."""
        return self.items if side else self.users

    def numbers(self, side: int) -> NDArray[np.int32]:
        """Numbers of the block's users (0) or items (1)."""
        return self.side(side).rows

    def row_counts(self, side: int) -> NDArray[np.int64]:
        """Ratings that these have in the block."""
        return self.side(side).counts


def busy_first(
    counts: NDArray[np.int64], n_stripes: int, share: float, seed: int
) -> list[NDArray[np.int32]]:
    """Rows of stripes: the first has the busiest, which have that `share` of the ratings.

    The others are dealt: they are alike, and so are the chains that run in their blocks. Every
    stripe has a row.
    """
    if n_stripes == 1:
        return [np.arange(len(counts), dtype=np.int32)]
    order = np.argsort(-counts, kind="stable")
    reached = np.searchsorted(np.cumsum(counts[order]), share * counts.sum()) + 1
    first = int(np.clip(reached, 1, len(counts) - n_stripes + 1))
    rest = np.sort(order[first:])
    of = stripes(counts[rest], n_stripes - 1, seed)
    dealt = [rest[of == k] for k in range(n_stripes - 1)]
    return [rows.astype(np.int32) for rows in (np.sort(order[:first]), *dealt)]


def cut_two_ways(data: TrainingData, grid: Grid, share: float, seed: int) -> Stripes:
    """Users of each row of blocks, items of each column."""
    return (
        busy_first(data.user_counts(), grid.rows, share, 2 * seed),
        busy_first(data.item_counts(), grid.cols, share, 2 * seed + 1),
    )


def make_two_way(data: TrainingData, grid: Grid, cut: Stripes, number: int) -> TwoWayBlock:
    """One block of the grid, alone."""
    row, col = divmod(number, grid.cols)
    users, items = cut[0][row], cut[1][col]
    position = np.full(data.n_items, -1, np.int32)
    position[items] = np.arange(len(items), dtype=np.int32)
    lists = data.by_user
    own = RowLists(*take_block(lists.starts, lists.other, lists.value, users, position))
    turned = transpose(own, len(items))
    return TwoWayBlock(
        number,
        Stripe(users, own.starts, own.other, own.value, data.levels),
        Stripe(items, turned.starts, turned.other, turned.value, data.levels),
    )
