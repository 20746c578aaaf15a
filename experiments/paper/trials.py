"""A trial of an experiment: an algorithm run on a dataset with a limit of time, and its record.

A trial is stored under a hash of all that its result depends on: drawing a figure again needs no
new trial, and an interrupted experiment resumes.
"""

from __future__ import annotations

import hashlib
import json
import logging
import resource
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from bayesmf import __version__
from bayesmf.chains.callbacks import History
from bayesmf.chains.pairs import IntegratedPairs, Validation
from bayesmf.engines.base import Engine
from bayesmf.engines.ray.cluster import Cluster
from bayesmf.engines.registry import make_engine
from bayesmf.errors import DivergenceError, InputError
from bayesmf.reading.files import open_regular
from bayesmf.run.driver import start_run
from bayesmf.run.prepare import Prepared, prepare, prepare_validation
from bayesmf.run.settings import FitSettings
from bayesmf.samplers.gibbs import Auto
from bayesmf.samplers.registry import sampler_from
from bayesmf.samplers.schedules import UntilRMSE, burn_in_rule
from bayesmf.storage.atomic import replacing
from experiments.paper.datasets import Dataset
from experiments.paper.estimates import COLUMNS, Estimates
from experiments.paper.presets import OPTIMISERS, TrialPlan
from experiments.simulated import SHARED_MEMORY, Network, Simulated

CHECK_ROUNDS = 2.0  # between errors in burn-in, and of optimisers
FORMAT = 7  # of a stored trial; one of another format is made again
Trace = dict[str, Any]  # columns by name, and the error at the "start"
ENGINE = ("workers", "idle", "rounds", "bytes_sent", "bytes_received", "node_bytes")


@dataclass(frozen=True)
class Links:
    """Links between the server and the workers of a simulated cluster, or a real one's address.

    `share` is the part of the paper's data, `items` that of its items. A round computes so much
    less than at full size, so the latency and the server's seconds are multiplied by the first.
    Packets of items shrink as these do, which is less: the bandwidth is multiplied by the ratio.
    """

    latency: float = 0.5e-3
    bandwidth: float = 1.25e9
    address: str | None = None
    share: float = 1.0
    items: float = 1.0

    @property
    def network(self) -> Network:
        """The links of this part of the data."""
        faster = max(1.0, self.items / self.share)
        return Network(self.share * self.latency, faster * self.bandwidth)

    @property
    def clock(self) -> str:
        """Label of the seconds on an axis."""
        if self.address is not None:
            return "on a Ray cluster"
        gbit = self.bandwidth / 1.25e8
        text = f"simulated: measured compute, {1e3 * self.latency:g} ms and {gbit:g} Gbit/s links"
        if self.share == 1:
            return text
        faster = max(1.0, self.items / self.share)
        return f"{text}, latency and server x {self.share:.2g}, bandwidth x {faster:.2g}"


@dataclass(frozen=True)
class TrialSpec:
    """All that the result of a trial depends on, but for the speed of the machine."""

    study: str  # digest of the dataset, under the name that hashes of kept trials have
    plan: TrialPlan
    links: Links
    seconds: float
    seed: int
    epochs: float | None = None  # of `auto`, where no more are wanted
    exact: bool = False  # also the estimator with users integrated out

    @property
    def key(self) -> str:
        """The name under which it is stored."""
        about = json.dumps([FORMAT, __version__, asdict(self)], sort_keys=True)
        return hashlib.sha256(about.encode()).hexdigest()[:16]


def stored(spec: TrialSpec, folder: Path) -> dict[str, Any] | None:
    """The record of a trial that was made before; None if there is none, or it is damaged."""
    try:
        with open_regular(folder / f"{spec.key}.json") as file:
            found: Any = json.loads(file.read())
    except (OSError, ValueError, RecursionError, InputError):
        return None
    return found if isinstance(found, dict) and found.get("key") == spec.key else None


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
        return Simulated(plan.workers, SHARED_MEMORY, server=links.share)
    if links.address is not None:
        return make_engine(Cluster(address=links.address, n_workers=plan.workers), None)
    return Simulated(plan.workers, links.network, server=links.share)


