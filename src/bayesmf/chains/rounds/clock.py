"""Rounds of the rules in which every row has its own clock."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.blocks.stripes import Stripe, some_stripes
from bayesmf.chains.rounds.blocks import BlockRounds
from bayesmf.chains.rounds.exact_rows import draw_exactly
from bayesmf.chains.state import ChainState, ColumnSquares, Phases
from bayesmf.data.training import TrainingData
from bayesmf.samplers.base import Array
from bayesmf.samplers.clocks import ClockRule, Limits
from bayesmf.samplers.row_steps import RowFacts, Steps, clock_steps, stable_steps, uneven
from bayesmf.worker.block_tasks import HeldBlock, RoundResult
from bayesmf.worker.clock_tasks import ClockBlock, ClockResult, Clocks, ClockTask

RARE_STRIPES = 4  # tasks that exact draws of one side are cut into


class ClockRounds(BlockRounds):
    """Rules with a clock for each row; rows with few ratings are drawn exactly, once an epoch.

    Each part leaves the posterior invariant, so all together do: mini-batch updates of the other
    rows with the rare ones as they are, then the rare users given all items, the rare items given
    all users, the precisions given all rows.
    """

    def __init__(self, data: TrainingData, rule: ClockRule, seed: int) -> None:
        self._rule, self._total = rule, len(data)
        self._counts = data.user_counts(), data.item_counts()
        super().__init__(data, rule, rule.n_chains, seed)
        most = rule.exact_below or 0
        self._moving = tuple(counts > most for counts in self._counts)
        rare = (
            some_stripes(data.by_user, data.levels, ~self._moving[0], RARE_STRIPES),
            some_stripes(data.by_item, data.levels, ~self._moving[1], RARE_STRIPES),
        )
        self.held = [*self.blocks, *rare[0], *rare[1]]
        self.recipes = [*self.recipes, *[None] * (len(self.held) - len(self.blocks))]
        first, second = len(self.blocks), len(self.blocks) + len(rare[0])
        self._partitions = range(first, second), range(second, len(self.held))
        self.together = [*self.groups, *self._partitions]
        self.facts = tuple(self._row_facts(side) for side in range(2))
        self._stable: dict[int, list[Array]] = {}
        self._steps: dict[tuple[int, float, float], list[Steps]] = {}

    def hold(self, block: HeldBlock, hbar_user: Array, hbar_item: Array) -> ClockBlock:
        rows = block.block.user_rows, block.block.item_rows
        n_user, n_item = (
            counts[own].astype(np.float32) for counts, own in zip(self._counts, rows, strict=True)
        )
        return ClockBlock(**vars(block), n_user=n_user, n_item=n_item)

    def _row_facts(self, side: int) -> RowFacts:
        """What the clocks of one side depend on; see `RowFacts`.

        A rating of block s stands for f_s = hbar scale_s of itself on a visit; f is the mean over
        the row's ratings. Where rounds are longer than a pass over a block, so is the time in which
        a row sees one block only, and mini-batches act as if there were more of them.
        """
        n = np.maximum(self._counts[side].astype(np.float64), 1.0)
        hbar, total = np.zeros(len(n)), np.zeros(len(n))
        for h in self.blocks:
            rows, weight = (
                (h.block.user_rows, h.prior_weight_user),
                (h.block.item_rows, h.prior_weight_item),
            )[side]
            hbar[rows] = 1.0 / weight.astype(np.float64)
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

    def _noise_share(self, t: int) -> np.float32:
        return np.float32(self._rule.noise_share(t / self._rule.rounds_per_epoch(self._shape)))

    def _limits(self, state: ChainState, t: int) -> Limits:
        delta, rho, warm = self._rule.limits(t / self._rule.rounds_per_epoch(self._shape))
        return Limits(delta * state.pace, rho * state.pace, warm)

    def steps(self, state: ChainState, t: int) -> list[Steps]:
        """Steps of users and items in round t: found once for all rounds with the same limits."""
        width = state.params.users.shape[1]
        limits = self._limits(state, t)
        key = (width, limits.delta_max, limits.rho)
        if width not in self._stable:
            self._stable[width] = [
                np.where(moving, stable_steps(facts, width), 0.0)
                for facts, moving in zip(self.facts, self._moving, strict=True)
            ]
        if key not in self._steps:
            self._steps[key] = [
                clock_steps(self._rule, facts, stable, *key[1:], uneven(facts, width))
                for facts, stable in zip(self.facts, self._stable[width], strict=True)
            ]
        return self._steps[key]

    def moments(self, state: ChainState) -> ColumnSquares:
        """Mean squares of columns, computed anew when precisions have been drawn, not before."""
        version = state.precisions.version
        if state.moments is None or state.moments.version != version:
            counts: tuple[NDArray[Any], ...] = self._counts
            total: float = self._total
            if state.weighed is not None:
                counts, total = state.weighed[:2], float(state.weighed.users.sum())
            users, items = (
                np.einsum("i,id,id->d", own / total, rows, rows)
                for own, rows in zip(counts, (state.params.users, state.params.items), strict=True)
            )
            # The partner of a bias is the constant one.
            users[state.params.n_factors :] = items[state.params.n_factors :] = 1.0
            state.moments = ColumnSquares(users, items, version)
        return state.moments

    def task(self, state: ChainState, t: int, partition: int, first_batch: int) -> ClockTask:
        block, params, rule = self.blocks[partition].block, state.params, self._rule
        if state.momenta is None:
            extra = int(rule.gain > 0)
            users, items = (
                np.zeros((len(rows), rows.shape[1] + extra), np.float32)
                for rows in (params.users, params.items)
            )
            state.momenta = users, items
        moments, noise = self.moments(state), self._noise_share(t)
        # A chain sets out from small rows, which grow before their squares are looked at again. For
        # ratings of variance v both sides' squares are about sqrt(v / D) when they have grown.
        least = self._limits(state, t).warm * np.sqrt(self._variance / params.n_factors)
        clocks = [
            Clocks(
                u.take(rows, axis=0),
                s.eta[rows],
                s.persistence[rows],
                1.0 - noise * (1.0 - s.share[rows]) if noise < 1.0 else s.share[rows],
                square,
                rule.gain,
                None if n is None else n[rows].astype(np.float32),
            )
            for rows, u, s, square, n in zip(
                (block.user_rows, block.item_rows),
                state.momenta,
                self.steps(state, t),
                (np.maximum(moments.items, least), np.maximum(moments.users, least)),
                state.weighed[:2] if state.weighed is not None else (None, None),
                strict=True,
            )
        ]
        common = self.common(state, t, partition, first_batch)
        return ClockTask(**common, user_clocks=clocks[0], item_clocks=clocks[1])

    def put_back(self, state: ChainState, partition: int, result: RoundResult) -> None:
        super().put_back(state, partition, result)
        assert state.momenta is not None and isinstance(result, ClockResult)
        block = self.blocks[partition].block
        state.momenta[0][block.user_rows] = result.momenta[0]
        state.momenta[1][block.item_rows] = result.momenta[1]

    def round(self, state: ChainState, t: int) -> Phases:
        """Mini-batch updates; at the end of an epoch, exact draws of the rare rows."""
        yield from super().round(state, t)
        assert self._rule.precision_every is not None
        if (t + 1) % self._rule.precision_every == 0:
            for side in range(2):
                if self._partitions[side]:
                    yield from self._draw_rare(state, t, side)

    def _repair(self, state: ChainState, t: int) -> None:
        super()._repair(state, t)
        state.momenta = None  # they would carry the rows on to where they were going

    def _draw_rare(self, state: ChainState, t: int, side: int) -> Phases:
        """Rare rows given the whole other side. Their random numbers are theirs alone: they draw
        none in mini-batch updates."""
        stripes = [(p, self._stripe(p).rows) for p in self._partitions[side]]
        yield from draw_exactly(state, t, side, stripes)

    def _stripe(self, partition: int) -> Stripe:
        stripe = self.held[partition]
        assert isinstance(stripe, Stripe)
        return stripe
