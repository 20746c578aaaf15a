"""Time to an error, on a cluster of virtual workers: `python -m benchmarks.to_bound FOLDER -h`.

FOLDER is that of `benchmarks.scale --sections netflix` (or of another shape): packed ratings, test
ratings, and planted numbers, which say what error nobody can be expected to come below. Splits are
fitted with real arithmetic and virtual clocks, as many workers as are asked for, four to a node;
each ends once its error on the test ratings is within so many per cent of the bound.

    default      Gibbs, two chains
    dsgld-s      S x S grid on S^2 workers, some chains

One line for every split: when it was there, in virtual seconds, or what it has reached.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np

from bayesmf import SGLD, Auto, BayesianMF, Event, Network, Ratings, Simulated
from bayesmf.errors import BayesMFError, InputError
from bayesmf.packed.ratings import PackedRatings
from benchmarks.arguments import Parser, words
from benchmarks.scale_large import bound

SPLITS = ("default", "dsgld-s")


def sampler(split: str, args: argparse.Namespace) -> Any:
    """The algorithm of a split; its length is what it is stopped from."""
    if split == "default":
        return Auto(n_chains=2, epochs=args.epochs)
    side = isqrt(args.workers)
    return SGLD(grid=(side, side), n_chains=args.chains or side, epochs=args.epochs)


def follow(split: str, args: argparse.Namespace, goal: float) -> dict[str, Any]:
    """A fit, until its error is low enough."""
    path: list[tuple[int, float, float]] = []
    begin = time.monotonic()

    def note(event: Event) -> bool:
        error = event.rmse_all_chains or event.rmse
        path.append((event.epoch, event.seconds, float("inf") if error is None else error))
        print(f"to_bound: {split} epoch {event.epoch}: {path[-1][2]:.4f}", file=sys.stderr)
        late = args.minutes is not None and time.monotonic() - begin > 60 * args.minutes
        return late or any(error <= goal for _, _, error in path)

    network = Network(
        1e-3 * args.latency, args.bandwidth * 1e9 / 8, workers_per_node=args.workers_per_node
    )
    model = BayesianMF(
        args.factors, sampler=sampler(split, args), random_state=0, callbacks=[note],
        engine=Simulated(args.workers, network), max_draws=args.draws,
    )  # fmt: skip
    model.fit(PackedRatings.open(args.folder / "packed"), validation=args.test)
    there = next((one for one in path if one[2] <= goal), None)
    engine = model.report_["engine"]
    return {
        "split": split, "grid": str(model.report_["sampler"].get("grid", "")),
        "chains": model.report_["sampler"].get("n_chains", 1),
        "seconds": None if there is None else there[1], "epoch": (there or path[-1])[0],
        "rmse": (there or path[-1])[2], "virtual_seconds": path[-1][1], "path": path,
        "efficiency": engine["alone_seconds"] / (args.workers * engine["seconds"]),
        "wall_seconds": time.monotonic() - begin,
    }  # fmt: skip


def _first(ratings: Ratings, n: int) -> Ratings:
    return ratings.take(np.arange(min(n, len(ratings))))


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Options, checked."""
    parser = Parser("to_bound", __doc__)
    add = parser.add_argument
    add("folder", type=Path, metavar="FOLDER")
    add("--splits", default=",".join(SPLITS), help="by commas; all by default")
    add("--workers", type=int, default=64)
    add("--workers-per-node", type=int, default=4, metavar="N")
    add("--within", type=float, default=1.0, metavar="P", help="per cent of the bound (1)")
    add("--bound", type=float, metavar="B", help="the bound, where it is known")
    add("--test-ratings", type=int, default=100_000, metavar="N", help="of those held out (100000)")
    add("--factors", type=int, default=30, metavar="D")
    add("--epochs", type=float, default=40.0, help="of a chain, at the most (40)")
    add("--chains", type=int, metavar="C", help="of dsgld-s (as many as its grid has rows)")
    add("--draws", type=int, default=100, help="kept in a model (100)")
    add("--minutes", type=float, metavar="M", help="of this machine for a split, at the most")
    add("--latency", type=float, default=0.5, metavar="MS", help="one way (0.5)")
    add("--bandwidth", type=float, default=10.0, metavar="GBIT", help="of a node's link (10)")
    add("--json", action="store_true")
    args = parser.parse_args(argv)
    args.splits = words(args.splits)
    for split in args.splits:
        if split not in SPLITS:
            parser.error(f"--splits: {split!r} is none of {', '.join(SPLITS)}")
    if args.workers < 1 or args.within <= 0 or args.test_ratings < 1:
        parser.error("--workers, --within and --test-ratings must be above 0")
    return args


def main(argv: list[str] | None = None) -> int:
    """0, or 2 for bad input."""
    args = parse(argv)
    try:
        for name in ("packed", "test.parquet"):
            if not (args.folder / name).exists():
                raise InputError(f"there is no {name} in {args.folder}: see benchmarks.scale")
        lowest = args.bound or bound(args.folder)["bound"]
        args.test = _first(Ratings.read(args.folder / "test.parquet"), args.test_ratings)
        goal = lowest * (1 + args.within / 100)
        if not args.json:
            print(f"bound {lowest:.4f}, goal {goal:.4f}, {args.workers} virtual workers")
            print(f"{'split':<12}{'grid':>7}{'chains':>7}{'epoch':>7}{'RMSE':>8}{'to goal':>11}"
                  f"{'whole':>10}{'efficiency':>12}", flush=True)  # fmt: skip
        found = []
        for split in args.splits:
            one = follow(split, args, goal)
            found.append(one)
            if not args.json:
                to = "not there" if one["seconds"] is None else f"{one['seconds']:.1f} s"
                print(f"{split:<12}{one['grid']:>7}{one['chains']:>7}{one['epoch']:>7}"
                      f"{one['rmse']:>8.4f}{to:>11}{one['virtual_seconds']:>8.1f} s"
                      f"{one['efficiency']:>12.0%}", flush=True)  # fmt: skip
        if args.json:
            print(json.dumps({"bound": lowest, "goal": goal, "splits": found}))
    except (BayesMFError, OSError) as error:
        print(f"to_bound: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
