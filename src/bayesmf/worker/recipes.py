"""Recipes: how workers on other machines read their ratings from the packed file.

A recipe is a few bytes, or the weights of a block's rows; workers read the ratings, most of the
data, from shared storage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from bayesmf.blocks.blocks import Block, make_block
from bayesmf.blocks.grid import Grid
from bayesmf.blocks.stripes import Stripe
from bayesmf.data.training import TrainingData
from bayesmf.errors import InputError
from bayesmf.kernels.csr import Origin
from bayesmf.packed.ratings import PackedRatings, this_copy
from bayesmf.worker.block_tasks import HeldBlock


@lru_cache(maxsize=4)
def open_origin(origin: Origin) -> PackedRatings:
    """The packed file as it is on this machine, which must be the one the driver has.

    Values are checked once in a process. The driver has verified the checksums; on another machine
    or in another container they are verified again.
    """
    packed = PackedRatings.open(origin.path, verify=this_copy(origin.path) != origin.copy)
    if packed.origin.digest != origin.digest:
        raise InputError(f"{origin.path} holds other ratings here than on the driver's machine")
    return packed


@dataclass(frozen=True)
class StripeRecipe:
    """Rows from `first` to `end` of one side."""

    origin: Origin
    by_user: bool
    first: int
    end: int
    levels: NDArray[np.float32]

    def load(self) -> Stripe:
        """Map the rows: pages are read from storage on access."""
        packed = open_origin(self.origin)
        lists = packed.by_user if self.by_user else packed.by_item
        starts = lists.starts[self.first : self.end + 1]
        own = slice(int(starts[0]), int(starts[-1]))
        rows = np.arange(self.first, self.end, dtype=np.int32)
        return Stripe(rows, starts - starts[0], lists.other[own], lists.value[own], self.levels)


@dataclass(frozen=True)
class BlockRecipe:
    """A block of a grid, dealt again by the worker; `frame` is the block without ratings."""

    origin: Origin
    grid: Grid
    n_batches: int
    seed: int
    frame: HeldBlock

    def load(self) -> HeldBlock:
        """Deal the block as the driver does: mini-batches are the same to the bit."""
        packed, block = open_origin(self.origin), self.frame.block
        data = TrainingData(packed.by_user, packed.n_items, block.batches.levels, packed.by_item)
        made = make_block(data, self.grid, self.n_batches, self.seed, block.number)
        return replace(self.frame, block=made)


def stripe_recipes(
    data: TrainingData, stripes: Sequence[Stripe], by_user: bool
) -> list[StripeRecipe | None]:
    """Recipes of stripes of consecutive rows; None if the ratings are not in a file."""
    origin = data.origin
    if origin is None:
        return [None] * len(stripes)
    return [StripeRecipe(origin, by_user, s.span.start, s.span.stop, s.levels) for s in stripes]


def block_recipes(
    data: TrainingData, held: Sequence[HeldBlock], grid: Grid, seed: int
) -> list[BlockRecipe | None]:
    """Recipes of the blocks of a grid; None if the ratings are not in a file."""
    origin = data.origin
    if origin is None:
        return [None] * len(held)
    return [
        BlockRecipe(
            origin, grid, h.block.n_batches, seed, replace(h, block=_without_ratings(h.block))
        )
        for h in held
    ]


def _without_ratings(block: Block) -> Block:
    nothing, batches = np.empty(0, np.int32), block.batches
    empty = batches._replace(
        segment_user=nothing,
        segment_starts=np.empty(0, np.int64),
        item=nothing,
        value=np.empty(0, batches.value.dtype),
    )
    return replace(block, user_rows=nothing, item_rows=nothing, batches=empty)
