"""Engines of one machine: `serial`, in the caller's thread, and `threads`, on a pool.

Kernels release the interpreter's lock, so threads run side by side.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Collection, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from bayesmf.engines.base import Handle, Ledger, WallClock, Workload
from bayesmf.model.refs import Array, Ref, fetch_here
from bayesmf.process import cores
from bayesmf.worker.tasks import Held, Result, Task, with_refs


def _here(how: str, name: str, array: Array) -> Ref:
    """A reference to an array of this process."""
    return Ref(array)


class _Local(WallClock):
    """Base of engines in one process, where nothing is sent."""

    n_workers: int
    _held: Sequence[Held]

    def _begin(self, load: Workload) -> None:
        self._held = load.held
        self._ledger = Ledger(type(self).__name__.lower(), self.n_workers)

    def fetch(self, refs: Sequence[Ref]) -> list[Array]:
        return fetch_here(refs)

    def settled(self, chain: int, refs: Sequence[Ref]) -> None:
        """Do nothing: arrays of this process are not lost."""

    def _run(self, worker: int, task: Task) -> Result:
        begin = time.perf_counter()
        result: Result = with_refs(task.execute(self._held[task.partition]), _here)
        self._ledger.done(worker, task.partition, time.perf_counter() - begin)
        return result


class Serial(_Local):
    """Executes every task when it is submitted, in the caller's thread."""

    n_workers = 1

    def start(self, load: Workload) -> None:
        self._begin(load)

    def submit(self, task: Task) -> Future[Result]:
        future: Future[Result] = Future()
        future.set_result(self._run(0, task))
        return future

    def wait(self, handles: Collection[Handle]) -> set[Handle]:
        return set(handles)

    def close(self) -> None:
        self._held = ()


class Threads(_Local):
    """A pool of threads, by default one for each core this process may use."""

    def __init__(self, n_workers: int | None = None) -> None:
        self.n_workers = n_workers or cores()
        self._own = threading.local()

    def start(self, load: Workload) -> None:
        self._begin(load)
        numbers = itertools.count()

        def name() -> None:
            self._own.number = next(numbers)

        self._pool = ThreadPoolExecutor(
            self.n_workers, thread_name_prefix="bayesmf", initializer=name
        )

    def submit(self, task: Task) -> Future[Result]:
        return self._pool.submit(lambda: self._run(self._own.number, task))

    def wait(self, handles: Collection[Handle]) -> set[Handle]:
        futures: list[Any] = list(handles)
        return set(wait(futures, return_when=FIRST_COMPLETED).done)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._held = ()


class Rehearsal(Serial):
    """A serial engine that remembers one task of each kind, with which workers compile."""

    def __init__(self) -> None:
        self.tasks: list[tuple[Held, Task]] = []

    def submit(self, task: Task) -> Future[Result]:
        if type(task) not in {type(known) for _, known in self.tasks}:
            self.tasks.append((self._held[task.partition], task))
        return super().submit(task)
