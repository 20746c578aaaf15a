"""What a round of mini-batch updates sends to workers, and how results are put back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.batches import Block, TrainingData, make_blocks
from bayesmf.correctors import h_bar
from bayesmf.errors import DivergenceError
from bayesmf.grid import Rotation, visit_slots
from bayesmf.phases import ChainState, Phases
from bayesmf.rules import DataShape, GradientRule
from bayesmf.samplers import SGD, SGLD, Gibbs
from bayesmf.schedules import StepSize
from bayesmf.sweeps import GibbsRounds
from bayesmf.worker import ErrorsTask, HeldBlock, RoundResult, RoundTask, Task


class GradientRounds:
    """SGD and SGLD: one phase, the blocks of the chain's orthogonal group."""

    def __init__(self, data: TrainingData, rule: SGD | SGLD, seed: int) -> None:
        assert rule.kappa is not None and rule.round_length is not None
        shape = data_shape(data)
        self.groups = rule.grid.groups()
        # Drawn with replacement, ratings must stand by user in the whole block: one mini-batch.
        dealt = 1 if rule.minibatch == "replacement" else rule.n_batches(shape)
        blocks = make_blocks(data, rule.grid, dealt, seed)
        sizes = np.array([sum(len(blocks[b]) for b in group) for group in self.groups])
        self.rotation = Rotation(
            visit_slots(rule.visits, sizes),
            rule.n_chains,
            shuffle=rule.shuffle_groups,
            seed=seed,
        )
        self.visit_rate = self._visit_rate(len(blocks))
        self.held: Sequence[HeldBlock] = hold_blocks(data, blocks, self.visit_rate, rule)
        self._prior_weight = max(
            float(max(h.prior_weight_user.max(), h.prior_weight_item.max())) for h in self.held
        )
        variance = max(1.0, float(np.mean(np.square(data.value, dtype=float))))
        self._largest_error = 1e4 * variance
        self._stiffest = self._most_in_a_visit() * variance
        self._rule, self._shape = rule, shape
        self.length = rule.round_length

    def step(self, state: ChainState, t: int, default: bool = False) -> float:
        """epsilon_t, as it is or as it would be by default."""
        rule, now = self._rule, state.precisions
        if default:
            rule = replace(rule, step_size=None)
        assert rule.kappa is not None
        pull = self._prior_weight * max(now.users.strongest(), now.items.strongest())
        first = rule.first_step(self._shape, self._stiffest, now.tau, pull)
        return StepSize(first, rule.kappa, rule.decay)(t)

    def _most_in_a_visit(self) -> float:
        """Most ratings that a visit stands for: a row's ratings in a block over its visit rate.

        The curvature along the row's bias is tau times that; along its features it is less while
        the other side's rows are shorter than one, as they are for ratings of variance one.
        """
        most = 1.0
        for one, v in zip(self.held, self.visit_rate, strict=True):
            for position in (one.block.user, one.block.item):
                most = max(most, np.bincount(position, minlength=1).max() / v)
        return most

    def _visit_rate(self, n_blocks: int) -> NDArray[np.float64]:
        out = np.empty(n_blocks)
        for group, rate in zip(self.groups, self.rotation.rates, strict=True):
            out[group] = rate
        return out

    def round(self, state: ChainState, t: int) -> Phases:
        """Algorithm 2, lines 4-7."""
        number = self.rotation.group(state.chain, t)
        group = self.groups[number]
        step = self.step(state, t)
        visit = state.visits.get(number, 0)
        state.visits[number] = visit + 1
        params = state.params
        tasks: list[Task] = []
        for place in group:
            block = self.held[place].block
            tasks.append(
                RoundTask(
                    chain=state.chain,
                    place=place,
                    users=params.users[block.user_rows],
                    items=params.items[block.item_rows],
                    n_factors=params.n_factors,
                    precisions=state.precisions,
                    step_users=step,
                    step_items=step,
                    first_iteration=t * self.length,
                    first_batch=visit * self.length,
                    length=self.length,
                    key=state.key,
                )
            )
        results = yield tasks
        state.sse, state.count = 0.0, 0
        for place, result in zip(group, results, strict=True):
            assert isinstance(result, RoundResult)
            self._check(state, t, step, result)
            block = self.held[place].block
            params.users[block.user_rows] = result.users
            params.items[block.item_rows] = result.items
            state.sse += result.sse
            state.count += result.count

    def exact_errors(self, state: ChainState) -> Phases:
        """A pass over the ratings without updates: errors met on the way belong to other states."""
        params = state.params
        results = yield [
            ErrorsTask(
                state.chain,
                place,
                params.users[one.block.user_rows],
                params.items[one.block.item_rows],
                params.n_factors,
            )
            for place, one in enumerate(self.held)
        ]
        state.sse = sum(result.sse for result in results)
        state.count = sum(result.count for result in results)

    def _check(self, state: ChainState, t: int, step: float, result: RoundResult) -> None:
        """Errors a hundred times as large as the ratings are no model any more."""
        with np.errstate(all="ignore"):
            finite = np.isfinite(result.users.sum()) and np.isfinite(result.items.sum())
        if finite and result.sse <= self._largest_error * max(result.count, 1):
            return
        usual = min(self.step(state, t, default=True), step / 4)
        raise DivergenceError(
            f"chain {state.chain} diverged in round {t + 1} at step size {step:.3g}: use a smaller "
            f"step_size (--step-size), say {usual:.2g}, or a larger batch_size (--batch-size)"
        )


def hold_blocks(
    data: TrainingData,
    blocks: list[Block],
    visit_rate: NDArray[np.float64],
    rule: SGD | SGLD,
    dtype: type[np.floating[Any]] = np.float32,
) -> list[HeldBlock]:
    """Blocks with the weights of their rows: 1/hbar for the prior, the rule's noise."""
    size = rule.batch_size if rule.minibatch == "replacement" else None
    hbar_user, hbar_item = h_bar(blocks, visit_rate, data.n_users, data.n_items, size)
    out = []
    for block, v in zip(blocks, visit_rate, strict=True):
        user, item = hbar_user[block.user_rows], hbar_item[block.item_rows]
        batches = block.n_batches if size is None else len(block) / size
        out.append(
            HeldBlock(
                block,
                scale=batches / v,
                prior_weight_user=(1.0 / user).astype(dtype),
                prior_weight_item=(1.0 / item).astype(dtype),
                noise_user=rule.noise_variance(user).astype(dtype),
                noise_item=rule.noise_variance(item).astype(dtype),
                replacement_size=size,
            )
        )
    return out


def data_shape(data: TrainingData) -> DataShape:
    """Sizes that defaults depend on."""
    counts = np.concatenate([data.user_counts(), data.item_counts()])
    busy = int(np.quantile(counts, 0.9, method="higher"))
    return DataShape(len(data), data.n_users, data.n_items, busy)


def make_rounds(
    data: TrainingData, rule: GradientRule | Gibbs, seed: int
) -> GradientRounds | GibbsRounds:
    """The rounds of a resolved rule."""
    if isinstance(rule, Gibbs):
        return GibbsRounds(data, rule)
    assert isinstance(rule, SGD | SGLD)
    return GradientRounds(data, rule, seed)
