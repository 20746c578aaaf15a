"""What tasks in a block of the rating matrix share, and the errors of a block at one state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.blocks.blocks import Block, batch_order
from bayesmf.kernels.minibatch import (
    PaddedColumns,
    make_columns,
    pad,
    room_for,
    sum_squared_errors,
    sum_weights,
)
from bayesmf.kernels.types import Rows
from bayesmf.model.priors import Precisions
from bayesmf.model.refs import Part, value_of
from bayesmf.worker.tasks import Kept, Shared

Weights = NDArray[np.floating[Any]]
Sums = NDArray[np.float64]
Weight = Part | float | None  # of rows' ratings: one number for all, or 1


@dataclass(frozen=True)
class HeldBlock:
    """A block of ratings with what never changes about it.

    `scale` is the factor of the likelihood's gradient without tau: n_batches / v, or N / (m v) with
    replacement; `prior_weight` is that of the prior's gradient on a visit, 1 / hbar.
    `replacement_size` is the size of mini-batches drawn with replacement, None of dealt ones.
    `n_user` and `n_item` are numbers of ratings that the rows have in all blocks.
    """

    block: Block
    scale: float
    prior_weight_user: Weights
    prior_weight_item: Weights
    replacement_size: int | None
    n_user: NDArray[np.int32]
    n_item: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.block)

    def numbers(self, side: int) -> NDArray[np.int32]:
        """Numbers of the block's users (0) or items (1)."""
        return self.block.item_rows if side else self.block.user_rows

    def row_counts(self, side: int) -> NDArray[np.int64]:
        """Ratings that these have in all blocks."""
        return (self.n_item if side else self.n_user).astype(np.int64)


@dataclass(frozen=True, eq=False)
class RoundGiven(Shared):
    """What the blocks of a round have in common: `length` updates from an iteration on.

    `fixed` is the side whose rows stay with their workers; the others travel.
    """

    n_factors: int
    precisions: Precisions
    first_iteration: int
    first_batch: int
    length: int
    key: NDArray[np.uint32]
    fixed: int


@dataclass(frozen=True)
class BlockTask:
    """A round of mini-batch updates in one block.

    Weights are the precisions of a row's ratings over tau, times the other side's; None where the
    side has no noise of its own.
    """

    chain: int
    partition: int
    users: Part
    items: Part
    user_weight: Weight
    item_weight: Weight
    shared: Any

    def rows(self) -> tuple[Rows, Rows]:
        """The rows of both sides, to be read."""
        return value_of(self.users), value_of(self.items)

    def columns(self, rows: Rows) -> PaddedColumns:
        """What stands in the columns of padded rows."""
        return make_columns(self.shared.n_factors, rows.shape[1], rows.dtype)

    def weights(self, users: Rows, items: Rows) -> tuple[Rows, Rows]:
        """Weights of the ratings of users and of items, ones where there are none."""
        return row_weights(self.user_weight, users), row_weights(self.item_weight, items)

    def over_batches(
        self,
        held: HeldBlock,
        dealt: Callable[..., tuple[float, int]],
        drawn: Callable[..., tuple[float, int]],
        *update: Any,
    ) -> tuple[float, int]:
        """Squared errors and number of the ratings read by one of two kernels.

        `dealt` goes over mini-batches that were dealt once, `drawn` draws them with replacement;
        `update` is what both take from there on.
        """
        block, batches, given = held.block, held.block.batches, self.shared
        if held.replacement_size is not None:
            room = room_for(held.replacement_size, batches)
            return drawn(batches, room, given.length, block.number, *update)
        order = batch_order(
            given.key, block.number, block.n_batches, given.first_batch, given.length
        )
        return dealt(batches, order, *update)


