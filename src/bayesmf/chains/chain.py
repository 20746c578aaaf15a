"""One chain of the parameter server: Algorithm 2, lines 3-12.

A chain is a generator of phases: it yields tasks and is sent their results. Its results do not
depend on when it is resumed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bayesmf.chains.callbacks import Event
from bayesmf.chains.monitor import Monitor
from bayesmf.chains.pairs import ProbeTrace, Traces, WatchedPairs
from bayesmf.chains.retention import RunLength, make_retention
from bayesmf.chains.state import ChainState, Floats, Phases, Rounds, RunSettings
from bayesmf.errors import InputError
from bayesmf.kernels.keys import (
    STREAM_AMPLITUDES,
    STREAM_SCALES,
    STREAM_SERVER,
    generator,
    make_key,
)
from bayesmf.model.draw_store import DrawStore
from bayesmf.model.noise import Noise
from bayesmf.model.priors import Moments, Params, Precisions, draw_tau, moments_of
from bayesmf.model.refs import Fetch, Pieces, Ref, fetch_here
from bayesmf.model.scale import draw_amplitudes, draw_scales
from bayesmf.samplers.base import DataShape
from bayesmf.samplers.schedules import Trace, UntilRMSE, parts_before
from bayesmf.worker.row_tasks import StartTask
from bayesmf.worker.tasks import Result, Task

# Factors of the initial precisions of chains, and divisors of the variance of their rows: equal
# starts would look converged too early.
STARTS = (1.0, 8.0, 2.0, 4.0)


@dataclass
class Errors:
    """Squared errors of the rounds since an epoch ended."""

    sse: float = 0.0
    count: int = 0

    def add(self, state: ChainState) -> None:
        self.sse += state.sse
        self.count += state.count

    def mean(self) -> float:
        return self.sse / self.count


def _precision_factor(number: int, settings: RunSettings) -> float:
    """The factor of the initial precisions of a chain."""
    return STARTS[number % len(STARTS)] if settings.sampler.starts_apart else 1.0


def first_precisions(number: int, settings: RunSettings, shape: DataShape) -> Precisions:
    """Initial precisions of a chain."""
    apart = _precision_factor(number, settings)
    start = settings.prior.initial(settings.n_factors, settings.sampler.initial_precision * apart)
    tau = 1.0 if settings.tau is None else settings.tau
    noise = None
    if settings.noise_by is not None:
        noise = Noise.initial(settings.noise_by, shape.n_users, shape.n_items)
    return Precisions(start, start, tau, noise=noise)


def start_rows(state: ChainState, settings: RunSettings, rounds: Rounds) -> Phases:
    """Draw the rows of a chain's initial state, on the workers that store them."""
    shrink = math.sqrt(_precision_factor(state.chain, settings))
    d, bias = settings.n_factors, settings.prior.bias
    tasks = [
        StartTask(state.chain, rounds.at(side, k), side, d, bias, shrink, state.key)
        for side in range(2)
        for k in range(len(rounds.layouts[side]))
    ]
    results: Sequence[Any] = yield list(tasks)
    rows = iter(result.rows for result in results)
    sides = [
        Pieces(tuple(next(rows) for _ in range(len(layout))), layout) for layout in rounds.layouts
    ]
    state.params = Params(sides[0], sides[1], d)


def draw_precisions(
    state: ChainState, settings: RunSettings, t: int, burning: bool, quiet: bool = False,
    alike: bool = False,
) -> None:  # fmt: skip
    """Draw Lambda given U and V (Section 3.2.2, or Gaussian-Wishart), and tau, after round t.

    `state.sse` must be the squared errors of all ratings at this state, `state.row_moments` the
    moments of its rows. While the chain is `quiet`, Lambda is fixed: with rows without noise it
    would grow without bound. With `alike`, all rows have the same noise precision for now.
    """
    now = state.precisions
    rng = generator(state.key, t, STREAM_SERVER)
    users, items, tau, noise = now.users, now.items, now.tau, now.noise
    if noise is not None and not alike:
        noise = noise.draw_hyper(rng)
        tau = noise.typical()
    elif settings.tau is None:
        tau = draw_tau(state.sse, state.count, rng)
        noise = noise and noise.alike(tau)
    if settings.sampler.precisions_drawn(burning) and not quiet:
        if settings.sampler.rescales and getattr(settings.prior, "mu_0", 0.0) == 0:
            rescale_rows(state, settings, t, tau)
        moments = known_moments(state)
        users = settings.prior.draw(moments[0], rng)
        items = settings.prior.draw(moments[1], rng)
    state.precisions = Precisions(users, items, tau, version=t + 1, noise=noise)


def known_moments(state: ChainState) -> tuple[Moments, Moments]:
    """The moments of users' and items' rows, as reported by tasks or from the rows themselves."""
    if state.row_moments is None:
        sides = (np.asarray(rows) for rows in (state.params.users, state.params.items))
        users, items = map(moments_of, sides)
        state.row_moments = users, items
    own, other = state.row_moments
    assert own is not None and other is not None, "moments of one side alone"
    return own, other


