"""What a sweep of Gibbs sends to workers: all users given the items, then the other way round."""

from __future__ import annotations

from collections.abc import Sequence

from bayesmf.blocks.stripes import Stripe, make_stripes
from bayesmf.chains.rounds.exact_rows import draw_exactly
from bayesmf.chains.rounds.row_noise import draw_row_noise, mean_weighted
from bayesmf.chains.state import ChainState, Phases
from bayesmf.data.training import TrainingData
from bayesmf.kernels.gather import N_SUMS, SSE
from bayesmf.model.refs import Layout
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
        n = rule.n_stripes
        assert n is not None
        users = make_stripes(data.by_user, data.levels, n)
        items = make_stripes(data.by_item, data.levels, n)
        self._rule, self._n = rule, len(data)
        self.held: Sequence[Stripe] = users + items
        self._partitions = (range(len(users)), range(len(users), len(self.held)))
        self.layouts = (
            Layout([stripe.span for stripe in users], data.n_users),
            Layout([stripe.span for stripe in items], data.n_items),
        )
        self.recipes: Sequence[Recipe | None] = [
            *stripe_recipes(data, users, by_user=True),
            *stripe_recipes(data, items, by_user=False),
        ]
        self.together: Sequence[Sequence[int]] = self._partitions
        self.units: Sequence[int] | None = None

    def at(self, side: int, stripe: int) -> int:
        return self._partitions[side][stripe]

    def step(self, state: ChainState, t: int) -> None:
        return None

    def exact_errors(self, state: ChainState, errors: bool = True) -> Phases:
        """Nothing to do: a sweep leaves the errors and moments of its last state."""
        yield from ()

    def draw_noise(self, state: ChainState, t: int) -> Phases:
        """Draw the precisions of items, whose errors the sweep has left."""
        yield from self._draw_noise(state, t, 1)

    def _draw_noise(self, state: ChainState, t: int, side: int) -> Phases:
        assert state.row_sums is not None
        told = [(part,) for part in state.row_sums.parts]
        layout = self.layouts[side]
        yield from draw_row_noise(state, t, side, self._partitions[side], told, layout)

    def round(self, state: ChainState, t: int) -> Phases:
        """Algorithm 1, lines 4-9."""
        state.cut(self.layouts)
        relax = self._rule.overrelax if t >= SETTLE else 0.0
        for side, partitions in enumerate(self._partitions):
            # What items' rows explain is what `draw_amplitudes` goes by.
            n_sums = N_SUMS if side == 1 else 1
            yield from draw_exactly(state, t, side, partitions, relax, self._rule.joint, n_sums)
            assert state.all_sums is not None
            # With noise of users, errors weighted by these would be those of quiet users alone:
            # then it is those that the users' half leaves, where items alone have weights.
            noise = state.precisions.noise
            if side == (noise is None or noise.users is None):
                state.sse = mean_weighted(state, 1 - side, self._n, float(state.all_sums[SSE]))
            if side == 0:  # that of items waits until the state is kept: all of it is one draw then
                yield from self._draw_noise(state, t, 0)
