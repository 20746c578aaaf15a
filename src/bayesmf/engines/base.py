"""What an engine is, and the ledger of a run: who did what, how long it took, what was sent."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np

from bayesmf.model.refs import Array, Ref
from bayesmf.worker.tasks import Held, Recipe, Result, Task

log = logging.getLogger("bayesmf")

# Partitions that a report names: those that took longest.
NAMED = 10


class Handle(Protocol):
    """A task under way."""

    def result(self) -> Result:
        """The task's result; raises what the task raised."""


@dataclass(frozen=True)
class Workload:
    """What an engine is started with.

    `held` are the partitions of the ratings, which tasks name by number. `together` are lists of
    partitions whose tasks come at the same time: each list should be spread over all workers.
    `recipes`, by partition, say how workers get ratings that need not be sent. `rehearsal` are
    tasks on a few made-up ratings, by which a worker compiles what it will need. `units` are, by
    partition, the numbers of the stripes that stay with their workers, None where there are none:
    all tasks of one chain on one unit are then done at one place, and those of other chains may be
    done at another, which holds these ratings too.
    """

    held: Sequence[Held]
    together: Sequence[Sequence[int]]
    recipes: Sequence[Recipe | None] = ()
    rehearsal: Sequence[tuple[Held, Task]] = ()
    units: Sequence[int] | None = None
    n_chains: int = 1


class Engine(Protocol):
    """Executes tasks, in any order, anywhere.

    A task names the partition it reads, and the rows, by references that results have given.
    Whoever executes it gets the arrays. An engine owns no randomness and decides nothing, so
    engines cannot differ in their results. It serves one run at a time.
    """

    def start(self, load: Workload) -> None:
        """Hand out the ratings."""

    def submit(self, task: Task) -> Handle:
        """Begin a task."""

    def wait(self, handles: Collection[Handle]) -> set[Handle]:
        """Wait until at least one of these is done; return those that are."""

    def fetch(self, refs: Sequence[Ref]) -> list[Array]:
        """Bring arrays that lie with workers here, to be read alone."""

    def settled(self, chain: int, refs: Sequence[Ref]) -> None:
        """Told after every round of a chain what the rest of it depends on.

        An engine whose workers can be lost may have it copied now: what is not among these is
        never asked for again.
        """

    def seconds(self) -> float:
        """Seconds since the start, by the engine's clock."""

    def aside(self) -> AbstractContextManager[None]:
        """Context of what is not part of the algorithm, such as validation: an engine with a
        clock of its own may stop it."""

    def report(self) -> dict[str, Any]:
        """Who did what, how long it took, and what was sent; see `Ledger`."""

    def close(self) -> None:
        """Release everything; tasks that have not begun are dropped."""


@dataclass
class _Sum:
    """Tasks of one worker, or on one partition."""

    tasks: int = 0
    seconds: float = 0.0
    longest: float = 0.0

    def add(self, seconds: float) -> None:
        self.tasks += 1
        self.seconds += seconds
        self.longest = max(self.longest, seconds)


class Ledger:
    """What an engine notes of one run; `clock` gives the seconds since its start."""

    def __init__(self, name: str, n_workers: int, clock: Callable[[], float] | None = None) -> None:
        self.name, self.clock = name, clock or self._since_begin
        self.restart()
        self._workers = [_Sum() for _ in range(n_workers)]
        self._partitions: dict[int, _Sum] = {}
        self.seconds = 0.0  # of all tasks
        self.bytes_sent, self.bytes_received, self.ratings_sent = 0, 0, 0
        self.peer_bytes, self.fetched_bytes, self.rounds = 0, 0, 0
        self.faults: list[str] = []
        self._lock = threading.Lock()

    def restart(self) -> None:
        """Start the clock anew: what came before was setting up."""
        self._begin = time.monotonic()

    def _since_begin(self) -> float:
        return time.monotonic() - self._begin

    def done(self, worker: int, partition: int, seconds: float) -> None:
        """Note that a worker has done a task on a partition."""
        with self._lock:
            self.seconds += seconds
            self._workers[worker].add(seconds)
            self._partitions.setdefault(partition, _Sum()).add(seconds)

    def moved(self, sent: int = 0, received: int = 0, peers: int = 0, fetched: int = 0) -> None:
        """Note bytes: of tasks that the driver has sent and of results that came back; of rows
        that went from node to node, and of those that were brought to the driver."""
        self.bytes_sent += sent
        self.bytes_received += received
        self.peer_bytes += peers
        self.fetched_bytes += fetched

    def settled(self) -> None:
        """Note that a chain has ended a round."""
        self.rounds += 1

    def fault(self, sentence: str) -> None:
        """Note something that went wrong and was dealt with."""
        self.faults.append(sentence)
        log.warning("%s", sentence)

    def report(self) -> dict[str, Any]:
        """All notes in plain values, for people and for JSON."""
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
    """What engines share whose clock is that of the wall; they start a ledger with every run."""

    _ledger: Ledger

    def seconds(self) -> float:
        """Seconds since the run began."""
        return self._ledger.clock()

    def aside(self) -> AbstractContextManager[None]:
        """Nothing: such a clock does not stand still."""
        return nullcontext()

    def report(self) -> dict[str, Any]:
        """What the ledger has noted."""
        return self._ledger.report()


def payload(value: Any) -> int:
    """Bytes of the arrays in a task or result: a message, but for some hundred bytes."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, tuple):
        return sum(map(payload, value))
    if hasattr(value, "__dataclass_fields__"):
        return sum(payload(getattr(value, field.name)) for field in fields(value))
    return 0