def _carry_out(spec: TrialSpec, dataset: Dataset) -> dict[str, Any]:
    plan, engine = spec.plan, make_links_engine(spec)
    own = plan.sampler is None  # the library's own way, with its own estimator
    sampler: Any = Auto(epochs=spec.epochs) if own else sampler_from(plan.sampler or {})
    made = prepare(dataset.train(), plan.standardize)
    known = prepare_validation(dataset.test(), made)
    watched = _estimates(spec, made, known, sampler, engine)
    history, begin, used = History(), time.monotonic(), time.process_time()
    failed = done = None
    try:
        done = start_run(
            made.data,
            _fit_settings(spec, sampler, engine),
            scale=made.scale,
            validation=known if own else replace(known, pairs=watched),
            callbacks=(history if own else watched,),
        )
    except (DivergenceError, InputError) as error:
        if isinstance(error, InputError) and not _burns_until(sampler):
            raise
        failed = str(error)
    columns = own_trace(history) if own else watched.trace()
    trace: Trace = {**columns, "start": dataset.mean_rmse()}
    if done and _burns_until(sampler) and all(trace["burning"]):
        errors = [rmse for rmse in trace["rmse"] if rmse is not None]
        lowest = f"the lowest RMSE of a chain was {min(errors):.4f}" if errors else "no error yet"
        failed = f"burn-in never ended: {lowest} in {done.seconds:.3g} s"
    data = made.data
    record = {
        "sizes": {"users": data.n_users, "items": data.n_items, "ratings": len(data)},
        "trace": trace,
        "failed": failed,
        **dict.fromkeys(("final", "final_exact", "final_same")),
        "burn_in": burn_in_of(sampler, trace),
    }
    if failed or done is None:
        return record
    if not own:
        record |= {
            "final_exact": watched.rmse(watched.exact), "final_same": watched.rmse(watched.same)
        }  # fmt: skip
    return record | {
        "final": final_rmse(trace) if own else watched.rmse(watched.printed),
        "exact_draws": watched.exact.count,
        "clock_seconds": done.seconds,
        "real_seconds": time.monotonic() - begin - done.compile_seconds,
        "compile_seconds": done.compile_seconds,
        "cpu_seconds": time.process_time() - used,
        "epochs": done.epochs,
        "repairs": done.repairs,
        "n_draws": trace["draws_all"][-1] if trace["draws_all"] else 0,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "engine": {name: done.engine.get(name) for name in ENGINE},
    }


def _estimates(
    spec: TrialSpec, made: Prepared, known: Validation, sampler: Any, engine: Engine
) -> Estimates:
    at = known.pairs
    return Estimates.of(
        known,
        IntegratedPairs(at.user, at.item, at.rated, made.data, "items") if spec.exact else None,
        chains=getattr(sampler, "n_chains", 1),
        scale=made.scale,
        workers=spec.plan.workers,
        engine=engine,
        algorithm=spec.plan.algorithm,
    )


def _fit_settings(spec: TrialSpec, sampler: Any, engine: Engine) -> FitSettings:
    plan, own = spec.plan, spec.plan.sampler is None
    return FitSettings(
        n_factors=plan.n_factors,
        sampler=sampler,
        max_seconds=spec.seconds,
        prior=plan.prior,
        tau="sample" if plan.tau is None else plan.tau,
        noise_by="auto" if own else None,  # the paper has one number
        beta_0=plan.beta_0,
        keep="auto" if own else "both",
        max_draws=1_000_000,
        random_state=spec.seed,
        engine=engine,
        errors_every=1.0 if own or plan.algorithm == "Gibbs" else CHECK_ROUNDS,
    )


def burn_in_of(sampler: Any, trace: Trace) -> dict[str, Any]:
    """The rule of burn-in, the seconds of the last state of it, and what ended it."""
    rule = getattr(sampler, "burn_in", None)
    times = zip(trace["seconds"], trace["burning"], strict=True)
    ended = max((seconds for seconds, burning in times if burning), default=None)
    if rule is None or ended is None or all(trace["burning"]):
        return {"rule": "none" if rule is None else str(rule), "ended": None, "by": "never"}
    return {"rule": str(rule), "ended": ended, "by": "rmse" if _burns_until(sampler) else "epochs"}


def _burns_until(sampler: Any) -> bool:
    """Whether burn-in ends at an error, which may never be reached."""
    rule = getattr(sampler, "burn_in", None)
    return rule is not None and isinstance(burn_in_rule(rule), UntilRMSE)


