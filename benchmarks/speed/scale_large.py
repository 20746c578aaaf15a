"""Sections of `benchmarks scale` on files of Netflix's and Yahoo's size, as a user would run them.

Files stay in the folder that was named, with what making them took beside them, so that a second
run begins with the fit.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from bayesmf import Ratings
from bayesmf.errors import BayesMFError
from bayesmf.packed.ratings import PackedRatings
from bayesmf.process import counting
from bayesmf.synthetic.truth import Truth
from benchmarks.speed.child import measured
from benchmarks.speed.scale_speed import Plan, Section
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
        f"times the lowest that could be expected of anyone, {found['bound']['bound']:.4f} (of "
        f"who knows the planted numbers: {found['bound']['truth']:.4f})."
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
    there = packed.is_dir() and PackedRatings.is_packed(packed)
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
    told = {name: done[name] for name in ("peak_mb", "cpu_seconds")}
    return {**json.loads(done["out"]), **told, "wall_seconds": done["seconds"]}


def bound(folder: Path) -> dict[str, float]:
    """The lowest error in reach of anyone, of the files in a folder."""
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
