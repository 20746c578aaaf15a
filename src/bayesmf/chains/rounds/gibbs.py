"""Rounds of Gibbs, all users given the items, then all items given the users; and their parts.

The parts serve other rounds too: exact draws of rows, and precisions of single users and items,
drawn from the squared errors that a round has left.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

from bayesmf.blocks.stripes import Stripe, make_stripes
from bayesmf.chains.state import ChainState, Floats, Phases
from bayesmf.data.training import TrainingData
from bayesmf.errors import DivergenceError
from bayesmf.kernels.exact import total, unpacked_moments
from bayesmf.kernels.gather import N_SUMS, SSE
from bayesmf.kernels.keys import STREAM_NOISE, generator
from bayesmf.model.noise import LawSlice, NoiseSums
from bayesmf.model.priors import Moments, Params
from bayesmf.model.refs import Pieces, StripeLayout
from bayesmf.samplers.gibbs import Gibbs
from bayesmf.worker.recipes import stripe_recipes
from bayesmf.worker.row_tasks import RowContext, RowsResult, RowsTask
from bayesmf.worker.stripe_tasks import EvidenceTask, Law, NoiseTask
from bayesmf.worker.tasks import Recipe

# Plain sweeps at the start: over-relaxation preserves the distance from the mode, so a chain that
# starts far off would need tens of sweeps of burn-in.
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
            StripeLayout([stripe.span for stripe in users], data.n_users),
            StripeLayout([stripe.span for stripe in items], data.n_items),
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
        """Nothing to do: a sweep computes the errors and moments of its last state."""
        yield from ()

    def draw_noise(self, state: ChainState, t: int, side: int = 1) -> Phases:
        """Draw the precisions of one side's ratings; items' errors are the newest."""
        assert state.row_sums is not None
        row_stats = [(part,) for part in state.row_sums.parts]
        layout = self.layouts[side]
        yield from draw_row_noise(state, t, side, self._partitions[side], row_stats, layout)

    def round(self, state: ChainState, t: int) -> Phases:
        """Algorithm 1, lines 4-9."""
        state.cut(self.layouts)
        relax = self._rule.overrelax if t >= SETTLE else 0.0
        for side, partitions in enumerate(self._partitions):
            # `draw_amplitudes` needs what items' rows explain of their ratings.
            n_sums = N_SUMS if side == 1 else 1
            yield from draw_exactly(state, t, side, partitions, relax, self._rule.joint, n_sums)
            assert state.all_sums is not None
            # With noise of users, errors weighted by their precisions would be dominated by users
            # with low noise: then the errors of the users' half-sweep are used, weighted by items.
            noise = state.precisions.noise
            if side == (noise is None or noise.users is None):
                state.sse = mean_weighted(state, 1 - side, self._n, float(state.all_sums[SSE]))
            if side == 0:  # items' noise waits until the state is kept: a joint draw
                yield from self.draw_noise(state, t, 0)


def row_precisions(state: ChainState, side: int) -> Any:
    """Precisions of ratings of weight one, for each user (0) or item (1), or one for all."""
    now = state.precisions
    if now.noise is None:
        return now.tau
    own = now.by_row(side)
    return 1.0 if own is None else own


def row_context(
    state: ChainState, t: int, side: int, relax: float, joint: int | None, n_sums: int,
    laws: bool = True,
) -> RowContext:  # fmt: skip
    """The context of the rows of one side: all they depend on besides their ratings."""
    now, other = state.precisions, state.side(1 - side)
    weights = now.by_row(1 - side)
    parts = weights.parts if isinstance(weights, Pieces) else (weights,) * len(other.parts)
    slice_ = make_slice(state, t, side) if laws else None
    return RowContext(
        side=side,
        other=other.parts,
        weights=parts,
        prior=(now.users, now.items)[side],
        n_factors=state.params.n_factors,
        relax=relax,
        joint=joint,
        n_sums=n_sums,
        laws=None if slice_ is None else slice_.laws,
        mean_one=side == 1 and now.noise is not None and now.noise.users is not None,
        full=now.users.Lambda.ndim == 2,
        round=t,
        key=state.key,
    )


def stripe_values(value: Any, stripe: int) -> Any:
    """The numbers of a stripe's rows, or the one number of all rows."""
    return value[stripe] if isinstance(value, Pieces) else value


