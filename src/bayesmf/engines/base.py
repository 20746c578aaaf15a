"""The protocol of engines, and the ledger of a run: tasks, times and bytes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np

from bayesmf.model.refs import Array, Ref
from bayesmf.worker.tasks import Held, Recipe, Result, Task

log = logging.getLogger("bayesmf")

# Partitions in a report: those that took longest.
NAMED = 10


class Handle(Protocol):
    """A submitted task."""

    def result(self) -> Result:
        """The task's result; raises what the task raised."""


@dataclass(frozen=True)
class Workload:
    """Ratings and tasks that an engine starts with.

    `held` are the partitions of the ratings, which tasks refer to by number. `together` are lists
    of partitions whose tasks are submitted at the same time, to be spread over all workers.
    `recipes`, by partition, read ratings that need not be sent. `rehearsal` are tasks on a few
    artificial ratings, with which workers compile. `units` are, by partition, the numbers of the
    stripes that stay with their workers, if any: all tasks of one chain on one unit run on one
    worker, those of other chains perhaps on another, which holds these ratings too.
    """

    held: Sequence[Held]
    together: Sequence[Sequence[int]]
    recipes: Sequence[Recipe | None] = ()
    rehearsal: Sequence[tuple[Held, Task]] = ()
    units: Sequence[int] | None = None
    n_chains: int = 1


class Engine(Protocol):
    """Executes tasks, in any order, anywhere.

    A task has the number of its partition and references to rows, from earlier results; it gets
    the arrays where it runs. Engines draw no random numbers, so their results do not differ. An
    engine serves one run at a time.
    """

    def start(self, load: Workload) -> None:
        """Start workers and give them the ratings."""

    def submit(self, task: Task) -> Handle:
        """Submit a task."""

    def wait(self, handles: Collection[Handle]) -> set[Handle]:
        """Wait until at least one of these is done; return those that are."""

    def fetch(self, refs: Sequence[Ref]) -> list[Array]:
        """Fetch arrays from workers, read-only."""

    def settled(self, chain: int, refs: Sequence[Ref]) -> None:
        """Note, after a round of a chain, all arrays that the rest of the chain depends on.

        An engine whose workers can be lost may copy them now.
        """

    def seconds(self) -> float:
        """Seconds since the start, by the engine's clock."""

    def report(self) -> dict[str, Any]:
        """Tasks, times and bytes of the run; see `Ledger`."""

    def close(self) -> None:
        """Release everything, and drop tasks that have not begun."""


@dataclass
class _Sum:
    """Number and times of tasks of one worker or on one partition."""

    tasks: int = 0
    seconds: float = 0.0
    longest: float = 0.0

    def add(self, seconds: float) -> None:
        self.tasks += 1
        self.seconds += seconds
        self.longest = max(self.longest, seconds)


class Ledger:
    """Tasks, times, bytes and faults of one run; `clock` returns the seconds since its start."""

    def __init__(self, name: str, n_workers: int, clock: Callable[[], float] | None = None) -> None:
        self.name, self.clock = name, clock or self._since_begin
        self.restart()
        self._workers = [_Sum() for _ in range(n_workers)]
        self._partitions: dict[int, _Sum] = {}
        self.seconds = 0.0  # of all tasks
        self.bytes_sent, self.bytes_received, self.ratings_sent = 0, 0, 0
        self.peer_bytes, self.fetched_bytes = 0, 0  # of rows: between nodes, and for the driver
        self.rounds = 0  # of all chains
        self.faults: list[str] = []
        self._lock = threading.Lock()

    def restart(self) -> None:
        """Start the clock again, after setting up."""
        self._begin = time.monotonic()

    def _since_begin(self) -> float:
        return time.monotonic() - self._begin

    def done(self, worker: int, partition: int, seconds: float) -> None:
        """Add a task of a worker on a partition."""
        with self._lock:
            self.seconds += seconds
            self._workers[worker].add(seconds)
            self._partitions.setdefault(partition, _Sum()).add(seconds)

    def fault(self, sentence: str) -> None:
        """Log a fault that was handled."""
        self.faults.append(sentence)
        log.warning("%s", sentence)

    def report(self) -> dict[str, Any]:
        """Return everything as plain JSON."""
        elapsed = max(self.clock(), 1e-9)
        idle = [max(0.0, 1.0 - w.seconds / elapsed) for w in self._workers]
        slow = sorted(self._partitions.items(), key=lambda one: -one[1].seconds)
        times = np.array([p.seconds / p.tasks for p in self._partitions.values()] or [0.0])
        return {
            "name": self.name,
            "workers": len(self._workers),
            "seconds": elapsed,
            "tasks": sum(w.tasks for w in self._workers),
            "idle": idle,
            "busy_seconds": [w.seconds for w in self._workers],
            "task_seconds": {
                "median": float(np.median(times)),
                "longest": max((w.longest for w in self._workers), default=0.0),
            },
            "slowest_partitions": [
                {
                    "partition": partition,
                    "tasks": p.tasks,
                    "mean": p.seconds / p.tasks,
                    "max": p.longest,
                }
                for partition, p in slow[:NAMED]
            ],
            "bytes_sent": self.bytes_sent,
            "bytes_received": self.bytes_received,
            "rounds": self.rounds,
            "driver_bytes_per_round": (self.bytes_sent + self.bytes_received) / max(self.rounds, 1),
            "peer_bytes_per_round": self.peer_bytes / max(self.rounds, 1),
            "fetched_bytes": self.fetched_bytes,
            "ratings_bytes_sent": self.ratings_sent,
            "faults": list(self.faults),
        }


class WallClock:
    """Base of engines in real time, with a ledger for each run."""

    _ledger: Ledger

    def seconds(self) -> float:
        """Seconds since the run began."""
        return self._ledger.clock()

    def report(self) -> dict[str, Any]:
        """Report of the ledger."""
        return self._ledger.report()


def payload(value: Any) -> int:
    """Bytes of the arrays in a task or a result."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, tuple):
        return sum(map(payload, value))
    if hasattr(value, "__dataclass_fields__"):
        return sum(payload(getattr(value, field.name)) for field in fields(value))
    return 0
