"""Rounds of SGHMC and SGNHT in a block; exact draws of its rare rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.blocks.stripes import Stripe
from bayesmf.kernels.gather import SSE
from bayesmf.kernels.gradient import MomentumSide
from bayesmf.kernels.minibatch import pad
from bayesmf.kernels.types import Rows
from bayesmf.model.refs import Part, value_of, writable_copy
from bayesmf.samplers.momentum import (
    MomentumRule,
    RowFacts,
    RowSteps,
    row_steps,
    stable_steps,
    uneven,
)
from bayesmf.worker.block_tasks import (
    BlockTask,
    HeldBlock,
    RoundResult,
    RoundSettings,
    all_finite,
)
from bayesmf.worker.row_tasks import RowsTask, draw_stripe
from bayesmf.worker.tasks import RemoteResult


@dataclass(frozen=True)
class MomentumBlock(HeldBlock):
    """A block with the data for steps of its rows; rows with `moving` False are fixed."""

    facts: tuple[RowFacts, RowFacts]
    moving: tuple[NDArray[np.bool_], NDArray[np.bool_]]

    def steps(
        self, side: int, width: int, rule: MomentumRule, delta: float, rho: float
    ) -> RowSteps:
        """Steps of the users or items, computed once for all rounds with the same limits."""
        known = vars(self).setdefault("_steps", {})
        key = (side, width, delta, rho)
        if key not in known:
            if len(known) > 8:
                known.clear()
            facts = self.facts[side]
            stable = np.where(self.moving[side], stable_steps(facts, width), 0.0)
            known[key] = row_steps(rule, facts, stable, delta, rho, uneven(facts, width))
        found: RowSteps = known[key]
        return found


@dataclass(frozen=True, eq=False)
class MomentumSettings(RoundSettings):
    """A round of a rule with momenta, under the limits of an epoch.

    `squares` are the mean squares of the columns of the other side, for users and for items.
    `noise` is a factor of the noise variance.
    """

    rule: MomentumRule
    delta: float
    rho: float
    noise: float
    squares: tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True)
class MomentumResult(RoundResult):
    """New rows and momenta of a block."""

    momenta_users: Any = field(kw_only=True)
    momenta_items: Any = field(kw_only=True)

    @property
    def local_fields(self) -> tuple[str, ...]:  # type: ignore[override]
        return (*super().local_fields, *(f"momenta_{name}" for name in super().local_fields))

    @property
    def shared_fields(self) -> tuple[str, ...]:  # type: ignore[override]
        return (*super().shared_fields, *(f"momenta_{name}" for name in super().shared_fields))


@dataclass(frozen=True)
class MomentumTask(BlockTask):
    """A round of mini-batch updates with momenta, which are None before the first.

    With a thermostat its heat is one more column of the momenta. `n` are the ratings of users and
    of items by weight, None where all weigh the same.
    """

    shared: MomentumSettings
    momenta: tuple[Part | None, Part | None]
    n: tuple[Part | None, Part | None]

    def side(self, held: MomentumBlock, side: int, common: dict[str, Any]) -> MomentumSide:
        """The side as the kernel takes it.

        The gradient's factor is hbar * scale: the prior's part is whole on each visit instead of
        divided by hbar. (n / c, with c the row's ratings in this mini-batch, would not do: ratings
        dealt into a small mini-batch would always weigh more.)
        """
        shared, rule = self.shared, self.shared.rule
        prior, tau = shared.precisions, shared.precisions.tau
        n_rows, wide = common["rows"].shape
        dtype, width = common["rows"].dtype, len(shared.squares[side])
        steps = held.steps(side, width, rule, shared.delta, shared.rho)
        part, n = self.momenta[side], self.n[side]
        momenta = np.zeros((n_rows, width + 1), dtype) if part is None else value_of(part)
        noise = np.float32(shared.noise)
        diagonal = np.ones(wide, dtype)
        diagonal[:width] = (prior.users, prior.items)[side].diagonal()
        return MomentumSide(
            **common,
            noise=steps.eta.astype(dtype),
            momenta=pad(momenta[:, :width], wide).reshape(-1),
            heat=momenta[:, width].copy() if rule.gain > 0 else np.zeros(n_rows, dtype),
            n=(held.row_counts(side) if n is None else value_of(n)).astype(np.float32),
            factor=(held.scale * tau / held.prior_weight[side]).astype(dtype),
            persistence=steps.persistence,
            share=steps.share if noise >= 1.0 else 1.0 - noise * (1.0 - steps.share),
            diagonal=diagonal,
            stiffness=pad(tau * shared.squares[side], wide, dtype),
            gain=dtype.type(rule.gain),
        )

    def result(self, sides: Any, width: int, sse: float, count: int) -> MomentumResult:
        users, items = sides
        return MomentumResult(
            users.rows[:, :width], items.rows[:, :width], self.shared.fixed, sse, count,
            all_finite(users.rows, items.rows), momenta_users=self._momenta(users, width),
            momenta_items=self._momenta(items, width),
        )  # fmt: skip

    def _momenta(self, side: MomentumSide, width: int) -> Rows:
        """Momenta without padding, and the heat of the thermostat where there is one."""
        momenta = side.momenta.reshape(side.rows.shape)[:, :width]
        if not self.shared.rule.gain > 0:
            return np.ascontiguousarray(momenta)
        return np.concatenate([momenta, side.heat[:, None]], axis=1)


@dataclass(frozen=True)
class RareStripe:
    """Ratings of the rows of a stripe that are drawn exactly, and positions of these rows."""

    stripe: Stripe
    at: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.stripe)


@dataclass(frozen=True)
class RareResult(RemoteResult):
    """All rows of a stripe, some of them new."""

    rows: Any
    fixed: bool
    finite: bool
    count: int = 0

    @property
    def local_fields(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("rows",) if self.fixed else ()

    @property
    def shared_fields(self) -> tuple[str, ...]:  # type: ignore[override]
        return () if self.fixed else ("rows",)


@dataclass(frozen=True)
class RareTask(RowsTask):
    """An exact draw of some rows of a stripe; those of the `fixed` side stay on their worker."""

    fixed: bool

    def execute(self, held: RareStripe) -> RareResult:  # type: ignore[override]
        """Rows that are drawn by mini-batches stay as they are."""
        rows, at = writable_copy(self.rows), held.at
        own, tau = rows[at], value_of(self.tau)
        tau = tau if isinstance(tau, float) else tau[at]
        stats = draw_stripe(self.shared, own, np.empty_like(own), tau, held.stripe)
        rows[at] = own
        return RareResult(rows, self.fixed, bool(np.isfinite(stats[:, SSE].sum())))


@dataclass(frozen=True)
class TakeResult(RemoteResult):
    """Some rows of a stripe, and the weights of their ratings."""

    shared_fields = ("rows", "weight")
    rows: Any
    weight: Any
    count: int = 0


@dataclass(frozen=True)
class TakeTask:
    """Copy some rows of a stripe, with the weights of their ratings, for other workers."""

    short = True
    chain: int
    partition: int
    rows: Part
    weight: Part | float | None
    at: NDArray[np.int32]

    def execute(self, held: Any) -> TakeResult:
        rows, weight = value_of(self.rows)[self.at], self.weight
        if weight is None or isinstance(weight, float):
            return TakeResult(rows, None)
        return TakeResult(rows, value_of(weight)[self.at])
