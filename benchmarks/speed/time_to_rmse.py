"""Time to a given accuracy, of our samplers and of other libraries.

Every run is a process of its own on one thread; systems take turns, and the best of the repeats
counts. Loading data, importing, compiling and looking at the test set are not counted. Peers with
settings to tune get a small grid, of which the test set picks the best: that is in their favour.

    python -m benchmarks time_to_rmse --ml-1m FOLDER --make-peers FOLDER --out results
"""

from __future__ import annotations

import argparse
import csv
import platform
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from bayesmf.errors import InputError
from benchmarks.options import BenchParser, command
from benchmarks.speed import race, race_report
from benchmarks.speed.own_worker import OURS
from benchmarks.speed.peers import PEERS

# RMSEs whose times are tabulated, from easy to hard.
TARGETS = {
    "ml-100k": [0.94, 0.92, 0.91],
    "ml-1m": [0.86, 0.85, 0.84, 0.834],
    "synthetic": [0.92, 0.9, 0.89],
}


def make_parser() -> BenchParser:
    """The options."""
    parser = BenchParser("time_to_rmse", __doc__)
    add = parser.add_argument
    add("--ml-100k", metavar="FOLDER", help="MovieLens 100K: u1.base against u1.test")
    add("--ml-1m", metavar="FOLDER", help="MovieLens 1M: a tenth held out at random")
    shape = "planted ratings of the shape of MovieLens 10M, or of a part of it"
    add("--synthetic", nargs="?", const=1.0, type=float, metavar="SCALE", help=shape)
    names = f"by commas: ours, peers, {', '.join([*OURS, *PEERS])} (ours,peers)"
    add("--systems", default="ours,peers", help=names)
    add("--factors", type=int, default=30, help="latent features of every system (30)")
    add("--repeats", type=int, default=2, help="turns of every system; the best counts (2)")
    add("--peers-python", type=Path, metavar="PATH", help="interpreter of the peers' environment")
    add("--make-peers", type=Path, metavar="FOLDER", help="make that environment in FOLDER first")
    add("--threads", type=int, default=1, help="of every system that has them (1)")
    add("--target", type=float, nargs="+", metavar="RMSE", help="RMSEs to time, easy to hard")
    add("--max-seconds", type=float, default=600.0, help="of fitting, for each system (600)")
    add("--seed", type=int, default=0)
    add("--out", type=Path, default=Path("time-to-rmse"), metavar="FOLDER")
    add("--quick", action="store_true", help="a few steps of everything, to see that it runs")
    return parser


def check(args: argparse.Namespace) -> None:
    """InputError for invalid options."""
    for name, least in (("factors", 1), ("repeats", 1), ("threads", 1), ("seed", 0)):
        if getattr(args, name) < least:
            raise InputError(f"--{name} must be a whole number from {least} on")
    if not args.max_seconds > 0:
        raise InputError("--max-seconds must be a positive number")
    if args.target and not all(0 < t < float("inf") for t in args.target):
        raise InputError("--target must be positive numbers")
    if args.synthetic is not None and not 0 < args.synthetic <= 1:
        raise InputError("--synthetic takes a scale above 0 and at most 1")
    for option in ("ml_100k", "ml_1m"):
        folder = getattr(args, option)
        if folder is not None and not Path(folder).is_dir():
            raise InputError(f"there is no folder {folder}")
    if args.peers_python and args.make_peers:
        raise InputError("give --peers-python or --make-peers, not both")


def chosen_systems(text: str) -> list[str]:
    """Names in the order given, groups written out, each once."""
    groups = {"ours": list(OURS), "peers": list(PEERS), "all": [*OURS, *PEERS]}
    names = [n for part in text.split(",") for n in groups.get(part.strip(), [part.strip()])]
    for name in names:
        if name not in OURS and name not in PEERS:
            known = ", ".join([*groups, *OURS, *PEERS])
            raise InputError(f"there is no system {name!r}: choose from {known}")
    return list(dict.fromkeys(names))


def chosen_data(args: argparse.Namespace) -> dict[str, object]:
    """Where each data set that was asked for comes from."""
    given = {"ml-100k": args.ml_100k, "ml-1m": args.ml_1m, "synthetic": args.synthetic}
    found = {name: where for name, where in given.items() if where is not None}
    if not found:
        raise InputError("name some data: --ml-100k FOLDER, --ml-1m FOLDER or --synthetic")
    return found


