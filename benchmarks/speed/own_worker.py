"""Runs one of our samplers: `python -m benchmarks own_worker` reads a job from stdin.

Two fits with one seed, which are the same bit for bit. The first is timed and sees no test set;
the second follows the test set and says how good the first was after each epoch. So looking at the
test set costs us nothing, as it costs the others nothing. Compiling is reported by itself.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from typing import Any

import numpy as np

from bayesmf import SGLD, Auto, BayesianMF, Event, Gibbs, Ratings
from bayesmf.samplers.momentum import SGHMC
from benchmarks.speed.peers import SWEEPS, Clock

# What is raced: arguments of BayesianMF by name. Another sampler is another line.
# "gibbs" is "auto" with one chain. As the point is its curve, it continues beyond its usual end,
# for as many sweeps as the peers' samplers: the same draws, and at every epoch the average that a
# user would get by stopping there.
OURS: dict[str, dict[str, Any]] = {
    "auto": {"sampler": Auto()},
    "auto fast": {"sampler": Auto(), "target": "fast"},
    "gibbs": {"sampler": Gibbs(), "target": "accurate"},
    "sghmc": {"sampler": SGHMC()},
    "sgld": {"sampler": SGLD()},
}
LONGEST = {"gibbs": SWEEPS}

Place = tuple[int, int]  # chain, epoch


def model_of(asked: dict[str, Any]) -> BayesianMF:
    """The estimator that was asked for, on as many threads."""
    options = dict(OURS[asked["system"]])
    if asked["quick"]:
        options["sampler"] = replace(options["sampler"], epochs=8, burn_in=2)
        options.pop("target", None)  # which is for runs whose length is not said
    # One thread means the caller's: then epochs of several chains end in the same order again.
    threads = asked["threads"]
    engine = {"engine": "serial"} if threads == 1 else {"n_workers": threads}
    return BayesianMF(asked["factors"], random_state=asked["seed"], **engine, **options)


def timed_fit(
    asked: dict[str, Any], train: Ratings
) -> tuple[dict[Place, dict[str, float]], dict[str, Any]]:
    """When each epoch of each chain ended, compiling left out; and the totals."""
    model, clock = model_of(asked), Clock()
    longest = LONGEST.get(asked["system"], math.inf)
    times: dict[Place, dict[str, float]] = {}

    def follow(event: Event) -> bool:
        times[event.chain, event.epoch] = clock.stop()
        clock.go_on()
        # What is compiled is not known before the end; a limit may as well be a little long.
        return event.epoch >= longest or clock.seconds >= float(asked["max_seconds"])

    model.callbacks = [follow]
    model.fit(train)
    total = clock.stop()["seconds"]
    compiling = float(model.report_["compile_seconds"])
    for time in times.values():
        time["seconds"] -= compiling
        time["cpu_seconds"] -= min(compiling, time["cpu_seconds"])
    rule = model.report_["sampler"]["rule"]
    return times, {"total_seconds": total - compiling, "compile_seconds": compiling, "rule": rule}


def followed_fit(
    asked: dict[str, Any], train: Ratings, test: Ratings, times: dict[Place, dict[str, float]]
) -> BayesianMF:
    """Fit once more, printing a checkpoint for each epoch, and end where the first did."""
    last = {chain: max(e for c, e in times if c == chain) for chain, _ in times}

    def follow(event: Event) -> bool:
        line = {"settings": "default", "step": event.epoch, **times[event.chain, event.epoch]}
        print(json.dumps({**line, "rmse": event.rmse_all_chains}), flush=True)
        return event.epoch >= last[event.chain]

    model = model_of(asked)
    model.callbacks = [follow]
    return model.fit(train, validation=test)


def main() -> None:
    """Print a JSON line for each epoch, and one with the totals."""
    asked: dict[str, Any] = json.load(sys.stdin)
    columns = ("user", "item", "rating")
    with np.load(asked["data"]) as file:
        train, test = (Ratings(*(file[f"{p}_{c}"] for c in columns)) for p in ("train", "test"))
        pairs, known = (file["test_user"], file["test_item"]), file["test_rating"]
    times, totals = timed_fit(asked, train)
    model = followed_fit(asked, train, test, times)
    # What a user gets at the end: compared with the errors of the second fit.
    errors = model.predict(*pairs) - known
    rmse = float(np.sqrt(np.mean(errors**2, dtype=np.float64)))
    print(json.dumps({**totals, "predict_rmse": rmse}), flush=True)


if __name__ == "__main__":
    main()