def own_trace(history: History) -> Trace:
    """The columns of a record of the library's own way, whose estimator is the exact one."""
    events = sorted(history.events, key=lambda event: float(event["seconds"]))
    draws: dict[int, int] = {}
    rows = []
    for event in events:
        draws[event["chain"]] = event["draws"]
        average = None if event["burning"] else event["rmse_all_chains"]
        rows.append(
            {**dict.fromkeys(COLUMNS), **event, "draws_all": sum(draws.values()),
             "rmse_all": average, "printed_seconds": 0.0, "exact_seconds": 0.0}
        )  # fmt: skip
    return {name: [row[name] for row in rows] for name in COLUMNS}


Curve = list[tuple[float, float, bool]]


def shown(trace: Trace, estimator: str = "printed") -> Curve:
    """(seconds, RMSE, burning) as the paper shows them: one chain while it burns, then all.

    Seconds include those that the estimator took, "printed" or "exact".
    """
    out, over = [], False
    average = trace["exact_all" if estimator == "exact" else "rmse_all"]
    spent = trace[f"{estimator}_seconds"]
    names = ("seconds", "chain", "burning", "rmse")
    for k, (seconds, chain, burning, rmse) in enumerate(
        zip(*(trace[n] for n in names), strict=True)
    ):
        over = over or not burning
        if not over and chain == 0 and rmse is not None:
            out.append((seconds, rmse, True))
        elif over and not burning and average[k] is not None:
            out.append((seconds + spent[k], average[k], False))
    return out


def burn_in_end(trace: Trace) -> tuple[float, float] | None:
    """Seconds and RMSE of the last state before averages are shown, if there are both."""
    for before, after in pairwise(shown(trace)):
        if before[2] and not after[2]:
            return before[:2]
    return None


def by_draws(trace: Trace, thinned: bool = False) -> list[tuple[int, float]]:
    """(draws of all chains, RMSE of their average as printed), or those of the thinned chains."""
    names = ("thinned", "thinned_all") if thinned else ("draws_all", "rmse_all")
    pairs = zip(*(trace[name] for name in names), strict=True)
    return [(draws, rmse) for draws, rmse in pairs if draws and rmse is not None]


def final_rmse(trace: Trace) -> float | None:
    """Where the curve ends."""
    curve = shown(trace)
    return curve[-1][1] if curve else None


def until(record: Mapping[str, Any], share: float) -> Mapping[str, Any]:
    """The record of a trial with this share of its budget of time."""
    if share >= 1:
        return record
    limit, trace = share * record["seconds"], record["trace"]
    rows = [k for k, seconds in enumerate(trace["seconds"]) if seconds <= limit]
    cut = {"start": trace["start"], **{name: [trace[name][k] for k in rows] for name in COLUMNS}}
    final = None if all(cut["burning"]) else final_rmse(cut)
    failed = record["failed"] or ("no draw by then" if final is None else None)
    return {**record, "trace": cut, "final": final, "final_exact": None, "failed": failed}


def best_rmse(trace: Trace) -> float | None:
    """The lowest error of an optimiser's curve, as with ideal early stopping."""
    return min((rmse for _, rmse, _ in shown(trace)), default=None)


def reached(record: Mapping[str, Any]) -> float | None:
    """The error that a trial stands for: the final one, of an optimiser the lowest."""
    if record["final"] is None or record["plan"]["algorithm"] not in OPTIMISERS:
        final: float | None = record["final"]
        return final
    return best_rmse(record["trace"])


CONVERGED = 1.001  # times its lowest error: the rest of the way takes most of the time


def converged(trace: Trace) -> bool:
    """Whether an optimiser is near its lowest error before half of its time is over."""
    seconds = time_to(trace, CONVERGED * (best_rmse(trace) or 0.0))
    return seconds is not None and 2 * seconds <= shown(trace)[-1][0]


def time_to(trace: Trace, rmse: float) -> float | None:
    """Seconds until an error is reached, if it is, on the line between the points around it.

    The line begins at time zero with the error of the mean rating, as of rows that are zero.
    """
    points = [(0.0, trace["start"], True), *shown(trace)]
    for (t0, before, _), (t1, after, _) in pairwise(points):
        if after <= rmse:
            return float(np.interp(-rmse, (-before, -after), (t0, t1)))
    return None
