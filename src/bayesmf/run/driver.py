"""The parameter server, Algorithm 2: start a run, compile its kernels, drive its chains, report."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bayesmf.chains.callbacks import Callback, Progress, RunPlan
from bayesmf.chains.chain import Chain, RunContext
from bayesmf.chains.monitor import Monitor, RunClock
from bayesmf.chains.pairs import Validation, WatchedPairs, followed, probe_pairs
from bayesmf.chains.retention import LONGEST_BURN_IN, RunLength, first_kept
from bayesmf.chains.rounds.blocks import data_shape
from bayesmf.chains.rounds.gibbs import GibbsRounds
from bayesmf.chains.rounds.gradient import GradientRounds
from bayesmf.chains.rounds.momentum import MomentumRounds
from bayesmf.chains.state import Rounds, RunSettings
from bayesmf.checkpoints.folder import Checkpoint
from bayesmf.checkpoints.writer import NoCheckpoints, saving
from bayesmf.data.training import TrainingData
from bayesmf.diagnostics.convergence import AGREE, LARGEST_RHAT, with_verdict
from bayesmf.engines.base import Engine, Handle, Workload
from bayesmf.engines.local import Rehearsal
from bayesmf.engines.registry import make_engine
from bayesmf.errors import InputError
from bayesmf.kernels.csr import MOST_LEVELS
from bayesmf.kernels.whole_rows import DUAL_SHARE
from bayesmf.model.draw_store import DrawStore, LastDraw
from bayesmf.model.draws import Draws
from bayesmf.model.priors import GammaPrior, Params
from bayesmf.model.refs import whole
from bayesmf.run.settings import FitSettings
from bayesmf.run.stopping import N_PROBE, Convergence, judge, stages, target_named
from bayesmf.samplers.base import DataShape, Sampler
from bayesmf.samplers.gibbs import Gibbs
from bayesmf.samplers.registry import settings_dict
from bayesmf.samplers.schedules import UntilRMSE
from bayesmf.samplers.sgld import SGD
from bayesmf.wording import count
from bayesmf.worker.tasks import Held, Result, Task

ChainRun = Generator[list[Task], Sequence[Result], None]

# Kinds of rounds: they are few, and a sampler names its own.
ROUNDS: dict[str, Any] = {
    "gibbs": GibbsRounds,
    "gradient": GradientRounds,
    "momentum": MomentumRounds,
}


def make_rounds(data: TrainingData, rule: Sampler, seed: int) -> Rounds:
    """The rounds of a resolved rule on one data set."""
    made: Rounds = ROUNDS[rule.kind_of_rounds](data, rule, seed)
    return made


def run(
    data: TrainingData,
    settings: RunSettings,
    engine: Engine,
    validation: Validation | None = None,
    callbacks: Sequence[Callback] = (),
    rehearsal: Sequence[tuple[Held, Task]] = (),
    checkpoint: Checkpoint | None = None,
) -> RunReport:
    """Run all chains to their end and return their draws.

    `rehearsal` are tasks by which workers compile their kernels. With a checkpoint, a signal ends
    the run by Interrupted.
    """
    sampler = settings.sampler
    if isinstance(sampler.burn_in_rule(data_shape(data)), UntilRMSE) and validation is None:
        raise InputError("burn_in by RMSE needs a validation set: pass validation= (--validation)")
    with saving(checkpoint, data, settings, validation) as saved:
        run = make_context(data, settings, engine, validation, callbacks, saved.round_done)
        chains = [Chain(number, run) for number in range(sampler.n_chains)]
        saved.begin(chains, run)
        start_near_mode(chains, run, data, engine, rehearsal, saved)
        begin(chains, run, engine, rehearsal)
        try:
            sample = sample_enough if sampler.adaptive else sample_for
            found, ended = sample(chains, run, engine, saved.between)
            saved.finish()
            drive([chain.finish() for chain in chains], engine)
            done = engine.report()
        finally:
            engine.close()
    read = sum(chain.ratings_read for chain in chains)
    draws, epochs = run.store.draws(), read / len(data) / sampler.n_chains
    about = {"ended_by": ended, "draws": len(draws), "epochs": epochs}
    about["burn_in"] = burn_in_note(chains, run)
    return RunReport(
        settings=settings,
        draws=draws,
        seconds=run.monitor.clock.before + done["seconds"],
        ratings_read=read,
        epochs=epochs,
        convergence=convergence_found(found, settings, **about),
        repairs=sum(chain.state.repairs for chain in chains),
        engine=done,
        failures=list(run.monitor.failures.values()),
    )


def begin(
    chains: Sequence[Chain], run: RunContext, engine: Engine, rehearsal: Sequence[tuple[Held, Task]]
) -> None:
    """Announce the run to its callbacks, and start the engine."""
    longest, rounds, n = max(1, round(run.length.epochs)), run.rounds, len(chains)
    run.monitor.begin(RunPlan(n, longest, run.settings.max_seconds))
    engine.start(Workload(rounds.held, rounds.together, rounds.recipes, rehearsal, rounds.units, n))


def start_near_mode(
    chains: Sequence[Chain], run: RunContext, data: TrainingData, engine: Engine,
    rehearsal: Sequence[tuple[Held, Task]], saved: NoCheckpoints,
) -> None:  # fmt: skip
    """With `sgd_epochs`, run SGD for each chain that has not begun, and start the chain there.

    The chain gets SGD's rows and precisions. SGD has the chain's random key, so chains start at
    different rows. Its seconds are part of the run's. It calls no callback but the progress line,
    and writes no checkpoints.
    """
    settings = sgd_settings(run.settings, data)
    new = [chain for chain in chains if not len(chain.state.params.users)]
    if settings is None or not new:
        return
    shown = [one for one in run.monitor.callbacks if isinstance(one, Progress)]
    sgd = make_context(data, settings, engine, None, shown, saved.round_done)
    sgd.monitor.clock = run.monitor.clock
    starts = [Chain(chain.number, sgd) for chain in new]
    begin(starts, sgd, engine, rehearsal)
    try:
        drive([start.advance(sgd.length.n_rounds) for start in starts], engine)
        saved.between()
        for chain, start in zip(new, starts, strict=True):
            own, found = chain.state, start.state
            users, items = (whole(found.side(side), engine.fetch) for side in (0, 1))
            own.params = Params(users, items, settings.n_factors)
            own.precisions = replace(found.precisions, noise=own.precisions.noise)
        run.monitor.clock.before += engine.seconds()
    finally:
        engine.close()


def sgd_settings(settings: RunSettings, data: TrainingData) -> RunSettings | None:
    """Settings of the SGD before a run with `sgd_epochs`: its defaults, and the run's prior."""
    epochs = getattr(settings.sampler, "sgd_epochs", None)
    if epochs is None:
        return None
    return replace(settings, sampler=SGD(epochs=epochs).resolve(data_shape(data)), noise_by=None)


