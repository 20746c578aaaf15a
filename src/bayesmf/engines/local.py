"""Engines of one machine: `serial`, in the caller's thread, and `threads`, on a pool.

Kernels release the interpreter's lock, so threads run side by side.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from bayesmf.engines.protocol import Handle
from bayesmf.errors import InputError
from bayesmf.worker import Held, Result, Task, run_task


class Serial:
    """Every task at once, in the caller's thread."""

    n_workers = 1

    def start(self, held: Sequence[Held]) -> None:
        self._held = held

    def submit(self, task: Task) -> Future[Result]:
        future: Future[Result] = Future()
        future.set_result(run_task(self._held[task.place], task))
        return future

    def wait(self, handles: Collection[Handle]) -> set[Handle]:
        return set(handles)

    def close(self) -> None:
        self._held = ()


class Threads:
    """A pool of threads, by default one for each core this process may use."""

    def __init__(self, n_workers: int | None = None) -> None:
        self.n_workers = n_workers or _cores()

    def start(self, held: Sequence[Held]) -> None:
        self._held = held
        self._pool = ThreadPoolExecutor(self.n_workers, thread_name_prefix="bayesmf")

    def submit(self, task: Task) -> Future[Result]:
        return self._pool.submit(run_task, self._held[task.place], task)

    def wait(self, handles: Collection[Handle]) -> set[Handle]:
        futures: list[Any] = list(handles)
        return set(wait(futures, return_when=FIRST_COMPLETED).done)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._held = ()


def make_engine(name: str, n_workers: int | None) -> Serial | Threads:
    """An engine by its name."""
    if n_workers is not None and n_workers < 1:
        raise InputError(f"n_workers must be at least 1; got {n_workers}")
    if name == "serial":
        return Serial()
    if name == "threads":
        return Threads(n_workers)
    raise InputError(f"engine {name!r} is none of 'serial', 'threads'")


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
