"""Rounds of SGD and SGLD, and the choice of rounds for any rule."""

from __future__ import annotations

from dataclasses import replace

from bayesmf.chains.block_rounds import BlockRounds, data_shape, hold_blocks
from bayesmf.chains.clock_rounds import ClockRounds
from bayesmf.chains.gibbs_rounds import GibbsRounds
from bayesmf.chains.state import ChainState
from bayesmf.data.training import TrainingData
from bayesmf.errors import DivergenceError
from bayesmf.samplers.base import BatchRule
from bayesmf.samplers.clocks import ClockRule
from bayesmf.samplers.registry import SGD, SGLD, Gibbs
from bayesmf.samplers.schedules import StepSize
from bayesmf.worker.recipes import block_recipes
from bayesmf.worker.tasks import RoundTask

__all__ = ["ClockRounds", "GradientRounds", "data_shape", "hold_blocks", "make_rounds"]


class GradientRounds(BlockRounds):
    """SGD and SGLD: one step size for all rows."""

    def __init__(self, data: TrainingData, rule: SGD | SGLD, seed: int) -> None:
        super().__init__(data, rule, rule.n_chains, seed)
        self.blocks = hold_blocks(data, self._blocks, self.visit_rate, rule)
        self.held = self.blocks
        self.recipes = block_recipes(data, self.blocks, rule.grid, seed)
        self._prior_weight = max(
            float(max(h.prior_weight_user.max(), h.prior_weight_item.max())) for h in self.blocks
        )
        self._stiffest = self._most_in_a_visit() * self._variance
        self._rule, self._may_repair = rule, rule.step_size is None

    def step(self, state: ChainState, t: int, default: bool = False) -> float:
        """epsilon_t, as it is or as it would be by default."""
        rule, now = self._rule, state.precisions
        if default:
            rule = replace(rule, step_size=None)
        assert rule.kappa is not None
        pull = self._prior_weight * max(now.users.strongest(), now.items.strongest())
        first = rule.first_step(self._shape, self._stiffest, now.tau, pull)
        return state.pace * StepSize(first, rule.kappa, rule.decay)(t)

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

    def task(self, state: ChainState, t: int, place: int, first_batch: int) -> RoundTask:
        block, params, step = self.blocks[place].block, state.params, self.step(state, t)
        return RoundTask(
            chain=state.chain,
            place=place,
            users=params.users.take(block.user_rows, axis=0),
            items=params.items.take(block.item_rows, axis=0),
            n_factors=params.n_factors,
            precisions=state.precisions,
            step_users=step,
            step_items=step,
            first_iteration=t * self.length,
            first_batch=first_batch,
            length=self.length,
            key=state.key,
        )

    def _repair(self, state: ChainState, t: int) -> None:
        if self._may_repair:
            return super()._repair(state, t)
        step = self.step(state, t)
        usual = min(self.step(state, t, default=True), step / 4)
        raise DivergenceError(
            f"chain {state.chain} diverged in round {t + 1} at step size {step:.3g}: use a smaller "
            f"step_size (--step-size), say {usual:.2g}, or a larger batch_size (--batch-size)"
        )


def make_rounds(
    data: TrainingData, rule: BatchRule | Gibbs, seed: int
) -> GradientRounds | ClockRounds | GibbsRounds:
    """The rounds of a resolved rule."""
    if isinstance(rule, Gibbs):
        return GibbsRounds(data, rule)
    if isinstance(rule, ClockRule):
        return ClockRounds(data, rule, seed)
    assert isinstance(rule, SGD | SGLD)
    return GradientRounds(data, rule, seed)
