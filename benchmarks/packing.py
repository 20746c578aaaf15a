"""Packing here and by Ray workers on this machine: seconds, ratings a second, peak memory of each.

    python -m benchmarks.packing --ratings 20_000_000 --workers 2

Ratings are made, cut into Parquet files, and packed by the command line in processes of their own;
the two folders are compared byte for byte. Memory is what Linux tells of resident pages (VmHWM),
pages of mapped files among them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.faults_nodes import descendants, title

FILES = 8
EVERY = 0.1  # seconds between looks at memory


def command(*args: Any) -> list[str]:
    """A command of bayesmf."""
    return [sys.executable, "-m", "bayesmf", *map(str, args)]


def make(folder: Path, ratings: int) -> Path:
    """Ratings of the shape of Netflix, in random order, in several files."""
    whole, parts = folder / "ratings.parquet", folder / "parts"
    parts.mkdir()
    made = command("synth", "--shape", "netflix", "--scale", ratings / 1e8, "--stars", "--shuffle")
    subprocess.run([*made, "--out", str(whole)], check=True, stdout=subprocess.DEVNULL)
    frame = pl.scan_parquet(whole)
    total = frame.select(pl.len()).collect().item()
    size = -(-total // FILES)
    for k in range(FILES):
        frame.slice(k * size, size).collect().write_parquet(parts / f"part-{k}.parquet")
    whole.unlink()
    return parts


def peak_mb(pid: int) -> float:
    """Largest resident memory of a process so far; 0 if it is gone."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return 0.0


def watched(args: list[str]) -> dict[str, Any]:
    """Run a command; what it tells as JSON, its seconds, and peaks of it and of its workers."""
    peaks: dict[int, float] = {}
    workers: set[int] = set()
    begin = time.monotonic()
    with subprocess.Popen(args, stdout=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            for pid, _ in descendants(process.pid):
                if title(pid).startswith("ray::"):
                    workers.add(pid)
                    peaks[pid] = max(peaks.get(pid, 0.0), peak_mb(pid))
            peaks[process.pid] = max(peaks.get(process.pid, 0.0), peak_mb(process.pid))
            time.sleep(EVERY)
        assert process.stdout is not None
        told = json.loads(process.stdout.read())
    assert process.returncode == 0
    return {
        "ratings": told["ratings"],
        "seconds": round(told["seconds"], 1),
        "seconds_with_start": round(time.monotonic() - begin, 1),
        "ratings_per_second": round(told["ratings_per_second"]),
        "driver_mb": round(peaks[process.pid]),
        "workers_mb": sorted(round(peaks[pid]) for pid in workers),
    }


def main() -> None:
    """Make ratings, pack them both ways, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ratings", type=int, default=20_000_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--runs", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parts = make(folder, args.ratings)
        # Compiled code is there for both.
        subprocess.run(
            command("pack", parts / "part-0.parquet", "--out", folder / "warm"),
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        ray = ("--engine", "ray", "--workers", args.workers)
        for _ in range(args.runs):
            for kind, more in (("here", ()), ("ray", ray)):
                pack = command(
                    "pack", parts, "--out", folder / kind, "--overwrite", "--json", *more
                )
                print(json.dumps({"packed": kind, **watched(pack)}), flush=True)
        same = all(
            (folder / "here" / file).read_bytes() == (folder / "ray" / file).read_bytes()
            for file in os.listdir(folder / "here")
        )
        print(json.dumps({"same_bytes": same}))


if __name__ == "__main__":
    main()
