"""Engines that die in the middle of things, and runs that are resumed until they end."""

from __future__ import annotations

import itertools

import numpy as np

from bayesmf.chains.callbacks import History
from bayesmf.checkpoints.folder import Checkpoint
from bayesmf.engines.local import Serial, Threads
from bayesmf.run.driver import run
from perverse import Perverse

# Fields of events that depend on the clock, or on how fast other chains were.
TIMED = ("seconds", "ratings_per_second", "rmse_all_chains")


class Killed(BaseException):
    """Stands for SIGKILL: nobody catches it, nothing is written after it."""


class Dying:
    """Another engine, which dies instead of beginning one more task of a kind than it may."""

    def __init__(self, inner, tasks, kind=object):
        self.inner, self.left, self.kind = inner, tasks, kind

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def submit(self, task):
        if isinstance(task, self.kind):
            if self.left == 0:
                raise Killed
            self.left -= 1
        return self.inner.submit(task)


class Counting(Serial):
    """Counts the tasks of a run."""

    n = 0

    def submit(self, task):
        self.n += 1
        return super().submit(task)


def tasks_of(data, settings, validation=None):
    """How many tasks a run takes."""
    engine = Counting()
    run(data, settings, engine, validation)
    return engine.n


def killed_and_resumed(
    data, settings, folder, tasks, validation=None, callbacks=lambda: (), kind=object, **how
):
    """Kill a run after so many tasks, again and again, on ever other engines, until it ends.

    Returns its report, its history and how often it was killed. Each time there are listeners anew,
    as there would be in a new process.
    """
    engines = itertools.cycle([Serial, lambda: Threads(3), lambda: Perverse(1)])
    for deaths, engine in enumerate(engines):
        history = History()
        checkpoint = Checkpoint(folder, **{"every": 0, "resume": deaths > 0, **how})
        engine = Dying(engine(), tasks, kind)
        try:
            report = run(
                data, settings, engine, validation, (history, *callbacks()), (), checkpoint
            )
        except Killed:
            assert deaths < 200, "it makes no progress"
        else:
            return report, history, deaths


def facts(report, history):
    """All that must not depend on where a run was stopped."""
    arrays = {name: np.array(array).tobytes() for name, array in report.draws.arrays().items()}
    told = (report.ratings_read, report.epochs, report.convergence, report.repairs)
    events = [{k: v for k, v in event.items() if k not in TIMED} for event in history.events]
    return arrays, told, sorted(events, key=lambda event: (event["chain"], event["epoch"]))
