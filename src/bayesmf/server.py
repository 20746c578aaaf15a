"""The parameter server, Algorithm 2: it starts the chains and resumes whichever can go on."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from bayesmf.batches import TrainingData
from bayesmf.callbacks import Callback
from bayesmf.chain import Chain, Monitor, Settings, Validation
from bayesmf.draws import Draws, DrawStore
from bayesmf.engines.protocol import Engine, Handle
from bayesmf.errors import InputError
from bayesmf.rounds import data_shape, make_rounds
from bayesmf.worker import Result, Task

ChainRun = Generator[list[Task], Sequence[Result], None]


@dataclass
class RunReport:
    """What a run did."""

    draws: Draws
    seconds: float
    ratings_read: int
    epochs: float


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
    shape = data_shape(data)
    rounds = make_rounds(data, sampler, settings.seed)
    if sampler.burn_in_rule(shape).needs_validation and validation is None:
        raise InputError("burn_in by RMSE needs a validation set: pass validation= (--validation)")
    store = DrawStore(sampler.n_chains, max(1, settings.max_draws // sampler.n_chains))
    monitor = Monitor(validation, callbacks, settings.scale)
    engine.start(rounds.held)
    try:
        chains = [
            Chain(c, shape, settings, rounds, store, monitor).run() for c in range(sampler.n_chains)
        ]
        drive(chains, engine)
    finally:
        engine.close()
    epochs = monitor.ratings_read / len(data) / sampler.n_chains
    return RunReport(store.draws(), time.monotonic() - begin, monitor.ratings_read, epochs)


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
