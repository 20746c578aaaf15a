"""Posterior propagation: three rounds are its stages, every one after them is a draw.

A stage is one phase, whose tasks are whole chains in single blocks (worker/block_chain.py). What
they leave of their rows stays with the workers and is named by references; the driver sees what
stands above the rows. A chain that was resumed has lost these references, and does its stages
again: they depend on the seed alone, so it goes on with the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bayesmf.blocks.two_way import TwoWayBlock, cut_two_ways, make_two_way
from bayesmf.chains.settings import RunSettings
from bayesmf.chains.state import ChainState, Phases
from bayesmf.data.training import TrainingData
from bayesmf.errors import DivergenceError
from bayesmf.kernels.exact import total, unpacked_moments
from bayesmf.kernels.keys import STREAM_SERVER, generator
from bayesmf.model.moments import Moments
from bayesmf.model.noise import FIRST_SHAPE, Noise, NoiseSums, RowNoise
from bayesmf.model.params import Params, Precisions
from bayesmf.model.priors import draw_tau
from bayesmf.model.refs import Layout, Pieces
from bayesmf.samplers.propagation import FIRST_WARM_UP, STAGES, Propagation
from bayesmf.worker.block_chain import Above, BlockSettings
from bayesmf.worker.propagation_tasks import (
    ChainGiven,
    ChainTask,
    CombineTask,
    DrawTask,
    TwoWayRecipe,
)
from bayesmf.worker.tasks import Recipe


@dataclass
class Propagated:
    """What the stages of a chain have left so far.

    `found` are, by block, the Gaussians of its users and items; `combined`, by side and stripe,
    those of all blocks together. `errors` are the squared errors of the blocks.
    """

    found: tuple[Any, ...]
    above: tuple[Above, Above]
    tau: float
    errors: tuple[float, ...]
    stages: int = 0
    combined: tuple[Any, Any] | None = None


class PropagationRounds:
    """The stages, and draws; `settle` tells what a run has besides its sampler."""

    def __init__(self, data: TrainingData, rule: Propagation, seed: int) -> None:
        grid = rule.grid
        cut = cut_two_ways(data, grid, rule.first, seed)
        self._rule, self._grid, self._n = rule, grid, len(data)
        self.held: Sequence[TwoWayBlock] = [
            make_two_way(data, grid, cut, number) for number in range(len(grid))
        ]
        self.recipes: Sequence[Recipe | None] = [None] * len(grid)
        if data.origin is not None:
            self.recipes = [
                TwoWayRecipe(data.origin, grid, rule.first, seed, number, data.levels)
                for number in range(len(grid))
            ]
        self.layouts = Layout(cut[0], data.n_users), Layout(cut[1], data.n_items)
        self.together: Sequence[Sequence[int]] = [
            self._blocks(stage) for stage in range(STAGES) if self._blocks(stage)
        ]
        self.units: Sequence[int] | None = None
        self._settings: RunSettings | None = None

    def settle(self, settings: RunSettings) -> None:
        """Take what the blocks' chains need to know of the model."""
        self._settings = settings

    def _blocks(self, stage: int) -> list[int]:
        """Blocks of a stage: the first, the rest of its row and column, all others."""
        places = ((number, divmod(number, self._grid.cols)) for number in range(len(self._grid)))
        return [number for number, (r, c) in places if (r > 0) + (c > 0) == stage]

    def at(self, side: int, stripe: int) -> int:
        return stripe if side else stripe * self._grid.cols

    def step(self, state: ChainState, t: int) -> None:
        return None

    def exact_errors(self, state: ChainState, errors: bool = True) -> Phases:
        yield from ()

    def draw_noise(self, state: ChainState, t: int) -> Phases:
        yield from ()

    def round(self, state: ChainState, t: int) -> Phases:
        """A stage of the three, or a draw."""
        done = 0 if state.propagated is None else state.propagated.stages
        read = 0
        for stage in range(done, min(t + 1, STAGES)):
            yield from self._stage(state, stage)
            read = state.count
        if t >= STAGES - 1:
            if state.propagated.combined is None:
                yield from self._combine(state)
            yield from self._draw(state, t)
        # Stages that were done again have been counted.
        state.count = read if t < STAGES else 0

    # -- stages ---------------------------------------------------------------------------------

    def _block_settings(self, stage: int) -> BlockSettings:
        run, rule = self._settings, self._rule
        assert run is not None, "rounds of no run"
        warm_up = rule.warm_up * (FIRST_WARM_UP if stage == 0 else 1)
        return BlockSettings(
            run.n_factors, run.prior, run.tau, run.noise_by, warm_up, rule.sweeps, rule.overrelax
        )

    def _stage(self, state: ChainState, stage: int) -> Phases:
        before = state.propagated or self._nothing()
        shared = ChainGiven(self._block_settings(stage), state.key)
        blocks, cols = self._blocks(stage), self._grid.cols
        tasks = []
        for number in blocks:
            r, c = divmod(number, cols)
            users = before.found[r * cols][0] if c > 0 else None
            items = before.found[c][1] if r > 0 else None
            tasks.append(
                ChainTask(state.chain, number, users, items, before.above, before.tau, shared)
            )
        results: Sequence[Any] = (yield list(tasks)) if tasks else ()
        found, errors = list(before.found), list(before.errors)
        for number, result in zip(blocks, results, strict=True):
            if not result.finite:
                raise DivergenceError(
                    f"block {number} of the grid {self._grid} left the numbers that can be "
                    "computed with: use fewer blocks, more sweeps (--sweeps), or one noise for all "
                    "ratings (noise_by=None, --noise-by none)"
                )
            found[number], errors[number] = (result.users, result.items), result.sse
        above, tau = before.above, before.tau
        if stage == 0:
            above, tau = results[0].above, results[0].tau
        state.propagated = Propagated(tuple(found), above, tau, tuple(errors), stage + 1)
        state.count = sum(result.count for result in results)
        # Of what the stage has read, as if it were all read once.
        sweeps = state.count / max(1, sum(result.size for result in results))
        state.sse = sweeps * sum(result.sse for result in results)
        self._show(state)

    def _nothing(self) -> Propagated:
        """Before the first stage: from settings alone, so that it can be done again."""
        run, n = self._settings, len(self._grid)
        assert run is not None
        prior = run.prior.initial(run.n_factors, self._rule.initial_precision)
        above = Above(prior, (FIRST_SHAPE, FIRST_SHAPE))
        tau = 1.0 if run.tau is None else run.tau
        return Propagated((None,) * n, (above, above), tau, (0.0,) * n)

    def _show(self, state: ChainState) -> None:
        """Make the state what is known so far: means of rows, zeros of those nobody has met."""
        known, cols = state.propagated, self._grid.cols
        width = len(known.above[0].prior.mu)
        sides = []
        for side, layout in enumerate(self.layouts):
            parts = []
            for stripe, size in enumerate(layout.sizes()):
                found = known.found[stripe if side else stripe * cols]
                parts.append(
                    np.zeros((size, width), np.float32) if found is None else found[side][0]
                )
            sides.append(Pieces(tuple(parts), layout))
        state.params = state.means = Params(sides[0], sides[1], state.params.n_factors)
        users, items = (above.prior for above in known.above)
        state.precisions = replace(state.precisions, users=users, items=items, tau=known.tau)

    # -- draws ----------------------------------------------------------------------------------

    def _combine(self, state: ChainState) -> Phases:
        """Multiply what blocks tell of each row, where the rows of its stripe are drawn."""
        known, (rows, cols) = state.propagated, (self._grid.rows, self._grid.cols)
        tasks = []
        for side, n in enumerate((rows, cols)):
            for k in range(n):
                others = range(1, cols if side == 0 else rows)
                numbers = [(k * cols + o) if side == 0 else (o * cols + k) for o in others]
                first = known.found[self.at(side, k)][side]
                told = tuple(known.found[number][side] for number in numbers)
                tasks.append(CombineTask(state.chain, self.at(side, k), first, told))
        results: Sequence[Any] = yield list(tasks)
        own = [(result.mean, result.factor, result.noise) for result in results]
        combined = tuple(own[:rows]), tuple(own[rows:])
        nothing = (None,) * len(self._grid)  # what blocks have left is not needed any more
        state.propagated = replace(known, found=nothing, combined=combined)

    def _draw(self, state: ChainState, t: int) -> Phases:
        """Rows and noise from their Gaussians, and what stands above them given these."""
        combined, run = state.propagated.combined, self._settings
        assert run is not None
        tasks = [
            DrawTask(
                state.chain, self.at(side, k), side, combined[side][k],
                run.prior.full, t, state.key,
            )
            for side, layout in enumerate(self.layouts)
            for k in range(len(layout))
        ]  # fmt: skip
        results: Sequence[Any] = yield list(tasks)
        cut = len(self.layouts[0])
        rng = generator(state.key, t, STREAM_SERVER)
        sides, means, priors, noises = [], [], [], []
        for side, own in enumerate((results[:cut], results[cut:])):
            layout = self.layouts[side]
            sides.append(Pieces(tuple(result.rows for result in own), layout))
            means.append(Pieces(tuple(gaussian[0] for gaussian in combined[side]), layout))
            width = len(state.precisions.users.mu)
            told = (result.moments for result in own)
            moments = unpacked_moments(told, width, run.prior.full)
            priors.append(run.prior.draw(Moments(layout.n_rows, *moments), rng))
            noises.append(self._row_noise(state, side, own, layout, rng))
        d = state.params.n_factors
        state.params, state.means = Params(sides[0], sides[1], d), Params(means[0], means[1], d)
        state.sse = sum(state.propagated.errors)
        noise, tau = None, run.tau
        if run.noise_by is not None:
            noise = Noise(*noises)
            tau = noise.typical()
        elif tau is None:
            tau = draw_tau(state.sse, self._n, rng)
        assert tau is not None
        state.precisions = Precisions(priors[0], priors[1], tau, version=t + 1, noise=noise)

    def _row_noise(
        self, state: ChainState, side: int, results: Sequence[Any], layout: Layout,
        rng: np.random.Generator,
    ) -> RowNoise | None:  # fmt: skip
        """Precisions of rows that were drawn, and a draw of the law that they come from."""
        if results[0].value is None:
            return None
        run = self._settings
        assert run is not None
        value = Pieces(tuple(result.value for result in results), layout)
        sums = NoiseSums(layout.n_rows, *total(result.sums for result in results).tolist())
        shape, rate = state.propagated.above[side].law
        both = run.noise_by == "both" and side == 1
        return RowNoise(value, shape, rate, both, sums).draw_hyper(rng)
