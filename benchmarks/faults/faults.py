"""Injected faults on a Ray cluster: killed workers, lost nodes, killed drivers, full disks.

Starts a Ray cluster of its own on this machine, a head and two nodes, and does short fits there.
During each something goes wrong at a random moment (the seed decides what and when):

    worker   a worker's process is killed           hang    a worker's process is stopped
    node     a node is lost with its workers        added   a run begun on one node gets its second
    rejoin   the same, and another node comes       disk    no room for a checkpoint
    driver   the driver is killed, and the run resumed

Every run has to end, with the SHA-256 over all draws of all chains that `serial` gives. A fault
that came too late, or was not noticed, is tried again and does not count. Limits of time are
multiples of what undisturbed runs take, measured first, beside `--busy` processes that compute.
With `--out` each run is a line of JSON in a file, and those that are there are not repeated. The
status is 1 unless all runs end the same.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from benchmarks.faults.driver import CASES
from benchmarks.faults.kinds import Trial, TrialLimits, attempt
from benchmarks.faults.nodes import Nodes
from benchmarks.faults.runs import FaultRun
from benchmarks.options import BenchParser, command

STATES = ("same", "different", "lost", "hung", "missed")
# It ends with the process that started it, even where that is killed.
COMPUTE = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: sum(range(100_000))"


@contextmanager
def busy(n: int) -> Iterator[list[int]]:
    """Context with processes that do nothing but compute; their numbers."""
    begun: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(n):
            begun.append(subprocess.Popen([sys.executable, "-c", COMPUTE]))
        yield [process.pid for process in begun]
    finally:
        for process in begun:
            process.kill()
            process.wait()


def read_lines(path: Path | None, planned: Sequence[Any], seed: int) -> list[dict[str, Any]]:
    """Faults that a file has already; ValueError unless they are the planned ones."""
    if path is None or not path.exists():
        return []
    kinds = {what.number: (what.kind, what.case) for what in planned}
    lines = []
    for number, text in enumerate(path.read_text().splitlines(), 1):
        try:
            line = json.loads(text)
            found = line["number"], line["kind"], line["case"], line["seed"]
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"{path}, line {number}, is not a run: give another file") from None
        if line["kind"] == "none":
            continue
        if found != (found[0], *kinds.get(found[0], ("", "")), seed):
            raise ValueError(
                f"{path}, line {number}, has a fault that is not planned: use the --n, --kinds and "
                "--seed that it was made with, or name another"
            )
        lines.append(line)
    return lines


def summary(lines: list[dict[str, Any]], planned: Sequence[Any], left: list[str]) -> dict[str, Any]:
    """Counts of all, and by kind."""
    faults = [line for line in lines if line["kind"] != "none"]
    by_kind = {}
    for kind in dict.fromkeys(what.kind for what in planned):
        of = [line for line in faults if line["kind"] == kind]
        counts = {state: sum(line["status"] == state for line in of) for state in STATES}
        seconds = [line["seconds"] for line in of if line["status"] != "missed"]
        by_kind[kind] = {
            "asked": sum(what.kind == kind for what in planned),
            # A run may also be lost before anything is done to it.
            "injected": sum(line["injected"] for line in of if line["status"] != "missed"),
            **counts,
            "seconds": statistics.median(seconds) if seconds else 0.0,
        }  # fmt: skip
    totals = {
        name: sum(one[name] for one in by_kind.values()) for name in ("asked", "injected", *STATES)
    }
    quiet = all(line["status"] == "same" for line in lines if line["kind"] == "none")
    return {**totals, "quiet_same": quiet, "left_behind": left, "kinds": by_kind, "runs": lines}


def good(found: dict[str, Any]) -> bool:
    """Whether all requested faults happened, and all runs had the same result."""
    return bool(
        found["same"] == found["asked"] and found["quiet_same"] and not found["left_behind"]
        and not (found["different"] or found["lost"] or found["hung"])
    )  # fmt: skip


def show(line: dict[str, Any], number: str, to_stderr: bool) -> None:
    """A run in one line."""
    moment = f"epoch {line['epochs']}/{line['of']}"
    early = "before the fault" if line["error"] and not line["injected"] else ""
    rest = "; ".join(filter(None, [line["detail"], early, line["error"]]))
    number = "" if line["kind"] == "none" else number
    print(
        f"{number:>7} {line['kind']:<7}{line['case']:<13}{moment:<15}{line['seconds']:>6.1f} s  "
        f"{len(line['log'])} logged  {line['status']:<9} {rest}",
        file=sys.stderr if to_stderr else sys.stdout, flush=True,
    )  # fmt: skip


def table(found: dict[str, Any]) -> str:
    """Text of the counts by kind."""
    names = ("injected", *STATES)
    head = "".join(f"{name:>11}" for name in ("same hash" if n == "same" else n for n in names))
    lines = [f"\n{'kind':<9}{head}{'median s':>11}"]
    for kind, one in found["kinds"].items():
        counts = "".join(f"{one[name]:>11}" for name in names)
        lines.append(f"{kind:<9}{counts}{one['seconds']:>11.1f}")
    lines.append(f"{'all':<9}" + "".join(f"{found[name]:>11}" for name in names))
    lines.append(
        f"{found['asked']} faults asked for, {found['seconds']:.0f} s on {found['cores']} cores "
        f"beside {found['busy']} busy processes; missed ones came too late or were not noticed, "
        f"and were repeated; undisturbed runs {'same' if found['quiet_same'] else 'DIFFERENT'}; "
        f"{len(found['left_behind'])} processes left behind"
    )
    return "\n".join(lines)


KINDS = ("worker", "node", "rejoin", "added", "hang", "disk", "driver")
TRIES = 5  # until a fault happens in time


class PlannedFault(NamedTuple):
    """A fault to inject."""

    number: int
    kind: str
    case: str


def plan(kinds: list[str], n: int, seed: int, cases: list[str]) -> list[PlannedFault]:
    """Each kind as often as the others, with every case in turn, shuffled."""
    made = []
    for number in range(n):
        turn, which = divmod(number, len(kinds))
        made.append(PlannedFault(number, kinds[which], cases[(turn + which) % len(cases)]))
    random.Random(seed).shuffle(made)
    return made


class Harness:
    """Runs what is planned, with one cluster after the other."""

    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self.args, self.folder, self.limits = args, folder, TrialLimits()
        self.cases = list(CASES)
        self.left: list[str] = []
        self._nodes: Any = None

    def close(self) -> None:
        """End the cluster; what it leaves is noted."""
        nodes, self._nodes = self._nodes, None
        if nodes is not None:
            self.left += nodes.close()

    def references(self) -> None:
        """Results of `serial` for every case."""
        self.known = {}
        for case in self.cases:
            where = self.folder / f"serial-{case}".replace(" ", "-")
            found = FaultRun(where, {"case": case, "engine": "serial"}).wait()
            if found["status"] != "done":
                raise SystemExit(f"faults: {case} on serial: {found['error']}")
            self.known[case] = found

    def open(self) -> Iterator[dict[str, Any]]:
        """Have a cluster. A new one does undisturbed runs, which set the limits."""
        if self._nodes is not None:
            return
        self._nodes = Nodes()
        times = []
        for case in self.cases:
            where = Path(tempfile.mkdtemp(prefix="quiet-", dir=self.folder)) / "run"
            order = {"address": self._nodes.address, "n_workers": 4, "start_timeout": 300.0}
            run = FaultRun(where, {"case": case, "engine": order})
            found = run.wait()
            times.append((time.monotonic() - run.begin, run.times))
            yield self.verdict(PlannedFault(-1, "none", case), 0, {**found, "log": run.log})
        self.limits = TrialLimits.measured(times)

    def verdict(self, what: PlannedFault, epochs: int, found: dict[str, Any]) -> dict[str, Any]:
        """One line of the report."""
        status, known = found["status"], self.known[what.case]
        if status == "done":
            status = "same" if found["sha256"] == known["sha256"] else "different"
        return {
            **what._asdict(), "seed": self.args.seed, "epochs": epochs, "of": known["epochs"],
            "status": status, "seconds": found.get("all_seconds", found.get("seconds", 0.0)),
            "log": found["log"], "detail": found.get("detail", ""), "error": found.get("error"),
            "sha256": found.get("sha256"), "busy": self.args.busy,
            "injected": found.get("injected", False), "said": found.get("said", ""),
        }  # fmt: skip

    def one(self, what: PlannedFault) -> Iterator[dict[str, Any]]:
        """A fault, tried again until it comes in time."""
        rng = random.Random(f"{self.args.seed} {what.number} {what.kind}")
        # A worker needs seconds to come: early, so that the run is still under way.
        latest, of = 0.1 if what.kind == "added" else 0.75, self.known[what.case]["epochs"]
        for turn in range(TRIES):
            yield from self.open()
            # A worker that did not come in the little time it is given there has more next time.
            limits = replace(self.limits, start=2**turn * self.limits.start)
            epochs = max(1, int(rng.uniform(0.02, latest) * of))
            where = self.folder / f"{what.number:03d}-{what.kind}-{turn}-{time.time_ns()}"
            trial = Trial(what.kind, what.case, self._nodes, rng, where, epochs, limits=limits)
            trial.of = of
            found = attempt(trial)
            if what.kind != "added" and found["first_epoch"]:
                self.limits = self.limits.started(found["first_epoch"])
            line = self.verdict(what, epochs, found)
            if line["status"] in ("lost", "hung"):
                self.close()  # a damaged cluster must not affect the next run
            yield line
            if line["status"] != "missed":
                return


def measure(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Do all runs, and print them one by one."""
    harness, begin = Harness(args, folder), time.monotonic()
    planned = plan(args.kinds, args.n, args.seed, harness.cases)
    lines = read_lines(args.out, planned, args.seed)
    finished = {line["number"] for line in lines}
    left = [what for what in planned if what.number not in finished]
    with busy(args.busy):
        try:
            if left:
                harness.references()
            for what in left:
                for line in harness.one(what):
                    lines.append(line)
                    show(line, f"{len(finished) + 1}/{len(planned)}", args.json)
                    if args.out is not None and line["status"] != "missed":
                        with args.out.open("a") as file:
                            print(json.dumps(line), file=file)
                finished.add(what.number)
        finally:
            harness.close()
    return summary(lines, planned, harness.left) | {
        "seed": args.seed, "busy": args.busy, "seconds": time.monotonic() - begin,
        "cores": os.cpu_count(),
    }  # fmt: skip


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Options, checked."""
    parser = BenchParser("faults", __doc__)
    parser.add_argument("--n", type=int, default=50, help="faults, 50 by default")
    parser.add_argument("--kinds", default=None, help="names with commas; all by default")
    parser.add_argument("--busy", type=int, default=0, help="processes that compute beside them")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="file for a line of JSON for every run")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    asked = None if args.kinds is None else args.kinds.split(",")
    for kind in asked or ():
        if kind not in KINDS:
            parser.error(f"--kinds: {kind!r} is none of {', '.join(KINDS)}")
    if args.n < 0 or args.busy < 0:
        parser.error("--n and --busy are numbers of faults and of processes, 0 or more")
    if args.out is not None and (args.out.is_dir() or not args.out.parent.is_dir()):
        parser.error(f"--out: {args.out} is not a file in an existing folder")
    if sys.platform != "linux":
        parser.error("needs Linux: processes are found and stopped there by /proc")
    if importlib.util.find_spec("ray") is None:
        parser.error("needs Ray, which is not installed: pip install ray")
    args.kinds = list(asked or KINDS)
    return args


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Context in which SIGTERM and SIGHUP end the process as Ctrl-C does: all is cleared away."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {one: signal.signal(one, interrupt) for one in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


@command
def main(argv: list[str] | None = None) -> int:
    """Print a line for each run and a summary, or one JSON object."""
    args = parse(argv)
    try:
        with ended_by_signals(), tempfile.TemporaryDirectory() as folder:
            found = measure(args, Path(folder))
    except KeyboardInterrupt:
        print("faults: interrupted; the cluster has been ended", file=sys.stderr)
        return 130
    except ValueError as error:
        print(f"faults: {error}", file=sys.stderr)
        return 2
    print(json.dumps(found) if args.json else table(found))
    return 0 if good(found) else 1
