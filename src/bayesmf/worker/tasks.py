"""What a worker does: WKR_ROUND of Algorithm 3, and a Gibbs half-sweep, as pure functions.

A result depends on the ratings the worker holds and on the task alone; tasks are not
changed. So a task may run anywhere, in any order, twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bayesmf.blocks.blocks import Block, batch_order
from bayesmf.blocks.stripes import Stripe
from bayesmf.kernels.gather import HalfSweep, Regressors, padded
from bayesmf.kernels.gradient import Side, run_dealt, run_replacement
from bayesmf.kernels.keys import STREAM_ITEMS, STREAM_USERS, StreamCounter, stream_word
from bayesmf.kernels.minibatch import (
    Batches,
    make_columns,
    make_scratch,
    pad,
    room_for,
    sum_squared_errors,
)
from bayesmf.kernels.row_clock import ClockSide, run_clock_dealt, run_clock_replacement
from bayesmf.kernels.types import Rows
from bayesmf.model.params import Precisions, RowPrior
from bayesmf.worker.row_draws import draw_rows

Weights = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class HeldBlock:
    """A block of ratings with what never changes about it.

    `scale` is the likelihood gradient's factor without tau: n_batches / v, or N / (m v) with
    replacement. `noise` is the variance of the noise in units of the step.
    """

    block: Block
    scale: float
    prior_weight_user: Weights
    prior_weight_item: Weights
    noise_user: Weights
    noise_item: Weights
    replacement_size: int | None
    n_user: Weights | None = None  # ratings of each row in all blocks, where rows have clocks
    n_item: Weights | None = None


@dataclass(frozen=True)
class Clocks:
    """What rows of one side take along where each has its own clock; see kernels/row_clock.py.

    `square` are the mean squares of the other side's columns; `gain` is that of a thermostat.
    """

    momenta: Rows
    eta: NDArray[np.float32]
    keep: NDArray[np.float32]
    share: NDArray[np.float32]
    square: NDArray[np.float64]
    gain: float


@dataclass(frozen=True)
class RoundTask:
    """A round of mini-batch updates in one block."""

    chain: int
    place: int
    users: Rows
    items: Rows
    n_factors: int
    precisions: Precisions
    step_users: float
    step_items: float
    first_iteration: int
    first_batch: int
    length: int
    key: NDArray[np.uint32]
    user_clocks: Clocks | None = None
    item_clocks: Clocks | None = None


@dataclass(frozen=True)
class RowsTask:
    """An exact draw of a stripe of rows of one side, given the whole other side.

    `rows` are as they were, for over-relaxation by `relax`: the new rows lie as far beyond their
    conditional mean as the old ones stood before it. 0 is a draw that forgets them. `joint` columns
    are drawn together, all with None. `other` are the `regressors` of the other side.
    """

    chain: int
    place: int
    stream: int
    rows: Rows
    relax: float
    joint: int | None
    other: Regressors
    n_factors: int
    prior: RowPrior
    tau: float
    round: int
    key: NDArray[np.uint32]


@dataclass(frozen=True)
class ErrorsTask:
    """The squared errors of a block at one state, for an exact draw of tau."""

    chain: int
    place: int
    users: Rows
    items: Rows
    n_factors: int


@dataclass(frozen=True)
class RoundResult:
    """New rows of a block, with the squared errors met on the way; momenta where rows have them."""

    users: Rows
    items: Rows
    sse: float
    count: int
    momenta: tuple[Rows, Rows] | None = None
    finite: bool = True  # whether all rows are


@dataclass(frozen=True)
class RowsResult:
    """New rows of a stripe, their conditional means, and the squared errors they leave."""

    rows: Rows
    means: Rows
    sse: float
    count: int


@dataclass(frozen=True)
class ErrorsResult:
    """Squared errors, summed."""

    sse: float
    count: int


Held = HeldBlock | Stripe
Task = RoundTask | RowsTask | ErrorsTask
Result = RoundResult | RowsResult | ErrorsResult


class Recipe(Protocol):
    """How a worker elsewhere gets the ratings of a place from storage that it can reach itself."""

    def load(self) -> Held:
        """The same as is held here, to the bit."""


def run_task(held: Held, task: Task) -> Result:
    """Do a task with the ratings held at its place."""
    if isinstance(task, RowsTask):
        assert isinstance(held, Stripe)
        return run_rows(held, task)
    assert isinstance(held, HeldBlock)
    if isinstance(task, ErrorsTask):
        return run_errors(held, task)
    return run_round(held, task)


def run_round(held: HeldBlock, task: RoundTask) -> RoundResult:
    """Algorithm 3: `length` mini-batch updates of the block's rows (Section 3.3.1)."""
    if task.user_clocks is not None:
        return run_clock_round(held, task)
    block, prior, width = held.block, task.precisions, task.users.shape[1]
    if len(block) == 0:
        return RoundResult(task.users, task.items, 0.0, 0)
    users = _side(
        task.users, block.user_rows, held.prior_weight_user, held.noise_user,
        prior.users, task.step_users, stream_word(STREAM_USERS, block.number),
    )  # fmt: skip
    items = _side(
        task.items, block.item_rows, held.prior_weight_item, held.noise_item,
        prior.items, task.step_items, stream_word(STREAM_ITEMS, block.number),
    )  # fmt: skip
    data = batches_of(block)
    columns = make_columns(task.n_factors, width, task.users.dtype)
    scale = task.users.dtype.type(held.scale * prior.tau)
    scratch, first = make_scratch(len(block.item_rows), columns), task.first_iteration
    if held.replacement_size is None:
        order = batch_order(task.key, block.number, block.n_batches, task.first_batch, task.length)
        sse, count = run_dealt(data, order, users, items, columns, scale, first, task.key, scratch)
    else:
        sse, count = run_replacement(
            data, room_for(held.replacement_size, data), task.length, block.number, users, items,
            columns, scale, first, task.key, scratch,
        )  # fmt: skip
    new = users.rows[:, :width], items.rows[:, :width]
    return RoundResult(*new, sse, count, finite=_finite(users.rows, items.rows))