def rescale_rows(state: ChainState, settings: RunSettings, t: int, tau: float) -> None:
    """Scale moves. Stored rows are unchanged: their references get factors."""
    prior, D, now = settings.prior, settings.n_factors, state.precisions
    users, items = known_moments(state)
    scales = np.ones(len(items.total))
    if state.row_sums is not None:
        assert state.all_sums is not None
        # Weighted by the users' precisions under which items' rows were drawn, and by the items'
        # precisions drawn afterwards; both may have been rescaled since.
        sums = state.all_sums * (tau if now.noise is None else 1.0)
        rng = generator(state.key, t, STREAM_AMPLITUDES)
        scales = draw_amplitudes(items, D, prior, sums, rng)
        items = items.scaled(scales)
    factors = draw_scales(users, items, D, prior, generator(state.key, t, STREAM_SCALES))
    state.row_moments = users.scaled(factors), items.scaled(1.0 / factors)
    state.params = _rescaled(state.params, factors, scales / factors)
    if state.means is not None:
        state.means = _rescaled(state.means, factors, 1.0 / factors)


def _rescaled(params: Params, users: Floats, items: Floats) -> Params:
    """Rows times factors of their columns."""
    own, other = (
        side.scaled(factors) if isinstance(side, Pieces) else side * factors.astype(np.float32)
        for side, factors in ((params.users, users), (params.items, items))
    )
    return Params(own, other, params.n_factors)


@dataclass(frozen=True)
class RunContext:
    """Settings, data and services shared by all chains of a run."""

    settings: RunSettings
    shape: DataShape
    length: RunLength
    rounds: Rounds
    store: DrawStore
    monitor: Monitor
    probe: WatchedPairs
    fetch: Fetch = fetch_here  # `Engine.fetch`: arrays that workers hold
    settled: Callable[[int, list[Ref]], None] = lambda chain, refs: None  # `Engine.settled`
    # Called after every round; True lets the chain pause there.
    round_done: Callable[[Chain], bool] = lambda chain: False


