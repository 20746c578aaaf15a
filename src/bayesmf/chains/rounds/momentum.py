"""Rounds of SGHMC and SGNHT: mini-batch updates with momenta, exact draws of rare rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import numpy as np

from bayesmf.blocks.stripes import Stripe, some_stripes
from bayesmf.chains.rounds.blocks import BlockRounds
from bayesmf.chains.rounds.gibbs import row_context, row_precisions, stripe_values
from bayesmf.chains.state import ChainState, Phases
from bayesmf.data.training import TrainingData
from bayesmf.errors import DivergenceError
from bayesmf.model.refs import Pieces
from bayesmf.samplers.base import Array
from bayesmf.samplers.momentum import MomentumRule, RowFacts, StepLimits
from bayesmf.worker.block_tasks import HeldBlock, RoundResult
from bayesmf.worker.momentum_tasks import (
    MomentumBlock,
    MomentumResult,
    MomentumSettings,
    MomentumTask,
    RareStripe,
    RareTask,
    TakeTask,
)


class MomentumRounds(BlockRounds):
    """Momenta and a step for each row; rows with few ratings are drawn exactly, once an epoch.

    Each part leaves the posterior invariant: mini-batch updates of the other rows given the rare
    ones, then rare users given all items, rare items given all users, precisions given all rows.
    """

    squares = True

    def __init__(self, data: TrainingData, rule: MomentumRule, seed: int) -> None:
        self._rule = rule
        super().__init__(data, rule, rule.n_chains, seed)
        self._counts = data.user_counts(), data.item_counts()
        self._moving = tuple(counts > (rule.exact_below or 0) for counts in self._counts)
        self.facts = tuple(self._row_facts(side) for side in range(2))
        self.blocks = [self._with_facts(block) for block in self.blocks]
        self.recipes = [
            recipe and replace(recipe, frame=self._with_facts(recipe.frame, block))
            for recipe, block in zip(cast(list[Any], self.recipes), self.blocks, strict=True)
        ]
        self._hold_rare(data)

    def hold(self, block: HeldBlock, hbar_user: Array, hbar_item: Array) -> HeldBlock:
        return block  # steps depend on all blocks

    def _with_facts(self, held: HeldBlock, whole: HeldBlock | None = None) -> MomentumBlock:
        """A block with what the steps of its rows depend on; `whole` has its row numbers."""
        facts, moving = [], []
        for side in range(2):
            rows, known = (whole or held).numbers(side), self.facts[side]
            facts.append(RowFacts(*(getattr(known, name)[rows] for name in vars(known))))
            moving.append(self._moving[side][rows])
        return MomentumBlock(**vars(held), facts=tuple(facts), moving=tuple(moving))  # type: ignore[arg-type]

    def _row_facts(self, side: int) -> RowFacts:
        """What the steps of one side depend on; see `RowFacts`.

        A rating of block s stands for f_s = hbar scale_s of itself on a visit; f is the mean over
        the row's ratings. Where rounds are longer than a pass over a block, so is the time in which
        a row sees one block only, and mini-batches act as if there were more of them.
        """
        n = np.maximum(self._counts[side].astype(np.float64), 1.0)
        hbar, total = np.zeros(len(n)), np.zeros(len(n))
        for h in self.blocks:
            rows = h.numbers(side)
            hbar[rows] = 1.0 / h.prior_weight[side].astype(np.float64)
            total[rows] += h.scale * h.block.counts()[side]
        f = np.maximum(np.round(hbar * total / n, 4), 1.0)
        if self.blocks[0].replacement_size is not None:
            return RowFacts(n, np.full(len(n), np.inf), f, n / f)
        batches = self.blocks[0].block.n_batches
        stretch = max(1.0, self.length / batches) if len(self.groups) > 1 else 1.0
        visits = np.round(hbar * batches * len(self.rotation), 4)
        return RowFacts(n, visits * stretch, f * stretch - 1.0, n / f)

    def step(self, state: ChainState, t: int) -> float:
        return self._limits(state, t).delta_max

    def _limits(self, state: ChainState, t: int) -> StepLimits:
        delta, rho, warm = self._rule.limits(t / self._rule.rounds_per_epoch(self._shape))
        return StepLimits(delta * state.step_factor, rho * state.step_factor, warm)

    def tasks(self, state: ChainState, t: int, group: Sequence[int], first_batch: int) -> list[Any]:
        shared = self._settings(state, t, first_batch)
        weighed = None if state.weighed is None else (state.weighed.users, state.weighed.items)

        def both(sides: Any, partition: int) -> tuple[Any, Any]:
            if sides is None:
                return None, None
            user, item = self.stripes(partition)
            return sides[0][user], sides[1][item]

        return [
            MomentumTask(
                **self.sides(state, p),
                shared=shared,
                momenta=both(state.momenta, p),
                n=both(weighed, p),
            )
            for p in group
        ]

    def _settings(self, state: ChainState, t: int, first_batch: int) -> MomentumSettings:
        limits, moments, D = self._limits(state, t), state.column_squares, state.params.n_factors
        assert moments is not None
        # A chain starts from small rows, which grow before their squares are computed again. For
        # ratings of variance v both sides' squares grow to about sqrt(v / D).
        least = limits.warm * np.sqrt(self._variance / D)
        squares = np.maximum(moments.items, least), np.maximum(moments.users, least)
        noise = self._rule.noise_share(t / self._rule.rounds_per_epoch(self._shape))
        return MomentumSettings(
            **self.given(state, t, first_batch), rule=self._rule, delta=limits.delta_max,
            rho=limits.rho, noise=noise, squares=squares,
        )  # fmt: skip

    def put_back(self, state: ChainState, partition: int, result: RoundResult) -> None:
        super().put_back(state, partition, result)
        assert isinstance(result, MomentumResult)
        user, item = self.stripes(partition)
        users, items = state.momenta or self._no_momenta()
        state.momenta = (
            users.put(user, result.momenta_users),
            items.put(item, result.momenta_items),
        )

    def _no_momenta(self) -> tuple[Pieces, Pieces]:
        """Momenta of rows that have not moved yet: a task takes None for zeros."""
        users, items = (Pieces((None,) * len(layout), layout) for layout in self.layouts)  # type: ignore[arg-type]
        return users, items

    def round(self, state: ChainState, t: int) -> Phases:
        """Mini-batch updates; at the end of an epoch, exact draws of the rare rows."""
        yield from super().round(state, t)
        assert self._rule.precision_every is not None
        if (t + 1) % self._rule.precision_every == 0:
            for side in range(2):
                if self._rare[side]:
                    yield from self._draw_rare(state, t, side)

    def _repair(self, state: ChainState, t: int) -> None:
        super()._repair(state, t)
        state.momenta = None  # they point in the direction that diverged

    # -- rare rows -------------------------------------------------------------------------------

    def _hold_rare(self, data: TrainingData) -> None:
        """Partitions with the ratings of the rare rows of each stripe.

        Ratings refer to rows of the other side by position in its concatenated stripes, or in the
        rows taken from them.
        """
        self._rare: tuple[dict[int, int], dict[int, int]] = {}, {}
        # Positions in each stripe of the fixed side that rare rows of the other side have rated.
        self._taken: list[Any] | None = None
        held: list[Any] = [*self.blocks]
        units = list(self.units)
        for side, lists in enumerate((data.by_user, data.by_item)):
            rare = ~self._moving[side]
            if not rare.any():
                continue
            (all_rare,) = some_stripes(lists, data.levels, rare, 1)
            order = self.layouts[1 - side].order
            if side != self.fixed:
                order = self._take(np.unique(all_rare.other), order)
            other = order[all_rare.other].astype(np.int32)
            all_rare = replace(all_rare, other=other)
            for k, own in enumerate(cast(list[Any], self.layouts[side].index)):
                at = np.flatnonzero(rare[own]).astype(np.int32)
                if len(at):
                    self._rare[side][k] = len(held)
                    held.append(RareStripe(_rows_of(all_rare, own[at]), at))
                    units.append(self.units[self.at(side, k)])
        self.recipes = [*self.recipes, *[None] * (len(held) - len(self.blocks))]
        self.held, self.units = held, units
        self.together = [*self.groups, *(list(own.values()) for own in self._rare if own)]

    def _take(self, wanted: Any, order: Any) -> Any:
        """Record the rows needed of the fixed side; returns the position of each."""
        layout, places = self.layouts[self.fixed], np.sort(order[wanted])
        starts = np.cumsum([0, *layout.sizes()])
        self._taken = [
            (places[(places >= lo) & (places < hi)] - lo).astype(np.int32)
            for lo, hi in pairwise(starts)
        ]
        found = np.full(layout.n_rows, -1, np.int64)
        found[wanted] = np.searchsorted(places, order[wanted])
        return found

    def _draw_rare(self, state: ChainState, t: int, side: int) -> Phases:
        """Rare rows given the whole other side. No random number is used twice: these rows draw
        none in mini-batch updates."""
        shared = row_context(state, t, side, 0.0, None, 1, laws=False)
        if side != self.fixed:
            assert self._taken is not None
            weights = state.precisions.by_row(1 - side)
            found: Sequence[Any] = yield [
                TakeTask(
                    state.chain, self.at(1 - side, k), state.side(1 - side)[k],
                    stripe_values(weights, k), at,
                )
                for k, at in enumerate(self._taken)
            ]  # fmt: skip
            alike = weights if not isinstance(weights, Pieces) else None
            shared = replace(
                shared,
                other=tuple(r.rows for r in found),
                weights=tuple(alike if r.weight is None else r.weight for r in found),
            )
        rows, tau = state.side(side), row_precisions(state, side)
        results: Sequence[Any] = yield [
            RareTask(
                state.chain, partition, rows[k], stripe_values(tau, k), shared, side == self.fixed
            )
            for k, partition in self._rare[side].items()
        ]  # fmt: skip
        if not all(result.finite for result in results):
            raise DivergenceError(
                f"chain {state.chain} met a precision matrix that is not positive in round "
                f"{t + 1}: use a smaller tau (--tau), or exact_below=0 (--exact-below 0)"
            )
        for k, result in zip(self._rare[side], results, strict=True):
            rows = rows.put(k, result.rows)
        state.put(side, rows)


def _rows_of(stripe: Stripe, rows: Any) -> Stripe:
    """The ratings of some of a stripe's rows, in the order of their numbers."""
    at = np.searchsorted(stripe.rows, rows)
    counts = stripe.counts[at]
    starts = np.append(0, np.cumsum(counts))
    own = np.concatenate([np.arange(stripe.starts[k], stripe.starts[k + 1]) for k in at])
    return Stripe(stripe.rows[at], starts, stripe.other[own], stripe.value[own], stripe.levels)