def run_clock_round(held: HeldBlock, task: RoundTask) -> RoundResult:
    """The same for rules with a clock for each row."""
    block, prior, width = held.block, task.precisions, task.users.shape[1]
    users = _clock_side(
        held, task.users, block.user_rows, held.prior_weight_user, held.n_user, task.user_clocks,
        prior.users, prior.tau, task.step_users, stream_word(STREAM_USERS, block.number),
    )  # fmt: skip
    items = _clock_side(
        held, task.items, block.item_rows, held.prior_weight_item, held.n_item, task.item_clocks,
        prior.items, prior.tau, task.step_items, stream_word(STREAM_ITEMS, block.number),
    )  # fmt: skip
    data = batches_of(block)
    columns = make_columns(task.n_factors, width, task.users.dtype)
    scratch, first = make_scratch(len(block.item_rows), columns), task.first_iteration
    if len(block) == 0:
        sse, count = 0.0, 0
    elif held.replacement_size is None:
        order = batch_order(task.key, block.number, block.n_batches, task.first_batch, task.length)
        sse, count = run_clock_dealt(data, order, users, items, columns, first, task.key, scratch)
    else:
        sse, count = run_clock_replacement(
            data, room_for(held.replacement_size, data), task.length, block.number, users, items,
            columns, first, task.key, scratch,
        )  # fmt: skip
    momenta = _momenta(users, task.user_clocks), _momenta(items, task.item_clocks)
    new = users.rows[:, :width], items.rows[:, :width]
    return RoundResult(*new, sse, count, momenta, _finite(users.rows, items.rows))


def _finite(*rows: Rows) -> bool:
    """Whether all numbers are. Found here, where workers find it side by side."""
    with np.errstate(all="ignore"):
        return all(bool(np.isfinite(side.sum())) for side in rows)


