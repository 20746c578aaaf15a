"""Faults on purpose: `python -m benchmarks.faults [--n 50] [--drivers 20] [--kinds ...] [--json]`.

Starts a Ray cluster of its own on this machine, a head and two nodes, and does short fits there.
During each something goes wrong at a random moment (the seed decides what and when):

    worker   a worker's process is killed           hang    a worker's process is stopped
    node     a node is lost with its workers        added   a run begun on one node gets its second
    rejoin   the same, and another node comes       disk    no room for a checkpoint
    driver   the driver is killed, and the run resumed (--drivers: so many of these alone)

Every run has to end, with the SHA-256 over all draws of all chains that `serial` gives. A fault
that came too late, or that nobody noticed, is tried again and does not count. The status is 1
unless all runs end the same.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.arguments import Parser

if TYPE_CHECKING:
    from benchmarks.faults_nodes import Nodes

KINDS = ("worker", "node", "rejoin", "added", "hang", "disk", "driver")
CASES = ("DSGLD-S 3x3", "DSGLD-C 4x1", "default", "heavy 2x2")
LONG = ("DSGLD-S 3x3", "DSGLD-C 4x1")
TRIES = 5  # until a fault happens in time


def references(folder: Path) -> dict[str, dict[str, Any]]:
    """What serial and threads say of every case."""
    from benchmarks.faults_runs import Run

    found = {}
    for case in CASES:
        both = []
        for engine in ("serial", "threads"):
            name = f"{case} {engine}".replace(" ", "-")
            both.append(Run(folder / name, {"case": case, "engine": engine}).wait())
            if both[-1]["status"] != "done":
                raise SystemExit(f"faults: {case} on {engine}: {both[-1]['error']}")
        found[case] = both[0]
        if both[0]["sha256"] != both[1]["sha256"]:
            raise SystemExit(f"faults: {case}: serial and threads differ")
    return found


def undisturbed(nodes: Nodes, known: dict[str, dict[str, Any]], folder: Path) -> Iterator[Any]:
    """Every case once without any fault."""
    from benchmarks.faults_runs import Run

    for case in CASES:
        settings = {"address": nodes.address, "n_workers": 4}
        run = Run(folder / f"quiet-{case}".replace(" ", "-"), {"case": case, "engine": settings})
        found = run.wait()
        yield verdict("none", case, 0, {**found, "detail": "", "told": run.told}, known)


def verdict(
    kind: str, case: str, epochs: int, found: dict[str, Any], known: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """One line of the report."""
    status = found["status"]
    if status == "done":
        status = "same" if found["sha256"] == known[case]["sha256"] else "different"
    return {
        "kind": kind, "case": case, "epochs": epochs, "of": known[case]["epochs"], "status": status,
        "seconds": found.get("all_seconds", found.get("seconds", 0.0)), "told": found["told"],
        "detail": found["detail"], "error": found.get("error"), "sha256": found.get("sha256"),
    }  # fmt: skip


def one(
    nodes: Nodes, kind: str, number: int, seed: int, known: dict[str, dict[str, Any]], folder: Path
) -> Iterator[dict[str, Any]]:
    """A fault, tried again until it comes in time."""
    from benchmarks.faults_kinds import Trial, attempt

    rng = random.Random(f"{seed} {number} {kind}")
    # A worker needs seconds to come: soon, and not while the shortest of the runs is under way.
    cases, latest = (LONG, 0.1) if kind == "added" else (CASES, 0.75)
    case = cases[number % len(cases)]
    for turn in range(TRIES):
        epochs = max(1, int(rng.uniform(0.02, latest) * known[case]["epochs"]))
        where = folder / f"{number:03d}-{kind}-{turn}"
        found = attempt(Trial(kind, case, nodes, rng, where, epochs))
        line = verdict(kind, case, epochs, found, known)
        yield line
        if line["status"] != "missed":
            return


def plan(args: argparse.Namespace) -> list[str]:
    """The kinds in their order: each as often as the others, shuffled."""
    rng = random.Random(args.seed)
    kinds = [args.kinds[k % len(args.kinds)] for k in range(args.n)]
    rng.shuffle(kinds)
    return kinds + ["driver"] * args.drivers


def measure(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All runs, told one by one."""
    from benchmarks.faults_nodes import Nodes

    known, lines = references(folder), []
    nodes, begin = Nodes(), time.monotonic()
    kinds = plan(args)
    try:
        for line in undisturbed(nodes, known, folder):
            lines.append(line)
            show(line, "", args)
        for number, kind in enumerate(kinds):
            for line in one(nodes, kind, number, args.seed, known, folder):
                lines.append(line)
                show(line, f"{number + 1}/{len(kinds)}", args)
    finally:
        left = nodes.close()
    faults = [line for line in lines if line["kind"] != "none"]
    counts = Counter(line["status"] for line in faults)
    quiet = all(line["status"] == "same" for line in lines if line["kind"] == "none")
    return {
        "seed": args.seed, "asked": len(kinds), "quiet_same": quiet, "left_behind": left,
        **{name: counts[name] for name in ("same", "different", "lost", "hung", "missed")},
        "seconds": time.monotonic() - begin, "cores": os.cpu_count(), "runs": lines,
        "references": {case: one["sha256"] for case, one in known.items()},
    }  # fmt: skip


