"""The parameter server, Algorithm 2: it starts the chains and resumes whichever can go on."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bayesmf.chains.block_rounds import data_shape
from bayesmf.chains.callbacks import Callback, Plan
from bayesmf.chains.chain import Chain, Settings
from bayesmf.chains.monitor import Monitor, Validation, probe_pairs
from bayesmf.chains.retention import FIRST_KEPT
from bayesmf.chains.rounds import make_rounds
from bayesmf.checkpoints.folder import Checkpoint
from bayesmf.checkpoints.writer import saving
from bayesmf.data.training import TrainingData
from bayesmf.diagnostics.convergence import AGREE, LARGEST_RHAT, told
from bayesmf.engines.base import Engine, Handle, Work
from bayesmf.errors import InputError
from bayesmf.model.draws import Draws, DrawStore, LastDraw
from bayesmf.server.stopping import N_PROBE, Convergence, judge, stages, target_named
from bayesmf.worker.tasks import Held, Result, Task

Found = dict[str, Any]
ChainRun = Generator[list[Task], Sequence[Result], None]


@dataclass
class RunReport:
    """What a run did.

    `convergence` is what the probe pairs say; `engine` is who did what; `failures` are sentences
    about callbacks that failed.
    """

    draws: Draws
    seconds: float
    ratings_read: int
    epochs: float
    convergence: Found
    repairs: int
    engine: dict[str, Any]
    failures: list[str]


def run(
    data: TrainingData,
    settings: Settings,
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
        chains, work = make_chains(data, settings, engine, validation, callbacks)
        saved.begin(chains, monitor := chains[0].monitor)
        monitor.begin(make_plan(settings, chains[0], validation is not None))
        engine.start(replace(work, rehearsal=rehearsal))
        try:
            sample = sample_enough if sampler.adaptive else sample_for
            found, ended = sample(chains, settings, engine, saved.between)
            done = engine.report()
        finally:
            engine.close()
        saved.finish()
        for chain in chains:
            chain.finish()
    read = sum(chain.ratings_read for chain in chains)
    draws, epochs = chains[0].store.draws(), read / len(data) / sampler.n_chains
    return RunReport(
        draws,
        saved.before + done["seconds"],
        read,
        epochs,
        convergence_found(found, settings, ended_by=ended, draws=len(draws), epochs=epochs),
        sum(chain.state.repairs for chain in chains),
        done,
        list(monitor.failures.values()),
    )


def make_plan(settings: Settings, chain: Chain, validated: bool) -> Plan:
    """What listeners may know before the first round."""
    n_rounds = chain.n_rounds
    if settings.sampler.adaptive:
        n_rounds = most_rounds(settings, chain)
    epochs = max(1, round(n_rounds / chain.per_epoch))
    return Plan(settings.sampler.n_chains, epochs, settings.max_seconds, validated)


def most_rounds(settings: Settings, chain: Chain) -> int:
    """Rounds after which a run ends that has not reached its target."""
    per_epoch = chain.per_epoch * settings.sampler.passes_for_a_sweep
    return round(target_named(settings.target).most * per_epoch)


def make_chains(
    data: TrainingData,
    settings: Settings,
    engine: Engine,
    validation: Validation | None,
    callbacks: Sequence[Callback],
) -> tuple[list[Chain], Work]:
    """All chains before their first round, and what the engine is to hold for them."""
    sampler = settings.sampler
    shape = data_shape(data)
    monitor = Monitor(
        validation,
        callbacks,
        settings.scale,
        engine.seconds,
        engine.aside,
        growing=sampler.adaptive,
        not_kept=FIRST_KEPT * sampler.passes_for_a_sweep,
    )
    rounds = make_rounds(data, sampler, settings.seed)
    make_store = LastDraw if settings.last_draw_only else DrawStore
    store = make_store(sampler.n_chains, max(1, settings.max_draws // sampler.n_chains))
    probe = probe_pairs(data, N_PROBE, settings.seed)
    chains = [
        Chain(number, shape, settings, rounds, store, monitor, probe)
        for number in range(sampler.n_chains)
    ]
    return chains, Work(rounds.held, rounds.together, rounds.recipes)


def sample_for(
    chains: Sequence[Chain],
    settings: Settings,
    engine: Engine,
    between: Callable[[], None] = lambda: None,
) -> tuple[Convergence, str]:
    """Run all chains for as long as the sampler says; `between` is called when they have ended.

    Returns what the probe pairs say, and what ended the run.
    """
    drive([chain.run(chain.n_rounds) for chain in chains], engine)
    between()
    ended = _ended_early(chains) if any(chain.stopped for chain in chains) else "epochs"
    return judge(chains), ended


def sample_enough(
    chains: Sequence[Chain],
    settings: Settings,
    engine: Engine,
    between: Callable[[], None] = lambda: None,
) -> tuple[Convergence, str]:
    """Run all chains until the target is reached, time is over, or they are as long as may be.

    `between` is called between stages. Returns as `sample_for` does.
    """
    target, most = target_named(settings.target), most_rounds(settings, chains[0])
    per_epoch = chains[0].per_epoch * settings.sampler.passes_for_a_sweep
    found, ended = None, "longest run"
    for stage, end in enumerate(stages(per_epoch, most), 1):
        for chain in chains:
            chain.stage, chain.n_rounds = stage, most
        drive([chain.run(end) for chain in chains], engine)
        between()
        if any(chain.t > end for chain in chains):
            continue  # resumed from a later stage: the judgement was to go on
        found = judge(chains)
        if all(chain.stopped for chain in chains):
            ended = _ended_early(chains)
            break
        if end >= target.least * per_epoch and found.enough(target):
            ended = "target"
            break
    assert found is not None
    return found, ended


def _ended_early(chains: Sequence[Chain]) -> str:
    return "max_seconds" if any(chain.out_of_time() for chain in chains) else "callback"


def convergence_found(found: Convergence, settings: Settings, **run: Any) -> Found:
    """For the report: what the probe pairs say of a run, and what follows from it."""
    known: Found = {name: None if math.isnan(x) else x for name, x in found._asdict().items()}
    if known["rhat"] is not None:  # JSON has no infinity
        known["rhat"] = min(known["rhat"], LARGEST_RHAT)
    target = settings.target if settings.sampler.adaptive else None
    about = {
        "limit": AGREE if target is None else target_named(target).rhat,
        "target": target,
        "rule": type(settings.sampler).__name__,
        "chains": settings.sampler.n_chains,
    }
    return told({**known, **about, **run})


def drive(chains: Sequence[ChainRun], engine: Engine) -> None:
    """Resume each chain as soon as its own tasks are done: none waits for another."""
    pending: dict[int, list[Handle]] = {}

    def resume(number: int, results: list[Result] | None) -> None:
        chain = chains[number]
        try:
            tasks = next(chain) if results is None else chain.send(results)
        except StopIteration:
            pending.pop(number, None)
        else:
            pending[number] = [engine.submit(task) for task in tasks]

    for number in range(len(chains)):
        resume(number, None)
    done: set[Handle] = set()
    while pending:
        done |= engine.wait([h for handles in pending.values() for h in handles if h not in done])
        for number, handles in list(pending.items()):
            if done.issuperset(handles):
                done.difference_update(handles)
                resume(number, [handle.result() for handle in handles])
