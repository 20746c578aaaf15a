"""One chain of the parameter server: Algorithm 2, lines 3-12.

A chain is a generator of phases: it yields tasks and is sent their results. Nothing it computes
depends on when it is resumed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.callbacks import Callback, Event
from bayesmf.draws import DrawStore
from bayesmf.errors import InputError
from bayesmf.kernels import predict_pairs
from bayesmf.keys import STREAM_SERVER, generator, make_key
from bayesmf.params import Params, Precisions
from bayesmf.phases import ChainState, Rounds
from bayesmf.priors import Prior, draw_tau
from bayesmf.rules import DataShape
from bayesmf.samplers import SGD, Sampler
from bayesmf.schedules import Thinning, Trace
from bayesmf.worker import Result, Task


@dataclass(frozen=True)
class Validation:
    """Pairs whose ratings are known, in the chain's units; rows must be known."""

    user: NDArray[np.int32]
    item: NDArray[np.int32]
    value: NDArray[np.float32]


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


@dataclass
class RunningMean:
    """Streaming average of a chain's predictions: accuracy without stored draws."""

    total: NDArray[np.float64]
    n: int = 0

    def add(self, prediction: NDArray[np.float32]) -> None:
        self.total += prediction
        self.n += 1


@dataclass
class Monitor:
    """What is followed while chains run: predictions of the validation set, and who listens."""

    validation: Validation | None
    callbacks: Sequence[Callback]
    scale: float
    begin: float = field(default_factory=time.monotonic)
    means: dict[int, RunningMean] = field(default_factory=dict)
    ratings_read: int = 0

    def _predict(self, params: Params) -> NDArray[np.float32]:
        assert self.validation is not None
        known = self.validation
        out = np.empty(len(known.value), np.float32)
        predict_pairs(params.users, params.items, known.user, known.item, params.n_factors, out)
        return out

    def _rmse(self, prediction: NDArray[Any]) -> float:
        """In the user's units."""
        assert self.validation is not None
        errors = prediction - self.validation.value
        return self.scale * float(np.sqrt(np.mean(errors**2, dtype=np.float64)))

    def state_rmse(self, params: Params) -> float | None:
        """RMSE of one state."""
        return None if self.validation is None else self._rmse(self._predict(params))

    def averaged_rmse(self, params: Params, chain: int) -> float | None:
        """RMSE of the average over a chain's draws, after adding one."""
        if self.validation is None:
            return None
        mean = self.means.setdefault(chain, RunningMean(np.zeros(len(self.validation.value))))
        mean.add(self._predict(params))
        return self._rmse(mean.total / mean.n)

    def rmse_all_chains(self) -> float | None:
        """RMSE of the average over all draws of all chains so far."""
        if not self.means:
            return None
        total = np.sum([mean.total for mean in self.means.values()], axis=0)
        return self._rmse(total / sum(mean.n for mean in self.means.values()))

    def tell(self, event: Event) -> bool:
        """Whether anyone who listens wants the chain to end."""
        wishes = [callback(event) for callback in self.callbacks]  # all of them are to hear it
        return any(wishes)


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
        users = settings.prior.draw(state.params.users, rng)
        items = settings.prior.draw(state.params.items, rng)
    state.precisions = Precisions(users, items, tau)


class Chain:
    """One chain from its start to its last round."""

    def __init__(
        self,
        number: int,
        shape: DataShape,
        settings: Settings,
        rounds: Rounds,
        store: DrawStore,
        monitor: Monitor,
    ) -> None:
        self.number, self.settings, self.rounds = number, settings, rounds
        self.store, self.monitor = store, monitor
        self.sampler = settings.sampler
        self.n_rounds = self.sampler.rounds(shape)
        self.per_epoch = self.sampler.rounds_per_epoch(shape)
        self.burn_in = self.sampler.burn_in_rule(shape)
        self.state, self.trace = start_chain(number, settings, shape), Trace()
        self.since_epoch, self.epoch = Errors(), 0
        self.burning, self.first, self.kept = True, 0, 0
        self.thinning = Thinning(self.n_rounds, 1)
        self.rmse: float | None = None
        self.stopped = False

    def run(self) -> Generator[list[Task], Sequence[Result], None]:
        """Algorithm 2, lines 3-12."""
        every = self.sampler.precision_every
        for t in range(self.n_rounds):
            if self.burning:
                self.look_at_burn_in(t)
            yield from self.rounds.round(self.state, t)
            self.monitor.ratings_read += self.state.count
            self.since_epoch.add(self.state)
            if every and (t + 1) % every == 0:
                if self.settings.tau is None:
                    yield from self.rounds.exact_errors(self.state)
                draw_precisions(self.state, self.settings, t, self.burning)
            if not self.burning and self.thinning.keeps(t - self.first):
                self.keep()
            if int((t + 1) / self.per_epoch + 1e-9) > self.epoch and self.since_epoch.count:
                self.end_epoch(t)
                if self.stopped:
                    break
        if not self.kept:
            self.keep_last_state()

    def look_at_burn_in(self, t: int) -> None:
        """End burn-in before round t if it is over; then the number of draws is known."""
        if self.burn_in.over(t / self.per_epoch, self.n_rounds / self.per_epoch, self.trace):
            self.burning, self.first = False, t
            thin = (self.sampler.thin or 1.0) * self.per_epoch
            self.thinning = Thinning.of(self.n_rounds - t, thin, self.store.per_chain)
            self.store.reserve(self.number, self.thinning.n_draws, self.state.params)

    def keep(self) -> None:
        """Store the state as a draw, and add it to the average that is followed."""
        self.store.add(self.number, self.state.params, self.state.precisions)
        self.kept += 1
        self.rmse = self.monitor.averaged_rmse(self.state.params, self.number)

    def keep_last_state(self) -> None:
        """What SGD ends with; also a chain that was stopped, or whose burn-in left no round."""
        if self.burn_in.needs_validation and not self.stopped:
            best = min(self.trace.validation_rmse, default=math.nan)
            raise InputError(
                f"burn-in of chain {self.number} never ended: the validation RMSE came down to "
                f"{best:.4f} in {self.n_rounds / self.per_epoch:g} epochs; raise epochs or the "
                "RMSE in burn_in"
            )
        errors = self.last_errors()
        if isinstance(self.sampler, SGD) and self.settings.tau is None and errors:
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
            self.rmse = monitor.state_rmse(state.params)
            self.trace.validation_rmse.extend([] if self.rmse is None else [self.rmse])
        seconds = time.monotonic() - monitor.begin
        self.stopped = monitor.tell(
            Event(
                chain=self.number,
                epoch=self.epoch,
                epochs=max(1, round(self.n_rounds / self.per_epoch)),
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
