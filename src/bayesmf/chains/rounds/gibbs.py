"""What a sweep of Gibbs sends to workers: all users given the items, then the other way round."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bayesmf.blocks.stripes import Stripe, make_stripes
from bayesmf.chains.rounds.exact_rows import draw_exactly
from bayesmf.chains.rounds.row_noise import draw_row_noise, mean_weighted
from bayesmf.chains.state import ChainState, Phases
from bayesmf.data.training import TrainingData
from bayesmf.kernels.gather import N_SUMS, SSE
from bayesmf.model.params import Params
from bayesmf.samplers.gibbs import Gibbs
from bayesmf.worker.recipes import stripe_recipes
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
        self._counts = np.diff(data.by_user.starts), np.diff(data.by_item.starts)

    def step(self, state: ChainState, t: int) -> None:
        return None

    def exact_errors(self, state: ChainState) -> Phases:
        """Nothing to do: a sweep leaves the errors of its last state."""
        yield from ()

    def draw_noise(self, state: ChainState, t: int) -> None:
        """Draw the precisions of items, whose errors the sweep has left."""
        assert state.told is not None
        draw_row_noise(state, t, 1, self._counts[1], state.told[:, SSE])

    def round(self, state: ChainState, t: int) -> Phases:
        """Algorithm 1, lines 4-9."""
        params = state.params
        relax = self._rule.overrelax if t >= SETTLE else 0.0
        state.means = Params(
            np.empty_like(params.users), np.empty_like(params.items), params.n_factors
        )
        means = (state.means.users, state.means.items)
        for side, (partitions, mean) in enumerate(zip(self._partitions, means, strict=True)):
            stripes = [(partition, self.held[partition].span) for partition in partitions]
            # What items' rows explain is what `draw_amplitudes` goes by.
            n_sums = N_SUMS if side == 1 else 1
            results = yield from draw_exactly(
                state, t, side, stripes, relax, self._rule.joint, n_sums
            )
            told = np.concatenate([result.told for result in results])
            for (_, span), result in zip(stripes, results, strict=True):
                mean[span] = result.means
            state.count = sum(result.count for result in results)
            # With noise of users, errors weighted by these would be those of quiet users alone:
            # then it is those that the users' half leaves, where items alone have weights.
            noise = state.precisions.noise
            if side == (noise is None or noise.users is None):
                other = 1 - side
                state.sse = mean_weighted(state, other, self._counts[other], told[:, SSE])
            if side == 0:
                draw_row_noise(state, t, 0, self._counts[0], told[:, SSE])
            else:  # that of items waits until the state is kept: all of it is one draw then
                state.told = told