@dataclass(frozen=True)
class BlockResult(Kept):
    """A result with something of users and of items, of which those of the `fixed` side stay."""

    users: Any
    items: Any
    fixed: int

    @property
    def stays(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("users", "items")[self.fixed : self.fixed + 1]

    @property
    def goes(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("users", "items")[1 - self.fixed : 2 - self.fixed]


@dataclass(frozen=True)
class RoundResult(BlockResult):
    """New rows of a block, with the squared errors met on the way."""

    sse: float
    count: int
    finite: bool = True  # whether all rows are


def row_weights(weight: Weight, rows: Rows) -> Rows:
    """The weights of the rows' ratings, or ones."""
    value = 1.0 if weight is None else value_of(weight)
    if isinstance(value, float):
        return np.full(len(rows), value, rows.dtype)
    return np.asarray(value, rows.dtype)


def all_finite(*rows: Rows) -> bool:
    """Whether all numbers are finite. Looked at by workers, which do it side by side."""
    with np.errstate(all="ignore"):
        return all(bool(np.isfinite(side.sum())) for side in rows)


def pad_precision(Lambda: NDArray[np.float64], wide: int, dtype: Any) -> NDArray[Any]:
    """A diagonal or a matrix of precisions with zeros up to the width of padded rows."""
    if Lambda.ndim == 2:
        Lambda = pad(Lambda.T, wide).T
    return np.ascontiguousarray(pad(Lambda, wide, dtype))


@dataclass(frozen=True)
class SumsResult(BlockResult):
    """Sums of each user and each item of a block; squared errors of all of it."""

    sse: float = 0.0
    count: int = 0


@dataclass(frozen=True)
class ErrorsTask:
    """The squared errors of a block at one state, for an exact draw of tau.

    With `weighted`, also those of each row, times the weights of the other side's rows: for exact
    draws of the rows' own precisions.
    """

    chain: int
    partition: int
    users: Part
    items: Part
    user_weight: Weight
    item_weight: Weight
    n_factors: int
    weighted: bool
    fixed: int

    def execute(self, held: HeldBlock) -> SumsResult:
        """Go over all ratings of the block; nothing is updated."""
        own, other = value_of(self.users), value_of(self.items)
        columns = make_columns(self.n_factors, own.shape[1], own.dtype)
        users, items = (pad(rows, len(columns.features)) for rows in (own, other))
        weights, sums = None, None
        if self.weighted:
            weights = row_weights(self.user_weight, own), row_weights(self.item_weight, other)
            sums = _no_sums(*weights)
        sse = sum_squared_errors(held.block.batches, users, items, columns, weights, sums)
        by_user, by_item = sums or (None, None)
        return SumsResult(by_user, by_item, self.fixed, sse, len(held))


@dataclass(frozen=True)
class WeightsTask:
    """Each user's sum of the weights of its items, each item's of its users, in a block.

    Each is multiplied by the row's own weight: its ratings in this block, by their precisions.
    """

    chain: int
    partition: int
    user_weight: Weight
    item_weight: Weight
    visit_rate: float
    fixed: int

    def execute(self, held: HeldBlock) -> WeightsResult:
        """Go over all ratings of the block without looking at one."""
        sides = (np.empty((len(held.numbers(side)), 0), np.float32) for side in range(2))
        weights = [
            row_weights(weight, rows)
            for weight, rows in zip((self.user_weight, self.item_weight), sides, strict=True)
        ]
        sums = _no_sums(*weights)
        sum_weights(held.block.batches, *weights, *sums)
        for weight, found in zip(weights, sums, strict=True):
            found *= weight
        most = max(float(found.max(initial=0.0)) for found in sums)
        return WeightsResult(*sums, self.fixed, most=most / self.visit_rate)


@dataclass(frozen=True)
class WeightsResult(BlockResult):
    """Ratings of the rows of a block by their precisions; the most that a visit stands for."""

    most: float
    count: int = 0


def _no_sums(*sides: Rows) -> tuple[Sums, Sums]:
    users, items = (np.zeros(len(side)) for side in sides)
    return users, items
