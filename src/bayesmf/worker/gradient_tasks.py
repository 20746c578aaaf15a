"""A round of SGD or SGLD in a block: WKR_ROUND of Algorithm 3."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.gather import padded
from bayesmf.kernels.gradient import Side, run_dealt, run_replacement
from bayesmf.kernels.keys import STREAM_ITEMS, STREAM_USERS, stream_word
from bayesmf.kernels.minibatch import make_scratch, pad
from bayesmf.kernels.types import Rows
from bayesmf.model.priors import RowPrior
from bayesmf.worker.block_tasks import (
    BlockTask,
    HeldBlock,
    RoundGiven,
    RoundResult,
    Weights,
    all_finite,
    pad_precision,
)


@dataclass(frozen=True)
class GradientBlock(HeldBlock):
    """A block with the variance of its rows' noise on a visit, in units of the step."""

    noise_user: Weights
    noise_item: Weights


@dataclass(frozen=True, eq=False)
class GradientGiven(RoundGiven):
    """A round with one step size for all rows; 0 holds a side.

    `noise_share` is what the noise's variance is multiplied by: below 1 while a chain sets out.
    """

    step_users: float
    step_items: float
    noise_share: float


@dataclass(frozen=True)
class GradientTask(BlockTask):
    """A round of mini-batch updates with one step size for all rows, in a block."""

    shared: GradientGiven

    def execute(self, held: GradientBlock) -> RoundResult:
        """Algorithm 3: `length` mini-batch updates of the block's rows (Section 3.3.1)."""
        given, block, (own, other) = self.shared, held.block, self.rows()
        prior, width = given.precisions, own.shape[1]
        if not len(block):
            return RoundResult(own.copy(), other.copy(), given.fixed, 0.0, 0)
        weights = self.weights(own, other)
        users = _side(
            own, block.user_rows, held.prior_weight_user, weights[0], self.noise(held.noise_user),
            prior.users, given.step_users, stream_word(STREAM_USERS, block.number),
        )  # fmt: skip
        items = _side(
            other, block.item_rows, held.prior_weight_item, weights[1],
            self.noise(held.noise_item), prior.items, given.step_items,
            stream_word(STREAM_ITEMS, block.number),
        )  # fmt: skip
        columns = self.columns(own)
        scale = own.dtype.type(held.scale * prior.tau)
        sse, count = self.over_batches(
            held, run_dealt, run_replacement, users, items, columns, scale, given.first_iteration,
            given.key, make_scratch(len(block.item_rows), columns),
        )  # fmt: skip
        new = users.rows[:, :width], items.rows[:, :width]
        return RoundResult(*new, given.fixed, sse, count, all_finite(users.rows, items.rows))

    def noise(self, variance: Weights) -> Weights:
        """Variances of the rows' noise in this round, in units of the step."""
        share = self.shared.noise_share
        return variance if share == 1.0 else variance * np.float32(share)


def _side(
    rows: Rows,
    numbers: NDArray[np.int32],
    prior_weight: Weights,
    weight: Rows,
    noise: Weights,
    prior: RowPrior,
    step: float,
    stream: np.uint32,
) -> Side:
    wide = padded(rows.shape[1])
    return Side(
        pad(rows, wide),  # a copy: the task may have to be done again
        numbers,
        prior_weight,
        weight,
        noise,
        pad(prior.mu, wide, rows.dtype),
        pad_precision(prior.Lambda, wide, rows.dtype),
        rows.dtype.type(step),
        stream,
    )