def draw_exactly(
    state: ChainState,
    t: int,
    side: int,
    partitions: Sequence[int],
    relax: float,
    joint: int | None,
    n_sums: int,
) -> Generator[list[Any], Sequence[Any], Sequence[RowsResult]]:
    """One phase: all rows of users (side 0) or items (1) are drawn.

    Stripe k is partition partitions[k]; `n_sums` as `draw_rows` takes it. The state gets the new
    rows and their means, and their statistics, sums and moments.
    """
    rows, tau = state.side(side), row_precisions(state, side)
    shared = row_context(state, t, side, relax, joint, n_sums)
    results = yield [
        RowsTask(state.chain, partition, rows[k], stripe_values(tau, k), shared)
        for k, partition in enumerate(partitions)
    ]
    sums = total(result.sums for result in results)
    if not math.isfinite(sums[SSE]):
        raise DivergenceError(
            f"chain {state.chain} met a precision matrix that is not positive in round "
            f"{t + 1}, at tau {state.precisions.tau:.3g}: use a smaller tau (--tau), or one noise "
            "for all ratings (noise_by=None, --noise-by none)"
        )
    layout = rows.layout
    state.put(side, Pieces(tuple(result.rows for result in results), layout))
    means = Pieces(tuple(result.means for result in results), layout)
    before = state.means or state.params
    users, items = (before.users, means) if side else (means, before.items)
    state.means = Params(users, items, state.params.n_factors)
    state.row_sums = Pieces(tuple(result.row_stats for result in results), layout)
    state.all_sums, state.count = sums, sum(result.count for result in results)
    if state.slices.get(side) is not None:
        state.evidence[side] = total(result.evidence for result in results)
    width = len(state.precisions.users.mu)
    found = unpacked_moments((result.moments for result in results), width, shared.full)
    put_moments(state, side, Moments(layout.n_rows, *found))
    return results


def put_moments(state: ChainState, side: int, found: Moments) -> None:
    """Note the moments of one side's rows; those of the other are as they were."""
    old = state.row_moments or (None, None)
    state.row_moments = (old[0], found) if side else (found, old[1])


def make_slice(state: ChainState, t: int, side: int) -> LawSlice | None:
    """The slice of the law of users' (0) or items' (1) precisions in round t, if they have one."""
    noise = state.precisions.noise
    own = None if noise is None else noise.side(side)
    if own is None:
        state.slices.pop(side, None)
        return None
    rng = generator(state.key, 2 * t + side, STREAM_NOISE)
    found = LawSlice(own.shape, own.rate, own.mean_one, own.known_sums().n, rng)
    state.slices[side] = found
    return found


def draw_row_noise(
    state: ChainState,
    t: int,
    side: int,
    partitions: Sequence[int],
    row_stats: Sequence[tuple[Any, ...]],
    layout: StripeLayout,
) -> Phases:
    """Draw the precisions of all users (0) or items (1), where these have their own.

    `row_stats` are, for each stripe, sums of its rows' ratings or parts of such sums. The law comes
    first, with the precisions integrated out: given many precisions its steps would be small. Its
    likelihoods mostly come with the errors.
    """
    noise = state.precisions.noise
    own = None if noise is None else noise.side(side)
    if noise is None or own is None:
        return
    if side not in state.slices:
        make_slice(state, t, side)
    slice_ = state.slices.pop(side)
    evidence: Floats | None = state.evidence.pop(side, None)
    while evidence is None or not slice_.choose(evidence):
        results: Sequence[Any] = yield [
            EvidenceTask(state.chain, partition, parts, side, slice_.laws, own.mean_one)
            for partition, parts in zip(partitions, row_stats, strict=True)
        ]
        evidence = total(result.evidence for result in results)
    shape, rate = slice_.found
    law = Law(side, shape, rate, own.mean_one, t, state.key)
    drawn: Sequence[Any] = yield [
        NoiseTask(state.chain, partition, parts, law)
        for partition, parts in zip(partitions, row_stats, strict=True)
    ]
    sums = NoiseSums(layout.n_rows, *total(result.sums for result in drawn).tolist())
    value = Pieces(tuple(result.value for result in drawn), layout)
    found = replace(own, value=value, shape=shape, rate=rate, sums=sums)
    state.precisions = replace(state.precisions, noise=noise.with_side(side, found))
    state.all_sums = total(result.weighted for result in drawn)


def mean_weighted(state: ChainState, side: int, n_ratings: int, errors: float) -> float:
    """Sum of squared errors from those weighted by the precisions of one `side`.

    Divided by the mean weight; with equal weights this is the plain sum.
    """
    noise = state.precisions.noise
    own = None if noise is None else noise.side(side)
    if own is None:
        return errors
    if isinstance(own.value, float):
        return errors / own.value
    return errors * n_ratings / own.known_sums().by_rating
