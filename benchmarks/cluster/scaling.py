"""Efficiency of up to a thousand simulated workers, at the shapes of Netflix and Yahoo! Music.

    default    Gibbs, four chains, on stripes that stay with their workers
    DSGLD-S    S x S grid, S chains, on S^2 workers
    DSGLD-C    S x 1 grid, S chains, on S workers

What tasks cost is measured on this machine, by real tasks on ratings of such rows: exact draws with
a table of the other side of its true size, blocks of the true size up to a limit. The rest is a
sketch of the run (experiments/plan/sketch.py): its driver is real, and so are its phases, bytes and
clocks. Efficiency is what one worker would take over workers times seconds: all chains together,
with the draws that are kept and the precisions of rows. A quarter of an hour.

    python -m benchmarks scaling --out docs/figures
    python -m benchmarks scaling --shapes netflix --most 64 --latency 1 --bandwidth 1
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from math import isqrt
from pathlib import Path
from typing import Any

from bayesmf.errors import InputError
from bayesmf.plots.style import COLOURS, GREY, drawing, save
from bayesmf.samplers.gibbs import Auto
from bayesmf.samplers.sgld import SGLD
from benchmarks.options import BenchParser, command
from benchmarks.speed.scale_speed import Section
from experiments.links import Network
from experiments.machine import describe_machine, machine_text
from experiments.plan.costs import Costs, calibrate
from experiments.plan.plan import Split, count_shape, settle, sketch
from experiments.plan.sketch import Rate

WORKERS = (1, 4, 8, 16, 32, 64, 128, 256, 512, 1000)
SQUARES = (1, 4, 16, 36, 64, 144, 256, 576)
COLUMNS = (1, 4, 9, 16, 36, 64, 100)
CHAINS = 4
MEASURED = 3_000_000, 3_000_000  # ratings of a stripe and of a block, at most
CASES = (
    ("yahoo", "default", WORKERS),
    ("netflix", "default", WORKERS),
    ("netflix", "dsgld-s", SQUARES),
    ("netflix", "dsgld-c", COLUMNS),
)


def make_split(name: str, workers: int, chains: int = CHAINS) -> Split:
    """A way to share out, by its name."""
    if name == "default":
        return Split(name, Auto(n_chains=chains), workers)
    square = isqrt(workers)
    if name == "dsgld-s":
        return Split(name, SGLD(grid=(square, square), n_chains=square), workers)
    return Split(name, SGLD(grid=(workers, 1), n_chains=workers), workers)


def curves(
    n_factors: int,
    network: Network,
    most: int = 1000,
    rate: float | None = None,
    shapes: Sequence[str] = ("yahoo", "netflix"),
) -> Iterator[dict[str, Any]]:
    """A row for each shape, split and number of workers."""
    for shape, name, workers in CASES:
        if shape not in shapes:
            continue
        counts, known = count_shape(shape), {}
        for n in (n for n in workers if n <= most):
            split = make_split(name, n)
            try:
                settings = settle(counts, split, n_factors)
            except InputError:
                continue
            kind = str(getattr(settings.sampler, "grid", "stripes"))
            if rate is None and kind not in known:
                known[kind] = calibrate(counts, settings, MEASURED)
            costs: Any = known[kind] if rate is None else Rate(rate)
            planned = sketch(counts, split, settings, network, costs)
            row = {"shape": shape, **asdict(planned)}
            if isinstance(costs, Costs):
                row["costs"] = {
                    name: {"call": c.call, "rating": c.rating, "row": c.row}
                    for name, c in costs.tasks.items()
                }
            yield row


# Colours that are distinct for all kinds of colour vision, and different shapes.
STYLES = {
    ("yahoo", "default"): {"color": COLOURS[5], "marker": "o", "linestyle": "-"},
    ("netflix", "default"): {"color": COLOURS[0], "marker": "D", "linestyle": "-"},
    ("netflix", "dsgld-s"): {"color": COLOURS[1], "marker": "s", "linestyle": "--"},
    ("netflix", "dsgld-c"): {"color": COLOURS[2], "marker": "^", "linestyle": "-."},
}
LABELS = {
    ("yahoo", "default"): "default, Yahoo! Music's shape",
    ("netflix", "default"): "default, Netflix's shape",
    ("netflix", "dsgld-s"): r"DSGLD-S, Netflix's: $\sqrt{W}$ chains",
    ("netflix", "dsgld-c"): "DSGLD-C, Netflix's: W chains",
}
TICKS = (1, 4, 16, 64, 256, 1000)


def draw(rows: list[dict[str, Any]], title: str, path: Path) -> None:
    """Efficiency and seconds by workers; ImportError where matplotlib is missing."""
    with drawing(10.4, 4.6) as figure:
        left, right = figure.subplots(1, 2)
        figure.suptitle(title, fontsize=9.5, color=GREY, x=0.01, ha="left")
        for case, style in STYLES.items():
            own = [row for row in rows if (row["shape"], row["split"]) == case]
            x = [row["workers"] for row in own]
            line = {"linewidth": 1.6, "markersize": 4.5, "label": LABELS[case], **style}
            left.plot(x, [100 * row["efficiency"] for row in own], **line)
            right.plot(x, [row["seconds_per_epoch"] / row["chains"] for row in own], **line)
        left.set_ylim(0, 105)
        left.set_ylabel("per cent of the workers' time")
        left.set_title("efficiency, all chains together")
        right.set_yscale("log")
        right.set_ylabel("virtual seconds (log scale)")
        right.set_title("a pass over all ratings, of one chain in turn")
        right.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        for ax in (left, right):
            ax.set_xscale("log")
            ax.set_xticks(TICKS, [f"{n:,}" for n in TICKS], minor=False)
            ax.minorticks_off()
            ax.set_xlabel("workers W (log scale)")
            ax.grid(color="#E5E5E5", linewidth=0.7)
            ax.set_axisbelow(True)
        left.legend(loc="lower left", fontsize=8)
        save(figure, path)


def make_parser() -> BenchParser:
    """The options."""
    parser = BenchParser("scaling", __doc__)
    add = parser.add_argument
    add("--shapes", nargs="+", choices=("yahoo", "netflix"), default=["yahoo", "netflix"],
        help="whose users, items and ratings (both)")  # fmt: skip
    add("--factors", type=int, default=30, metavar="D", help="latent features (30)")
    add("--most", type=int, default=1000, metavar="W", help="most workers (1000)")
    add("--workers-per-node", type=int, default=4, metavar="N", help="on a node (4)")
    add("--calling", type=float, default=0.25, metavar="MS",
        help="driver's time for a call of a worker, as Ray's (0.25)")  # fmt: skip
    add("--latency", type=float, default=0.5, metavar="MS", help="one way (0.5)")
    add("--bandwidth", type=float, default=10.0, metavar="GBIT", help="of a node's link (10)")
    add("--rate", type=float, metavar="R", help="ratings a second, not measured")
    add("--out", type=Path, metavar="DIR", help="where scaling.csv and scaling.png go")
    add("--json", type=Path, metavar="FILE", help="write all figures")
    return parser


def check_arguments(args: argparse.Namespace) -> None:
    """InputError for invalid options."""
    if min(args.most, args.workers_per_node, args.factors) < 1:
        raise InputError("--most, --workers-per-node and --factors must be whole numbers from 1 on")
    for path in (args.out, args.json and args.json.resolve().parent):
        if path is not None and not path.is_dir():
            raise InputError(f"there is no folder {path}")


def curves_section(args: argparse.Namespace) -> Section:
    """The splits on virtual workers."""
    out = Section(
        "Splits on virtual workers",
        ("shape", "split", "workers", "chains", "s a round", "s an epoch of all", "efficiency",
         "idle", "driver at work", "driver KB a round", "kept MB", "node MB a round",
         "GB of a node"),
    )  # fmt: skip
    network = Network(
        1e-3 * args.latency, args.bandwidth * 1e9 / 8, workers_per_node=args.workers_per_node,
        calling=1e-3 * args.calling,
    )  # fmt: skip
    found = []
    for row in curves(args.factors, network, args.most, args.rate, args.shapes):
        found.append(row)
        print(f"scaling: {row['shape']} {row['split']} {row['workers']}", file=sys.stderr)
        out.rows.append(
            (
                row["shape"], f"{row['split']} {row['grid']}".strip(), f"{row['workers']}",
                f"{row['chains']}", f"{row['seconds_per_round']:.4g}",
                f"{row['seconds_per_epoch']:.4g}", f"{row['efficiency']:.0%}",
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
        draw(found, title, folder / "scaling.png")
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
    section = curves_section(args)
    found["curves"] = section.data
    print(section.markdown(), flush=True)
    if args.json is not None:
        args.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0