def race_on(
    name: str, path: Path, systems: list[str], plan: race.Race, turns: int, targets: list[float]
) -> list[race.Run]:
    """All systems by turns, as often as asked."""
    runs: list[race.Run] = []
    for repeat in range(turns):
        for system in systems:
            before = [r for r in runs if r.system == system]
            if any(r.problem for r in before):
                continue
            # A grid is searched once; only what was best at something runs again.
            only = race_report.winners(race_report.curves(before, name, system), targets)
            tunes = system not in OURS and not any(o.startswith("burn-in") for o in only)
            run = race.Run(name, system, system in OURS, repeat)
            race.run(plan, run, path, only if tunes and only else None)
            runs.append(run)
            print(_said(run), file=sys.stderr, flush=True)
    return runs


def _said(run: race.Run) -> str:
    begin = f"{run.data} {run.system} #{run.repeat}:"
    if not run.lines:
        return f"{begin} {run.problem or 'no checkpoint'}"
    best = min(run.lines, key=lambda line: line["rmse"])
    last = f"{run.lines[-1]['seconds']:.1f} s" + (f", {run.problem}" if run.problem else "")
    if run.predict_rmse is not None:
        last += f", of predict in the end {run.predict_rmse:.4f}"
    return f"{begin} RMSE {best['rmse']:.4f} after {best['seconds']:.1f} s, last line at {last}"


def compile_kernels(systems: list[str], plan: race.Race, path: Path) -> None:
    """Fill numba's cache, so that what is reported as compiling is what every later fit pays."""
    shortest = replace(plan, quick=True, max_seconds=1e-9)
    for system in systems:
        if system in OURS:
            race.run(shortest, race.Run("", system, True, 0), path)


def write_csv(runs: list[race.Run], path: Path) -> None:
    """Every checkpoint of every run."""
    rows = list(race.csv_rows(runs))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else ["data"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def heading(args: argparse.Namespace) -> str:
    """What the figures were taken with."""
    return (
        f"D = {args.factors}, {args.threads} thread(s), best of {args.repeats}, seed {args.seed}, "
        f"at most {args.max_seconds:g} s each; {platform.machine()}, Python "
        f"{platform.python_version()}. In brackets: times the first line's seconds."
    )


def race_all(args: argparse.Namespace) -> list[race.Run]:
    """Race on each data set, writing results as they come."""
    systems, sources = chosen_systems(args.systems), chosen_data(args)
    python = race.make_peers(args.make_peers) if args.make_peers else args.peers_python
    plan = race.Race(args.factors, args.threads, args.seed, args.max_seconds, args.quick, python)
    targets = {name: args.target or TARGETS[name] for name in sources}
    args.out.mkdir(parents=True, exist_ok=True)
    runs: list[race.Run] = []
    about: dict[str, str] = {}
    text = ["# Time to RMSE", "", heading(args)]
    with tempfile.TemporaryDirectory() as folder:
        for name, where in sources.items():
            path = Path(folder) / f"{name}.npz"
            about[name] = race.write_data(*race.read_data(name, where, args.seed), path)
            if not args.quick:
                compile_kernels(systems, plan, path)
            runs += race_on(name, path, systems, plan, args.repeats, targets[name])
            path.unlink()
            text += ["", f"## {name}", about[name] + ".", ""]
            text += race_report.table(runs, name, targets[name])
            write_csv(runs, args.out / "time_to_rmse.csv")
            (args.out / "time_to_rmse.md").write_text("\n".join(text) + "\n")
    print("\n".join(text))
    if any(run.lines for run in runs):
        _figure(runs, targets, args)
    return runs


def _figure(
    runs: list[race.Run], targets: dict[str, list[float]], args: argparse.Namespace
) -> None:
    try:
        notes = dict.fromkeys(targets, f"D = {args.factors}")
        race_report.draw(runs, targets, notes, args.out / "time_to_rmse.png")
    except ImportError:
        print("no figure: matplotlib is not installed", file=sys.stderr)


@command
def main(argv: list[str] | None = None) -> int:
    """0 where at least one system ran, 1 where none did; 2 for bad input."""
    args = make_parser().parse_args(argv)
    check(args)
    runs = race_all(args)
    return 0 if any(run.lines for run in runs) else 1
