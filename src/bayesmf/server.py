"""The parameter server, Algorithm 2: it starts the chains and resumes whichever can go on."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from bayesmf.batches import TrainingData
from bayesmf.callbacks import Callback
from bayesmf.chain import Chain, Settings
from bayesmf.draws import Draws, DrawStore
from bayesmf.engines.protocol import Engine, Handle, Work
from bayesmf.errors import InputError
from bayesmf.keeping import FIRST_KEPT
from bayesmf.monitor import Monitor, Validation, probe_pairs
from bayesmf.rounds import data_shape, make_rounds
from bayesmf.tuning import N_PROBE, judge, stages, target_named
from bayesmf.worker import Held, Result, Task

ChainRun = Generator[list[Task], Sequence[Result], None]


@dataclass
class RunReport:
    """What a run did.

    `convergence` is what the probe pairs say, of runs that end by themselves; `engine` is who did
    what.
    """

    draws: Draws
    seconds: float
    ratings_read: int
    epochs: float
    convergence: dict[str, float | str | None] | None
    repairs: int
    engine: dict[str, Any]


def run(
    data: TrainingData,
    settings: Settings,
    engine: Engine,
    validation: Validation | None = None,
    callbacks: Sequence[Callback] = (),
    rehearsal: Sequence[tuple[Held, Task]] = (),
) -> RunReport:
    """Run all chains to their end and return what they kept.

    `rehearsal` are tasks that make a worker compile what it will need.
    """
    sampler = settings.sampler
    shape = data_shape(data)
    monitor = Monitor(
        validation,
        callbacks,
        settings.scale,
        engine.seconds,
        growing=sampler.adaptive,
        not_kept=FIRST_KEPT * sampler.passes_for_a_sweep,
    )
    rounds = make_rounds(data, sampler, settings.seed)
    if sampler.burn_in_rule(shape).needs_validation and validation is None:
        raise InputError("burn_in by RMSE needs a validation set: pass validation= (--validation)")
    store = DrawStore(sampler.n_chains, max(1, settings.max_draws // sampler.n_chains))
    probe = probe_pairs(data, N_PROBE, settings.seed)
    engine.start(Work(rounds.held, rounds.together, rehearsal=rehearsal))
    try:
        chains = [
            Chain(number, shape, settings, rounds, store, monitor, probe)
            for number in range(sampler.n_chains)
        ]
        if sampler.adaptive:
            convergence = sample_enough(chains, settings, engine)
        else:
            convergence = None
            drive([chain.run(chain.n_rounds) for chain in chains], engine)
        told = engine.report()
    finally:
        engine.close()
    for chain in chains:
        chain.finish()
    epochs = monitor.ratings_read / len(data) / sampler.n_chains
    return RunReport(
        store.draws(),
        told["seconds"],
        monitor.ratings_read,
        epochs,
        convergence,
        sum(chain.state.repairs for chain in chains),
        told,
    )


def sample_enough(
    chains: Sequence[Chain], settings: Settings, engine: Engine
) -> dict[str, float | str | None]:
    """Run all chains until the target is reached, time is over, or they are as long as may be.

    What cannot be known, of fewer than four draws, is None.
    """
    target = target_named(settings.target)
    per_epoch = chains[0].per_epoch * settings.sampler.passes_for_a_sweep
    n_rounds = round(target.most * per_epoch)
    found, ended = None, "longest run"
    for end in stages(per_epoch, n_rounds):
        drive([chain.run(end) for chain in chains], engine)
        found = judge(chains)
        if all(chain.stopped for chain in chains):
            late = any(chain.out_of_time() for chain in chains)
            ended = "max_seconds" if late else "callback"
            break
        if end >= target.least * per_epoch and found.enough(target):
            ended = "target"
            break
    assert found is not None
    known = {name: x if math.isfinite(x) else None for name, x in found._asdict().items()}
    return {**known, "ended_by": ended, "target": settings.target}


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
