"""Many simulated workers: predictions checked here, and efficiency up to a thousand workers.

    --check   the simulated engine's prediction beside real runs on 1 and 2 workers, of threads and
              of Ray where it is installed: taking turns, the best epoch of each. Two workers of one
              machine share its memory: how much longer a task takes while another runs is measured
              for each case, by single tasks, and given to the prediction ("contention").
    --curves  seconds, traffic and efficiency of the splits on 1 to 1,000 virtual workers, four to
              a node, at the shapes of Netflix and Yahoo! Music: a table, scaling.csv, scaling.png
              (scaling_curves.py says what of it is measured)

Both, if neither is named; a quarter of an hour. Ratings are synthetic.

    python -m benchmarks scaling --out docs/figures
    python -m benchmarks scaling --curves --shapes netflix --most 64 --latency 1 --bandwidth 1
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
from pathlib import Path
from typing import Any

from bayesmf.data.training import TrainingData
from bayesmf.errors import InputError
from bayesmf.synthetic.plan import SHAPES
from bayesmf.synthetic.synthetic import Synthetic
from benchmarks.cluster import scaling_check, scaling_curves, scaling_figure
from benchmarks.options import Parser, command
from benchmarks.speed.scale_speed import Section, sizes
from benchmarks.speed.timers import training_data
from experiments.machine import describe_machine, machine_text
from experiments.simulated import Network


def make_parser() -> Parser:
    """The options."""
    parser = Parser("scaling", __doc__)
    add = parser.add_argument
    add("--check", action="store_true", help="predictions beside real runs")
    add("--curves", action="store_true", help="up to 1,000 virtual workers")
    add("--shape", choices=SHAPES, default="ml-10m", help="check: whose ratings (ml-10m)")
    add("--scale", type=float, default=0.3, metavar="X", help="check: part of them (0.3)")
    add("--shapes", nargs="+", choices=("yahoo", "netflix"), default=["yahoo", "netflix"],
        help="curves: whose users, items and ratings (both)")  # fmt: skip
    add("--factors", type=int, default=30, metavar="D", help="latent features (30)")
    add("--most", type=int, default=1000, metavar="W", help="curves: most workers (1000)")
    add("--workers-per-node", type=int, default=4, metavar="N", help="curves: on a node (4)")
    add("--calling", type=float, default=0.25, metavar="MS",
        help="curves: driver's time for a call of a worker, as Ray's (0.25)")  # fmt: skip
    add("--latency", type=float, default=0.5, metavar="MS", help="curves: one way (0.5)")
    add("--bandwidth", type=float, default=10.0, metavar="GBIT", help="of a node's link (10)")
    add("--rate", type=float, metavar="R", help="curves: ratings a second, not measured")
    add("--repeats", type=int, default=6, metavar="K", help="check: turns; half with Ray (6)")
    add("--no-ray", action="store_true", help="check: threads alone")
    add("--out", type=Path, metavar="DIR", help="where scaling.csv and scaling.png go")
    add("--json", type=Path, metavar="FILE", help="write all figures")
    return parser


def check_arguments(args: argparse.Namespace) -> None:
    """One sentence about what cannot be."""
    if not (args.check or args.curves):
        args.check = args.curves = True
    if args.repeats < 1 or args.factors < 1:
        raise InputError("--repeats and --factors must be whole numbers from 1 on")
    if args.most < 1 or args.workers_per_node < 1:
        raise InputError("--most and --workers-per-node must be whole numbers from 1 on")
    for path in (args.out, args.json and args.json.resolve().parent):
        if path is not None and not path.is_dir():
            raise InputError(f"there is no folder {path}")


def ratings(args: argparse.Namespace) -> TrainingData:
    """Synthetic ones of a known shape."""
    plan = Synthetic.like(args.shape, args.scale, stars=True)
    return training_data(plan.ratings().compact())


def check_section(args: argparse.Namespace) -> Section:
    """Predicted and measured seconds of an epoch."""
    data, out = ratings(args), Section(
        "Predicted and measured",
        ("case", "engine", "workers", "ms per epoch", "predicted", "ratio", "contention"),
    )  # fmt: skip
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")  # not on Windows
    problem = "not asked for" if args.no_ray else scaling_check.ray_problem()
    rows = scaling_check.check(data, args.factors, args.repeats, ray=problem is None)
    out.data = {"ratings": len(data), "factors": args.factors, "rows": rows}
    for row in rows:
        out.rows.append(
            (
                row["case"], row["engine"], f"{row['workers']}", f"{1e3 * row['measured']:.1f}",
                f"{1e3 * row['predicted']:.1f}", f"{row['ratio']:.2f}", f"{row['contention']:.2f}",
            )
        )  # fmt: skip
    out.notes.append(
        f"{sizes(data)}, D = {args.factors}. Taking turns, the best epoch of all. When this began "
        f"the load of the machine was {load:.1f} on {os.cpu_count()} cores: others slow real runs, "
        "not predictions, which count processor time."
    )
    if problem is not None:
        out.notes.append(f"Ray is left out: {problem}.")
    else:
        of_ray = next(row["network"] for row in rows if row["engine"] == "ray")
        out.notes.append(
            f"Ray's messages here: {1e3 * of_ray['latency']:.2f} ms one way, "
            f"{of_ray['bandwidth'] / 1e9:.2f} GB/s; they keep a worker "
            f"{1e3 * of_ray['overhead']:.2f} ms each and at {of_ray['copying'] / 1e9:.2f} GB/s."
        )
    worst = max(rows, key=lambda row: abs(row["ratio"] - 1))
    within = sum(abs(row["ratio"] - 1) <= scaling_check.WITHIN for row in rows)
    out.notes.append(
        f"{within} of {len(rows)} within {scaling_check.WITHIN:.0%}; the worst ratio is "
        f"{worst['ratio']:.2f}."
    )
    return out


def curves_section(args: argparse.Namespace) -> Section:
    """The splits on virtual workers."""
    out = Section(
        "Splits on virtual workers",
        ("shape", "split", "workers", "chains", "s a round", "s an epoch of all", "efficiency",
         "wanted", "idle", "driver at work", "driver KB a round", "kept MB", "node MB a round",
         "GB of a node"),
    )  # fmt: skip
    network = Network(
        1e-3 * args.latency, args.bandwidth * 1e9 / 8, workers_per_node=args.workers_per_node,
        calling=1e-3 * args.calling,
    )  # fmt: skip
    found = []
    for row in scaling_curves.curves(args.factors, network, args.most, args.rate, args.shapes):
        found.append(row)
        print(f"scaling: {row['shape']} {row['split']} {row['workers']}", file=sys.stderr)
        wanted = "" if row["target"] is None else f"{row['target']:.0%}"
        out.rows.append(
            (
                row["shape"], f"{row['split']} {row['grid']}".strip(), f"{row['workers']}",
                f"{row['chains']}", f"{row['seconds_per_round']:.4g}",
                f"{row['seconds_per_epoch']:.4g}", f"{row['efficiency']:.0%}", wanted,
                f"{max(row['idle'], 0.0):.0%}",
                f"{row['driver_seconds'] / row['seconds_per_epoch']:.0%}",
                f"{row['driver_bytes'] / 1e3:.0f}", f"{row['fetched_bytes'] / 1e6:.2g}",
                f"{row['node_bytes'] / 1e6:.2g}", f"{row['memory'] / 1e9:.2g}",
            )
        )  # fmt: skip
    title = (
        f"D = {args.factors}; {args.workers_per_node} workers a node, {args.latency:g} ms one way, "
        f"{args.bandwidth:g} Gbit/s a node, {args.calling:g} ms of the driver for a call"
    )
    out.notes += [f"{title}."]
    out.data = {"factors": args.factors, "network": title, "rows": found}
    if args.out is not None:
        _write(found, title, args.out)
    return out


def _write(found: list[dict[str, Any]], title: str, folder: Path) -> None:
    with (folder / "scaling.csv").open("w", newline="") as file:
        names = [name for name in found[0] if name != "costs"]
        writer = csv.DictWriter(file, names, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(found)
    try:
        scaling_figure.draw(found, title, folder / "scaling.png")
    except ImportError:
        print("scaling: no figure: matplotlib is not installed", file=sys.stderr)


@command
def main(argv: list[str] | None = None) -> int:
    """0, or 2 for bad input."""
    args = make_parser().parse_args(argv)
    about = describe_machine()
    found: dict[str, Any] = {"machine": about}
    check_arguments(args)
    print(f"# Scaling\n\n{machine_text(about)}.\n", flush=True)
    for name, make in (("check", check_section), ("curves", curves_section)):
        if getattr(args, name):
            section = make(args)
            found[name] = section.data
            print(section.markdown(), flush=True)
    if args.json is not None:
        args.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0
