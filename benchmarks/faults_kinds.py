"""The ways in which something goes wrong. Each is a function that injects it and says what it did.

A function is given a trial that has reached its moment. It returns whether the fault has really
happened to a run that was under way, told once the run is over.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.faults_nodes import Nodes, Process, alive, wait_for
from benchmarks.faults_runs import Disk, Run

Seen = Callable[[], bool]
TIMEOUT = 4.0  # seconds for a task, where workers hang
START = 15.0  # seconds for a worker to come


@dataclass
class Trial:
    """One run, with all that a fault may need."""

    kind: str
    case: str
    nodes: Nodes
    rng: random.Random
    folder: Path
    epochs: int  # of all chains, at which it happens
    n_workers: int = 4
    run: Run | None = None
    disk: Disk | None = None
    detail: str = ""
    runs: int = 0
    engine: dict[str, Any] = field(default_factory=dict)

    def start(self, resume: bool = False) -> Run:
        """The fit, for the first time or from its checkpoint."""
        settings: dict[str, Any] = {
            "address": self.nodes.address, "n_workers": self.n_workers, "start_timeout": START,
            **({"task_timeout": TIMEOUT} if self.kind == "hang" else {}), **self.engine,
        }  # fmt: skip
        order: dict[str, Any] = {"case": self.case, "engine": settings}
        if self.kind == "added":
            order["linger"] = "has come"  # a worker needs seconds to start
        if self.kind == "disk" and self.disk is None:
            self.disk = Disk(self.folder / "disk")
        if self.kind in ("disk", "driver"):
            where = {"folder": str(self.checkpoint), "every": 0.1, "resume": resume}
            order["checkpoint"] = where
        self.runs += 1
        self.run = Run(self.folder / f"run-{self.runs}", order)
        return self.run

    @property
    def checkpoint(self) -> Path:
        return (self.disk.folder if self.disk else self.folder) / "checkpoint"

    def now(self) -> Run:
        assert self.run is not None
        return self.run

    def close(self) -> None:
        """Nothing is left of it but its notes."""
        if self.run is not None and not self.run.ended:
            self.run.kill()
        if self.disk is not None:
            self.disk.close()


def told_of(run: Run, processes: list[Process], words: str = "") -> bool:
    """Whether the run has told that one of these workers was lost."""
    names = [f"(process {pid} on " for pid, _ in processes]
    return any(name in line and words in line for line in run.told for name in names)


def pick_worker(trial: Trial) -> Process:
    """One at random; all are there once an epoch is over."""
    workers = wait_for(lambda: sorted(trial.nodes.workers()), 5)
    assert workers, "no worker is to be seen"
    return trial.rng.choice(workers)


def kill_worker(trial: Trial) -> Seen:
    """A process of a worker, SIGKILLed."""
    victim, run = pick_worker(trial), trial.now()
    os.kill(victim[0], signal.SIGKILL)
    trial.detail = f"process {victim[0]}"
    return lambda: not alive(victim) and told_of(run, [victim])


def hang_worker(trial: Trial) -> Seen:
    """A process of a worker, SIGSTOPped: it answers no more, and hears nothing."""
    victim, run = pick_worker(trial), trial.now()
    os.kill(victim[0], signal.SIGSTOP)
    trial.detail = f"process {victim[0]}"

    def seen() -> bool:
        gone = wait_for(lambda: not alive(victim), 10)
        if not gone:  # nobody else will wake it up
            with suppress(ProcessLookupError):
                os.kill(victim[0], signal.SIGKILL)
        return bool(gone) and told_of(run, [victim], "did not answer")

    return seen


def lose_node(trial: Trial) -> Seen:
    """A whole node, raylet and workers."""
    run, victims = trial.now(), trial.nodes.lose(trial.rng.choice(trial.nodes.nodes))
    trial.detail = f"{len(victims)} workers"
    return lambda: told_of(run, victims)


def lose_and_add(trial: Trial) -> Seen:
    """A node is lost, and another comes a little later."""
    seen, pause = lose_node(trial), trial.rng.uniform(0.0, 4.0)
    time.sleep(pause)
    trial.nodes.add()
    trial.detail += f", another after {pause:.1f} s"
    return seen


def add_node(trial: Trial) -> Seen:
    """The run began with a node too few, and its workers come now."""
    run = trial.now()
    trial.nodes.add()
    return lambda: any("has come" in line for line in run.told)


def fill_disk(trial: Trial) -> Seen:
    """No room for a checkpoint: the run goes on; sometimes it is killed, and resumed with room."""
    assert trial.disk is not None
    run = trial.now()
    trial.disk.fill(run)
    seen = run.tells("no checkpoint of chain")
    if seen and trial.rng.random() < 0.5 and not run.ended:
        killed = run.kill()
        trial.disk.free()
        trial.start(resume=True)
        trial.detail = "then killed and resumed"
        return lambda: killed
    trial.detail = "full to the end" if trial.disk.mounted else "by a limit on files"
    return lambda: seen


def kill_driver(trial: Trial) -> Seen:
    """The driver, SIGKILLed; another goes on from its checkpoint."""
    killed = trial.now().kill()
    found = any(trial.checkpoint.glob("chain-*/round-*"))
    trial.detail = "resumed" if found else "begun again, no checkpoint yet"
    trial.start(resume=True)
    return lambda: killed


KINDS: dict[str, Callable[[Trial], Seen]] = {
    "worker": kill_worker,
    "node": lose_node,
    "rejoin": lose_and_add,
    "added": add_node,
    "hang": hang_worker,
    "disk": fill_disk,
    "driver": kill_driver,
}


def attempt(trial: Trial) -> dict[str, Any]:
    """Run a trial to its end: the answer of the last run, and whether the fault was in time."""
    trial.nodes.restore()
    if trial.kind == "added":
        trial.nodes.lose(trial.rng.choice(trial.nodes.nodes))
    begin = time.monotonic()
    try:
        run = trial.start()
        in_time = run.reach(trial.epochs)
        if in_time:
            time.sleep(trial.rng.uniform(0.0, 0.03))  # anywhere in a round
            seen = KINDS[trial.kind](trial)
        found = trial.now().wait()
        happened = in_time and seen()
        told = [line for n in range(trial.runs) for line in _told(trial.folder, n + 1)]
    finally:
        trial.close()
    if found["status"] == "done" and not happened:
        found["status"] = "missed"
    return {**found, "all_seconds": time.monotonic() - begin, "told": told, "detail": trial.detail}


def _told(folder: Path, number: int) -> list[str]:
    path = folder / f"run-{number}" / "told"
    return path.read_text().splitlines() if path.exists() else []