def make_context(
    data: TrainingData,
    settings: RunSettings,
    engine: Engine,
    validation: Validation | None = None,
    callbacks: Sequence[Callback] = (),
    round_done: Callable[[Chain], bool] = lambda chain: False,
) -> RunContext:
    """The context shared by all chains of a run, before their first round."""
    sampler, shape = settings.sampler, data_shape(data)
    length = run_length(settings, shape)
    monitor = Monitor(
        followed(validation, data, settings),
        callbacks,
        settings.scale,
        RunClock(engine.seconds),
        getattr(engine, "aside", nullcontext),  # which stops a virtual clock
        growing=sampler.growing,
        not_kept=first_kept(sampler, length) / (sampler.thin or 1.0),
    )
    make_store = DrawStore if settings.errors_every is None else LastDraw
    return RunContext(
        settings,
        shape,
        length,
        make_rounds(data, sampler, settings.seed),
        make_store(sampler.n_chains, max(1, settings.max_draws // sampler.n_chains), settings.keep),
        monitor,
        probe_pairs(data, N_PROBE, settings.seed),
        engine.fetch,
        engine.settled,
        round_done,
    )


def run_length(settings: RunSettings, shape: DataShape) -> RunLength:
    """Rounds of each chain: as the sampler says, or at most as many as the target allows."""
    sampler = settings.sampler
    per_epoch = sampler.rounds_per_epoch(shape)
    n_rounds = sampler.rounds(shape)
    if sampler.adaptive:
        most = target_named(settings.target).most
        n_rounds = round(most * (per_epoch * sampler.passes_for_a_sweep))
    per_draw, per_check = (sampler.thin or 1.0) * per_epoch, settings.errors_every
    if per_check is None and isinstance(sampler.burn_in_rule(shape), UntilRMSE):
        per_check = min(per_draw, per_epoch)
    return RunLength(n_rounds, per_epoch, per_draw, per_check)


def burn_in_together(chains: Sequence[Chain], run: RunContext, engine: Engine) -> None:
    """Run all chains, from check to check, until their mean RMSE ends burn-in, if that is the rule.

    Chains that were resumed from later rounds have the earlier errors in their traces.
    Chains that a callback has ended no longer count.
    """
    rule, length = run.settings.sampler.burn_in_rule(run.shape), run.length
    if not isinstance(rule, UntilRMSE) or not rule.mean:
        return
    for k, t in enumerate(t for t in range(length.n_rounds) if length.ends_check(t)):
        drive([chain.advance(t + 1) for chain in chains], engine)
        known = [x for chain in chains for x in chain.trace.validation_rmse[k : k + 1]]
        left = [chain for chain in chains if not chain.stopped_by_callback]
        late = not known or any(len(chain.trace.validation_rmse) <= k for chain in left)
        for chain in chains:
            chain.trace.mean_rmse.extend([] if late else [float(np.mean(known))])
            chain.stopped |= late  # by time or a signal: no chain continues without the mean
        if late or chains[0].trace.mean_rmse[-1] <= rule.rmse:
            return


def burn_in_note(chains: Sequence[Chain], run: RunContext) -> str:
    """A sentence on a burn-in that did not end by its rule; empty if it did."""
    sampler = run.settings.sampler
    if sampler.growing or not sampler.keeps_draws:
        return ""
    rule = sampler.burn_in_rule(run.shape)
    burning = [chain.trace for chain in chains if chain.burning]
    if burning:
        lowest = f", where {rule.lowest(burning)}" if isinstance(rule, UntilRMSE) else ""
        return (
            f"Burn-in ({rule}) lasted until the end of {count(len(burning), 'chain')}{lowest}: the "
            "only draw of such a chain is its last state."
        )
    cut = [chain.retention.cut for chain in chains if chain.retention.cut is not None]
    if not cut:
        return ""
    return (
        f"Burn-in ({rule}) ended at epoch {min(cut):.4g}, when {LONGEST_BURN_IN:.0%} of "
        "max_seconds was over: make burn_in shorter or max_seconds longer."
    )


def sample_for(
    chains: Sequence[Chain],
    run: RunContext,
    engine: Engine,
    between: Callable[[], None],
) -> tuple[Convergence, str]:
    """Run all chains for as long as the sampler says; `between` is called when they have ended.

    Returns the convergence of the probe pairs, and the reason why the run ended.
    """
    burn_in_together(chains, run, engine)
    drive([chain.advance(run.length.n_rounds) for chain in chains], engine)
    between()
    ended = _ended_early(chains) if any(chain.stopped for chain in chains) else "epochs"
    return judge(chains), ended


def sample_enough(
    chains: Sequence[Chain],
    run: RunContext,
    engine: Engine,
    between: Callable[[], None],
) -> tuple[Convergence, str]:
    """Run all chains until the target is reached, time is over, or their length is.

    `between` is called between stages. Returns as `sample_for` does.
    """
    target, length = target_named(run.settings.target), run.length
    per_sweep = length.per_epoch * run.settings.sampler.passes_for_a_sweep
    found, ended = None, "longest run"
    for stage, end in enumerate(stages(per_sweep, length.n_rounds), 1):
        drive([chain.advance(end, stage) for chain in chains], engine)
        between()
        if any(chain.t > end for chain in chains):
            continue  # resumed from a later stage
        found = judge(chains, target)
        if all(chain.stopped for chain in chains):
            ended = _ended_early(chains)
            break
        if end >= target.least * per_sweep and found.enough(target):
            ended = "target"
            break
    assert found is not None
    return found, ended


def _ended_early(chains: Sequence[Chain]) -> str:
    return "max_seconds" if any(chain.out_of_time() for chain in chains) else "callback"


def drive(chains: Sequence[ChainRun], engine: Engine) -> None:
    """Resume each chain as soon as its tasks are done, independently of other chains.

    `waiting` is updated, not rebuilt, which would dominate with thousands of tasks in flight.
    """
    phase: dict[int, list[Handle]] = {}
    left: dict[int, int] = {}
    waiting: dict[Handle, int] = {}  # the chains of tasks in flight

    def resume(number: int, results: list[Result] | None) -> None:
        while True:
            try:
                tasks = next(chains[number]) if results is None else chains[number].send(results)
            except StopIteration:
                return
            phase[number] = [engine.submit(task) for task in tasks]
            left[number] = len(phase[number])
            waiting.update(dict.fromkeys(phase[number], number))
            if phase[number]:
                return
            results = []

    for number in range(len(chains)):
        resume(number, None)
    while waiting:
        ready = []
        for handle in engine.wait(waiting):
            number = waiting.pop(handle)
            left[number] -= 1
            if not left[number]:
                ready.append(number)
        for number in sorted(ready):
            resume(number, [handle.result() for handle in phase[number]])


def start_run(
    data: TrainingData,
    wanted: FitSettings,
    *,
    scale: float = 1.0,
    validation: Validation | None = None,
    callbacks: Sequence[Callback] = (),
    checkpoint: Checkpoint | None = None,
    stage: Callable[[str], None] = lambda what: None,
) -> RunReport:
    """Resolve the settings, compile, and run.

    `data` are ratings as `prepare` makes them, `scale` the user's units in one unit of these, and
    `validation` pairs in the same units; `stage` is called with the name of each stage.
    """
    settings = wanted.resolve(data, scale)
    engine = make_engine(wanted.engine, wanted.n_workers)
    settings = _shared_out(settings, wanted, engine)
    stage("compiling")
    seconds, rehearsal = compile_kernels(settings, data)
    done = run(data, settings, engine, validation, callbacks, rehearsal, checkpoint)
    return replace(done, compile_seconds=seconds)


def _shared_out(settings: RunSettings, wanted: FitSettings, engine: Engine) -> RunSettings:
    """Settings with stripes for the engine's workers, unless set by the user."""
    rule, n = settings.sampler, wanted.n_workers or getattr(engine, "n_workers", None)
    if not isinstance(rule, Gibbs) or getattr(wanted.sampler, "n_stripes", None) or not n:
        return settings
    return replace(settings, sampler=rule.shared_out(n))


# Ratings of the busiest user that kernels are compiled with.
MOST_RATINGS = 200


def compile_kernels(
    settings: RunSettings, data: TrainingData
) -> tuple[float, Sequence[tuple[Held, Task]]]:
    """Compile, or load from numba's cache, the kernels for a run on these data.

    Returns the seconds taken, and tasks by which remote workers compile the same kernels.
    """
    begin, engine = time.monotonic(), Rehearsal()
    few = _few_ratings(settings, coded=data.by_user.value.dtype == np.uint8)
    pair, value = np.arange(2, dtype=np.int32), np.array([-1.0, 1.0], np.float32)
    validation = Validation(WatchedPairs(pair, pair, np.array([True, False])), value)
    for one in filter(None, (settings, sgd_settings(settings, data))):
        sampler = one.sampler.for_compiling(len(few)).resolve(data_shape(few))
        tiny = replace(one, sampler=sampler, max_draws=1, max_seconds=None)
        run = make_context(few, tiny, engine, validation)
        engine.start(Workload(run.rounds.held, run.rounds.together))
        chains = [Chain(number, run) for number in range(sampler.n_chains)]
        drive([chain.advance(run.length.n_rounds) for chain in chains], engine)
    return time.monotonic() - begin, engine.tasks


def _few_ratings(settings: RunSettings, coded: bool) -> TrainingData:
    """Synthetic ratings for compiling: a few users and items, and one user with many ratings.

    Rows with few and with many ratings use different code, as do coded and plain ratings.
    """
    n = 2 if coded else 2 * MOST_LEVELS
    few = int(DUAL_SHARE * (settings.n_factors + 1))
    if isinstance(settings.prior, GammaPrior) and few <= MOST_RATINGS:
        n = max(n, few + 2)
    same, others = np.arange(n, dtype=np.int32), np.arange(1, n, dtype=np.int32)
    user, item = np.concatenate([same, 0 * others]), np.concatenate([same, others])
    value = np.linspace(-1.0, 1.0, len(user))
    value = np.sign(value + 1e-3) if coded else value
    return TrainingData.from_triples(user, item, value.astype(np.float32), n, n)


@dataclass(frozen=True)
class RunReport:
    """Draws and facts of a run.

    `convergence` is the verdict of the probe pairs, `engine` its own report, `failures` sentences
    about failed callbacks. Seconds are those of the engine's clock, without compiling.
    """

    settings: RunSettings
    draws: Draws
    seconds: float
    ratings_read: int
    epochs: float
    convergence: dict[str, Any]
    repairs: int
    engine: dict[str, Any]
    failures: list[str]
    compile_seconds: float = 0.0


def convergence_found(found: Convergence, settings: RunSettings, **run: Any) -> dict[str, Any]:
    """Convergence of a run with verdict and advice, as plain values."""
    known: dict[str, Any] = {
        name: None if isinstance(x, float) and math.isnan(x) else x
        for name, x in found._asdict().items()
        if name != "loss_of_all"
    }
    known["slowest"] = found.slowest or None
    for name in ("rhat", "rhat_noise"):
        if known[name] is not None:  # JSON has no infinity
            known[name] = min(known[name], LARGEST_RHAT)
    target = settings.target if settings.sampler.adaptive else None
    about = {
        "limit": AGREE if target is None else target_named(target).rhat,
        "target": target,
        "rule": type(settings.sampler).__name__,
        "chains": settings.sampler.n_chains,
    }
    return with_verdict({**known, **about, **run})


def make_report(data: TrainingData, done: RunReport) -> dict[str, Any]:
    """Facts of a fit, in plain values."""
    settings = done.settings
    prior = type(settings.prior).__name__.removesuffix("Prior").lower()
    full_bias = prior == "wishart" and settings.prior.bias
    return {
        "ratings": len(data),
        "users": data.n_users,
        "items": data.n_items,
        "factors": settings.n_factors,
        "prior": "wishart-bias" if full_bias else prior,
        "sampler": settings_dict(settings.sampler),
        "target": settings.target,
        "max_seconds": settings.max_seconds,
        "seed": settings.seed,
        "seconds": done.seconds,
        "compile_seconds": done.compile_seconds,
        "epochs": done.epochs,
        "draws": len(done.draws),
        "ratings_per_second": done.ratings_read / max(done.seconds, 1e-9),
        "tau": float(done.draws.tau.mean()) / settings.scale**2,
        "noise_by": settings.noise_by,
        "convergence": done.convergence,
        "repairs": done.repairs,
        "engine": done.engine,
    }
