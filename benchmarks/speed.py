"""Ratings per second of each update rule: `python -m benchmarks.speed [--shape ml-1m] [--json]`.

One thread, synthetic ratings. Rules are timed in turn, several times over, and the best of each
counts: on a shared machine the minimum is what repeats. A Gibbs sweep reads every rating twice
and is counted once.
"""

from __future__ import annotations

import argparse
import json
import platform
import time

import numpy as np

from bayesmf.batches import TrainingData
from bayesmf.chain import Settings
from bayesmf.clocks import SGHMC, ClockRule, RowClock
from bayesmf.engines.local import Serial
from bayesmf.priors import GammaPrior
from bayesmf.rounds import data_shape
from bayesmf.samplers import SGD, SGLD, Gibbs
from bayesmf.server import run
from bayesmf.synthetic import SHAPES, Synthetic

RULES = {
    "SGD": (SGD(), 8),
    "SGLD": (SGLD(burn_in=0), 8),
    "RowClock": (RowClock(burn_in=0), 8),
    "SGHMC": (SGHMC(burn_in=0), 8),
    "Gibbs": (Gibbs(burn_in=0), 2),
}


def make_data(shape: str) -> TrainingData:
    """Synthetic ratings in the units of a chain."""
    made = Synthetic.like(shape).ratings().compact()
    value = ((made.rating - made.rating.mean()) / made.rating.std()).astype(np.float32)
    return TrainingData(made.user, made.item, value, made.n_users, made.n_items)


def seconds_per_epoch(data: TrainingData, name: str, n_factors: int) -> float:
    """One short run, layout and start left out by taking the difference of two lengths."""
    rule, epochs = RULES[name]
    shape = data_shape(data)
    times = []
    for length in (1, 1 + epochs):
        sampler = type(rule)(**{**vars(rule), "epochs": length}).resolve(shape)
        if isinstance(sampler, ClockRule):
            sampler = sampler.of_width(n_factors)
        settings = Settings(sampler, GammaPrior(), n_factors, None, 0, 1)
        begin = time.perf_counter()
        run(data, settings, Serial())
        times.append(time.perf_counter() - begin)
    return (times[1] - times[0]) / epochs


def main() -> None:
    """Print a table, or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=list(SHAPES)[:3], default="ml-1m")
    parser.add_argument("--factors", type=int, nargs="+", default=[10, 30])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    data = make_data(args.shape)
    best: dict[tuple[str, int], float] = {}
    for _ in range(args.repeats):
        for d in args.factors:
            for name in RULES:
                seconds = seconds_per_epoch(data, name, d)
                best[name, d] = min(seconds, best.get((name, d), np.inf))
    rows = [
        {"rule": name, "factors": d, "seconds_per_epoch": s, "ratings_per_second": len(data) / s}
        for (name, d), s in best.items()
    ]
    if args.json:
        print(json.dumps({"shape": args.shape, "machine": platform.processor(), "rows": rows}))
        return
    print(f"{args.shape}: {len(data):,} ratings, one thread, best of {args.repeats}")
    print(f"{'rule':<8}{'D':>5}{'ms per epoch':>15}{'M ratings/s':>14}")
    for row in rows:
        print(
            f"{row['rule']:<8}{row['factors']:>5}{1e3 * row['seconds_per_epoch']:>15.1f}"
            f"{row['ratings_per_second'] / 1e6:>14.1f}"
        )


if __name__ == "__main__":
    main()
