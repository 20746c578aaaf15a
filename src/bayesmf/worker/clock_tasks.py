"""A round of the rules in which every row has its own clock, in a block."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.gather import padded
from bayesmf.kernels.keys import STREAM_ITEMS, STREAM_USERS, stream_word
from bayesmf.kernels.minibatch import make_scratch, pad
from bayesmf.kernels.row_clock import ClockSide, run_clock_dealt, run_clock_replacement
from bayesmf.kernels.types import Rows
from bayesmf.model.params import RowPrior
from bayesmf.worker.block_tasks import (
    BlockTask,
    HeldBlock,
    RoundResult,
    Weights,
    all_finite,
    pad_precision,
)


@dataclass(frozen=True)
class ClockBlock(HeldBlock):
    """A block with the number of ratings that its rows have in all blocks."""

    n_user: Weights
    n_item: Weights


@dataclass(frozen=True)
class Clocks:
    """What rows of one side take along; see kernels/row_clock.py.

    A step `eta` of 0 holds a row. `n` are the rows' ratings by weight, None where all weigh the
    same and their number is the block's. `square` are the mean squares of the other side's columns;
    `gain` is that of a thermostat, whose heat is then one more column of `momenta`.
    """

    momenta: Rows
    eta: NDArray[np.float32]
    persistence: NDArray[np.float32]
    share: NDArray[np.float32]
    square: NDArray[np.float64]
    gain: float
    n: NDArray[np.float32] | None = None


@dataclass(frozen=True)
class ClockResult(RoundResult):
    """New rows and momenta of a block."""

    momenta: tuple[Rows, Rows] = field(kw_only=True)


@dataclass(frozen=True)
class ClockTask(BlockTask):
    """A round of mini-batch updates with a clock for each row."""

    user_clocks: Clocks
    item_clocks: Clocks

    def execute(self, held: ClockBlock) -> ClockResult:
        """`length` mini-batch updates of the block's rows."""
        block, prior, width = held.block, self.precisions, self.users.shape[1]
        if not len(block):
            momenta = self.user_clocks.momenta, self.item_clocks.momenta
            return ClockResult(self.users, self.items, 0.0, 0, momenta=momenta)
        own, other = self.weights()
        users = _side(
            self.users, block.user_rows, held.prior_weight_user, held.n_user, own,
            self.user_clocks, prior.users, held.scale, prior.tau,
            stream_word(STREAM_USERS, block.number),
        )  # fmt: skip
        items = _side(
            self.items, block.item_rows, held.prior_weight_item, held.n_item, other,
            self.item_clocks, prior.items, held.scale, prior.tau,
            stream_word(STREAM_ITEMS, block.number),
        )  # fmt: skip
        columns = self.columns()
        sse, count = self.over_batches(
            held, run_clock_dealt, run_clock_replacement, users, items, columns,
            self.first_iteration, self.key, make_scratch(len(block.item_rows), columns),
        )  # fmt: skip
        return ClockResult(
            users.rows[:, :width],
            items.rows[:, :width],
            sse,
            count,
            all_finite(users.rows, items.rows),
            momenta=(_momenta(users, self.user_clocks), _momenta(items, self.item_clocks)),
        )


def _side(
    rows: Rows,
    numbers: NDArray[np.int32],
    prior_weight: Weights,
    n: Weights,
    weight: Rows,
    clocks: Clocks,
    prior: RowPrior,
    scale: float,
    tau: float,
    stream: np.uint32,
) -> ClockSide:
    """One side as the kernel takes it.

    The gradient's factor is hbar * scale: with the prior's part whole on each visit instead of
    divided by hbar, all is hbar times as much. On one block that is the number of mini-batches that
    hold the row. (n / c, with c the row's ratings in this very mini-batch, is no substitute: dealt
    once, the ratings that happened to stand in a small mini-batch would count for more for ever.)
    """
    dtype, width = rows.dtype, rows.shape[1]
    wide = padded(width)
    diagonal = np.ones(wide, dtype)
    diagonal[:width] = prior.diagonal()
    heat = clocks.momenta[:, width:].reshape(-1)
    return ClockSide(
        pad(rows, wide),  # a copy: the task may have to be done again
        pad(clocks.momenta[:, :width], wide),
        heat.copy() if len(heat) else np.zeros(len(rows), dtype),
        numbers,
        n if clocks.n is None else clocks.n,
        weight,
        (scale * tau / prior_weight).astype(dtype),
        clocks.eta.astype(dtype),
        clocks.persistence,
        clocks.share,
        pad(prior.mu, wide, dtype),
        pad_precision(prior.Lambda, wide, dtype),
        diagonal,
        pad(tau * clocks.square, wide, dtype),
        dtype.type(clocks.gain),
        stream,
    )


def _momenta(side: ClockSide, clocks: Clocks) -> Rows:
    """Momenta as they came: without padding, the thermostat behind them where there is one."""
    out = np.empty_like(clocks.momenta)
    width = len(clocks.square)
    out[:, :width] = side.momenta[:, :width]
    out[:, width:] = side.heat[:, None]
    return out
