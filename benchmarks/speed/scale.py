"""Speed at large sizes, beside other libraries. It takes hours.

Where there is a peer, every figure is a ratio: one thread beside one thread in the same run, taking
turns, and the best of five of each. The peers' interpreter is that of an environment with
benchmarks/peers-requirements.txt in it (benchmarks time_to_rmse --make-peers makes one). Sections:

    sgd      our O(N D) rules beside LIBMF's SGD, MovieLens 10M's shape
    gibbs    whole rows beside SMURFF, single columns beside myFM, MovieLens 1M's shape
    threads  what a second thread brings, MovieLens 10M's shape
    linear   an epoch's time by ratings and by D
    netflix  files of 100M ratings: made, packed, fitted, and the lower bound of a model's error
    yahoo    files of 718M ratings: made, packed, a few sweeps

    python -m benchmarks scale --peers PEERS/bin/python --only sgd gibbs --markdown scale.md
    python -m benchmarks scale --folder DATA --only netflix yahoo --json scale.json
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bayesmf import Ratings
from bayesmf.errors import BayesMFError, InputError
from bayesmf.packed.ratings import PackedRatings
from bayesmf.process import counting
from bayesmf.synthetic.truth import Truth
from benchmarks.options import BenchParser, command
from benchmarks.speed import scale_speed
from benchmarks.speed.child import measured
from benchmarks.speed.scale_speed import Plan, Section
from experiments.machine import describe_machine, machine_text
from experiments.oracle import oracle_rmse

FACTORS = 30
# Yahoo's is enough for three sweeps and a draw: its point is that it can be done.
FITS: dict[str, tuple[str, ...]] = {
    "netflix": (),
    "yahoo": ("--epochs", "4", "--burn-in", "3", "--chains", "1"),
}


class StepError(BayesMFError):
    """A command that failed, with its last words."""


def netflix(plan: Plan) -> Section:
    """All steps, and how near the error comes to the lowest in reach."""
    out = _run("netflix", plan)
    found, folder = out.data, _folder("netflix", plan)
    found["bound"] = _cached(folder / "bound.json", lambda: bound(folder))
    found["rmse_over_bound"] = found["fit"]["rmse"] / found["bound"]["bound"]
    out.notes.append(
        f"RMSE on the test ratings {found['fit']['rmse']:.4f}, {found['rmse_over_bound']:.4f} "
        f"times the lowest that can be expected of a model, {found['bound']['bound']:.4f} (with "
        f"the planted numbers: {found['bound']['truth']:.4f})."
    )
    return out


def yahoo(plan: Plan) -> Section:
    """All steps on seven times as many ratings."""
    out = _run("yahoo", plan)
    out.notes.append(f"RMSE on the test ratings {out.data['fit']['rmse']:.4f}.")
    return out


def _folder(shape: str, plan: Plan) -> Path:
    assert plan.folder is not None
    return plan.folder / (shape if plan.scale == 1 else f"{shape}-{plan.scale:g}")


def _run(shape: str, plan: Plan) -> Section:
    folder = _folder(shape, plan)
    folder.mkdir(parents=True, exist_ok=True)
    train, test, truth, packed = (
        folder / name for name in ("train.parquet", "test.parquet", "truth.safetensors", "packed")
    )
    steps = {
        "synth": _synth(shape, plan, train, test, truth),
        "pack": _pack(train, packed),
        "fit": _fit(shape, plan, packed, test, folder / "model"),
    }
    out = Section(
        f"Ratings of {shape.capitalize()}'s shape",
        ("step", "s", "peak MB", "M ratings/s", "bytes a rating"),
    )
    n, fit = steps["pack"]["ratings"], steps["fit"]
    sizes = {"synth": train.stat().st_size / n, "pack": steps["pack"]["bytes_per_rating"]}
    for name, step in steps.items():
        rate = fit["ratings_per_second"] if name == "fit" else n / step["wall_seconds"]
        size = f"{sizes[name]:.1f}" if name in sizes else "-"
        row = f"{step['wall_seconds']:.0f}", f"{step['peak_mb']:.0f}", f"{rate / 1e6:.2f}", size
        out.rows.append((f"`bayesmf {name}`", *row))
    out.notes.append(
        f"{n:,} ratings to learn from, {fit['test']['n']:,} to test on. The fit: "
        f"D = {FACTORS}, {fit['sampler']['n_chains']} chain(s) of {fit['epochs']:g} sweeps, "
        f"{fit['draws']} draws, {fit['seconds']:.0f} s of sampling."
    )
    out.data = {"ratings": n, **steps}
    return out


# -- steps ----------------------------------------------------------------------------------------


def _synth(shape: str, plan: Plan, train: Path, test: Path, truth: Path) -> dict[str, Any]:
    command = ["synth", "--shape", shape, "--shuffle", "--stars", "--truth", str(truth)]
    command += ["--out", str(train), "--test", str(test), "--json"]
    if plan.scale != 1:
        command += ["--scale", f"{plan.scale:g}"]
    there = train.exists() and test.exists() and truth.exists()
    return _kept(train.with_name("synth.json"), there, command)


def _pack(train: Path, packed: Path) -> dict[str, Any]:
    command = ["pack", str(train), "--out", str(packed), "--json"]
    there = PackedRatings.is_packed(packed)
    if there and not packed.with_name("pack.json").exists():
        command.append("--overwrite")  # it was not timed
    return _kept(packed.with_name("pack.json"), there, command)


def _fit(shape: str, plan: Plan, packed: Path, test: Path, model: Path) -> dict[str, Any]:
    command = ["fit", str(packed), "--factors", f"{FACTORS}", *FITS[shape], *plan.fit_options]
    return _step([*command, "--test", str(test), "--out", str(model), "--json"])


def _kept(note: Path, there: bool, command: list[str]) -> dict[str, Any]:
    """What the command took when it was run, now or earlier; its note goes with its files."""
    if not there:
        note.unlink(missing_ok=True)
    return _cached(note, lambda: _step(command))


def _cached(path: Path, make: Any) -> dict[str, Any]:
    if path.exists():
        return dict(json.loads(path.read_text()))
    found: dict[str, Any] = make()
    path.write_text(json.dumps(found) + "\n")
    return found


def _step(command: list[str]) -> dict[str, Any]:
    print(f"scale: bayesmf {' '.join(command)}", file=sys.stderr, flush=True)
    done = measured([sys.executable, "-m", "bayesmf", *command])
    if done["status"] != 0:
        said = [line for line in done["err"].splitlines() if line.strip()]
        last = said[-1] if said else f"exit status {done['status']}"
        raise StepError(f"bayesmf {command[0]} failed: {last}")
    cost = {name: done[name] for name in ("peak_mb", "cpu_seconds")}
    return {**json.loads(done["out"]), **cost, "wall_seconds": done["seconds"]}


def bound(folder: Path) -> dict[str, float]:
    """The lowest error that a model can reach, of the files in a folder."""
    packed, truth = PackedRatings.open(folder / "packed"), Truth.load(folder / "truth.safetensors")
    test = Ratings.read(folder / "test.parquet")
    # Ids are rows of the truth, counted from 1. Every user has a rating; an item may have none.
    starts = np.zeros(len(truth.a) + 1, np.int64)
    starts[np.asarray(packed.user_ids.ids, np.int64)] = np.diff(packed.by_user.starts)
    items = (np.asarray(packed.item_ids.ids, np.int64) - 1).astype(np.int32)
    user, item = (
        (np.asarray(ids.ids, np.int64)[rows] - 1).astype(np.int32)
        for ids, rows in ((test.user_ids, test.user_rows), (test.item_ids, test.item_rows))
    )
    with counting("reading", 2 * len(packed), "ratings") as progress:
        return oracle_rmse(
            np.cumsum(starts), items[packed.by_user.other], packed.by_user.value, packed.levels,
            truth, user, item, test.rating, progress,
        )  # fmt: skip


SECTIONS: dict[str, Callable[[Plan], Section]] = {
    "sgd": scale_speed.sgd,
    "gibbs": scale_speed.gibbs,
    "threads": scale_speed.threads,
    "linear": scale_speed.linear,
    "netflix": netflix,
    "yahoo": yahoo,
}
LARGE = ("netflix", "yahoo")


def make_parser() -> BenchParser:
    """The options."""
    parser = BenchParser("scale", __doc__)
    add = parser.add_argument
    add("--peers", type=Path, metavar="PYTHON", help="interpreter of the peers' environment")
    add("--only", nargs="+", choices=SECTIONS, metavar="SECTION", help="all, if not named")
    add("--repeats", type=int, default=5, metavar="K", help="turns; the best of each counts (5)")
    add("--scale", type=float, default=1.0, metavar="X", help="part of all ratings, to try it (1)")
    add("--full", action="store_true", help="linear: up to 100M ratings")
    add("--folder", type=Path, metavar="DIR", help="netflix, yahoo: where files are kept")
    add("--fit-options", default="", metavar="TEXT", help="netflix, yahoo: more for bayesmf fit")
    add("--json", type=Path, metavar="FILE", help="write all figures")
    add("--markdown", type=Path, metavar="FILE", help="write all tables")
    add("--figure", type=Path, metavar="FILE.png", help="linear: draw it")
    return parser


def check(args: argparse.Namespace) -> list[str]:
    """The sections that are meant; one sentence about what cannot be."""
    if args.repeats < 1:
        raise InputError("--repeats must be a whole number from 1 on")
    if not 0 < args.scale <= 1:
        raise InputError("--scale must be above 0 and at most 1")
    if args.peers is not None and not args.peers.is_file():
        raise InputError(f"there is no interpreter {args.peers}")
    asked = args.only or [name for name in SECTIONS if args.folder or name not in LARGE]
    if args.folder is None and any(name in LARGE for name in asked):
        raise InputError("netflix and yahoo need --folder, where their files are kept")
    if args.figure is not None and "linear" not in asked:
        raise InputError("--figure is drawn by the section linear")
    if args.figure is not None and args.figure.suffix != ".png":
        raise InputError(f"{args.figure} must end in .png")
    for path in (args.json, args.markdown, args.figure):
        if path is not None and not path.resolve().parent.is_dir():
            raise InputError(f"there is no folder {path.parent}")
    return [name for name in SECTIONS if name in asked]


def run(args: argparse.Namespace, names: list[str]) -> bool:
    """Run all sections, print and write each when it is done; return whether none failed."""
    options = tuple(shlex.split(args.fit_options))
    plan = Plan(args.peers, args.scale, args.repeats, args.full, args.folder, options)
    about = describe_machine()
    found: dict[str, Any] = {"machine": about, "scale": args.scale, "repeats": args.repeats}
    text = [f"# Speed at size\n\n{machine_text(about)}.\n"]
    print(text[0], flush=True)
    for name in names:
        begin = time.perf_counter()
        try:
            section = SECTIONS[name](plan)
        except BayesMFError as error:  # hours of other sections are not to be lost with it
            found[name] = {"problem": str(error)}
            text.append(f"## {name}\n\nfailed: {error}\n")
        else:
            found[name] = {**section.data, "section_seconds": time.perf_counter() - begin}
            text.append(section.markdown())
        print(text[-1], flush=True)
        write(args.json, json.dumps(found, indent=1) + "\n")
        write(args.markdown, "\n".join(text))
        if name == "linear" and args.figure is not None and "problem" not in found[name]:
            _draw(found[name], args.figure)
    return not any("problem" in found[name] for name in names)


def _draw(found: dict[str, Any], path: Path) -> None:
    try:
        scale_speed.draw(found, path)
    except ImportError:
        print("scale: no figure: matplotlib is not installed", file=sys.stderr)


def write(path: Path | None, text: str) -> None:
    """Where a file was named; it is never there by half."""
    if path is not None:
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        part.write_text(text)
        os.replace(part, path)


@command
def main(argv: list[str] | None = None) -> int:
    """0 where all sections went well, 1 where one failed; 2 for bad input."""
    args = make_parser().parse_args(argv)
    return 0 if run(args, check(args)) else 1
