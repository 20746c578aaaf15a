"""Rounds of SGD and SGLD."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bayesmf.chains.rounds.blocks import BlockRounds
from bayesmf.chains.state import ChainState
from bayesmf.data.training import TrainingData
from bayesmf.errors import DivergenceError
from bayesmf.samplers.base import Array, GradientRule
from bayesmf.samplers.schedules import StepSize
from bayesmf.worker.block_tasks import (
    GradientBlock,
    GradientSettings,
    GradientTask,
    HeldBlock,
)


class GradientRounds(BlockRounds):
    """One step size for all rows."""

    def __init__(self, data: TrainingData, rule: GradientRule, seed: int) -> None:
        self._rule = rule
        super().__init__(data, rule, rule.n_chains, seed)
        self._prior_weight = max(
            float(max(weight.max() for weight in h.prior_weight)) for h in self.blocks
        )
        self._stiffest = self._most_in_a_visit() * self._variance
        self._may_repair = rule.step_size is None

    def hold(self, block: HeldBlock, hbar_user: Array, hbar_item: Array) -> GradientBlock:
        user, item = (self._rule.noise_variance(hbar) for hbar in (hbar_user, hbar_item))
        noise = user.astype(np.float32), item.astype(np.float32)
        return GradientBlock(**vars(block), noise=noise)

    def step(self, state: ChainState, t: int, default: bool = False) -> float:
        """epsilon_t, or its default."""
        rule, now = self._rule, state.precisions
        if default:
            rule = replace(rule, step_size=None)
        assert rule.kappa is not None
        pull = self._prior_weight * max(now.users.strongest(), now.items.strongest())
        shape, stiffest = self._shape, self._stiffest
        if state.weighed is not None:  # curvatures with noise by row
            shape = shape._replace(busy=state.weighed.busy)
            stiffest = state.weighed.most * self._variance
        first = rule.first_step(shape, stiffest, now.tau, pull)
        first *= rule.start_factor(t / rule.rounds_per_epoch(self._shape))
        return state.step_factor * StepSize(first, rule.kappa, rule.decay)(t)

    def _most_in_a_visit(self) -> float:
        """Most ratings that a visit stands for: a row's ratings in a block over its visit rate.

        The curvature along the row's bias is tau times that; along its features it is less while
        the other side's rows are shorter than one, as they are for ratings of variance one.
        """
        most = 1.0
        for one, v in zip(self.blocks, self.visit_rate, strict=True):
            for counts in one.block.counts():
                most = max(most, counts.max(initial=0) / v)
        return most

    def tasks(self, state: ChainState, t: int, group: Sequence[int], first_batch: int) -> list[Any]:
        shared = GradientSettings(
            **self.given(state, t, first_batch),
            step=self.step(state, t),
            noise_share=self._rule.noise_share(t / self._rule.rounds_per_epoch(self._shape)),
        )
        return [GradientTask(**self.sides(state, p), shared=shared) for p in group]

    def _repair(self, state: ChainState, t: int) -> None:
        if self._may_repair:
            return super()._repair(state, t)
        step = self.step(state, t)
        usual = min(self.step(state, t, default=True), step / 4)
        raise DivergenceError(
            f"chain {state.chain} diverged in round {t + 1} at step size {step:.3g}: use a smaller "
            f"step_size (--step-size), say {usual:.2g}, or a larger batch_size (--batch-size)"
        )
