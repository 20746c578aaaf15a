"""Tasks in a block of the rating matrix: rounds of SGD and SGLD, and its errors at one state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.blocks.blocks import Block, batch_order
from bayesmf.kernels.gather import padded
from bayesmf.kernels.gradient import LangevinSide, run_dealt, run_replacement
from bayesmf.kernels.keys import STREAM_ITEMS, STREAM_USERS, stream_word
from bayesmf.kernels.minibatch import (
    make_columns,
    make_scratch,
    pad,
    room_for,
    sum_squared_errors,
    sum_weights,
)
from bayesmf.kernels.types import Rows
from bayesmf.model.priors import Precisions, RowPrior
from bayesmf.model.refs import Part, value_of
from bayesmf.worker.tasks import RemoteResult, Shared

Weights = NDArray[np.floating[Any]]
Sums = NDArray[np.float64]
Weight = Part | float | None  # of rows' ratings: one number for all, or 1


@dataclass(frozen=True)
class HeldBlock:
    """A block of ratings with its constant data.

    `scale` is the factor of the likelihood's gradient without tau: n_batches / v, or N / (m v) with
    replacement; `prior_weight` that of the prior's gradient on a visit, 1 / hbar, of users and of
    items. `replacement_size` is the size of mini-batches drawn with replacement, None of dealt
    ones. `n` are numbers of ratings that the users and the items have in all blocks.
    """

    block: Block
    scale: float
    prior_weight: tuple[Weights, Weights]
    replacement_size: int | None
    n: tuple[NDArray[np.int32], NDArray[np.int32]]

    def __len__(self) -> int:
        return len(self.block)

    def numbers(self, side: int) -> NDArray[np.int32]:
        """Numbers of the block's users (0) or items (1)."""
        return self.block.item_rows if side else self.block.user_rows

    def row_counts(self, side: int) -> NDArray[np.int64]:
        """Ratings that these have in all blocks."""
        return self.n[side].astype(np.int64)


@dataclass(frozen=True, eq=False)
class RoundSettings(Shared):
    """Settings shared by the blocks of a round: `length` updates from an iteration on.

    `fixed` is the side whose rows stay on their workers; those of the other side are sent.
    """

    n_factors: int
    precisions: Precisions
    first_iteration: int
    first_batch: int
    length: int
    key: NDArray[np.uint32]
    fixed: int


@dataclass(frozen=True)
class BlockResult(RemoteResult):
    """A result with arrays of users and of items; those of the `fixed` side are local."""

    users: Any
    items: Any
    fixed: int

    @property
    def local_fields(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("users", "items")[self.fixed : self.fixed + 1]

    @property
    def shared_fields(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("users", "items")[1 - self.fixed : 2 - self.fixed]


@dataclass(frozen=True)
class RoundResult(BlockResult):
    """New rows of a block, with the squared errors of the updates."""

    sse: float
    count: int
    finite: bool = True  # whether all rows are


@dataclass(frozen=True)
class BlockTask(ABC):
    """A round of mini-batch updates in one block: WKR_ROUND of Algorithm 3.

    Weights are the precisions of a row's ratings over tau, times those of the other side; None for
    a side without separate noise.
    """

    chain: int
    partition: int
    users: Part
    items: Part
    user_weight: Weight
    item_weight: Weight
    shared: Any

    @abstractmethod
    def side(self, held: Any, side: int, common: dict[str, Any]) -> Any:
        """Users (0) or items (1) as the kernel takes them, given the fields of all rules."""

    @abstractmethod
    def result(self, sides: Any, width: int, sse: float, count: int) -> Any:
        """The result, from the sides as updated by the kernel."""

    def execute(self, held: Any) -> Any:
        """`length` mini-batch updates of the block's rows (Section 3.3.1)."""
        rows = value_of(self.users), value_of(self.items)
        sides = [self.side(held, side, self._common(held, side, rows[side])) for side in range(2)]
        width, sse, count = rows[0].shape[1], 0.0, 0
        if len(held):
            sse, count = self._update(held, sides, width)
        return self.result(sides, width, sse, count)

    def _common(self, held: HeldBlock, side: int, rows: Rows) -> dict[str, Any]:
        """Fields of one side that kernels of all rules take."""
        prior: RowPrior = (self.shared.precisions.users, self.shared.precisions.items)[side]
        stream, wide = (STREAM_USERS, STREAM_ITEMS)[side], padded(rows.shape[1])
        return {
            "rows": pad(rows, wide),  # a copy: the task may be repeated
            "numbers": held.numbers(side),
            "weight": row_weights((self.user_weight, self.item_weight)[side], rows),
            "mu": pad(prior.mu, wide, rows.dtype),
            "Lambda": pad_precision(prior.Lambda, wide, rows.dtype),
            "stream": stream_word(stream, held.block.number),
        }

    def _update(self, held: HeldBlock, sides: Any, width: int) -> tuple[float, int]:
        """Squared errors and number of the ratings read."""
        block, batches, shared = held.block, held.block.batches, self.shared
        columns = make_columns(shared.n_factors, width, sides[0].rows.dtype)
        scratch = make_scratch(len(block.item_rows), columns)
        state = *sides, columns, shared.first_iteration, shared.key, scratch
        if held.replacement_size is not None:
            room = room_for(held.replacement_size, batches)
            return run_replacement(batches, room, shared.length, block.number, *state)  # type: ignore[no-any-return]
        first, length = shared.first_batch, shared.length
        order = batch_order(shared.key, block.number, block.n_batches, first, length)
        return run_dealt(batches, order, *state)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class GradientBlock(HeldBlock):
    """A block with the variance of its rows' noise on a visit, in units of the step."""

    noise: tuple[Weights, Weights]


@dataclass(frozen=True, eq=False)
class GradientSettings(RoundSettings):
    """A round with one step size for all rows.

    `noise_share` is a factor of the noise variance: below 1 at the start of a chain.
    """

    step: float
    noise_share: float


@dataclass(frozen=True)
class GradientTask(BlockTask):
    """A round of SGD or SGLD in a block."""

    def side(self, held: GradientBlock, side: int, common: dict[str, Any]) -> LangevinSide:
        shared, kind = self.shared, common["rows"].dtype.type
        noise, share = held.noise[side], shared.noise_share
        return LangevinSide(
            **common,
            noise=noise if share == 1.0 else noise * np.float32(share),
            step=kind(shared.step),
            scale=kind(held.scale * shared.precisions.tau),
            prior_weight=held.prior_weight[side],
        )

    def result(self, sides: Any, width: int, sse: float, count: int) -> RoundResult:
        users, items = (side.rows for side in sides)
        finite = all_finite(users, items)
        return RoundResult(
            users[:, :width], items[:, :width], self.shared.fixed, sse, count, finite
        )


def row_weights(weight: Weight, rows: Rows) -> Rows:
    """The weights of the rows' ratings, or ones."""
    value = 1.0 if weight is None else value_of(weight)
    if isinstance(value, float):
        return np.full(len(rows), value, rows.dtype)
    return np.asarray(value, rows.dtype)


def all_finite(*rows: Rows) -> bool:
    """Whether all numbers are finite; computed by workers, in parallel."""
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
        """Sum over all ratings of the block, without updates."""
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
        """Sum over all ratings of the block, without their values."""
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
    """Weighted numbers of ratings of the rows of a block, and their maximum for a visit."""

    most: float
    count: int = 0


def _no_sums(*sides: Rows) -> tuple[Sums, Sums]:
    users, items = (np.zeros(len(side)) for side in sides)
    return users, items
