"""What a sweep of Gibbs sends to workers: all users given the items, then the other way round."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bayesmf.blocks.stripes import Stripe, make_stripes
from bayesmf.chains.state import ChainState, Phases
from bayesmf.data.training import TrainingData
from bayesmf.errors import DivergenceError
from bayesmf.kernels.gather import regressors
from bayesmf.kernels.keys import STREAM_ITEMS, STREAM_USERS
from bayesmf.model.params import Params
from bayesmf.samplers.gibbs import Gibbs
from bayesmf.worker.recipes import stripe_recipes
from bayesmf.worker.row_tasks import RowsResult, RowsTask
from bayesmf.worker.tasks import Recipe

# Plain sweeps at the start: over-relaxed rows keep their distance from where they should be, so
# a chain that begins far off would take tens of sweeps to warm up.
SETTLE = 4


class GibbsRounds:
    """Gibbs: two phases, all users given the items, then all items given the users.

    `state.means` are the conditional means of the sweep: of users given the items before it, of
    items given the new users. Predictions from them have the same expectation as from the rows.
    """

    def __init__(self, data: TrainingData, rule: Gibbs, seed: int) -> None:
        users = make_stripes(data.by_user, data.levels, rule.n_stripes)
        items = make_stripes(data.by_item, data.levels, rule.n_stripes)
        self._rule = rule
        self.held: Sequence[Stripe] = users + items
        self._partitions = (range(len(users)), range(len(users), len(self.held)))
        self.recipes: Sequence[Recipe | None] = [
            *stripe_recipes(data, users, by_user=True),
            *stripe_recipes(data, items, by_user=False),
        ]
        self.together: Sequence[Sequence[int]] = self._partitions

    def step(self, state: ChainState, t: int) -> None:
        return None

    def exact_errors(self, state: ChainState) -> Phases:
        """A sweep ends with them."""
        yield from ()

    def round(self, state: ChainState, t: int) -> Phases:
        """Algorithm 1, lines 4-9."""
        params, precisions = state.params, state.precisions
        sides = (
            (STREAM_USERS, params.users, params.items, precisions.users),
            (STREAM_ITEMS, params.items, params.users, precisions.items),
        )
        relax = self._rule.overrelax if t >= SETTLE else 0.0
        state.means = Params(
            np.empty_like(params.users), np.empty_like(params.items), params.n_factors
        )
        means = (state.means.users, state.means.items)
        for partitions, (stream, rows, other, prior), mean in zip(
            self._partitions, sides, means, strict=True
        ):
            # A copy also because a task that is done late must not see the next phase's rows.
            given = regressors(other, params.n_factors)
            results = yield [
                RowsTask(
                    state.chain,
                    partition,
                    stream,
                    rows[self.held[partition].span].copy(),
                    relax,
                    self._rule.joint,
                    given,
                    params.n_factors,
                    prior,
                    precisions.tau,
                    t,
                    state.key,
                )
                for partition in partitions
            ]
            for partition, result in zip(partitions, results, strict=True):
                if not np.isfinite(result.sse):
                    raise DivergenceError(
                        f"chain {state.chain} met a precision matrix that is not positive in "
                        f"sweep {t + 1}, at tau {precisions.tau:.3g}: use a smaller tau (--tau)"
                    )
                assert isinstance(result, RowsResult)
                rows[self.held[partition].span] = result.rows
                mean[self.held[partition].span] = result.means
            state.sse = sum(result.sse for result in results)
            state.count = sum(result.count for result in results)
