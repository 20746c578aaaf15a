"""Accuracy and intervals of the defaults on several data sets, beside myFM.

Looks under the folder for ml-100k (folds u1 to u5), ml-1m, ml-latest-small and movietweetings, and
makes variants of ml-100k: other scales, single ratings, few items. `BayesianMF()` is fitted to
each on one thread, and so is myFM at the same rank where its environment is given.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bayesmf import BayesianMF, Ratings
from bayesmf.errors import InputError
from benchmarks import data_sets
from benchmarks.data_sets import Split, find, skewed
from benchmarks.options import BenchParser, command, markdown
from benchmarks.speed.race import ROOT, THREADS, write_data

LEVELS = ("50", "80", "90", "95")
SWEEPS = 200
HEADS = {
    "data": "data", "train": "training", "test": "test", "factors": "D", "rmse": "RMSE",
    **{f"coverage_{level}": f"in {level}%" for level in LEVELS},
    "tercile_gap": "largest gap of a tercile", "repairs": "repairs", "seconds": "s",
    "myfm_rmse": "myFM RMSE", "myfm_seconds": "myFM s", "rmse_ratio": "RMSE, times myFM's",
    "seconds_ratio": "s, times myFM's",
}  # fmt: skip
FORMATS = {
    "train": ",", "test": ",", "rmse": ".4f", "tercile_gap": "+.1f", "seconds": ".1f",
    "myfm_rmse": ".4f", "myfm_seconds": ".1f", "rmse_ratio": ".4f", "seconds_ratio": ".2f",
    **{f"coverage_{level}": ".1%" for level in LEVELS},
}  # fmt: skip


def make_parser() -> BenchParser:
    """The options."""
    parser = BenchParser("defaults", __doc__)
    add = parser.add_argument
    add("--folder", type=Path, required=True, metavar="DATA", help="folder of the data sets")
    add("--sets", metavar="NAMES", help="only these, by commas")
    add("--peers-python", type=Path, metavar="PATH", help="interpreter that has myFM")
    add("--seed", type=int, default=0)
    add("--out", type=Path, default=Path("datasets"), metavar="FOLDER")
    return parser


def chosen(args: argparse.Namespace) -> dict[str, Any]:
    """The chosen data sets; InputError for invalid options."""
    if not args.folder.is_dir():
        raise InputError(f"there is no folder {args.folder}")
    if args.peers_python and not args.peers_python.exists():
        raise InputError(f"there is no interpreter {args.peers_python}")
    if args.seed < 0:
        raise InputError("--seed must be a whole number from 0 on")
    found = find(args.folder)
    # Without a data set in the folder there is nothing to compare planted ratings with.
    made = {"99% on 1% of items": skewed, **found} if found else {}
    return data_sets.chosen(made, args.sets, args.folder)


def our_row(train: Ratings, test: Ratings, seed: int) -> dict[str, Any]:
    """Scores of the defaults, on one thread, which changes seconds only."""
    model = BayesianMF(engine="serial", random_state=seed)
    begin = time.perf_counter()
    model.fit(train)
    seconds = time.perf_counter() - begin - model.report_["compile_seconds"]
    held = model.calibration(test)
    # Of the levels in the table alone.
    gaps = [gap.points for gap in held.gaps() if gap.group and str(gap.level) in LEVELS]
    return {
        "train": len(train), "test": len(test), "factors": model.report_["factors"],
        "rmse": held.overall.rmse,
        **{f"coverage_{level}": held.overall.coverage[level] for level in LEVELS},
        "tercile_gap": max(gaps, key=abs), "repairs": model.report_["repairs"],
        "seconds": seconds,
    }  # fmt: skip


def myfm_row(python: Path, split: Split, factors: int, seed: int) -> dict[str, float]:
    """Scores of myFM; empty, with a note on stderr, if it failed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.npz"
        write_data(*split, path, unknown=True)
        job = {"task": "fit", "data": str(path), "factors": factors, "seed": seed, "sweeps": SWEEPS}
        done = subprocess.run(
            [str(python), "-m", "benchmarks.speed.peer_worker"], input=json.dumps(job),
            text=True, capture_output=True, cwd=ROOT,
            env={**os.environ, **{f"{name}_THREADS": "1" for name in THREADS}},
        )  # fmt: skip
    line = json.loads(done.stdout) if done.stdout.strip() else {}
    if "rmse" not in line:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        print(f"no myFM: {line.get('missing', last[0])}", file=sys.stderr)
        return {}
    return {"myfm_rmse": line["rmse"], "myfm_seconds": line["seconds"]}


def rows(sets: dict[str, Any], python: Path | None, seed: int) -> Iterator[dict[str, Any]]:
    """One for each data set, as it is done."""
    for name, make in sets.items():
        split = make()
        row = {"data": name, **our_row(*split, seed)}
        if python is not None:
            row |= myfm_row(python, split, row["factors"], seed)
        if "myfm_rmse" in row:
            row["rmse_ratio"] = row["rmse"] / row["myfm_rmse"]
            row["seconds_ratio"] = row["seconds"] / row["myfm_seconds"]
        yield row


def table(done: list[dict[str, Any]]) -> Iterator[str]:
    """Markdown."""

    def cells(row: dict[str, Any]) -> list[str]:
        return [format(row[k], FORMATS.get(k, "")) if k in row else "" for k in HEADS]

    return markdown(list(HEADS.values()), map(cells, done))


def save(done: list[dict[str, Any]], folder: Path) -> str:
    """Write the table, and return it."""
    text = "\n".join(
        [
            "# Defaults on many data sets",
            "",
            f"`BayesianMF()` on one thread against {SWEEPS} sweeps of myFM at the same rank. Test "
            "ratings of users and items without training ratings count. The gap is that of the "
            f"intervals of {', '.join(LEVELS)}% in a third of the test ratings, by training "
            "ratings of user or item, in points.",
            "",
            *table(done),
            "",
        ]
    )
    (folder / "datasets.md").write_text(text)
    return text


@command
def main(argv: list[str] | None = None) -> int:
    """0 when all is done; 2 for bad input."""
    args = make_parser().parse_args(argv)
    done: list[dict[str, Any]] = []
    sets = chosen(args)
    args.out.mkdir(parents=True, exist_ok=True)
    # The first fit, which compiles, is not timed.
    BayesianMF(engine="serial", random_state=0, max_seconds=1.0).fit(skewed()[0])
    for row in rows(sets, args.peers_python, args.seed):
        done.append(row)
        text = save(done, args.out)  # at once: a long run may be ended
        print(f"{row['data']}: RMSE {row['rmse']:.4f}", file=sys.stderr, flush=True)
    print(text)
    return 0