def show(line: dict[str, Any], number: str, args: argparse.Namespace) -> None:
    """A run in one line."""
    if args.json and not sys.stderr.isatty():
        return
    moment = f"epoch {line['epochs']}/{line['of']}"
    rest = "; ".join(filter(None, [line["detail"], line["error"]]))
    print(
        f"{number:>7} {line['kind']:<7}{line['case']:<13}{moment:<15}{line['seconds']:>6.1f} s  "
        f"{len(line['told'])} told  {line['status']:<9} {rest}",
        file=sys.stderr if args.json else sys.stdout, flush=True,
    )  # fmt: skip


def good(found: dict[str, Any]) -> bool:
    """Whether every fault that was asked for happened, and every run ended the same."""
    return bool(
        found["same"] == found["asked"] and found["quiet_same"] and not found["left_behind"]
        and not (found["different"] or found["lost"] or found["hung"])
    )  # fmt: skip


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Options, checked."""
    parser = Parser("faults", __doc__)
    parser.add_argument("--n", type=int, default=None, help="faults of all kinds, 50 by default")
    parser.add_argument("--drivers", type=int, default=0, help="drivers killed, beyond these")
    parser.add_argument("--kinds", default=",".join(KINDS), help="by comma; all by default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="folder for the notes of every run")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    args.kinds = args.kinds.split(",")
    if args.n is None:
        args.n = 0 if args.drivers else 50
    for kind in args.kinds:
        if kind not in KINDS:
            parser.error(f"--kinds: {kind!r} is none of {', '.join(KINDS)}")
    if args.n < 0 or args.drivers < 0:
        parser.error("--n and --drivers are numbers of faults, 0 or more")
    if args.out is not None and args.out.exists() and any(args.out.iterdir()):
        parser.error(f"--out: {args.out} is not empty")
    if sys.platform != "linux":
        parser.error("needs Linux: processes are found and stopped there by /proc")
    if importlib.util.find_spec("ray") is None:
        parser.error("needs Ray, which is not installed: pip install ray")
    return args


def main(argv: list[str] | None = None) -> int:
    """Print a line for each run and a summary, or one JSON object."""
    args = parse(argv)
    try:
        with tempfile.TemporaryDirectory() as folder:
            found = measure(args, Path(folder) if args.out is None else args.out)
    except KeyboardInterrupt:
        print("faults: interrupted; the cluster has been ended", file=sys.stderr)
        return 130
    if args.json:
        print(json.dumps(found))
    else:
        print(
            f"{found['asked']} faults in {found['seconds']:.0f} s on {found['cores']} cores: "
            f"{found['same']} ended the same, {found['different']} otherwise, {found['lost']} "
            f"lost, {found['hung']} hung; {found['missed']} came too late and were repeated; "
            f"{len(found['left_behind'])} processes left behind"
        )
    return 0 if good(found) else 1


if __name__ == "__main__":
    sys.exit(main())
