"""A worker that is a process of its own: what it holds and does."""

from __future__ import annotations

import importlib.metadata
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from bayesmf.engines.ray.transport import own, own_task, packed
from bayesmf.errors import InputError
from bayesmf.kernels.gather import Regressors
from bayesmf.worker.row_tasks import RowsTask
from bayesmf.worker.tasks import Held, Recipe, Result, Task, run_task

PACKAGES = ("bayesmf", "numpy", "numba")


class About(NamedTuple):
    """Where a worker is, and what it runs."""

    pid: int
    node: str
    host: str
    versions: dict[str, str]


class NotHeld(Exception):
    """A worker was asked for ratings that it does not have."""


class Holder:
    """Holds partitions of the ratings, and does tasks on them one after the other."""

    def __init__(self, rehearsal: Sequence[tuple[Held, Task]]) -> None:
        self._held: dict[int, Held] = {}
        self._missing: dict[int, str] = {}
        self._shared: tuple[int, Regressors | None] = (0, None)
        for held, task in rehearsal:
            run_task(own(held), own(task))

    def hold(self, partition: int, held: Held) -> None:
        """Hold ratings that were sent."""
        self._held[partition] = own(held)

    def load(self, partition: int, recipe: Recipe) -> None:
        """Get ratings from storage. A failure is told to whoever asks for them first."""
        try:
            self._held[partition] = recipe.load()
        except Exception as error:
            self._missing[partition] = str(error)

    def drop(self, partition: int) -> None:
        """Forget ratings that another worker holds again."""
        self._held.pop(partition, None)

    def run(
        self, tasks: Sequence[Task], number: int, shared: Regressors | None
    ) -> list[tuple[Result, float]]:
        """Results and seconds of tasks; `shared`, the other side, is copied once for a number."""
        return [self._run(task, number, shared) for task in tasks]

    def _run(self, task: Task, number: int, shared: Regressors | None) -> tuple[Result, float]:
        if task.partition not in self._held:
            raise NotHeld(self._missing.get(task.partition, "they were never sent"))
        if isinstance(task, RowsTask):
            if self._shared[0] != number:
                self._shared = number, own(shared)
            other = self._shared[1]
            assert other is not None
            task = replace(own_task(replace(task, other=())), other=other)  # type: ignore[arg-type]
        else:
            task = own_task(task)
        begin = time.perf_counter()
        result = run_task(self._held[task.partition], task)
        seconds = time.perf_counter() - begin
        return packed(result), seconds


def versions() -> dict[str, str]:
    """Versions of the packages that bits depend on."""
    return {name: importlib.metadata.version(name) for name in PACKAGES}


def check_versions(about: About) -> None:
    """Refuse a worker with other versions: they may draw other bits."""
    for name, here in versions().items():
        if about.versions[name] != here:
            raise InputError(
                f"{about.host} has {name} {about.versions[name]}, this process {here}: install the "
                "same versions on all nodes"
            )