def run_errors(held: HeldBlock, task: ErrorsTask) -> ErrorsResult:
    """Errors of every rating of the block."""
    columns = make_columns(task.n_factors, task.users.shape[1], task.users.dtype)
    wide = len(columns.features)
    sse = sum_squared_errors(
        batches_of(held.block), pad(task.users, wide), pad(task.items, wide), columns
    )
    return ErrorsResult(sse, len(held.block))


def batches_of(block: Block) -> Batches:
    """A block as kernels see it."""
    return Batches(
        block.segment_user,
        block.segment_starts,
        block.item,
        block.value,
        block.levels,
        block.starts,
    )


def _side(
    rows: Rows,
    numbers: NDArray[np.int32],
    prior_weight: Weights,
    noise: Weights,
    prior: RowPrior,
    step: float,
    stream: np.uint32,
) -> Side:
    wide = padded(rows.shape[1])
    return Side(
        pad(rows, wide),  # a copy: the task may have to run again
        numbers,
        prior_weight,
        noise,
        pad(prior.mu, wide, rows.dtype),
        _pad_precision(prior.Lambda, wide, rows.dtype),
        rows.dtype.type(step),
        stream,
    )


def _pad_precision(Lambda: NDArray[np.float64], wide: int, dtype: Any) -> NDArray[Any]:
    if Lambda.ndim == 2:
        Lambda = pad(Lambda.T, wide).T
    return np.ascontiguousarray(pad(Lambda, wide, dtype))


def _clock_side(
    held: HeldBlock,
    rows: Rows,
    numbers: NDArray[np.int32],
    prior_weight: Weights,
    n: Weights | None,
    clocks: Clocks | None,
    prior: RowPrior,
    tau: float,
    step: float,
    stream: np.uint32,
) -> ClockSide:
    """`step` is 1, or 0 to hold this side.

    The gradient's factor is hbar * scale: with the prior's part whole on each visit instead of
    divided by hbar, all is hbar times as much. On one block that is the number of mini-batches that
    hold the row. (n / c, with c the row's ratings in this very mini-batch, is no substitute: dealt
    once, the ratings that happened to stand in a small mini-batch would count for more for ever.)
    """
    assert clocks is not None and n is not None
    dtype, width = rows.dtype, rows.shape[1]
    wide = padded(width)
    diagonal = np.ones(wide, dtype)
    diagonal[:width] = prior.diagonal()
    heat = clocks.momenta[:, width:].reshape(-1)
    return ClockSide(
        pad(rows, wide),  # a copy: the task may have to run again
        pad(clocks.momenta[:, :width], wide),
        heat.copy() if len(heat) else np.zeros(len(rows), dtype),
        numbers,
        n,
        (held.scale * tau / prior_weight).astype(dtype),
        (step * clocks.eta).astype(dtype),
        clocks.keep,
        clocks.share,
        pad(prior.mu, wide, dtype),
        _pad_precision(prior.Lambda, wide, dtype),
        diagonal,
        pad(tau * clocks.square, wide, dtype),
        dtype.type(clocks.gain),
        stream,
    )


def _momenta(side: ClockSide, clocks: Clocks | None) -> Rows:
    """As they came: without padding, the thermostat behind them where there is one."""
    assert clocks is not None
    out = np.empty_like(clocks.momenta)
    width = len(clocks.square)
    out[:, :width] = side.momenta[:, :width]
    out[:, width:] = side.heat[:, None]
    return out


def run_rows(stripe: Stripe, task: RowsTask) -> RowsResult:
    """Algorithm 1, lines 4-9, for the rows of a stripe."""
    rows = task.rows.copy()  # the task must stay as it was: it may have to run again
    means = np.empty_like(rows)
    counter = StreamCounter(task.round, stream_word(task.stream, 0), task.key)
    sweep = HalfSweep(task.n_factors, task.tau, task.relax, counter)
    sse = draw_rows(rows, means, stripe, task.other, task.prior, sweep, task.joint)
    return RowsResult(rows, means, sse, len(stripe))
