"""A trial of an experiment: an algorithm run on a dataset with a limit of time, and its record.

A trial is stored under a hash of all that its result depends on: drawing a figure again needs no
new trial, and an interrupted experiment resumes.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bayesmf import __version__
from bayesmf.chains.callbacks import History
from bayesmf.engines.base import Engine
from bayesmf.engines.ray.cluster import Cluster
from bayesmf.engines.registry import make_engine
from bayesmf.errors import DivergenceError, InputError
from bayesmf.reading.files import open_regular
from bayesmf.run.driver import start_run
from bayesmf.run.prepare import prepare, prepare_validation
from bayesmf.run.settings import FitSettings
from bayesmf.samplers.gibbs import Auto
from bayesmf.samplers.registry import sampler_from
from bayesmf.samplers.schedules import UntilRMSE, burn_in_rule
from bayesmf.storage.atomic import replacing
from experiments.paper.datasets import Dataset
from experiments.paper.presets import TrialPlan
from experiments.simulated import SHARED_MEMORY, Network, Simulated

FORMAT = 3  # of a stored trial; one of another format is made again
COLUMNS = ("chain", "epoch", "seconds", "burning", "rmse", "rmse_all_chains", "train_rmse")


@dataclass(frozen=True)
class Links:
    """Links between the server and the workers of a simulated cluster, or a real one's address."""

    latency: float = 0.5e-3
    bandwidth: float = 1.25e9
    address: str | None = None

    @property
    def clock(self) -> str:
        """Label of the seconds on an axis."""
        if self.address is not None:
            return "on a Ray cluster"
        gbit = self.bandwidth / 1.25e8
        return f"simulated: measured compute, {1e3 * self.latency:g} ms and {gbit:g} Gbit/s links"


@dataclass(frozen=True)
class TrialSpec:
    """All that the result of a trial depends on, but for the speed of the machine."""

    study: str  # digest of the dataset, under the name that hashes of kept trials have
    plan: TrialPlan
    links: Links
    seconds: float
    seed: int
    validating: bool = False  # errors are those on the validation split
    epochs: float | None = None  # of `auto`, where no more are wanted

    @property
    def key(self) -> str:
        """The name under which it is stored."""
        about = json.dumps([FORMAT, __version__, asdict(self)], sort_keys=True)
        return hashlib.sha256(about.encode()).hexdigest()[:16]


def stored(spec: TrialSpec, folder: Path) -> dict[str, Any] | None:
    """The record of a trial that was made before."""
    try:
        with open_regular(folder / f"{spec.key}.json") as file:
            found: dict[str, Any] = json.loads(file.read())
    except (OSError, ValueError, RecursionError):
        return None
    return found


def perform(spec: TrialSpec, dataset: Dataset, folder: Path) -> dict[str, Any]:
    """Make a trial unless it is stored, and store it."""
    found = stored(spec, folder)
    if found is not None:
        return found
    with _quiet():
        record = {"key": spec.key, **asdict(spec), **_carry_out(spec, dataset)}
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / f"{spec.key}.json") as file:
        file.write(json.dumps(record).encode())
    return record


@contextmanager
def _quiet() -> Iterator[None]:
    """Context without warnings of steps that are rolled back: here steps are tried for that."""
    log = logging.getLogger("bayesmf")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def make_links_engine(spec: TrialSpec) -> Engine:
    """The engine that has the plan's workers."""
    plan, links = spec.plan, spec.links
    if plan.shared_memory:
        return Simulated(plan.workers, SHARED_MEMORY)
    if links.address is not None:
        return make_engine(Cluster(address=links.address, n_workers=plan.workers), None)
    return Simulated(plan.workers, Network(links.latency, links.bandwidth))


def _carry_out(spec: TrialSpec, dataset: Dataset) -> dict[str, Any]:
    plan = spec.plan
    sampler: Any = Auto(epochs=spec.epochs) if plan.sampler is None else sampler_from(plan.sampler)
    wanted = FitSettings(
        n_factors=plan.n_factors,
        sampler=sampler,
        max_seconds=spec.seconds,
        prior=plan.prior,
        tau="sample" if plan.tau is None else plan.tau,
        noise_by="auto" if plan.sampler is None else None,  # the paper has one number
        beta_0=plan.beta_0,
        max_draws=1_000_000,
        random_state=spec.seed,
        engine=make_links_engine(spec),
        last_draw_only=True,
    )
    made = prepare(dataset.train(spec.validating), plan.standardize)
    pairs = prepare_validation(dataset.held_out(spec.validating), made)
    history, begin = History(), time.monotonic()
    try:
        done = start_run(
            made.data, wanted, scale=made.scale, validation=pairs, callbacks=(history,)
        )
    except (DivergenceError, InputError) as error:
        if isinstance(error, InputError) and not _burns_until(sampler):
            raise
        return {"trace": _trace(history), "failed": str(error), "final": None}
    trace = _trace(history)
    return {
        "trace": trace,
        "failed": None,
        "final": final_rmse(trace),
        "clock_seconds": done.seconds,
        "real_seconds": time.monotonic() - begin - done.compile_seconds,
        "compile_seconds": done.compile_seconds,
        "epochs": done.epochs,
        "repairs": done.repairs,
        "n_draws": sum(trace["draws"][-done.settings.sampler.n_chains :]),
        "first_step": history.events[0]["step_size"] if history.events else None,
        "engine": {k: done.engine[k] for k in ("workers", "idle", "bytes_sent", "bytes_received")},
    }


def _burns_until(sampler: Any) -> bool:
    """Whether burn-in ends at an error, which may never be reached."""
    rule = getattr(sampler, "burn_in", None)
    return rule is not None and isinstance(burn_in_rule(rule), UntilRMSE)


def _trace(history: History) -> dict[str, list[Any]]:
    events = sorted(history.events, key=lambda event: event["seconds"])
    return {name: [event[name] for event in events] for name in (*COLUMNS, "draws")}


def shown(trace: dict[str, list[Any]]) -> list[tuple[float, float, bool]]:
    """(seconds, RMSE, burning) as the paper shows them: one chain while it burns, then all."""
    out, over = [], False
    names = ("seconds", "chain", "burning", "rmse", "rmse_all_chains")
    for seconds, chain, burning, rmse, all_chains in zip(*(trace[n] for n in names), strict=True):
        over = over or not burning
        if not over and chain == 0 and rmse is not None:
            out.append((seconds, rmse, True))
        elif over and not burning and all_chains is not None:
            out.append((seconds, all_chains, False))
    return out


def final_rmse(trace: dict[str, list[Any]]) -> float | None:
    """Where the curve ends."""
    curve = shown(trace)
    return curve[-1][1] if curve else None


def best_rmse(trace: dict[str, list[Any]]) -> float | None:
    """The lowest error of an optimiser's curve, as with ideal early stopping."""
    return min((rmse for _, rmse, _ in shown(trace)), default=None)


def time_to(trace: dict[str, list[Any]], rmse: float) -> float | None:
    """Seconds until an error is reached, if it is."""
    return next((seconds for seconds, value, _ in shown(trace) if value <= rmse), None)
