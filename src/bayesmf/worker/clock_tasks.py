"""A round of the rules in which every row has its own clock, in a block."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.gather import padded
from bayesmf.kernels.keys import STREAM_ITEMS, STREAM_USERS, stream_word
from bayesmf.kernels.minibatch import make_scratch, pad
from bayesmf.kernels.row_clock import ClockSide, run_clock_dealt, run_clock_replacement
from bayesmf.kernels.types import Rows
from bayesmf.model.priors import RowPrior
from bayesmf.model.refs import Part, value_of
from bayesmf.samplers.clocks import ClockRule
from bayesmf.samplers.row_steps import RowFacts, Steps, clock_steps, stable_steps, uneven
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
class ClockBlock(HeldBlock):
    """A block with what the clocks of its rows depend on; rows with `moving` False are held."""

    facts: tuple[RowFacts, RowFacts]
    moving: tuple[NDArray[np.bool_], NDArray[np.bool_]]

    def steps(self, side: int, width: int, rule: ClockRule, delta: float, rho: float) -> Steps:
        """Steps of the users' or items' clocks, found once for all rounds with the same limits."""
        known = vars(self).setdefault("_steps", {})
        key = (side, width, delta, rho)
        if key not in known:
            if len(known) > 8:
                known.clear()
            facts = self.facts[side]
            stable = np.where(self.moving[side], stable_steps(facts, width), 0.0)
            known[key] = clock_steps(rule, facts, stable, delta, rho, uneven(facts, width))
        found: Steps = known[key]
        return found


@dataclass(frozen=True, eq=False)
class ClockGiven(RoundGiven):
    """A round of a rule with clocks, under the limits of the time.

    `squares` are the mean squares of the columns that users and items meet: those of the other
    side. `noise` is what the noise's variance is multiplied by.
    """

    rule: ClockRule
    delta: float
    rho: float
    noise: float
    squares: tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True)
class Clocks:
    """What rows of one side take along; see kernels/row_clock.py.

    A step `eta` of 0 holds a row. `n` are the rows' ratings, by weight where these differ.
    `square` are the mean squares of the other side's columns; `gain` is that of a thermostat, whose
    heat is then one more column of `momenta`.
    """

    momenta: Rows
    eta: NDArray[np.float32]
    persistence: NDArray[np.float32]
    share: NDArray[np.float32]
    square: NDArray[np.float64]
    gain: float
    n: NDArray[np.float32]


@dataclass(frozen=True)
class ClockResult(RoundResult):
    """New rows and momenta of a block."""

    momenta_users: Any = field(kw_only=True)
    momenta_items: Any = field(kw_only=True)

    @property
    def stays(self) -> tuple[str, ...]:  # type: ignore[override]
        return (*super().stays, *(f"momenta_{name}" for name in super().stays))

    @property
    def goes(self) -> tuple[str, ...]:  # type: ignore[override]
        return (*super().goes, *(f"momenta_{name}" for name in super().goes))


@dataclass(frozen=True)
class ClockTask(BlockTask):
    """A round of mini-batch updates with a clock for each row; momenta are None before the first.

    `n` are the ratings of users and of items by weight, None where all weigh the same.
    """

    shared: ClockGiven
    momenta: tuple[Part | None, Part | None]
    n: tuple[Part | None, Part | None]

    def execute(self, held: ClockBlock) -> ClockResult:
        """`length` mini-batch updates of the block's rows."""
        given, block, (own, other) = self.shared, held.block, self.rows()
        prior, width = given.precisions, own.shape[1]
        user_clocks, item_clocks = (self._clocks(held, k, x) for k, x in enumerate((own, other)))
        if not len(block):
            return ClockResult(
                own.copy(), other.copy(), given.fixed, 0.0, 0,
                momenta_users=user_clocks.momenta.copy(), momenta_items=item_clocks.momenta.copy(),
            )  # fmt: skip
        weights = self.weights(own, other)
        users = _side(
            own, block.user_rows, held.prior_weight_user, weights[0], user_clocks, prior.users,
            held.scale, prior.tau, stream_word(STREAM_USERS, block.number),
        )  # fmt: skip
        items = _side(
            other, block.item_rows, held.prior_weight_item, weights[1], item_clocks, prior.items,
            held.scale, prior.tau, stream_word(STREAM_ITEMS, block.number),
        )  # fmt: skip
        columns = self.columns(own)
        sse, count = self.over_batches(
            held, run_clock_dealt, run_clock_replacement, users, items, columns,
            given.first_iteration, given.key, make_scratch(len(block.item_rows), columns),
        )  # fmt: skip
        return ClockResult(
            users.rows[:, :width],
            items.rows[:, :width],
            given.fixed,
            sse,
            count,
            all_finite(users.rows, items.rows),
            momenta_users=_momenta(users, user_clocks),
            momenta_items=_momenta(items, item_clocks),
        )

    def _clocks(self, held: ClockBlock, side: int, rows: Rows) -> Clocks:
        """What the rows of one side take along."""
        given, part, n = self.shared, self.momenta[side], self.n[side]
        steps = held.steps(side, rows.shape[1], given.rule, given.delta, given.rho)
        extra = int(given.rule.gain > 0)
        momenta = (
            np.zeros((len(rows), rows.shape[1] + extra), np.float32)
            if part is None
            else value_of(part)
        )
        noise = np.float32(given.noise)
        share = steps.share if noise >= 1.0 else 1.0 - noise * (1.0 - steps.share)
        counts = held.row_counts(side) if n is None else value_of(n)
        return Clocks(
            momenta, steps.eta, steps.persistence, share, given.squares[side], given.rule.gain,
            counts.astype(np.float32),
        )  # fmt: skip


def _side(
    rows: Rows,
    numbers: NDArray[np.int32],
    prior_weight: Weights,
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
        clocks.n,
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
