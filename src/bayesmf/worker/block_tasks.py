"""What tasks in a block of the rating matrix share, and the errors of a block at one state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.blocks.blocks import Block, batch_order
from bayesmf.kernels.minibatch import PaddedColumns, make_columns, pad, room_for, sum_squared_errors
from bayesmf.kernels.types import Rows
from bayesmf.model.params import Precisions

Weights = NDArray[np.floating[Any]]


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
    """A round of mini-batch updates in one block: `length` of them, the rows of both sides."""

    chain: int
    partition: int
    users: Rows
    items: Rows
    n_factors: int
    precisions: Precisions
    first_iteration: int
    first_batch: int
    length: int
    key: NDArray[np.uint32]

    def columns(self) -> PaddedColumns:
        """What stands in the columns of padded rows."""
        return make_columns(self.n_factors, self.users.shape[1], self.users.dtype)

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
    """Squared errors, summed."""

    sse: float
    count: int


@dataclass(frozen=True)
class ErrorsTask:
    """The squared errors of a block at one state, for an exact draw of tau."""

    chain: int
    partition: int
    users: Rows
    items: Rows
    n_factors: int

    def execute(self, held: HeldBlock) -> ErrorsResult:
        """Go over all ratings of the block; nothing is updated."""
        columns = make_columns(self.n_factors, self.users.shape[1], self.users.dtype)
        users, items = (pad(rows, len(columns.features)) for rows in (self.users, self.items))
        return ErrorsResult(
            sum_squared_errors(held.block.batches, users, items, columns), len(held)
        )
