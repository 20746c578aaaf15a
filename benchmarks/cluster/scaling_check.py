"""`benchmarks scaling --check`: what the simulated engine predicts beside what real ones take."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np

from bayesmf.chains.chain import start_chain
from bayesmf.chains.rounds.blocks import data_shape
from bayesmf.chains.rounds.kinds import make_rounds
from bayesmf.data.training import TrainingData
from bayesmf.engines.base import Engine
from bayesmf.engines.registry import make_engine
from bayesmf.errors import BayesMFError
from bayesmf.model.refs import Ref
from bayesmf.samplers.auto import Auto
from bayesmf.samplers.base import Sampler
from bayesmf.samplers.sgld import SGLD
from bayesmf.server.start import start_run
from bayesmf.worker.tasks import Held, Task, run_task, with_refs
from benchmarks.speed.timers import Case
from experiments.simulated import SHARED_MEMORY, Network, Simulated

WORKERS = (1, 2)
CASES: dict[str, Sampler | Auto] = {
    "DSGLD-S 2x2, one chain": SGLD(burn_in=0, grid=(2, 2)),
    "DSGLD-C 2x1, two chains": SGLD(burn_in=0, grid=(2, 1), n_chains=2),
    "default, two chains": Auto(burn_in=0, n_chains=2),
}
SPENT = 0.6  # seconds of a lap
PASSES = 6  # of each task, when contention is measured
MESSAGE, MESSAGES = 1_000_000, 20  # bytes, and how many at once, when messages are measured
WITHIN = 0.15


def check(data: TrainingData, n_factors: int, repeats: int, ray: bool) -> list[dict[str, Any]]:
    """Seconds of an epoch, measured and predicted, by case, engine and number of workers."""
    cases = {name: Case(sampler, n_factors) for name, sampler in CASES.items()}
    rows: list[dict[str, Any]] = []
    rows += _beside(data, cases, "threads", SHARED_MEMORY, repeats)
    if ray:
        with ray_here() as network:
            rows += _beside(data, cases, "ray", network, -(-repeats // 2))  # it starts slowly
    return rows


def _beside(
    data: TrainingData, cases: dict[str, Case], name: str, network: Network, repeats: int
) -> list[dict[str, Any]]:
    """Real and simulated runs, taking turns; the best epoch of each counts."""
    rows: list[dict[str, Any]] = []
    laps: list[tuple[dict[str, Any], str, Case, Callable[[], Engine]]] = []
    for label, case in cases.items():
        for k in WORKERS:
            factor = contention(data, case, k)
            row: dict[str, Any] = {
                "case": label, "engine": name, "workers": k, "contention": factor,
                "network": asdict(network),
                "measured": np.inf, "predicted": np.inf,
            }  # fmt: skip
            rows.append(row)
            real = partial(make_engine, name, k)
            virtual = partial(Simulated, k, network, contention=factor)
            laps += [(row, "measured", case, real), (row, "predicted", case, virtual)]
    for _ in range(repeats):
        for row, what, case, make in laps:
            row[what] = min(row[what], *epochs(data, case, make()))
    for row in rows:
        row["ratio"] = row["predicted"] / row["measured"]
    return rows


def epochs(data: TrainingData, case: Case, engine: Engine) -> list[float]:
    """Seconds of each epoch of all chains, but for the first: by the engine's own clock.

    Single epochs, because the shorter it is the likelier it is undisturbed.
    """
    ends: dict[int, float] = {}
    reads = case.n_chains * len(data)
    n = int(np.clip(SPENT * 2e7 / reads, 3, 40))

    def note(event: Any) -> None:
        ends[event.epoch] = event.seconds  # the last chain's stays

    start_run(data, replace(case.settings(n + 1), engine=engine), callbacks=(note,))
    return list(np.diff([ends[epoch] for epoch in sorted(ends)]))


# -- what a prediction is given --------------------------------------------------------------------


def contention(data: TrainingData, case: Case, k: int) -> float:
    """How many times longer a task takes while k of them run at once than alone.

    In processor time, so that only what they do to each other counts: they share the memory and
    its last cache. Single tasks are measured, never a run.
    """
    if k == 1:
        return 1.0
    settings = case.settings(1).resolve(data)
    rounds = make_rounds(data, settings.sampler, settings.seed)
    state = start_chain(0, settings, data_shape(data))
    tasks = list(_tasks_of(rounds, state))
    best = {1: np.inf, k: np.inf}
    for _ in range(PASSES):
        for at_once in best:
            best[at_once] = min(best[at_once], _side_by_side(rounds.held, tasks, at_once))
    return max(1.0, best[k] / best[1])


def _tasks_of(rounds: Any, state: Any) -> Iterator[Task]:
    """The tasks of two rounds, which are done on the way."""
    for t in range(2):
        phases, results = rounds.round(state, t), None
        while True:
            try:
                tasks = next(phases) if results is None else phases.send(results)
            except StopIteration:
                break
            yield from tasks
            done = (run_task(rounds.held[task.partition], task) for task in tasks)
            results = [with_refs(result, lambda how, name, array: Ref(array)) for result in done]


def _side_by_side(held: Sequence[Held], tasks: list[Task], at_once: int) -> float:
    """Seconds that all tasks take each of so many threads, which begin at different ones."""
    taken = [0.0] * at_once

    def work(number: int) -> None:
        gate.wait()
        first = number * len(tasks) // at_once
        begin = time.thread_time()
        for task in [*tasks[first:], *tasks[:first]] * 2:
            run_task(held[task.partition], task)
        taken[number] = time.thread_time() - begin

    gate = threading.Barrier(at_once)
    threads = [threading.Thread(target=work, args=(number,)) for number in range(at_once)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(taken) / at_once


@contextmanager
def ray_here() -> Iterator[Network]:
    """Ray on this machine for as long as this lasts, and how fast its messages are."""
    import ray

    ray.init(
        "local",  # not one that someone else has started here
        num_cpus=max(WORKERS), include_dashboard=False, logging_level=40, log_to_driver=False,
    )  # fmt: skip
    try:
        yield ray_network(ray)
    finally:
        ray.shutdown()


def ray_network(ray: Any) -> Network:
    """By an actor that copies what it gets, as a worker does before it changes rows.

    Of messages that wait for one another each takes what keeps the actor busy; of one alone the
    rest is time under way.
    """
    echo = ray.remote(num_cpus=0)(_Echo).remote()
    alone, busy = {}, {}
    for size in (0, MESSAGE):
        rows = np.zeros(size, np.uint8)
        alone[size], busy[size] = (_seconds(ray, echo, rows, n) for n in (1, MESSAGES))
    ray.kill(echo)
    by_byte = max(busy[MESSAGE] - busy[0], 1e-9) / (2 * MESSAGE)
    under_way = max(alone[MESSAGE] - alone[0] - (busy[MESSAGE] - busy[0]), 1e-9) / (2 * MESSAGE)
    latency = max(alone[0] - busy[0], 0.0) / 2
    # All on one node: rows lie in its store, and go nowhere.
    return Network(latency, 1 / under_way, busy[0], 1 / by_byte, workers_per_node=1 << 30)


class _Echo:
    def back(self, rows: np.ndarray) -> np.ndarray:
        return rows.copy()


def _seconds(ray: Any, echo: Any, rows: np.ndarray, n: int) -> float:
    """Seconds of one of n messages that are sent at once, at best."""
    best = np.inf
    for _ in range(20):
        begin = time.perf_counter()
        for reference in [echo.back.remote(rows) for _ in range(n)]:
            ray.get(reference)
        best = min(best, (time.perf_counter() - begin) / n)
    return best


def ray_problem() -> str | None:
    """Why there is no Ray to compare with; None where there is."""
    try:
        make_engine("ray", 1)
    except BayesMFError as error:
        return str(error)
    return None
