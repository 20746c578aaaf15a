"""One chain of the parameter server: Algorithm 2, lines 3-12.

A chain is a generator of phases: it yields tasks and is sent their results. Nothing it computes
depends on when it is resumed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace

from bayesmf.chains.callbacks import Event
from bayesmf.chains.monitor import Monitor, Pairs
from bayesmf.chains.retention import Fixed, Growing, Keeping
from bayesmf.chains.state import ChainState, Rounds
from bayesmf.errors import InputError
from bayesmf.kernels.keys import STREAM_SCALES, STREAM_SERVER, generator, make_key
from bayesmf.model.draws import DrawStore
from bayesmf.model.params import Params, Precisions
from bayesmf.model.priors import Prior, draw_tau
from bayesmf.model.rescale import draw_scales, rescale
from bayesmf.samplers.base import DataShape, Sampler
from bayesmf.samplers.schedules import Trace
from bayesmf.worker.tasks import Result, Task


@dataclass(frozen=True)
class Settings:
    """All that a run depends on besides the data. `tau` is None where it is drawn."""

    sampler: Sampler
    prior: Prior
    n_factors: int
    tau: float | None
    seed: int
    max_draws: int
    scale: float = 1.0  # of a rating in the user's units: for what is reported
    target: str = "balanced"
    max_seconds: float | None = None
    last_draw_only: bool = False  # where errors alone are wanted


@dataclass
class Errors:
    """Squared errors met since something was last done."""

    sse: float = 0.0
    count: int = 0

    def add(self, state: ChainState) -> None:
        self.sse += state.sse
        self.count += state.count

    def mean(self) -> float:
        return self.sse / self.count


def start_chain(number: int, settings: Settings, shape: DataShape) -> ChainState:
    """Parameters at random, different for each chain; precisions as the sampler says."""
    key = make_key(settings.seed, number)
    prior, d = settings.prior, settings.n_factors
    params = Params.initial(shape.n_users, shape.n_items, d, bias=prior.bias, key=key)
    start = prior.initial(d, settings.sampler.initial_precision)
    tau = 1.0 if settings.tau is None else settings.tau
    return ChainState(number, key, params, Precisions(start, start, tau))


def draw_precisions(state: ChainState, settings: Settings, t: int, burning: bool) -> None:
    """Lambda given U and V (Section 3.2.2, or Gaussian-Wishart), and tau, at the end of round t.

    `state.sse` must be the squared errors of all ratings at this state.
    """
    now = state.precisions
    rng = generator(state.key, t, STREAM_SERVER)
    users, items, tau = now.users, now.items, now.tau
    if settings.tau is None:
        tau = draw_tau(state.sse, state.count, rng)
    if settings.sampler.precisions_drawn(burning):
        if settings.sampler.rescales:
            factors = draw_scales(
                state.params, settings.prior, generator(state.key, t, STREAM_SCALES)
            )
            if state.means is not None:
                rescale(state.means, factors)
        users = settings.prior.draw(state.params.users, rng)
        items = settings.prior.draw(state.params.items, rng)
    state.precisions = Precisions(users, items, tau, version=t + 1)


class Chain:
    """One chain, from its start for as many rounds as the server asks for."""

    def __init__(
        self,
        number: int,
        shape: DataShape,
        settings: Settings,
        rounds: Rounds,
        store: DrawStore,
        monitor: Monitor,
        probe: Pairs,
    ) -> None:
        self.number, self.settings, self.rounds = number, settings, rounds
        self.store, self.monitor, self.probe = store, monitor, probe
        self.sampler = settings.sampler
        self.n_rounds = self.sampler.rounds(shape)
        self.per_epoch = self.sampler.rounds_per_epoch(shape)
        self.keeping: Keeping = Growing() if self.sampler.adaptive else Fixed(self, shape)
        self.state, self.trace = start_chain(number, settings, shape), Trace()
        self.since_epoch, self.epoch = Errors(), 0
        self.t, self.kept = 0, 0
        self.stage = 0  # of a run that may end after each of several
        self.ratings_read = 0
        self.rmse: float | None = None
        # Ended early; and whether that was the wish of someone who listens, not for want of time.
        self.stopped = self.told_to_stop = False
        # Called after every round; True lets the chain pause there.
        self.round_done: Callable[[Chain], bool] = lambda chain: False

    @property
    def burning(self) -> bool:
        """Whether draws are not kept yet."""
        return self.keeping.burning

    def run(self, until: int) -> Generator[list[Task], Sequence[Result], None]:
        """Algorithm 2, lines 3-12, up to round `until`."""
        every = self.sampler.precision_every
        while self.t < until and not self.stopped:
            t = self.t
            self.keeping.before(self, t)
            yield from self.rounds.round(self.state, t)
            self.ratings_read += self.state.count
            self.monitor.ratings_read += self.state.count
            self.since_epoch.add(self.state)
            if every and (t + 1) % every == 0:
                if self.settings.tau is None:
                    yield from self.rounds.exact_errors(self.state)
                draw_precisions(self.state, self.settings, t, self.burning)
            self.t = t + 1
            self.keeping.after(self, t)
            if int((t + 1) / self.per_epoch + 1e-9) > self.epoch and self.since_epoch.count:
                self.end_epoch(t)
            self.stopped = self.stopped or self.out_of_time()
            if self.round_done(self):
                return

    def out_of_time(self) -> bool:
        limit = self.settings.max_seconds
        return limit is not None and self.monitor.seconds() >= limit

    def keep(self) -> None:
        """Store the state as a draw, and add it to the average that is followed."""
        state = self.state
        self.store.add(self.number, state.params, state.precisions, state.means)
        self.kept += 1
        self.rmse = self.monitor.averaged_rmse(state)

    def finish(self) -> None:
        """Burn-in of a growing run is dropped; a chain that kept nothing keeps its last state."""
        self.keeping.finish(self)
        if not self.kept:
            self.keep_last_state()

    def keep_last_state(self) -> None:
        """What SGD ends with; also a chain that was stopped, or whose burn-in left no round."""
        if self.keeping.needs_validation and not self.stopped:
            best = min(self.trace.validation_rmse, default=math.nan)
            raise InputError(
                f"burn-in of chain {self.number} never ended: the validation RMSE came down to "
                f"{best:.4f} in {self.n_rounds / self.per_epoch:g} epochs; raise epochs or the "
                "RMSE in burn_in"
            )
        errors = self.last_errors()
        if not self.sampler.keeps_draws and self.settings.tau is None and errors:
            tau = 1.0 / max(errors, 1e-12)
            self.state.precisions = replace(self.state.precisions, tau=tau)
        self.keep()

    def last_errors(self) -> float | None:
        """Mean squared error of the last epoch, in the chain's units."""
        if self.since_epoch.count:
            return self.since_epoch.mean()
        if self.trace.train_rmse:
            return (self.trace.train_rmse[-1] / self.settings.scale) ** 2
        return None

    def end_epoch(self, t: int) -> None:
        """Note where the chain is, and tell those who listen."""
        monitor, scale, state = self.monitor, self.settings.scale, self.state
        self.epoch = int((t + 1) / self.per_epoch + 1e-9)
        self.trace.train_rmse.append(scale * math.sqrt(self.since_epoch.mean()))
        self.since_epoch = Errors()
        if self.burning:
            self.rmse = monitor.state_rmse(state)
            self.trace.validation_rmse.extend([] if self.rmse is None else [self.rmse])
        seconds = monitor.seconds()
        self.stopped = self.told_to_stop = monitor.tell(
            Event(
                chain=self.number,
                epoch=self.epoch,
                epochs=max(1, round(self.n_rounds / self.per_epoch)),
                stage=self.stage,
                seconds=seconds,
                burning=self.burning and self.sampler.keeps_draws,
                draws=self.kept,
                rmse=self.rmse,
                rmse_all_chains=monitor.rmse_all_chains() or self.rmse,
                train_rmse=self.trace.train_rmse[-1],
                tau=state.precisions.tau / scale**2,
                step_size=self.rounds.step(state, t),
                ratings_per_second=monitor.ratings_read / max(seconds, 1e-9),
            )
        )