class Chain:
    """One chain, from its start for as many rounds as the server asks for."""

    def __init__(self, number: int, run: RunContext) -> None:
        self.number, self.run = number, run
        self.settings, self.length, self.monitor = run.settings, run.length, run.monitor
        self.sampler = run.settings.sampler
        self.retention = make_retention(
            run.settings, run.shape, run.length, run.store.per_chain, run.monitor.clock
        )
        key, d = make_key(run.settings.seed, number), run.settings.n_factors
        nowhere = np.empty((0, d), np.float32)
        self.state = ChainState(
            number,
            key,
            Params(nowhere, nowhere, d),
            first_precisions(number, run.settings, run.shape),
        )
        self.trace = Trace()
        self.probe = ProbeTrace(run.probe)
        self.since_epoch, self.epoch = Errors(), 0
        self.t, self.kept = 0, 0
        self.ratings_read = 0
        self.rmse: float | None = None
        # Ended early; and whether a callback ended it, not the time limit.
        self.stopped = self.stopped_by_callback = False

    @property
    def burning(self) -> bool:
        """Whether draws are not kept yet."""
        return self.retention.burning

    def advance(self, until: int, stage: int = 0) -> Generator[list[Task], Sequence[Result], None]:
        """Algorithm 2, lines 3-12, up to round `until`, the end of a stage where there are any."""
        every, rounds = self.sampler.precision_every, self.run.rounds
        if not len(self.state.params.users):  # and not restored from a checkpoint
            yield from start_rows(self.state, self.settings, rounds)
        while self.t < until and not self.stopped:
            t = self.t
            self.retention.before(t, self.trace)
            yield from rounds.round(self.state, t)
            self.ratings_read += self.state.count
            self.monitor.ratings_read += self.state.count
            self.since_epoch.add(self.state)
            # Before precisions are drawn: conditional means are given the precisions under which
            # the rows were drawn, and together they are a draw (docs/sampler.md). Without such
            # means the order does not matter, and at the start new precisions are better.
            given = self.sampler.stores_means
            if given:
                yield from self.retain(t)
            if every and (t + 1) % every == 0:
                yield from rounds.exact_errors(self.state, self.settings.tau is None)
                epoch = t / self.length.per_epoch
                # This epoch will be part of a growing burn-in.
                sets_out = self.burning or self.sampler.growing
                alike = sets_out and epoch < self.sampler.row_noise_from()
                if not alike:
                    yield from rounds.draw_noise(self.state, t)
                quiet = self.sampler.noise_share(epoch) == 0
                draw_precisions(self.state, self.settings, t, self.burning, quiet, alike)
            if not given:
                yield from self.retain(t)
            self.t = t + 1
            if self.burning and self.length.ends_check(t):
                yield from self.check()
            if self.epochs_after(t) > self.epoch and self.since_epoch.count:
                self.end_epoch(t, stage)
            self.stopped = self.stopped or self.out_of_time()
            self.run.settled(self.number, self.state.references())
            if self.run.round_done(self):
                return

    def epochs_after(self, t: int) -> int:
        """Whole epochs that have passed after round t."""
        return parts_before(t + 1, self.length.per_epoch)

    def out_of_time(self) -> bool:
        """Whether the time limit of the run has passed."""
        limit = self.settings.max_seconds
        return limit is not None and self.monitor.clock.seconds() >= limit

    def retain(self, t: int) -> Phases:
        """Record the probe pairs, and keep or drop the state after round t as retention decides."""
        decision, state = self.retention.after(t), self.state
        # Burn-in too, except the first passes: it shows the remaining bias of the start.
        seen = t >= self.sampler.not_kept * self.length.per_epoch - 1e-9
        if decision.keep or (seen and self.length.ends_epoch(t)):
            yield from self.probe.add(state, t, self.run.rounds)
        if decision.select is not None:
            self.select(decision.select)
        if decision.keep:
            self.keep(decision.reserve)
        if decision.average:
            self.rmse = yield from self.monitor.averaged_rmse(
                state, self.run.rounds, self.run.fetch
            )

    def keep(self, room: int | None = None) -> None:
        """Store the state as a draw; the first time with room for `room` draws."""
        store = self.run.store
        state = self.state
        parts = store.parts(state.params, state.precisions, state.means, self.run.fetch)
        if room is not None:
            store.reserve(self.number, room, parts)
        store.add(self.number, parts, state.precisions)
        self.kept += 1

    def select(self, draws: Sequence[int]) -> None:
        """Drop all draws except some."""
        self.run.store.select(self.number, draws)
        self.kept = len(draws)

    def traces(self) -> Traces:
        """Traces of the probe pairs and the noise."""
        rounds = self.probe.rounds
        kept = self.retention.kept(rounds)
        return self.probe.traces(kept, self.retention.first_after_burn_in(rounds))

    def finish(self) -> Phases:
        """Drop the burn-in of a growing run; a chain without draws keeps its last state."""
        draws = self.retention.finish()
        if draws is not None:
            self.select(draws)
        if not self.kept:
            yield from self.keep_last_state()

    def keep_last_state(self) -> Phases:
        """Keep the last state: for SGD, and for chains that ended during burn-in."""
        rule = self.sampler.burn_in_rule(self.run.shape)
        if isinstance(rule, UntilRMSE) and not (self.stopped or rule.over(0, 0, self.trace)):
            raise InputError(
                f"burn-in of chain {self.number} never ended: {rule.lowest([self.trace])} in "
                f"{self.length.epochs:g} epochs; raise epochs or the RMSE in burn_in"
            )
        errors = self.last_errors()
        if not self.sampler.keeps_draws and self.settings.tau is None and errors:
            tau = 1.0 / max(errors, 1e-12)
            self.state.precisions = replace(self.state.precisions, tau=tau)
        self.keep()
        run = self.run
        self.rmse = yield from self.monitor.averaged_rmse(self.state, run.rounds, run.fetch)

    def last_errors(self) -> float | None:
        """Mean squared error of the last epoch, in the chain's units."""
        if self.since_epoch.count:
            return self.since_epoch.mean()
        if self.trace.train_rmse:
            return (self.trace.train_rmse[-1] / self.settings.scale) ** 2
        return None

    def check(self) -> Phases:
        """Measure the error of a state in burn-in, which may end it."""
        run = self.run
        self.rmse = yield from self.monitor.state_rmse(self.state, run.rounds, run.fetch)
        self.trace.validation_rmse.extend([] if self.rmse is None else [self.rmse])

    def end_epoch(self, t: int, stage: int) -> None:
        """Record the epoch, and call the callbacks."""
        monitor, scale, state = self.monitor, self.settings.scale, self.state
        self.epoch = self.epochs_after(t)
        self.trace.train_rmse.append(scale * math.sqrt(self.since_epoch.mean()))
        self.since_epoch = Errors()
        seconds = monitor.clock.seconds()
        self.stopped = self.stopped_by_callback = monitor.notify(
            Event(
                chain=self.number,
                epoch=self.epoch,
                epochs=max(1, round(self.length.epochs)),
                stage=stage,
                seconds=seconds,
                burning=self.burning and self.sampler.keeps_draws,
                draws=self.kept,
                rmse=self.rmse,
                rmse_all_chains=monitor.rmse_all_chains() or self.rmse,
                train_rmse=self.trace.train_rmse[-1],
                tau=state.precisions.tau / scale**2,
                step_size=self.run.rounds.step(state, t),
                ratings_per_second=monitor.ratings_read / max(seconds, 1e-9),
            )
        )
