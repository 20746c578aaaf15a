"""Rounds of mini-batch updates in blocks: base of the rounds of SGD, SGLD, SGHMC and SGNHT."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bayesmf.blocks.blocks import Block, h_bar, inverse, make_blocks
from bayesmf.blocks.grid import Rotation, visit_turns
from bayesmf.chains.rounds.gibbs import draw_row_noise, put_moments, stripe_values
from bayesmf.chains.state import ChainState, ColumnSquares, Phases, Safe, Weighed
from bayesmf.data.training import TrainingData
from bayesmf.errors import DivergenceError
from bayesmf.kernels.exact import total, unpacked_moments
from bayesmf.model.priors import Moments, Precisions
from bayesmf.model.refs import Pieces, StripeLayout
from bayesmf.samplers.base import Array, BatchRule, DataShape
from bayesmf.worker.block_tasks import ErrorsTask, HeldBlock, RoundResult, WeightsTask
from bayesmf.worker.recipes import block_recipes
from bayesmf.worker.stripe_tasks import MomentsTask, WeighedTask, approximate_quantile
from bayesmf.worker.tasks import Held, Recipe

log = logging.getLogger("bayesmf")

# Maximum number of halvings; beyond it the cause is not the step size.
MOST_REPAIRS = 30


class BlockRounds(ABC):
    """Base of mini-batch rounds: one phase, the blocks of the chain's orthogonal group.

    A round that diverges is discarded and repeated with halved steps, unless the user has set the
    step size.
    """

    def __init__(self, data: TrainingData, rule: BatchRule, n_chains: int, seed: int) -> None:
        assert rule.round_length is not None
        self._shape = data_shape(data)
        self._precision_every = rule.precision_every
        self._grid = rule.grid
        self.groups = rule.grid.groups(rule.group_size)
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
        # Rounds between copies of the state for rollback: about an epoch.
        self._every = max(1, round(rule.rounds_per_epoch(self._shape)))
        self._may_repair = True
        self.blocks = [
            self.hold(one, *hbar) for one, *hbar in hold_blocks(data, blocks, self.visit_rate, rule)
        ]
        rows, cols = rule.grid.rows, rule.grid.cols
        self.layouts = (
            StripeLayout([blocks[r * cols].user_rows for r in range(rows)], data.n_users),
            StripeLayout([blocks[c].item_rows for c in range(cols)], data.n_items),
        )
        # Rows of the side with more stripes stay on their workers, so that a worker holds one
        # stripe; if both have as many, those of the larger side. Rows of the other side are sent.
        self.fixed = int((cols, data.n_items) > (rows, data.n_users))
        self.held: Sequence[Held] = self.blocks
        self.recipes: Sequence[Recipe | None] = block_recipes(data, self.blocks, rule.grid, seed)
        self.together: Sequence[Sequence[int]] = self.groups
        self.units: Sequence[int] = [self.stripes(p)[self.fixed] for p in range(len(blocks))]

    def _visit_rate(self, n_blocks: int) -> Array:
        out = np.empty(n_blocks)
        for group, rate in zip(self.groups, self.rotation.rates, strict=True):
            out[group] = rate
        return out

    @abstractmethod
    def hold(self, block: HeldBlock, hbar_user: Array, hbar_item: Array) -> HeldBlock:
        """The block with the fields of this kind of rounds, given its rows' visit rates."""

    @abstractmethod
    def step(self, state: ChainState, t: int) -> float:
        """The reported step size of round t."""

    @abstractmethod
    def tasks(self, state: ChainState, t: int, group: Sequence[int], first_batch: int) -> list[Any]:
        """Tasks for the blocks of a group in round t."""

    def stripes(self, partition: int) -> tuple[int, int]:
        """Numbers of a block's stripes of users and of items."""
        row, col = divmod(partition, int(self._grid.cols))
        return row, col

    def at(self, side: int, stripe: int) -> int:
        rows, cols = int(self._grid.rows), int(self._grid.cols)
        return stripe * cols + stripe % cols if side == 0 else (stripe % rows) * cols + stripe

    def given(self, state: ChainState, t: int, first_batch: int) -> dict[str, Any]:
        """Settings of a round, common to all kinds of rounds."""
        return {
            "n_factors": state.params.n_factors,
            "precisions": replace(state.precisions, noise=None),  # a task has its own rows' alone
            "first_iteration": t * self.length,
            "first_batch": first_batch,
            "length": self.length,
            "key": state.key,
            "fixed": self.fixed,
        }

    def sides(self, state: ChainState, partition: int) -> dict[str, Any]:
        """Rows of a block and the weights of their ratings, in units of tau."""
        user, item = self.stripes(partition)
        own, other = shares(state)
        return {
            "chain": state.chain,
            "partition": partition,
            "users": state.params.users[user],
            "items": state.params.items[item],
            "user_weight": stripe_values(own, user),
            "item_weight": stripe_values(other, item),
        }

    def put_back(self, state: ChainState, partition: int, result: RoundResult) -> None:
        """Line 7 of Algorithm 2."""
        user, item = self.stripes(partition)
        users, items = state.params.users, state.params.items
        state.put(0, users.put(user, result.users))
        state.put(1, items.put(item, result.items))

    def round(self, state: ChainState, t: int) -> Phases:
        """Algorithm 2, lines 4-7."""
        state.cut(self.layouts)
        number = self.rotation.group(state.chain, t)
        group = self.groups[number]
        visit = state.visits.get(number, 0)
        if self._may_repair and state.safe is None:
            state.safe = _as_it_is(state)  # a start is small, whatever follows
        while True:
            yield from self.weigh(state)
            results: Sequence[Any] = yield self.tasks(state, t, group, visit * self.length)
            if all(self._sound(result) for result in results):
                break
            self._repair(state, t)
        if self._may_repair and t % self._every == 0:
            self._note(state, results)
        state.visits[number] = visit + 1
        state.sse, state.count = 0.0, 0
        for partition, result in zip(group, results, strict=True):
            self.put_back(state, partition, result)
            state.sse += result.sse
            state.count += result.count

    def _note(self, state: ChainState, results: Sequence[Any]) -> None:
        """Copy the state for rollback, if the errors of the round were small."""
        sse, count = sum(r.sse for r in results), sum(r.count for r in results)
        if sse <= 2.0 * self._variance * max(count, 1):
            state.safe = _as_it_is(state)

    # Whether `weigh` also finds the squares of columns, which steps of single rows depend on.
    squares = False

    def weigh(self, state: ChainState) -> Phases:
        """Count the rows' ratings by their precisions, once whenever these have been drawn."""
        now = state.precisions
        squares = self.squares and _outdated(state.column_squares, now)
        noisy = now.noise is not None and (squares or _outdated(state.weighed, now))
        if not (noisy or squares):
            return
        most, parts = 1e-12, ([()] * self._grid.rows, [()] * self._grid.cols)
        if noisy:
            own, other = shares(state)
            results: Sequence[Any] = yield [
                WeightsTask(
                    state.chain, p, stripe_values(own, self.stripes(p)[0]),
                    stripe_values(other, self.stripes(p)[1]), float(self.visit_rate[p]), self.fixed,
                )
                for p in range(len(self.blocks))
            ]  # fmt: skip
            most = max(most, *(result.most for result in results))
            parts = self._by_stripe(results)
        stock: Sequence[Any] = yield [
            WeighedTask(
                state.chain, self.at(side, k), side, state.side(side)[k], sums, side == self.fixed
            )
            for side in range(2)
            for k, sums in enumerate(parts[side])
        ]
        cut = self._grid.rows
        sides = stock[:cut], stock[cut:]
        totals = [float(total(r.total for r in side)[0]) for side in sides]
        if noisy:
            busy = approximate_quantile(np.sum([r.bins for r in stock], axis=0), 0.9)
            users, items = (
                Pieces(tuple(r.n for r in side), layout)
                for side, layout in zip(sides, self.layouts, strict=True)
            )
            state.weighed = Weighed(users, items, most, busy, totals[0], now.version)
        if squares:
            found = [total(r.squares for r in side) / totals[0] for side in sides]
            for columns in found:  # the partner of a bias is the constant one
                columns[state.params.n_factors :] = 1.0
            state.column_squares = ColumnSquares(found[0], found[1], now.version)

    def _by_stripe(self, results: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Results of blocks for each stripe of users and of items."""
        cols = self._grid.cols
        return (
            [
                tuple(r.users for r in results[k * cols : (k + 1) * cols])
                for k in range(self._grid.rows)
            ],
            [tuple(r.items for r in results[k::cols]) for k in range(cols)],
        )

    def exact_errors(self, state: ChainState, errors: bool = True) -> Phases:
        """A pass over the ratings without updates; errors of a round are of intermediate states."""
        now, full = state.precisions, state.precisions.users.Lambda.ndim == 2
        weighted = now.noise is not None
        tasks: list[Any] = [
            MomentsTask(
                state.chain, self.at(side, k), state.side(side)[k], full
            )
            for side, layout in enumerate(self.layouts)
            for k in range(len(layout))
        ]  # fmt: skip
        n_stripes = len(tasks)
        if errors:
            own, other = now.by_row(0), now.by_row(1)
            for p in range(len(self.blocks)):
                user, item = self.stripes(p)
                tasks.append(
                    ErrorsTask(
                        state.chain, p, state.params.users[user], state.params.items[item],
                        stripe_values(own, user), stripe_values(other, item),
                        state.params.n_factors, weighted, self.fixed,
                    )
                )  # fmt: skip
        results: Sequence[Any] = yield tasks
        width, cut = len(now.users.mu), len(self.layouts[0])
        for side, (lo, hi) in enumerate(((0, cut), (cut, n_stripes))):
            n = self.layouts[side].n_rows
            found = unpacked_moments((r.moments for r in results[lo:hi]), width, full)
            put_moments(state, side, Moments(n, *found))
        if errors:
            blocks = results[n_stripes:]
            state.sse = sum(result.sse for result in blocks)
            state.count = sum(result.count for result in blocks)
            state.errors_by_row = self._by_stripe(blocks) if weighted else None

    def draw_noise(self, state: ChainState, t: int) -> Phases:
        """Draw the precisions of users or of items, in turn where both have their own.

        Errors are weighted by the current precisions: new ones of users would change the sums of
        items.
        """
        noise = state.precisions.noise
        if noise is None:
            return
        assert state.errors_by_row is not None and self._precision_every is not None
        both = noise.users is not None and noise.items is not None
        side = (t // self._precision_every) % 2 if both else int(noise.users is None)
        layout = self.layouts[side]
        partitions = [self.at(side, k) for k in range(len(layout))]
        yield from draw_row_noise(state, t, side, partitions, state.errors_by_row[side], layout)
        state.errors_by_row = None

    def _sound(self, result: RoundResult) -> bool:
        """Whether the errors are of the size of the ratings.

        The limit is a hundred times that size with a step set by the user, and three times where
        steps can be halved.
        """
        most = (10.0 if self._may_repair else 1e4) * self._variance
        return bool(result.finite and result.sse <= most * max(result.count, 1))

    def _repair(self, state: ChainState, t: int) -> None:
        """Halve the steps and restore the last state whose errors were small.

        Errors are measured before each update, so the state before this round may already have
        diverged.
        """
        if state.repairs >= MOST_REPAIRS:
            raise DivergenceError(
                f"chain {state.chain} diverged in round {t + 1}, and again with steps halved "
                f"{MOST_REPAIRS} times: use a larger batch_size (--batch-size) or fewer factors"
            )
        state.step_factor /= 2
        state.repairs += 1
        if state.safe is not None:
            state.put(0, state.safe.users)
            state.put(1, state.safe.items)
            state.precisions = state.safe.precisions
        log.warning("chain %d diverged in round %d: rolled back, steps halved", state.chain, t + 1)


def _outdated(found: Any, now: Precisions) -> bool:
    """Whether statistics of the rows are of precisions other than the current ones."""
    return found is None or found.version != now.version


def _as_it_is(state: ChainState) -> Safe:
    """The current rows, which no task changes."""
    return Safe(state.params.users, state.params.items, state.precisions)


def shares(state: ChainState) -> tuple[Any, Any]:
    """Weights of users' and items' ratings, of which the product is a precision over tau."""
    now = state.precisions
    return tuple(
        value.scaled(factor) if isinstance(value, Pieces) else value and value * factor
        for value, factor in zip((now.by_row(0), now.by_row(1)), now.share_factors(), strict=True)
    )  # type: ignore[return-value]


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
    n = data.user_counts().astype(np.int32), data.item_counts().astype(np.int32)
    for block, v in zip(blocks, visit_rate, strict=True):
        user, item = hbar_user[block.user_rows], hbar_item[block.item_rows]
        batches = block.n_batches if size is None else len(block) / size
        weights = inverse(user).astype(dtype), inverse(item).astype(dtype)
        counts = n[0][block.user_rows], n[1][block.item_rows]
        yield HeldBlock(block, batches / v, weights, size, counts), user, item


def data_shape(data: TrainingData) -> DataShape:
    """Sizes that defaults depend on."""
    counts = np.concatenate([data.user_counts(), data.item_counts()])
    busy = int(np.quantile(counts, 0.9, method="higher"))
    return DataShape(len(data), data.n_users, data.n_items, busy)
