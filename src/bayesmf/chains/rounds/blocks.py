"""What a round of mini-batch updates sends to workers, and how results are put back."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bayesmf.blocks.blocks import Block, make_blocks
from bayesmf.blocks.correctors import h_bar
from bayesmf.blocks.rotation import Rotation, visit_turns
from bayesmf.chains.rounds.row_noise import draw_row_noise, rating_weights, taken
from bayesmf.chains.state import ChainState, Phases, Safe, Weighed
from bayesmf.data.training import TrainingData
from bayesmf.errors import DivergenceError
from bayesmf.samplers.base import Array, BatchRule, DataShape
from bayesmf.worker.block_tasks import ErrorsResult, ErrorsTask, HeldBlock, RoundResult, WeightsTask
from bayesmf.worker.recipes import block_recipes
from bayesmf.worker.tasks import Held, Recipe, Result, Task

log = logging.getLogger("bayesmf")

# After so many halvings of the steps it is not the steps.
MOST_REPAIRS = 30


class BlockRounds(ABC):
    """What mini-batch rules share: one phase, the blocks of the chain's orthogonal group.

    A round that diverges is done again with steps half as long, and nothing of it is put back,
    unless the user has set the step.
    """

    def __init__(self, data: TrainingData, rule: BatchRule, n_chains: int, seed: int) -> None:
        assert rule.round_length is not None
        self._shape = data_shape(data)
        self._rated = data.user_counts(), data.item_counts()
        self._precision_every = rule.precision_every
        self.groups = rule.grid.groups()
        # Drawn with replacement, ratings must stand by user in the whole block: one mini-batch.
        dealt = 1 if rule.minibatch == "replacement" else rule.n_batches(self._shape)
        blocks = make_blocks(data, rule.grid, dealt, seed)
        sizes = np.array([sum(len(blocks[b]) for b in group) for group in self.groups])
        self.rotation = Rotation(
            visit_turns(rule.visits, sizes), n_chains, shuffle=rule.shuffle_groups, seed=seed
        )
        self.visit_rate = self._visit_rate(len(blocks))
        self._variance = max(1.0, data.mean_square())
        self.length = rule.round_length
        # Rounds between copies of the state to fall back on: about an epoch.
        self._every = max(1, round(rule.rounds_per_epoch(self._shape)))
        self._may_repair = True
        self.blocks = [
            self.hold(one, *hbar) for one, *hbar in hold_blocks(data, blocks, self.visit_rate, rule)
        ]
        self.held: Sequence[Held] = self.blocks
        self.recipes: Sequence[Recipe | None] = block_recipes(data, self.blocks, rule.grid, seed)
        self.together: Sequence[Sequence[int]] = self.groups

    def _visit_rate(self, n_blocks: int) -> Array:
        out = np.empty(n_blocks)
        for group, rate in zip(self.groups, self.rotation.rates, strict=True):
            out[group] = rate
        return out

    @abstractmethod
    def hold(self, block: HeldBlock, hbar_user: Array, hbar_item: Array) -> HeldBlock:
        """The block with what this kind of rounds needs besides, given its rows' visit rates."""

    @abstractmethod
    def step(self, state: ChainState, t: int) -> float:
        """The step size of round t, as it is told to those who listen."""

    @abstractmethod
    def task(self, state: ChainState, t: int, partition: int, first_batch: int) -> Task:
        """What a worker is to do with a block in round t."""

    def common(self, state: ChainState, t: int, partition: int, first_batch: int) -> dict[str, Any]:
        """Arguments that tasks of all kinds of rounds have."""
        block, params, now = self.blocks[partition].block, state.params, state.precisions
        own, other = now.shares()
        return {
            "chain": state.chain,
            "partition": partition,
            "users": params.users.take(block.user_rows, axis=0),
            "items": params.items.take(block.item_rows, axis=0),
            "n_factors": params.n_factors,
            "precisions": replace(now, noise=None),  # a task has its own rows' alone
            "user_weight": taken(own, block.user_rows),
            "item_weight": taken(other, block.item_rows),
            "first_iteration": t * self.length,
            "first_batch": first_batch,
            "length": self.length,
            "key": state.key,
        }

    def put_back(self, state: ChainState, partition: int, result: RoundResult) -> None:
        """Line 7 of Algorithm 2."""
        block = self.blocks[partition].block
        state.params.users[block.user_rows] = result.users
        state.params.items[block.item_rows] = result.items

    def round(self, state: ChainState, t: int) -> Phases:
        """Algorithm 2, lines 4-7."""
        number = self.rotation.group(state.chain, t)
        group = self.groups[number]
        visit = state.visits.get(number, 0)
        if self._may_repair and state.safe is None:
            state.safe = _copy(state)  # a start is small, whatever follows
        while True:
            yield from self.weigh(state)
            results = yield [self.task(state, t, p, visit * self.length) for p in group]
            if all(self._sound(result) for result in results):
                break
            self._repair(state, t)
        if self._may_repair and t % self._every == 0:
            self._note(state, results)
        state.visits[number] = visit + 1
        state.sse, state.count = 0.0, 0
        for partition, result in zip(group, results, strict=True):
            assert isinstance(result, RoundResult)
            self.put_back(state, partition, result)
            state.sse += result.sse
            state.count += result.count

    def _note(self, state: ChainState, results: Sequence[Result]) -> None:
        """Take a copy to fall back on, if the errors that a round met from here on were small."""
        sse, count = sum(r.sse for r in results), sum(r.count for r in results)
        if sse <= 2.0 * self._variance * max(count, 1):
            state.safe = _copy(state)

    def weigh(self, state: ChainState) -> Phases:
        """Count the rows' ratings by their precisions, once whenever these have been drawn."""
        now = state.precisions
        if now.noise is None or (state.weighed and state.weighed.version == now.version):
            return
        own, other = rating_weights(*now.shares(), self._shape)
        results = yield [
            WeightsTask(state.chain, p, (own[one.block.user_rows], other[one.block.item_rows]))
            for p, one in enumerate(self.blocks)
        ]
        users, items, most = np.zeros(len(own)), np.zeros(len(other)), 1e-12
        for one, v, result in zip(self.blocks, self.visit_rate, results, strict=True):
            assert isinstance(result, ErrorsResult) and result.by_row is not None
            for total, weight, rows, sums in (
                (users, own, one.block.user_rows, result.by_row[0]),
                (items, other, one.block.item_rows, result.by_row[1]),
            ):
                found = weight[rows] * sums
                total[rows] += found
                most = max(most, float(found.max(initial=0.0)) / v)
        state.weighed = Weighed(users, items, most, now.version)

    def exact_errors(self, state: ChainState) -> Phases:
        """A pass over the ratings without updates: errors met on the way belong to other states."""
        params, now, weights = state.params, state.precisions, None
        if now.noise is not None:
            weights = rating_weights(now.weights(0), now.weights(1), self._shape)
        results = yield [
            ErrorsTask(
                state.chain,
                partition,
                params.users.take(one.block.user_rows, axis=0),
                params.items.take(one.block.item_rows, axis=0),
                params.n_factors,
                weights and (weights[0][one.block.user_rows], weights[1][one.block.item_rows]),
            )
            for partition, one in enumerate(self.blocks)
        ]
        state.sse = sum(result.sse for result in results)
        state.count = sum(result.count for result in results)
        if weights is not None:
            state.errors_by_row = np.zeros(len(weights[0])), np.zeros(len(weights[1]))
            for one, result in zip(self.blocks, results, strict=True):
                assert isinstance(result, ErrorsResult) and result.by_row is not None
                state.errors_by_row[0][one.block.user_rows] += result.by_row[0]
                state.errors_by_row[1][one.block.item_rows] += result.by_row[1]

    def draw_noise(self, state: ChainState, t: int) -> None:
        """Draw the precisions of users or of items, in turn where both have their own.

        The errors are those under the precisions of now: with new ones of users those of items
        would have to be added up once more.
        """
        noise = state.precisions.noise
        if noise is None:
            return
        assert state.errors_by_row is not None and self._precision_every is not None
        both = noise.users is not None and noise.items is not None
        side = (t // self._precision_every) % 2 if both else int(noise.users is None)
        draw_row_noise(state, t, side, self._rated[side], state.errors_by_row[side])
        state.errors_by_row = None

    def _sound(self, result: Result) -> bool:
        """Errors much larger than the ratings are no model any more.

        Where the user has set the step, a hundred times; where steps can be halved it is better
        done soon, three times.
        """
        assert isinstance(result, RoundResult)
        most = (10.0 if self._may_repair else 1e4) * self._variance
        return bool(result.finite and result.sse <= most * max(result.count, 1))

    def _repair(self, state: ChainState, t: int) -> None:
        """Shorter steps from here on, and back to the last state whose errors were small.

        The state before this round may be none: errors are met before an update, not after it, so
        that it may be the end of the round before that went wrong.
        """
        if state.repairs >= MOST_REPAIRS:
            raise DivergenceError(
                f"chain {state.chain} diverged in round {t + 1}, and again with steps halved "
                f"{MOST_REPAIRS} times: use a larger batch_size (--batch-size) or fewer factors"
            )
        state.pace /= 2
        state.repairs += 1
        if state.safe is not None:
            state.params.users[:], state.params.items[:], state.precisions = state.safe
        log.warning("chain %d diverged in round %d: rolled back, steps halved", state.chain, t + 1)


def _copy(state: ChainState) -> Safe:
    return Safe(state.params.users.copy(), state.params.items.copy(), state.precisions)


def hold_blocks(
    data: TrainingData,
    blocks: list[Block],
    visit_rate: Array,
    rule: BatchRule,
    dtype: type[np.floating[Any]] = np.float32,
) -> Iterator[tuple[HeldBlock, Array, Array]]:
    """Blocks with the prior's weights, 1/hbar, and hbar itself of their users and items."""
    size = rule.batch_size if rule.minibatch == "replacement" else None
    hbar_user, hbar_item = h_bar(blocks, visit_rate, data.n_users, data.n_items, size)
    for block, v in zip(blocks, visit_rate, strict=True):
        user, item = hbar_user[block.user_rows], hbar_item[block.item_rows]
        batches = block.n_batches if size is None else len(block) / size
        weights = (1.0 / user).astype(dtype), (1.0 / item).astype(dtype)
        yield HeldBlock(block, batches / v, *weights, size), user, item


def data_shape(data: TrainingData) -> DataShape:
    """Sizes that defaults depend on."""
    counts = np.concatenate([data.user_counts(), data.item_counts()])
    busy = int(np.quantile(counts, 0.9, method="higher"))
    return DataShape(len(data), data.n_users, data.n_items, busy)
