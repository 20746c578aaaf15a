"""Overhead of Ray on one machine, compared with threads.

The same rounds with the same number of workers on both, taking turns, by default at MovieLens 10M's
shape with 30 factors. Seconds of a round are those from the end of the first epoch on, the best of
several runs; bytes are those of a round of one chain: through the driver, and from node to node
(none on one machine), beside those that would go through the driver if it held the rows.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from bayesmf import SGLD, Gibbs, Synthetic
from bayesmf.chains.rounds.blocks import data_shape
from bayesmf.chains.state import RunSettings
from bayesmf.data.training import TrainingData
from bayesmf.engines.registry import make_engine
from bayesmf.model.priors import GammaPrior, WishartPrior
from bayesmf.run.driver import compile_kernels, run
from benchmarks.options import BenchParser, command
from benchmarks.speed.timers import training_data

# name: (sampler, prior); tau is fixed where rounds are compared with the formula of the paper.
CASES: dict[str, Any] = {
    "DSGLD-S 2x2": SGLD(grid=(2, 2), n_chains=2),
    "DSGLD-S 2x2, 1 chain": SGLD(grid=(2, 2)),
    "DSGLD-C 2x1": SGLD(grid=(2, 1), n_chains=2),
    "default (Gibbs)": Gibbs(joint=4, n_chains=2),
}


def settings(case: str, data: TrainingData, D: int, epochs: int) -> RunSettings:
    """Few epochs, no draws to speak of."""
    sampler = CASES[case]
    prior = WishartPrior(bias=True) if isinstance(sampler, Gibbs) else GammaPrior()
    sampler = type(sampler)(**{**vars(sampler), "epochs": epochs, "burn_in": epochs - 1})
    return RunSettings(sampler.resolve(data_shape(data)), prior, D, 1.0, 0, 2)


def formula(case: str, data: TrainingData, D: int) -> float:
    """Bytes of the rows that a round of one chain reads and writes."""
    sampler, width = CASES[case], 4 * (D + 1)
    L, M = data.n_users, data.n_items
    if isinstance(sampler, Gibbs):  # all rows there, and the whole other side to the node
        wide = 4 * (-(-D // 8) * 8 + 1)
        return (L + M) * (width + wide)
    rows, cols = sampler.grid
    group = min(rows, cols)
    return group * (L / rows + M / cols) * width


def measure(case: str, data: TrainingData, args: argparse.Namespace) -> dict[str, Any]:
    """Threads and Ray in turns."""
    made = settings(case, data, args.factors, args.epochs)
    _, rehearsal = compile_kernels(made, data)
    best: dict[str, float] = {}
    reports: dict[str, Any] = {}
    per_epoch = made.sampler.rounds_per_epoch(data_shape(data))
    for _ in range(args.repeats):
        for name in ("threads", "ray"):
            ends: list[float] = []
            engine = make_engine(name, args.workers)
            report = run(
                data, made, engine, callbacks=(lambda _, e=ends: e.append(time.perf_counter()),),
                rehearsal=rehearsal,
            )  # fmt: skip
            first = ends[made.sampler.n_chains - 1]
            seconds = (ends[-1] - first) / ((args.epochs - 1) * per_epoch)
            best[name] = min(seconds, best.get(name, seconds))
            reports[name] = report.engine
    return {
        "case": case,
        "threads": best["threads"],
        "ray": best["ray"],
        "overhead": best["ray"] / best["threads"] - 1,
        "driver": reports["ray"]["driver_bytes_per_round"],
        "peer": reports["ray"]["peer_bytes_per_round"],
        "formula": formula(case, data, args.factors),
        "idle": reports["ray"]["idle"],
    }


@command
def main(argv: list[str] | None = None) -> None:
    """Measure, and print a table."""
    parser = BenchParser("ray_overhead", __doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="of the shape (1)")
    parser.add_argument("--factors", type=int, default=30)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    data = training_data(Synthetic.like("ml-10m", args.scale, stars=True).ratings().compact())
    found = [measure(case, data, args) for case in args.cases]
    if args.json:
        print(json.dumps(found))
        return
    print(f"{len(data):,} ratings, {args.factors} factors, {args.workers} workers")
    print(f"{'':22}{'threads':>10}{'ray':>10}{'more':>8}{'driver':>10}{'peer':>10}{'rows':>10}")
    for row in found:
        times = f"{1e3 * row['threads']:8.1f}ms{1e3 * row['ray']:8.1f}ms{row['overhead']:8.1%}"
        sizes = "".join(f"{row[k] / 1e6:8.2f}MB" for k in ("driver", "peer", "formula"))
        print(f"{row['case']:22}{times}{sizes}")
