"""The parameter server, Algorithm 2: it starts the chains and resumes whichever can go on."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

from bayesmf.chains.callbacks import Callback, RunPlan
from bayesmf.chains.chain import Chain, RunContext
from bayesmf.chains.exact_pairs import followed
from bayesmf.chains.monitor import Monitor, RunClock
from bayesmf.chains.pairs import Validation, probe_pairs
from bayesmf.chains.retention import RunLength, first_kept
from bayesmf.chains.rounds.blocks import data_shape
from bayesmf.chains.rounds.gibbs import GibbsRounds
from bayesmf.chains.rounds.gradient import GradientRounds
from bayesmf.chains.rounds.momentum import MomentumRounds
from bayesmf.chains.settings import RunSettings
from bayesmf.chains.state import Rounds
from bayesmf.checkpoints.folder import Checkpoint
from bayesmf.checkpoints.writer import saving
from bayesmf.data.training import TrainingData
from bayesmf.engines.base import Engine, Handle, Workload
from bayesmf.errors import InputError
from bayesmf.model.draw_store import DrawStore, LastDraw
from bayesmf.samplers.base import DataShape, Sampler
from bayesmf.server.report import RunReport, convergence_found
from bayesmf.server.stopping import N_PROBE, Convergence, judge, stages, target_named
from bayesmf.worker.tasks import Held, Result, Task

ChainRun = Generator[list[Task], Sequence[Result], None]

# What a round is made of: kinds are few, and a sampler names its own.
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
    """Run all chains to their end and return what they kept.

    `rehearsal` are tasks that make a worker compile what it will need. With a checkpoint a signal
    ends the run by Interrupted.
    """
    sampler = settings.sampler
    if sampler.burn_in_rule(data_shape(data)).needs_validation and validation is None:
        raise InputError("burn_in by RMSE needs a validation set: pass validation= (--validation)")
    with saving(checkpoint, data, settings, validation) as saved:
        run = make_context(data, settings, engine, validation, callbacks, saved.round_done)
        chains = make_chains(run)
        saved.begin(chains, run)
        run.monitor.begin(make_plan(run))
        engine.start(make_load(run, rehearsal))
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
    return RunReport(
        settings=settings,
        draws=draws,
        seconds=run.monitor.clock.before + done["seconds"],
        ratings_read=read,
        epochs=epochs,
        convergence=convergence_found(
            found, settings, ended_by=ended, draws=len(draws), epochs=epochs
        ),
        repairs=sum(chain.state.repairs for chain in chains),
        engine=done,
        failures=list(run.monitor.failures.values()),
    )


def make_load(run: RunContext, rehearsal: Sequence[tuple[Held, Task]] = ()) -> Workload:
    """What an engine is started with."""
    rounds = run.rounds
    return Workload(
        rounds.held, rounds.together, rounds.recipes, rehearsal, rounds.units,
        run.settings.sampler.n_chains,
    )  # fmt: skip


def make_context(
    data: TrainingData,
    settings: RunSettings,
    engine: Engine,
    validation: Validation | None = None,
    callbacks: Sequence[Callback] = (),
    round_done: Callable[[Chain], bool] = lambda chain: False,
) -> RunContext:
    """What all chains of a run share, before their first round."""
    sampler, shape = settings.sampler, data_shape(data)
    length = run_length(settings, shape)
    monitor = Monitor(
        followed(validation, data, settings),
        callbacks,
        settings.scale,
        RunClock(engine.seconds),
        engine.aside,
        growing=sampler.growing,
        not_kept=first_kept(sampler, length) / (sampler.thin or 1.0),
    )
    make_store = LastDraw if settings.last_draw_only else DrawStore
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
    return RunLength(n_rounds, per_epoch, (sampler.thin or 1.0) * per_epoch)


def make_chains(run: RunContext) -> list[Chain]:
    """All chains before their first round."""
    return [Chain(number, run) for number in range(run.settings.sampler.n_chains)]


def make_plan(run: RunContext) -> RunPlan:
    """What callbacks may know before the first round."""
    epochs = max(1, round(run.length.epochs))
    sampler, validated = run.settings.sampler, run.monitor.validation is not None
    return RunPlan(sampler.n_chains, epochs, run.settings.max_seconds, validated)


def sample_for(
    chains: Sequence[Chain],
    run: RunContext,
    engine: Engine,
    between: Callable[[], None] = lambda: None,
) -> tuple[Convergence, str]:
    """Run all chains for as long as the sampler says; `between` is called when they have ended.

    Returns what the probe pairs say, and what ended the run.
    """
    drive([chain.advance(run.length.n_rounds) for chain in chains], engine)
    between()
    ended = _ended_early(chains) if any(chain.stopped for chain in chains) else "epochs"
    return judge(chains), ended


def sample_enough(
    chains: Sequence[Chain],
    run: RunContext,
    engine: Engine,
    between: Callable[[], None] = lambda: None,
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
            continue  # resumed from a later stage: the judgement was to go on
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
    """Resume each chain as soon as its own tasks are done: none waits for another.

    What is waited for is kept up to date, not made anew: with thousands of tasks under way, of
    which one after another ends, that would be most of the work of the server.
    """
    phase: dict[int, list[Handle]] = {}
    left: dict[int, int] = {}
    waiting: dict[Handle, int] = {}  # the chains of tasks under way

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
