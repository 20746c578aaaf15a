"""Trials of each experiment, and their execution in parallel processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from bayesmf.errors import BayesMFError, InputError
from bayesmf.process import Line, clock_text
from bayesmf.wording import count
from experiments.paper.datasets import Dataset, DataSource, load_dataset
from experiments.paper.presets import (
    ALGORITHMS,
    BETA_0_SGLD,
    BURN_IN,
    EPOCHS,
    FALL,
    SINGLE,
    TIMES,
    make_plan,
)
from experiments.paper.trials import Links, TrialSpec, best_rmse, perform, stored

DIMENSIONS = (30, 60, 100)
CHAINS, SQUARES = (1, 3, 6, 9), (1, 4, 16, 36)
COST_EPOCHS = {"Gibbs": 30.0}  # else 3
EXPERIMENTS = ("convergence", "chains", "dimension", "cost")
Record = dict[str, Any]
START_SECONDS = 0.5  # of a trial, for `seconds_of`


@dataclass(frozen=True)
class ExperimentSettings:
    """Options of the command.

    `burn_in` is the mean RMSE of all chains that ends it, with the printed settings; where it is
    None `with_burn_in` finds it.
    """

    source: DataSource
    out: Path
    budget: float = 60.0
    settings: str = "paper"
    epochs: float = EPOCHS["paper"]
    workers: int = 9
    links: Links = field(default_factory=Links)
    seeds: Sequence[int] = (0,)
    jobs: int = 1
    dimensions: Sequence[int] = DIMENSIONS
    burn_in: float | None = None
    beta_0: float | None = None  # by default the printed 300, in proportion to the items

    @property
    def runs(self) -> Path:
        return self.out / "runs"

    @property
    def seed(self) -> int:
        """The seed of the data and the chains; the first of several."""
        return self.seeds[0]

    def of_seed(self, seed: int) -> tuple[ExperimentSettings, Dataset]:
        """Settings of one seed, and its data, which are made where they are missing."""
        source = replace(self.source, seed=seed)
        dataset = load_dataset(source, self.out / "data")
        links = replace(self.links, share=dataset.share, items=dataset.item_share)
        return replace(self, source=source, seeds=(seed,), links=links), dataset


def spec(
    settings: ExperimentSettings,
    dataset: Dataset,
    algorithm: str,
    n_factors: int | None = None,
    workers: int | None = None,
    epochs: float | None = None,
) -> TrialSpec:
    """One algorithm of an experiment."""
    # What is only timed needs no end of burn-in.
    until = settings.burn_in if epochs is None else None
    first = settings.dimensions[0]
    d, n_workers = n_factors or first, workers or settings.workers
    plan = make_plan(
        algorithm,
        n_workers,
        d,
        model=settings.source.model,
        shape=dataset.shape(),
        share=dataset.share,
        # The precisions of fewer rows have a rate in proportion.
        beta_0=settings.beta_0 or BETA_0_SGLD * dataset.item_share,
        settings=settings.settings,
        epochs=epochs or settings.epochs,
        burn_in=None if until is None else f"mean-rmse:{until:.6g}",
    )
    short = epochs if algorithm == "bayesmf" else None
    compared = (
        algorithm in ALGORITHMS and algorithm != "bayesmf" and epochs is None
        and d == first and n_workers == settings.workers
    )  # fmt: skip
    seconds = settings.budget * TIMES.get(settings.source.model, {}).get(d, 1.0)
    return TrialSpec(
        dataset.digest, plan, settings.links, seconds, settings.seed, epochs=short,
        exact=compared,
    )  # fmt: skip


def specs_of(experiment: str, settings: ExperimentSettings, dataset: Dataset) -> list[TrialSpec]:
    """The trials of an experiment; those that two experiments share are the same."""
    if experiment == "convergence":
        return [spec(settings, dataset, name) for name in ALGORITHMS]
    if experiment == "chains":
        # The workers of other experiments too, whose trials are the same.
        made = [
            spec(settings, dataset, name, workers=s)
            for name, numbers in (("DSGLD-C", CHAINS), ("DSGLD-S", SQUARES))
            for s in sorted({*numbers, settings.workers})
        ]
        return [*made, spec(settings, dataset, SINGLE)]
    if experiment == "dimension":
        return [
            spec(settings, dataset, name, d) for d in settings.dimensions for name in ALGORITHMS
        ]
    names = ("SGLD", "DSGLD-S", "Gibbs", "bayesmf")
    return [
        spec(settings, dataset, name, d, epochs=COST_EPOCHS.get(name, 3.0))
        for d in settings.dimensions
        for name in names
    ]


class Job(NamedTuple):
    """A trial with the settings and data of its seed."""

    spec: TrialSpec
    settings: ExperimentSettings
    dataset: Dataset


def with_burn_in(
    every: Sequence[tuple[ExperimentSettings, Dataset]],
) -> list[tuple[ExperimentSettings, Dataset]]:
    """Settings with the RMSE at which burn-in ends.

    On the paper's own data it is the printed one. On others it follows from the DSGD trial of the
    same seed, which is made here: the RMSE after `FALL` of the fall from the error of the mean
    rating to DSGD's lowest.
    """
    jobs = [
        Job(spec(settings, dataset, "DSGD"), settings, dataset)
        for settings, dataset in every
        if settings.settings == "paper"
        and settings.burn_in is None
        and not (settings.source.of_paper and settings.source.scale == 1)
    ]
    records = perform_all(jobs, "DSGD, which sets the end of burn-in")
    ends = {job.settings.seed: _end(job.dataset, records[job.spec.key]) for job in jobs}
    out = []
    for settings, dataset in every:
        if settings.settings == "paper" and settings.burn_in is None:
            until = ends.get(settings.seed, BURN_IN[settings.source.model])
            settings = replace(settings, burn_in=until)
        out.append((settings, dataset))
    return out


def _end(dataset: Dataset, dsgd: Record) -> float:
    start, best = dataset.mean_rmse(), best_rmse(dsgd["trace"])
    if best is None or not best < start:
        raise InputError(
            "DSGD's error does not fall, so no RMSE for the end of burn-in follows from it: "
            "give --burn-in, or more --epochs or --budget"
        )
    return float(f"{start - FALL * (start - best):.5g}")


def missing(jobs: Iterable[Job]) -> list[Job]:
    """Trials that are not stored: seed by seed, the longest first."""
    return _find(jobs)[1]


def _find(jobs: Iterable[Job]) -> tuple[dict[str, Record], list[Job]]:
    """Stored records by their keys, and missing trials."""
    wanted = {job.spec.key: job for job in jobs}
    found = {key: stored(job.spec, job.settings.runs) for key, job in wanted.items()}
    left = [job for key, job in wanted.items() if found[key] is None]
    order = {seed: k for k, seed in enumerate(dict.fromkeys(job.settings.seed for job in left))}
    left.sort(key=lambda job: (order[job.settings.seed], -_effort(job)))
    return {key: record for key, record in found.items() if record is not None}, left


def perform_all(jobs: Iterable[Job], name: str = "runs") -> dict[str, Record]:
    """Records of all trials by their keys, stored before or made now."""
    out, left = _find(jobs)
    total, known, done, begin = sum(map(_effort, left)), len(out), 0.0, time.monotonic()
    pieces: tuple[str, ...] = ()
    with Line() as line:
        line.say(f"{name}: 0 of {count(len(left), 'trial')}")  # until one ends, where jobs are 1
        for made in _made(left):
            spent = time.monotonic() - begin
            for job, record in made:
                out[job.spec.key] = record
                done += _effort(job)
                pieces = f"{clock_text(spent * (total / done - 1))} left", f"last: {_title_of(job)}"
            ended = f"{len(out) - known} of {len(left)} trials"
            line.measure(name, done, total, (ended, f"after {clock_text(spent)}", *pieces))
    return out


def _title_of(job: Job) -> str:
    plan = job.spec.plan
    return f"{plan.algorithm}, D = {plan.n_factors}, seed {job.settings.seed}"


def seconds_of(left: Sequence[Job]) -> float:
    """About how long these trials take on this machine, without compiling."""
    seconds = [_effort(job) for job in left]
    return max([sum(seconds) / left[0].settings.jobs, *seconds])


def _effort(job: Job) -> float:
    """About how many seconds a trial takes here; no more than its budget on all workers."""
    one, n = job.spec, job.dataset.shape().n_ratings
    plan, w = one.plan, one.plan.n_factors + 1
    sampler = plan.sampler or {"n_chains": 2, "epochs": 60}
    passes = sampler.get("n_chains", 1) * (one.epochs or sampler["epochs"])
    # Nanoseconds of a rating and microseconds of a row: measured, docs/performance.md.
    rating, row = (60 + 2.5 * w, 0.0) if "step_size" in sampler else (60 + 2 * w, 2e-5 * w**3)
    rows = job.dataset.n_users + job.dataset.n_items
    seconds = START_SECONDS + passes * (1e-9 * n * rating + 1e-6 * rows * row)
    return float(min(seconds, one.seconds * plan.workers))


def _made(left: Sequence[Job]) -> Iterator[list[tuple[Job, Record]]]:
    """Trials as they end, and an empty list about once a second."""
    if not left:
        return
    jobs = min(len(left), left[0].settings.jobs)
    if left[0].settings.jobs == 1:
        for job in left:
            yield []
            yield [(job, perform(job.spec, job.dataset, job.settings.runs))]
        return
    # Processes, so that one trial's server does not wait for another's interpreter.
    context = multiprocessing.get_context("spawn")
    others = {child.pid for child in multiprocessing.active_children()}
    with ProcessPoolExecutor(jobs, context, _end_with, (os.getpid(),)) as pool:
        try:
            under_way = {pool.submit(_perform, job.spec, job.settings): job for job in left}
            while under_way:
                ended, _ = wait(under_way, timeout=1.0, return_when=FIRST_COMPLETED)
                yield [(under_way.pop(future), future.result()) for future in ended]
        except BrokenProcessPool:
            raise BayesMFError(
                "a process with a trial was killed, perhaps because memory ran out: run the same "
                "command again, which uses the stored trials; --jobs 1 needs the least memory"
            ) from None
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in multiprocessing.active_children():
                if child.pid not in others:  # what it did is stored, or made again
                    child.terminate()
            raise


def _end_with(parent: int) -> None:
    """Let this process end when its parent has, and leave Ctrl-C to that."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


_DATASETS: dict[str, Dataset] = {}


def _perform(one: TrialSpec, settings: ExperimentSettings) -> Record:
    if one.study not in _DATASETS:
        _DATASETS.clear()  # seeds follow each other
        _DATASETS[one.study] = load_dataset(settings.source, settings.out / "data")
    return perform(one, _DATASETS[one.study], settings.runs)
