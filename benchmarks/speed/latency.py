"""Milliseconds until one answer: `python -m benchmarks answers --latency [--draws N] [--json]`.

A model with draws at random, as many as a default fit of ML-1M keeps. It is saved and loaded, with
its files in the system's cache; one user is then asked for, over and over, and the median counts.
"""

from __future__ import annotations

import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bayesmf import BayesianMF, Gibbs
from bayesmf.errors import ConvergenceWarning, DataWarning
from bayesmf.ids.id_map import IdMap
from bayesmf.posterior import POLICIES
from bayesmf.posterior.posterior import Posterior

TIMES = 50
LOADS = 5


def make_model(posterior: Posterior) -> BayesianMF:
    """A model around given draws; a fit of a few ratings gives the rest of it."""
    few = (*np.divmod(np.arange(63), 7), np.random.default_rng(0).normal(size=63))
    model = BayesianMF(posterior.n_factors, sampler=Gibbs(epochs=2, burn_in=1), random_state=0)
    model.fit(few)
    users, items = (IdMap(np.arange(n)) for n in (posterior.n_users, posterior.n_items))
    sizes = {"users": len(users), "items": len(items), "ratings": len(posterior.ratings)}
    report = {**model.report_, **sizes, "draws": len(posterior.draws)}
    model._found = model._found._replace(
        posterior=posterior, user_ids=users, item_ids=items, report=report
    )
    return model


def milliseconds(work: Callable[[], Any], times: int) -> float:
    """The median of some calls."""
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        work()
        found.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(found)


def latency(posterior: Posterior) -> dict[str, Any]:
    """Milliseconds to load a model, to its first answer, and to answers by each policy."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        for category in (ConvergenceWarning, DataWarning):  # it is there to answer
            warnings.simplefilter("ignore", category)
        path = Path(folder) / "model"
        make_model(posterior).save(path)
        size = sum(file.stat().st_size for file in path.iterdir())
        BayesianMF.load(path).recommend(0)  # compiled
        found = {
            "load": milliseconds(lambda: BayesianMF.load(path), LOADS),
            "load, first recommendation": milliseconds(
                lambda: BayesianMF.load(path).recommend(0), LOADS
            ),
            "load without verifying, first recommendation": milliseconds(
                lambda: BayesianMF.load(path, verify=False).recommend(0), LOADS
            ),
        }
        model = BayesianMF.load(path)
        for policy in POLICIES:
            model.recommend(0, policy=policy)
            for name, user in (("a user", 1), ("an unseen user", -1)):
                found[f"recommend to {name}, {policy}"] = milliseconds(
                    lambda u=user, p=policy: model.recommend(u, policy=p), TIMES
                )
        found["recommend_many of one user, mean, no interval"] = milliseconds(
            lambda: model.recommend_many([1]), TIMES
        )
        return {"megabytes": size / 1e6, "milliseconds": found}


def report(found: dict[str, Any]) -> None:
    """One table."""
    print(
        f"D = {found['factors']}, {found['draws']} draws, a model of {found['megabytes']:.0f} MB; "
        f"medians of {LOADS} loads and {TIMES} answers, {found['cores']} cores"
    )
    for name, ms in found["milliseconds"].items():
        print(f"{name:<48}{ms:>9.1f} ms")
