"""Data and subprocesses of `benchmarks time_to_rmse`: who runs, on what, and what came of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bayesmf import Ratings, Synthetic
from bayesmf.errors import InputError

ROOT = Path(__file__).resolve().parents[2]
THREADS = ("OMP_NUM", "OPENBLAS_NUM", "MKL_NUM", "NUMBA_NUM", "POLARS_MAX")


@dataclass(frozen=True)
class Race:
    """Settings of every run."""

    factors: int
    threads: int
    seed: int
    max_seconds: float
    quick: bool
    peers_python: Path | None


@dataclass
class Run:
    """One system on one data set, once: its checkpoints by settings."""

    data: str
    system: str
    ours: bool
    repeat: int
    lines: list[dict[str, Any]] = field(default_factory=list)
    total_seconds: float | None = None
    compile_seconds: float = 0.0
    predict_rmse: float | None = None
    rule: str = ""
    problem: str = ""


def read_data(name: str, where: Any, seed: int) -> tuple[Ratings, Ratings]:
    """Training and test ratings: fold u1, or a tenth held out at random."""
    if name == "ml-100k":
        folder = Path(where)
        return Ratings.read(folder / "u1.base"), Ratings.read(folder / "u1.test")
    if name == "ml-1m":
        return Ratings.read(where).split(0.1, random_state=0)
    return (
        Synthetic.like("ml-10m", float(where), random_state=seed)
        .ratings()
        .split(0.1, random_state=0)
    )


def write_data(train: Ratings, test: Ratings, path: Path, unknown: bool = False) -> str:
    """Row numbers and ratings for all systems alike; returns what there is in a sentence.

    Test ratings of users or items without training ratings are left out, for most peers cannot
    predict them; with `unknown` they stay, with -1 for what is not in the training ratings.
    """
    train = train.compact()
    user = train.user_ids.lookup(test.user_ids.ids)[test.user_rows].astype(np.int32)
    item = train.item_ids.lookup(test.item_ids.ids)[test.item_rows].astype(np.int32)
    known = (user >= 0) & (item >= 0) | unknown
    if not known.any():
        raise InputError("no test rating has both a user and an item of the training ratings")
    np.savez(
        path,
        train_user=train.user_rows, train_item=train.item_rows, train_rating=train.rating,
        test_user=user[known], test_item=item[known], test_rating=test.rating[known],
        n_users=train.n_users, n_items=train.n_items,
    )  # fmt: skip
    return (
        f"{train.n_users:,} users x {train.n_items:,} items, {len(train.rating):,} training and "
        f"{int(known.sum()):,} test ratings ({int((~known).sum()):,} of unknown rows left out)"
    )


def run(plan: Race, run: Run, data: Path, only: list[str] | None = None) -> None:
    """Run a system in a process of its own and fill in what it says."""
    python = Path(sys.executable) if run.ours else plan.peers_python
    if python is None or not python.exists():
        run.problem = "missing: no environment of the peers (--peers-python or --make-peers)"
        return
    job = {
        "task": "race", "system": run.system, "data": str(data), "factors": plan.factors,
        "threads": plan.threads, "seed": plan.seed, "max_seconds": plan.max_seconds,
        "quick": plan.quick, "only": only,
    }  # fmt: skip
    module = "benchmarks.speed.own_worker" if run.ours else "benchmarks.speed.peer_worker"
    command = [str(python), "-m", module]
    with tempfile.TemporaryFile("w+") as errors:
        # A fit of a peer cannot be stopped half-way: it is given the time of several, then ended.
        status = _follow(command, job, errors, 4 * plan.max_seconds + 300, run)
        if status and not run.problem:
            errors.seek(0)
            said = [line for line in errors.read().splitlines() if line.strip()]
            run.problem = f"failed: {said[-1].strip() if said else f'exit status {status}'}"


def _follow(
    command: list[str], job: dict[str, Any], errors: Any, limit: float, run: Run
) -> int | None:
    """Start, hand over the job, take lines until the end."""
    env = {**os.environ, **{f"{name}_THREADS": str(job["threads"]) for name in THREADS}}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
        cwd=ROOT, env=env,
    ) as process:  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        timer = threading.Timer(limit, process.kill)
        timer.start()
        try:
            print(json.dumps(job), file=process.stdin)
            process.stdin.close()
            for line in process.stdout:
                _take(run, json.loads(line))
        except BrokenPipeError:
            pass  # it ended before it read its job; its last lines say why
        finally:
            timer.cancel()
    return process.returncode


def _take(run: Run, line: dict[str, Any]) -> None:
    if "missing" in line:
        run.problem = f"missing: {line['missing']}"
    elif "total_seconds" in line:
        run.total_seconds, run.compile_seconds = line["total_seconds"], line["compile_seconds"]
        run.rule, run.predict_rmse = line["rule"], line["predict_rmse"]
    else:
        run.lines.append(line)


def csv_rows(runs: list[Run]) -> Iterator[dict[str, Any]]:
    """A row for each checkpoint."""
    for one in runs:
        for line in one.lines:
            yield {
                "data": one.data, "system": one.system, "settings": line["settings"],
                "repeat": one.repeat, "step": line["step"], "seconds": round(line["seconds"], 4),
                "cpu_seconds": round(line["cpu_seconds"], 4), "rmse": round(line["rmse"], 6),
                "compile_seconds": round(one.compile_seconds, 3),
            }  # fmt: skip


def make_peers(folder: Path) -> Path:
    """An environment with the peers in it; returns its interpreter."""
    bin_, exe = ("Scripts", "python.exe") if os.name == "nt" else ("bin", "python")
    python = folder / bin_ / exe
    # LIBMF's vector code is behind a macro that its own build does not set.
    flags = "-O3 -march=native -DUSEAVX" if _has_avx() else "-O3 -march=native"
    try:
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        wanted = ROOT / "benchmarks" / "peers-requirements.txt"
        subprocess.run(
            # Without the cache: a wheel in it was built with other flags.
            [str(python), "-m", "pip", "install", "-q", "--no-cache-dir", "-r", str(wanted)],
            check=True, env={**os.environ, "CFLAGS": flags, "CXXFLAGS": flags},
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError) as error:
        raise InputError(f"the peers' environment cannot be made in {folder}: {error}") from None
    return python


def _has_avx() -> bool:
    try:
        return " avx " in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
