"""What a worker does: WKR_ROUND of Algorithm 3, and a Gibbs half-sweep, as pure functions.

A result depends on the ratings the worker holds and on the task alone; tasks are not
changed. So a task may run anywhere, in any order, twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.batches import Block, Stripe, batch_order
from bayesmf.gibbs import draw_rows
from bayesmf.kernels import Batches, Side, run_dealt, run_replacement, sum_squared_errors
from bayesmf.keys import STREAM_ITEMS, STREAM_USERS, stream_word
from bayesmf.params import Precisions, RowPrior, Rows

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


@dataclass(frozen=True)
class RowsTask:
    """An exact draw of a stripe of rows of one side, given the whole other side."""

    chain: int
    place: int
    stream: int
    other: Rows
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
    """New rows of a block, with the squared errors met on the way."""

    users: Rows
    items: Rows
    sse: float
    count: int


@dataclass(frozen=True)
class RowsResult:
    """New rows of a stripe, with the squared errors they leave."""

    rows: Rows
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
    block, prior = held.block, task.precisions
    users = _side(
        task.users, block.user_rows, held.prior_weight_user, held.noise_user,
        prior.users, task.step_users, stream_word(STREAM_USERS, block.number),
    )  # fmt: skip
    items = _side(
        task.items, block.item_rows, held.prior_weight_item, held.noise_item,
        prior.items, task.step_items, stream_word(STREAM_ITEMS, block.number),
    )  # fmt: skip
    data = _batches(block)
    scale = task.users.dtype.type(held.scale * prior.tau)
    if len(block) == 0:
        sse, count = 0.0, 0
    elif held.replacement_size is None:
        order = batch_order(task.key, block.number, block.n_batches, task.first_batch, task.length)
        sse, count = run_dealt(
            data, order, users, items, task.n_factors, scale, task.first_iteration, task.key
        )
    else:
        sse, count = run_replacement(
            data, held.replacement_size, task.length, block.number, users, items,
            task.n_factors, scale, task.first_iteration, task.key,
        )  # fmt: skip
    return RoundResult(users.rows, items.rows, sse, count)


def run_errors(held: HeldBlock, task: ErrorsTask) -> ErrorsResult:
    """Errors of every rating of the block."""
    sse = sum_squared_errors(_batches(held.block), task.users, task.items, task.n_factors)
    return ErrorsResult(sse, len(held.block))


def _batches(block: Block) -> Batches:
    return Batches(block.user, block.item, block.value, block.starts)


def _side(
    rows: Rows,
    numbers: NDArray[np.int32],
    prior_weight: Weights,
    noise: Weights,
    prior: RowPrior,
    step: float,
    stream: np.uint32,
) -> Side:
    return Side(
        rows.copy(),  # the task must stay as it was: it may have to run again
        numbers,
        prior_weight,
        noise,
        prior.mu.astype(rows.dtype),
        prior.Lambda.astype(rows.dtype),
        rows.dtype.type(step),
        stream,
    )


def run_rows(stripe: Stripe, task: RowsTask) -> RowsResult:
    """Algorithm 1, lines 4-9, for the rows of a stripe."""
    rows = np.empty((len(stripe.rows), task.other.shape[1]), dtype=np.float32)
    place = (task.round, stream_word(task.stream, 0))
    sse = draw_rows(
        rows, stripe.rows, stripe.starts, stripe.other, stripe.value, task.other,
        task.prior.mu, task.prior.Lambda, task.tau, task.n_factors, place, task.key,
    )  # fmt: skip
    return RowsResult(rows, sse, len(stripe))
