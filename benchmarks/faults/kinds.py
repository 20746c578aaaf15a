"""Faults: each is a function that injects one into a trial and describes it.

A function is called when the trial has reached its moment. It returns a function that says, after
the run, whether the fault happened while the run was under way.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.faults.nodes import Process, alive, gone, wait_for
from benchmarks.faults.runs import Disk, FaultRun

Seen = Callable[[], bool]
# The engine's message if none of its workers has started in time.
NONE_STARTED = "no worker started"
SAID = 8000  # characters of what a run printed that was lost, for debugging


@dataclass(frozen=True)
class TrialLimits:
    """Seconds of the slowest of some undisturbed runs, and limits that are multiples of them.

    Every limit has a floor, for the load may rise after the measurement. A limit that is too long
    costs time only where something has really gone wrong.
    """

    start: float = 10.0  # from the beginning of a run to its first epoch
    whole: float = 20.0  # to its end
    gap: float = 0.4  # the longest without an epoch

    @classmethod
    def measured(cls, runs: Sequence[tuple[float, list[float]]]) -> TrialLimits:
        """From undisturbed runs: seconds of each, and moments of its epochs."""
        found = cls(0.0, 0.0, 0.0)
        for seconds, epochs in runs:
            found = found.after(seconds, epochs)
        return found

    def after(self, seconds: float, epochs: Sequence[float]) -> TrialLimits:
        """With one more undisturbed run."""
        gaps = [b - a for a, b in pairwise(epochs)]
        return TrialLimits(
            max(self.start, epochs[0] if epochs else seconds),
            max(self.whole, seconds),
            max([self.gap, *gaps]),
        )

    def started(self, first: float) -> TrialLimits:
        """With the start of one more run, whatever became of it later."""
        return replace(self, start=max(self.start, first))

    @property
    def start_timeout(self) -> float:
        """For a worker to come, where it should."""
        return max(90.0, 10 * self.start)

    @property
    def short_start(self) -> float:
        """For a worker to come, where there is no room for some of them: waited out."""
        return max(4.0, 1.2 * self.start)

    @property
    def task_timeout(self) -> float:
        """For a task, where a worker hangs: waited out."""
        return max(4.0, 10 * self.gap)

    @property
    def deadline(self) -> float:
        """After which a run counts as hung."""
        return max(240.0, 12 * self.whole)

    def pause(self, epochs: int) -> float:
        """After each epoch, in a run that is to go on for as long as a worker may need to come."""
        return max(0.1, 4 * self.start / max(1, epochs))


@dataclass
class Trial:
    """One run, with all that a fault may need."""

    kind: str
    case: str
    nodes: Any
    rng: random.Random
    folder: Path
    epochs: int  # of all chains, at which it happens
    n_workers: int = 4
    limits: TrialLimits = field(default_factory=TrialLimits)
    of: int = 60  # epochs of all chains
    run: FaultRun | None = None
    disk: Disk | None = None
    detail: str = ""
    runs: list[FaultRun] = field(default_factory=list)
    engine: dict[str, Any] = field(default_factory=dict)

    def start(self, resume: bool = False) -> FaultRun:
        """The fit, for the first time or from its checkpoint."""
        limits = self.limits
        short = self.kind == "added"  # which waits for some in vain
        settings: dict[str, Any] = {
            "address": self.nodes.address, "n_workers": self.n_workers,
            "start_timeout": limits.short_start if short else limits.start_timeout,
            **({"task_timeout": limits.task_timeout} if self.kind == "hang" else {}), **self.engine,
        }  # fmt: skip
        order: dict[str, Any] = {"case": self.case, "engine": settings}
        if self.kind == "added":  # a worker needs seconds to start
            order |= {"linger": "has started", "pause": limits.pause(self.of - self.epochs)}
        if self.kind == "disk" and self.disk is None:
            self.disk = Disk(self.folder / "disk")
        if self.kind in ("disk", "driver"):
            where = {"folder": str(self.checkpoint), "every": 0.1, "resume": resume}
            order["checkpoint"] = where
        self.run = FaultRun(
            self.folder / f"run-{len(self.runs) + 1}", order, limits.deadline
        )  # fmt: skip
        self.runs.append(self.run)
        return self.run

    @property
    def checkpoint(self) -> Path:
        return (self.disk.folder if self.disk else self.folder) / "checkpoint"

    def now(self) -> FaultRun:
        assert self.run is not None
        return self.run

    def close(self) -> None:
        """Remove its files but the notes."""
        if self.run is not None and not self.run.ended:
            self.run.kill()
        if self.disk is not None:
            self.disk.close()


def logs_more(run: FaultRun, words: str = "") -> Seen:
    """Whether the run logs something from now on."""
    before = len(run.log)
    return lambda: any(words in line for line in run.log[before:])


def pick_worker(trial: Trial) -> Process:
    """One at random; all are there once an epoch is over."""
    workers = wait_for(lambda: sorted(trial.nodes.workers()), trial.limits.start_timeout)
    assert workers, "no worker was found"
    return trial.rng.choice(workers)


def kill_worker(trial: Trial) -> Seen:
    """A process of a worker, SIGKILLed."""
    victim, noticed = pick_worker(trial), logs_more(trial.now())
    os.kill(victim[0], signal.SIGKILL)
    trial.detail = f"process {victim[0]}"
    return lambda: not alive(victim) and noticed()


def hang_worker(trial: Trial) -> Seen:
    """A process of a worker, SIGSTOPped: it does not answer, nor receive anything."""
    victim, noticed = pick_worker(trial), logs_more(trial.now(), "did not answer")
    os.kill(victim[0], signal.SIGSTOP)
    trial.detail = f"process {victim[0]}"

    def seen() -> bool:
        ended = gone(victim, trial.limits.start_timeout)
        if not ended:  # nothing else wakes it up
            with suppress(ProcessLookupError):
                os.kill(victim[0], signal.SIGKILL)
        return ended and noticed()

    return seen


def lose_node(trial: Trial) -> Seen:
    """A whole node, raylet and workers."""
    noticed = logs_more(trial.now())
    victims = trial.nodes.lose(trial.rng.choice(trial.nodes.nodes))
    trial.detail = f"{len(victims)} workers"
    return lambda: bool(victims) and noticed()


def lose_and_add(trial: Trial) -> Seen:
    """A node is lost, and another comes a little later."""
    seen, pause = lose_node(trial), trial.rng.uniform(0.0, 4.0)
    trial.now().until(lambda: False, pause)
    trial.nodes.add()
    trial.detail += f", another after {pause:.1f} s"
    return seen


def add_node(trial: Trial) -> Seen:
    """The run began with a node too few, and its workers come now."""
    noticed = logs_more(trial.now(), "has started")
    trial.nodes.add()
    return noticed


def fill_disk(trial: Trial) -> Seen:
    """No room for a checkpoint: the run continues, or is killed and resumed with room."""
    assert trial.disk is not None
    run = trial.now()
    trial.disk.fill(run)
    seen = run.logs("no checkpoint of chain")
    if seen and trial.rng.random() < 0.5 and not run.ended:
        killed = run.kill()
        trial.disk.free()
        trial.start(resume=True)
        trial.detail = "then killed and resumed"
        return lambda: killed
    trial.detail = "full to the end" if trial.disk.mounted else "by a limit on files"
    return lambda: seen


def kill_driver(trial: Trial) -> Seen:
    """The driver, SIGKILLed; another resumes from its checkpoint."""
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
            run.until(lambda: False, trial.rng.uniform(0.0, 0.03))  # anywhere in a round
            seen = KINDS[trial.kind](trial)
        found = trial.now().wait()
        happened = in_time and seen()
        log = [line for one in trial.runs for line in one.log]
    finally:
        trial.close()
    early = trial.kind == "added" and NONE_STARTED in found.get("error", "")
    if early or (found["status"] == "done" and not happened):
        found["status"] = "missed"
    return {
        **found, "all_seconds": time.monotonic() - begin, "log": log, "detail": trial.detail,
        "first_epoch": run.times[0] if run.times else None, "injected": in_time,
        "said": "" if found["status"] in ("done", "missed") else trial.now().said[-SAID:],
    }  # fmt: skip
