"""Many workers on a machine of few cores: `python -m benchmarks.scaling -h`.

    --check   the simulated engine's prediction beside real runs on 1 and 2 workers, of threads and
              of Ray where it is installed: taking turns, the best epoch of each. Two workers of one
              machine share its memory: how much longer a task takes while another runs is measured
              for each case, by single tasks, and given to the prediction ("contention").
    --curves  time, traffic and idle workers of the paper's splits on 1 to 100 virtual workers, each
              with a core and a memory of its own: a table, scaling.csv and scaling.png

Both, if neither is named; some minutes. Ratings are synthetic.

    python -m benchmarks.scaling --out docs/figures
    python -m benchmarks.scaling --curves --shape netflix --scale 0.2 --latency 1 --bandwidth 1
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
from math import isqrt
from pathlib import Path
from typing import Any

from bayesmf.bench import training_data
from bayesmf.data.training import TrainingData
from bayesmf.engines.simulated import Network
from bayesmf.errors import BayesMFError, InputError
from bayesmf.machine import describe_machine, machine_text
from bayesmf.synthetic.plan import SHAPES
from bayesmf.synthetic.synthetic import Synthetic
from benchmarks import scaling_check, scaling_curves, scaling_figure
from benchmarks.arguments import Parser
from benchmarks.scale_speed import Section, sizes


def make_parser() -> Parser:
    """The options."""
    parser = Parser("scaling", __doc__)
    add = parser.add_argument
    add("--check", action="store_true", help="predictions beside real runs")
    add("--curves", action="store_true", help="up to 100 virtual workers")
    add("--shape", choices=SHAPES, default="ml-10m", help="whose users, items and ratings (ml-10m)")
    add("--scale", type=float, default=0.3, metavar="X", help="part of the ratings (0.3)")
    add("--factors", type=int, default=30, metavar="D", help="latent features (30)")
    add("--workers", type=int, nargs="+", default=list(scaling_curves.WORKERS), metavar="S",
        help="curves: squares of whole numbers (1 4 16 36 100)")  # fmt: skip
    add("--latency", type=float, default=0.5, metavar="MS", help="curves: one way (0.5)")
    add("--bandwidth", type=float, default=10.0, metavar="GBIT", help="of the server's link (10)")
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
    if any(s < 1 or isqrt(s) ** 2 != s for s in args.workers):
        raise InputError("--workers must be squares of whole numbers, such as 1 4 9")
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
    """The paper's splits on virtual workers."""
    data, out = ratings(args), Section(
        "Splits on virtual workers",
        ("split", "grid", "workers", "chains", "passes a round", "ms per round",
         "ms per epoch of a chain", "epochs/s of all chains", "MB per round", "idle",
         "link in use", "server at work"),
    )  # fmt: skip
    network = Network(1e-3 * args.latency, args.bandwidth * 1e9 / 8)
    found = list(
        scaling_curves.curves(data, args.factors, network, tuple(sorted(args.workers)), args.rate)
    )
    for row in found:
        out.rows.append(
            (
                row["split"], row["grid"], f"{row['workers']}", f"{row['chains']}",
                f"{row['passes']}", f"{1e3 * row['seconds_per_round']:.1f}",
                f"{1e3 * row['seconds_per_epoch']:.1f}",
                f"{row['epochs_per_second']:.1f}", f"{row['bytes_per_round'] / 1e6:.1f}",
                f"{row['idle']:.0%}", f"{row['link_busy']:.0%}", f"{row['server_busy']:.0%}",
            )
        )  # fmt: skip
    title = (
        f"{sizes(data)}, D = {args.factors}; {args.latency:g} ms one way, "
        f"{args.bandwidth:g} Gbit/s of the server"
    )
    out.notes += [f"{title}.", "MB are sent in a round of all chains; as many come back."]
    out.data = {"ratings": len(data), "factors": args.factors, "rows": found}
    if args.out is not None:
        _write(found, title, args.out)
    return out


def _write(found: list[dict[str, Any]], title: str, folder: Path) -> None:
    with (folder / "scaling.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(found[0]))
        writer.writeheader()
        writer.writerows(found)
    try:
        scaling_figure.draw(found, title, folder / "scaling.png")
    except ImportError:
        print("scaling: no figure: matplotlib is not installed", file=sys.stderr)


def main(argv: list[str] | None = None) -> int:
    """0, or 2 for bad input."""
    args = make_parser().parse_args(argv)
    about = describe_machine()
    found: dict[str, Any] = {"machine": about}
    try:
        check_arguments(args)
        print(f"# Scaling\n\n{machine_text(about)}.\n", flush=True)
        for name, make in (("check", check_section), ("curves", curves_section)):
            if getattr(args, name):
                section = make(args)
                found[name] = section.data
                print(section.markdown(), flush=True)
        if args.json is not None:
            args.json.write_text(json.dumps(found, indent=1) + "\n")
    except (BayesMFError, OSError) as error:
        print(f"scaling: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
