"""The parameter server, Algorithm 2: rounds, precisions, burn-in, thinning, draws.

Each chain is a generator that yields tasks and is sent their results. `drive` resumes whichever
chain has all its results, so chains never wait for each other; and nothing that a chain computes
depends on when it is resumed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.batches import TrainingData
from bayesmf.callbacks import Callback, Event
from bayesmf.draws import Draws, DrawStore
from bayesmf.engines.protocol import Engine, Handle
from bayesmf.errors import InputError
from bayesmf.kernels import predict_pairs
from bayesmf.keys import STREAM_SERVER, generator, make_key
from bayesmf.params import Params, Precisions
from bayesmf.priors import Prior, draw_tau
from bayesmf.rounds import ChainState, Rounds, data_shape, make_rounds
from bayesmf.samplers import SGD, Sampler
from bayesmf.schedules import Thinning, Trace
from bayesmf.worker import Result, Task

ChainRun = Generator[list[Task], Sequence[Result], None]


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
    tau_prior: tuple[float, float]
    seed: int
    max_draws: int
    scale: float = 1.0  # of a rating in the user's units: for what is reported


@dataclass
class RunReport:
    """What a run did."""

    draws: Draws
    seconds: float
    ratings_read: int
    epochs: float


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
    """What is followed while chains run. Kept by chain, so the order of events cannot matter."""

    validation: Validation | None
    callbacks: Sequence[Callback]
    scale: float
    begin: float = field(default_factory=time.monotonic)
    means: dict[int, RunningMean] = field(default_factory=dict)
    ratings_read: int = 0
    stopped: bool = False

    def rmse(self, params: Params, chain: int, keep: bool) -> tuple[float | None, float | None]:
        """(RMSE of the state, RMSE of all kept draws' average), in the user's units."""
        if self.validation is None:
            return None, None
        known = self.validation
        out = np.empty(len(known.value), np.float32)
        predict_pairs(params.users, params.items, known.user, known.item, params.n_factors, out)
        if keep:
            mean = self.means.setdefault(chain, RunningMean(np.zeros(len(out))))
            mean.add(out)
        n = sum(m.n for m in self.means.values())
        averaged = None
        if n:
            total = np.sum([m.total for m in self.means.values()], axis=0)
            averaged = self.scale * _rmse(total / n, known.value)
        return self.scale * _rmse(out, known.value), averaged

    def tell(self, event: Event) -> None:
        for callback in self.callbacks:
            if callback(event):
                self.stopped = True


def _rmse(a: NDArray[Any], b: NDArray[Any]) -> float:
    return float(np.sqrt(np.mean((a - b) ** 2, dtype=np.float64)))


def run(
    data: TrainingData,
    settings: Settings,
    engine: Engine,
    validation: Validation | None = None,
    callbacks: Sequence[Callback] = (),
) -> RunReport:
    """Run all chains to their end and return what they kept."""
    begin = time.monotonic()
    sampler = settings.sampler
    rounds = make_rounds(data, sampler, settings.seed)
    rule = sampler.burn_in_rule(data_shape(data))
    if rule.needs_validation and validation is None:
        raise InputError("burn_in by RMSE needs a validation set: pass validation= (--validation)")
    store = DrawStore(sampler.n_chains, max(1, settings.max_draws // sampler.n_chains))
    monitor = Monitor(validation, callbacks, settings.scale)
    engine.start(rounds.held)
    try:
        chains = [
            run_chain(Chain(c, data, settings, rounds, store, monitor))
            for c in range(sampler.n_chains)
        ]
        drive(chains, engine)
    finally:
        engine.close()
    epochs = monitor.ratings_read / len(data) / sampler.n_chains
    return RunReport(store.draws(), time.monotonic() - begin, monitor.ratings_read, epochs)


def drive(chains: Sequence[ChainRun], engine: Engine) -> None:
    """Resume each chain as soon as its own tasks are done."""
    pending: dict[int, list[Handle]] = {}

    def resume(chain: int, step: Callable[[], list[Task]]) -> None:
        try:
            tasks = step()
        except StopIteration:
            pending.pop(chain, None)
        else:
            pending[chain] = [engine.submit(task) for task in tasks]

    for number, chain in enumerate(chains):
        resume(number, lambda chain=chain: next(chain))  # type: ignore[misc]
    done: set[Handle] = set()
    while pending:
        open_handles = [h for handles in pending.values() for h in handles if h not in done]
        if open_handles:
            done |= engine.wait(open_handles)
        for number, handles in list(pending.items()):
            if all(h in done for h in handles):
                done.difference_update(handles)
                results = [h.result() for h in handles]
                resume(number, lambda n=number, r=results: chains[n].send(r))  # type: ignore[misc]


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


@dataclass
class Chain:
    """One chain's place in a run."""

    number: int
    data: TrainingData
    settings: Settings
    rounds: Rounds
    store: DrawStore
    monitor: Monitor

    def start(self) -> ChainState:
        settings, sampler = self.settings, self.settings.sampler
        key = make_key(settings.seed, self.number)
        prior, d = settings.prior, settings.n_factors
        params = Params.initial(self.data.n_users, self.data.n_items, d, bias=prior.bias, key=key)
        start = prior.initial(d, sampler.initial_precision)
        tau = 1.0 if settings.tau is None else settings.tau
        return ChainState(self.number, key, params, Precisions(start, start, tau))

    def draw_precisions(self, state: ChainState, t: int, errors: Errors, burning: bool) -> None:
        """Lambda by eqns 13 and 14 (or Gaussian-Wishart), and tau, at the end of round t."""
        settings, now = self.settings, state.precisions
        rng = generator(state.key, t, STREAM_SERVER)
        users, items, tau = now.users, now.items, now.tau
        if settings.tau is None:
            n = len(self.data)
            tau = draw_tau(errors.mean() * n, n, *settings.tau_prior, rng)
        if settings.sampler.precisions_drawn(burning):
            users = settings.prior.draw(state.params.users, rng)
            items = settings.prior.draw(state.params.items, rng)
        state.precisions = Precisions(users, items, tau)

    def keep(self, state: ChainState) -> float | None:
        """Store the state as a draw; the RMSE of the average of all draws so far."""
        self.store.add(self.number, state.params, state.precisions)
        return self.monitor.rmse(state.params, self.number, keep=True)[1]

    def tell(self, state: ChainState, t: int, trace: Trace, **seen: Any) -> None:
        """Report the end of an epoch."""
        monitor, scale = self.monitor, self.settings.scale
        sampler, shape = self.settings.sampler, data_shape(self.data)
        seconds = time.monotonic() - monitor.begin
        monitor.tell(
            Event(
                chain=self.number,
                epochs=max(1, round(sampler.rounds(shape) / sampler.rounds_per_epoch(shape))),
                seconds=seconds,
                train_rmse=trace.train_rmse[-1],
                tau=state.precisions.tau / scale**2,
                step_size=self.rounds.step(state, t),
                ratings_per_second=monitor.ratings_read / max(seconds, 1e-9),
                **seen,
            )
        )


def run_chain(chain: Chain) -> ChainRun:
    """Algorithm 2, lines 3-12, for one chain."""
    sampler, monitor, scale = chain.settings.sampler, chain.monitor, chain.settings.scale
    shape = data_shape(chain.data)
    n_rounds, per_epoch = sampler.rounds(shape), sampler.rounds_per_epoch(shape)
    burn_in = sampler.burn_in_rule(shape)
    state, trace = chain.start(), Trace()
    since_tau, since_epoch = Errors(), Errors()
    burning, first, kept, epoch = True, 0, 0, 0
    thinning = Thinning(n_rounds, 1)
    averaged: float | None = None
    for t in range(n_rounds):
        if burning and burn_in.over(t / per_epoch, n_rounds / per_epoch, trace):
            burning, first = False, t
            thin = (sampler.thin or 1.0) * per_epoch
            thinning = Thinning.of(n_rounds - t, thin, chain.store.per_chain)
            chain.store.reserve(chain.number, thinning.n_draws, state.params)
        yield from chain.rounds.round(state, t)
        monitor.ratings_read += state.count
        since_tau.add(state)
        since_epoch.add(state)
        if sampler.precision_every and (t + 1) % sampler.precision_every == 0 and since_tau.count:
            chain.draw_precisions(state, t, since_tau, burning)
            since_tau = Errors()
        if not burning and thinning.keeps(t - first):
            averaged = chain.keep(state)
            kept += 1
        now = int((t + 1) / per_epoch + 1e-9)
        if now > epoch and since_epoch.count:
            epoch = now
            trace.train_rmse.append(scale * math.sqrt(since_epoch.mean()))
            since_epoch = Errors()
            if burning:
                averaged = monitor.rmse(state.params, chain.number, keep=False)[0]
                trace.validation_rmse.extend([] if averaged is None else [averaged])
            chain.tell(state, t, trace, epoch=epoch, burning=burning, draws=kept, rmse=averaged)
            if monitor.stopped:
                break
    if not kept:
        if burn_in.needs_validation and not monitor.stopped:
            best = min(trace.validation_rmse, default=math.nan)
            raise InputError(
                f"burn-in of chain {chain.number} never ended: the validation RMSE came down to "
                f"{best:.4f} in {n_rounds / per_epoch:g} epochs; raise epochs or burn_in's RMSE"
            )
        if isinstance(sampler, SGD) and chain.settings.tau is None:
            tau = (scale / max(trace.train_rmse[-1], 1e-6 * scale)) ** 2
            state.precisions = Precisions(state.precisions.users, state.precisions.items, tau)
        chain.keep(state)
