"""Fits over network namespaces, with what goes over each wire between two of their epochs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.faults_nodes import processor_seconds
from benchmarks.faults_runs import Run
from benchmarks.netns import Wires

FIRST = 3  # epochs of every chain before the window: kernels, stores and connections are warm
# In the switch's namespace: a line of counters for each line that is read.
READ = """
import json, sys
def count(port, way):
    with open(f"/sys/class/net/port{port}/statistics/{way}_bytes") as file:
        return int(file.read())
for line in sys.stdin:
    print(json.dumps([[count(k, "rx"), count(k, "tx")] for k in range(int(sys.argv[1]))]))
    sys.stdout.flush()
"""


class Moment(NamedTuple):
    """Bytes that each card has sent and received, and processor seconds of this machine, by then.

    `own` are those of this process and what it has started, `all` idle ones too.
    """

    wires: list[list[int]]
    own: float
    busy: float
    all: float


class Counters:
    """A process at the switch that reads its ports: what a port receives, its card has sent."""

    def __init__(self, wires: Wires) -> None:
        command = [*wires.inside("hub"), sys.executable, "-c", READ, str(wires.n)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.read()

    def read(self) -> Moment:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(file=self._process.stdin, flush=True)
        wires = json.loads(self._process.stdout.readline())
        with open("/proc/stat") as file:
            ticks = [int(word) for word in file.readline().split()[1:9]]
        busy, all_ticks = sum(ticks) - ticks[3] - ticks[4], sum(ticks)
        tick = os.sysconf("SC_CLK_TCK")
        return Moment(wires, processor_seconds(os.getpid()), busy / tick, all_ticks / tick)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextmanager
def counters(wires: Wires) -> Iterator[Counters]:
    """Counters for as long as they are needed."""
    made = Counters(wires)
    try:
        yield made
    finally:
        made.close()


class Fit(Run):
    """A fit whose wires are read when all chains have done so many epochs, the order's `window`."""

    module = "benchmarks.namespaces_driver"

    def __init__(self, folder: Path, order: dict[str, Any], counters: Counters | None = None,
                 **more: Any) -> None:  # fmt: skip
        self._counters, self._done = counters, dict[int, int]()
        self._chains, self._at = order.get("chains", 1), order.get("window", ())
        self.window: dict[int, Moment] = {}
        super().__init__(folder, order, **more)

    def noted(self, what: str, value: Any) -> None:
        if what != "epoch":
            return super().noted(what, value)
        moment, chain, epoch = value
        super().noted(what, moment)
        self._done[chain] = epoch
        least = min(self._done.values()) if len(self._done) == self._chains else 0
        for at in self._at:
            if least >= at and at not in self.window and self._counters is not None:
                self.window[at] = self._counters.read()


def seconds_of_an_epoch(events: Sequence[Sequence[float]], first: int, last: int) -> float:
    """Of all chains, by the engine's clock: between the moments when all have done so many."""
    ends: dict[float, float] = {}
    for _, epoch, seconds, *_ in events:
        ends[epoch] = max(seconds, ends.get(epoch, 0.0))
    return (ends[last] - ends[first]) / (last - first)


def rounds_of_an_epoch(grid: str | None) -> int:
    """Rounds in which a chain meets all ratings: groups of blocks without a row in common."""
    return 1 if grid is None else max(map(int, grid.split("x")))


def ledger(events: Sequence[Sequence[Any]], first: int, last: int, chains: int) -> dict[str, float]:
    """Bytes by the engine's own account between the moments when all chains had done so many."""
    found, done = dict[int, dict[str, float]](), dict[int, int]()
    for chain, epoch, _, told in events:
        done[chain] = epoch
        least = min(done.values()) if len(done) == chains else 0
        for at in (first, last):
            if least >= at:
                found.setdefault(at, told)
    return {name: found[last][name] - found[first][name] for name in ("driver", "peers")}


def measured(folder: Path, order: dict[str, Any], nodes: Any, counters: Counters) -> dict[str, Any]:
    """A fit on the cluster: seconds, and bytes on every wire, of a round of all chains."""
    run = Fit(folder, order, counters, prefix=nodes.prefix, environment=nodes.environment)
    found = run.wait()
    if found["status"] != "done":
        return found
    first, last = order["window"]
    rounds = rounds_of_an_epoch(found["grid"])
    found |= {"seconds": seconds_of_an_epoch(found["events"], first, last) / rounds}
    before, after, passed = run.window[first], run.window[last], found["seconds"]
    between = (last - first) * rounds
    found["wires"] = [
        [(now - then) / between for now, then in zip(a, b, strict=True)]
        for a, b in zip(after.wires, before.wires, strict=True)
    ]
    whole = max(after.all - before.all, 1e-9)
    found["processors"] = {
        "own": (after.own - before.own) / whole, "busy": (after.busy - before.busy) / whole
    }  # fmt: skip
    told = ledger(found["events"], first, last, order["chains"])
    found["ledger"] = {name: size / between for name, size in told.items()}
    found["passed"] = passed  # seconds in which these bytes were sent
    found["rounds"], found["cores"] = rounds, os.cpu_count()
    return found
