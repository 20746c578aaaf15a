"""Trials of each experiment, and their execution in parallel processes."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from bayesmf.process import Line, clock_text
from experiments.paper.datasets import Dataset, DataSource, load_dataset
from experiments.paper.presets import ALGORITHMS, BURN_IN, EPOCHS, Tuned, make_plan
from experiments.paper.trials import Links, TrialSpec, perform, stored

DIMENSIONS = (30, 60, 100)
CHAINS, SQUARES = (1, 3, 6, 9), (1, 4, 16, 36)
COST_EPOCHS = 3.0
EXPERIMENTS = ("convergence", "chains", "dimension", "cost")
Record = dict[str, Any]
# Of a pass at 30 factors, for `expected`; and what it takes to compile an algorithm for a width.
RATING_SECONDS, ROUND_SECONDS, START_SECONDS, COMPILE_SECONDS = 6e-8, 0.02, 5.0, 5.0


@dataclass(frozen=True)
class ExperimentSettings:
    """Options of the command."""

    source: DataSource
    out: Path
    settings: str = "tuned"
    budget: float = 60.0
    epochs: float = EPOCHS
    workers: int = 9
    links: Links = field(default_factory=Links)
    seed: int = 0
    jobs: int = 1
    tuned: Tuned = field(default_factory=dict)
    dimensions: Sequence[int] = DIMENSIONS

    @property
    def runs(self) -> Path:
        return self.out / "runs"


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
    until = BURN_IN.get(settings.source.kind) if epochs is None else None
    epochs = epochs or settings.epochs
    plan = make_plan(
        algorithm,
        workers or settings.workers,
        n_factors or settings.dimensions[0],
        settings.settings,
        model=settings.source.model,
        n_ratings=len(dataset),
        share=dataset.share,
        epochs=epochs,
        burn_in=None if until is None else f"rmse:{until}",
        tuned=settings.tuned,
    )
    short = epochs if algorithm == "bayesmf" and epochs < settings.epochs else None
    return TrialSpec(
        dataset.digest, plan, settings.links, settings.budget, settings.seed, epochs=short
    )


def specs_of(experiment: str, settings: ExperimentSettings, dataset: Dataset) -> list[TrialSpec]:
    """The trials of an experiment; those that two experiments share are the same."""
    if experiment == "convergence":
        return [spec(settings, dataset, name) for name in ALGORITHMS]
    if experiment == "chains":
        by_columns = [spec(settings, dataset, "DSGLD-C", workers=s) for s in CHAINS]
        return by_columns + [spec(settings, dataset, "DSGLD-S", workers=s) for s in SQUARES]
    if experiment == "dimension":
        return [
            spec(settings, dataset, name, d) for d in settings.dimensions for name in ALGORITHMS
        ]
    names = ("SGLD", "DSGLD-S", "Gibbs", "coordinate Gibbs", "bayesmf")
    return [
        spec(settings, dataset, name, d, epochs=COST_EPOCHS)
        for d in settings.dimensions
        for name in names
    ]


def perform_all(
    specs: Iterable[TrialSpec], settings: ExperimentSettings, dataset: Dataset, name: str = "runs"
) -> dict[str, Record]:
    """Records of all trials by their keys, stored before or made now."""
    wanted = {one.key: one for one in specs}
    found = {key: stored(one, settings.runs) for key, one in wanted.items()}
    out = {key: record for key, record in found.items() if record is not None}
    missing = [one for key, one in wanted.items() if key not in out]
    # The longest first: the last one to end is then a short one.
    missing.sort(key=lambda one: -_effort(one))
    total = sum(map(_effort, missing))
    done, begin = 0.0, time.monotonic()
    with Line() as line:
        line.say(f"{name}: the first of {len(missing)}")
        for number, (one, record) in enumerate(_made(missing, settings, dataset), 1):
            out[one.key] = record
            done += _effort(one)
            left = (time.monotonic() - begin) * (total / done - 1)
            pieces = (
                f"{number} of {len(missing)}",
                f"{clock_text(left)} left",
                f"last: {_title_of(one)}",
            )
            line.measure(name, done, total, pieces)
    return out


def _title_of(one: TrialSpec) -> str:
    return f"{one.plan.algorithm}, D = {one.plan.n_factors}"


class Estimate(NamedTuple):
    """Number of trials, estimated seconds, and seconds of compiling."""

    runs: int
    seconds: float
    compiling: float


def expected(
    specs: Iterable[TrialSpec], settings: ExperimentSettings, dataset: Dataset
) -> Estimate:
    """Estimate the number of missing trials and their time on this machine.

    Measured nanoseconds of a rating (docs/performance.md), what a round costs beside it, and what
    a process takes to start. Compiling, which happens once, is separate.
    """
    wanted = {one.key: one for one in specs}
    missing = [one for one in wanted.values() if stored(one, settings.runs) is None]
    jobs = max(1, min(settings.jobs, len(missing)))
    longest = settings.budget * max((one.plan.workers for one in missing), default=1)
    seconds = [
        min(longest, _effort(one) * (ROUND_SECONDS + RATING_SECONDS * len(dataset)))
        for one in missing
    ]
    total = START_SECONDS * (jobs > 1) + max([sum(seconds) / jobs, *seconds], default=0)
    kinds = {(one.plan.algorithm, one.plan.n_factors) for one in missing}
    return Estimate(len(missing), total, COMPILE_SECONDS * len(kinds) / jobs)


def _effort(one: TrialSpec) -> float:
    """About how long a trial is, in passes of 30 factors: chains, passes and factors."""
    sampler = one.plan.sampler or {"n_chains": 2, "epochs": 60}
    return float(
        sampler.get("n_chains", 1) * (one.epochs or sampler["epochs"]) * one.plan.n_factors / 30
    )


def _made(
    missing: Sequence[TrialSpec], settings: ExperimentSettings, dataset: Dataset
) -> Iterable[tuple[TrialSpec, Record]]:
    if settings.jobs == 1 or len(missing) < 2:
        for one in missing:
            yield one, perform(one, dataset, settings.runs)
        return
    # Processes, so that one trial's server does not wait for another's interpreter.
    context = multiprocessing.get_context("spawn")
    others = {child.pid for child in multiprocessing.active_children()}
    with ProcessPoolExecutor(min(settings.jobs, len(missing)), mp_context=context) as pool:
        under_way = {pool.submit(_perform, one, settings): one for one in missing}
        try:
            for future in as_completed(under_way):
                yield under_way[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for (
                child
            ) in multiprocessing.active_children():  # what they did is stored, or made again
                if child.pid not in others:
                    child.terminate()
            raise


_DATASETS: dict[str, Dataset] = {}


def _perform(one: TrialSpec, settings: ExperimentSettings) -> Record:
    if one.study not in _DATASETS:
        _DATASETS[one.study] = load_dataset(settings.source, settings.out / "data")
    return perform(one, _DATASETS[one.study], settings.runs)
