"""Comparison with another checkout: time and memory of fit, predict, recommend, load and pack.

    python -m benchmarks against --base DIR

DIR is a checkout, or its src. Both run the same tasks on the same synthetic ratings of MovieLens
1M's shape, each task in a process of its own, taking turns; the best of the repeats counts. Printed
are this checkout's seconds, processor seconds and peak memory over the other's: below 1 is better.
On a busy machine processor seconds are the ones to compare. Answers are compared by a digest.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bayesmf import Synthetic
from bayesmf.errors import InputError
from benchmarks.options import BenchParser, command, words

ROOT = Path(__file__).resolve().parents[2]
TASKS = ("fit", "predict", "recommend", "load", "pack")  # the first makes the model
NUMBERS = {"wall": "s", "cpu": "cpu s", "memory": "MB"}


def sources(folder: Path) -> Path:
    """The folder to put on PYTHONPATH."""
    for path in (folder / "src", folder):
        if (path / "bayesmf" / "__init__.py").exists():
            return path.resolve()
    raise InputError(f"there is no checkout of bayesmf in {folder}")


def measure(task: str, src: Path, work: Path) -> dict[str, Any]:
    """One task of one checkout, in a process of its own."""
    worker = Path(__file__).with_name("against_worker.py")
    done = subprocess.run(
        [sys.executable, str(worker), task, str(work)], capture_output=True, text=True, cwd=work,
        env={**os.environ, "PYTHONPATH": str(src)},
    )  # fmt: skip
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no word"])[-1]
        raise InputError(f"{task} of {src} failed: {last}")
    return dict(json.loads(done.stdout))


def best(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The least of each number; the digest of the first."""
    return {**runs[0], **{name: min(run[name] for run in runs) for name in NUMBERS}}


@command
def main(argv: list[str] | None = None) -> int:
    """Measure, and print a table; 1 where answers differ."""
    parser = BenchParser("against", __doc__)
    add = parser.add_argument
    add("--base", type=Path, required=True, metavar="DIR", help="the other checkout")
    add("--tasks", default=",".join(TASKS), help=f"by commas ({','.join(TASKS)})")
    add("--repeats", type=int, default=5, metavar="K", help="turns; the best counts (5)")
    add("--scale", type=float, default=1.0, metavar="X", help="part of ML-1M's ratings (1)")
    add("--json", action="store_true")
    args = parser.parse_args(argv)
    tasks = words(args.tasks)
    if not set(tasks) <= set(TASKS):
        raise InputError(f"--tasks must be of {', '.join(TASKS)}, by commas")
    if args.repeats < 1:
        raise InputError("--repeats must be a whole number from 1 on")
    sides = {"base": sources(args.base), "here": ROOT / "src"}
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        works = {name: Path(folder) / name for name in sides}
        for work in works.values():
            work.mkdir()
            for name, scale in (("ratings.csv", args.scale), ("few.csv", args.scale / 100)):
                made = Synthetic.like("ml-1m", scale, stars=True, random_state=0)
                made.ratings().write(work / name)
        for task in TASKS:
            if task not in tasks and task != "fit":
                continue
            runs: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
            repeats = args.repeats if task in tasks else 1
            for turn in range(repeats + 1):  # the first only compiles
                order = list(sides.items())[:: 1 if turn % 2 else -1]
                for name, src in order:
                    runs[name].append(measure(task, src, works[name]))
            both = {name: best(of[1:]) for name, of in runs.items()}
            if task in tasks:
                found[task] = {**both, "same": both["base"]["digest"] == both["here"]["digest"]}
                if not args.json:
                    _show(task, found[task], first=len(found) == 1)
    if args.json:
        print(json.dumps(found))
    return 0 if all(row["same"] for row in found.values()) else 1


def _show(task: str, row: dict[str, Any], first: bool) -> None:
    if first:
        heads = "".join(f"{'base ' + unit:>12}{'here':>9}{'ratio':>7}" for unit in NUMBERS.values())
        print(f"{'':<10}{heads}  answers")
    cells = ""
    for name in NUMBERS:
        base, here = row["base"][name], row["here"][name]
        cells += f"{base:>12.4g}{here:>9.4g}{here / base:>7.3f}"
    print(f"{task:<10}{cells}  {'same' if row['same'] else 'DIFFERENT'}", flush=True)
