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
from bayesmf.model.params import Precisions

Weights = NDArray[np.floating[Any]]
Sums = NDArray[np.float64]


@dataclass(frozen=True)
class HeldBlock:
    """A block of ratings with what never changes about it.

    `scale` is the factor of the likelihood's gradient without tau: n_batches / v, or N / (m v) with
    replacement; `prior_weight` is that of the prior's gradient on a visit, 1 / hbar.
    `replacement_size` is the size of mini-batches drawn with replacement, None of dealt ones.
    """

    block: Block
    scale: float
    prior_weight_user: Weights
    prior_weight_item: Weights
    replacement_size: int | None

    def __len__(self) -> int:
        return len(self.block)


@dataclass(frozen=True)
class BlockTask:
    """A round of mini-batch updates in one block: `length` of them, the rows of both sides.

    Weights are the precisions of a row's ratings over tau, times the other side's; None where the
    side has no noise of its own.
    """

    chain: int
    partition: int
    users: Rows
    items: Rows
    n_factors: int
    precisions: Precisions
    user_weight: Rows | None
    item_weight: Rows | None
    first_iteration: int
    first_batch: int
    length: int
    key: NDArray[np.uint32]

    def columns(self) -> PaddedColumns:
        """What stands in the columns of padded rows."""
        return make_columns(self.n_factors, self.users.shape[1], self.users.dtype)

    def weights(self) -> tuple[Rows, Rows]:
        """Weights of the ratings of users and of items, ones where there are none."""
        return row_weights(self.user_weight, self.users), row_weights(self.item_weight, self.items)

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
        block, batches = held.block, held.block.batches
        if held.replacement_size is not None:
            room = room_for(held.replacement_size, batches)
            return drawn(batches, room, self.length, block.number, *update)
        order = batch_order(self.key, block.number, block.n_batches, self.first_batch, self.length)
        return dealt(batches, order, *update)


@dataclass(frozen=True)
class RoundResult:
    """New rows of a block, with the squared errors met on the way."""

    users: Rows
    items: Rows
    sse: float
    count: int
    finite: bool = True  # whether all rows are


def row_weights(weight: Rows | None, rows: Rows) -> Rows:
    """The weights of the rows' ratings, or ones."""
    return np.ones(len(rows), rows.dtype) if weight is None else weight.astype(rows.dtype)


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
class ErrorsResult:
    """Squared errors, summed; and sums of each user and item of the block, where asked for."""

    sse: float
    count: int
    by_row: tuple[Sums, Sums] | None = None


@dataclass(frozen=True)
class ErrorsTask:
    """The squared errors of a block at one state, for an exact draw of tau.

    With `weights`, precisions of users' and items' ratings, also those of each row, times the
    weights of the other side's rows: for exact draws of the rows' own precisions.
    """

    chain: int
    partition: int
    users: Rows
    items: Rows
    n_factors: int
    weights: tuple[Rows, Rows] | None = None

    def execute(self, held: HeldBlock) -> ErrorsResult:
        """Go over all ratings of the block; nothing is updated."""
        columns = make_columns(self.n_factors, self.users.shape[1], self.users.dtype)
        users, items = (pad(rows, len(columns.features)) for rows in (self.users, self.items))
        sums = None if self.weights is None else _no_sums(*self.weights)
        sse = sum_squared_errors(held.block.batches, users, items, columns, self.weights, sums)
        return ErrorsResult(sse, len(held), sums)


@dataclass(frozen=True)
class WeightsTask:
    """Each user's sum of the weights of its items, each item's of its users, in a block."""

    chain: int
    partition: int
    weights: tuple[Rows, Rows]

    def execute(self, held: HeldBlock) -> ErrorsResult:
        """Go over all ratings of the block without looking at one."""
        sums = _no_sums(*self.weights)
        sum_weights(held.block.batches, *self.weights, *sums)
        return ErrorsResult(0.0, 0, sums)


def _no_sums(*sides: Rows) -> tuple[Sums, Sums]:
    users, items = (np.zeros(len(side)) for side in sides)
    return users, items
