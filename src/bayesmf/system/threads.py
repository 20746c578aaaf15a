"""Independent pieces of an answer on all cores: kernels release the interpreter's lock."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any, Self

from bayesmf.checks import whole


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def parts(n: int, size: int) -> list[slice]:
    """`range(n)` in stretches of `size`, the last one shorter."""
    return [slice(lo, min(lo + size, n)) for lo in range(0, n, size)]


class Pool:
    """Threads for as long as one answer takes: one for each core unless told otherwise.

    The one that asks is among them; others start with the first call that has more than one part: a
    question about one pair needs none. What runs here must not call BLAS, which has threads of its
    own, nor wait for a pool.
    """

    def __init__(self, threads: int | None = None) -> None:
        self.threads = cores() if threads is None else whole("n_workers", threads)
        self._executor: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *ended: object) -> None:
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)

    def each(self, function: Callable[[slice], Any], pieces: Iterable[slice]) -> None:
        """Call a function with every part; returns when all are done, raises what one raised."""
        todo = deque(pieces)

        def work() -> None:
            try:
                while todo:
                    try:
                        piece = todo.popleft()
                    except IndexError:  # another was quicker
                        return
                    function(piece)
            except BaseException:
                todo.clear()
                raise

        helpers = self._helpers(work, min(self.threads, len(todo)) - 1)
        try:
            work()
        finally:
            # Whoever has not begun by now is not needed.
            wait([helper for helper in helpers if not helper.cancel()])
        for helper in helpers:
            if not helper.cancelled():
                helper.result()

    def _helpers(self, work: Callable[[], None], n: int) -> list[Future[None]]:
        """Other threads that do the same; fewer where the system has no more to give."""
        helpers: list[Future[None]] = []
        if n > 0 and self._executor is None:
            self._executor = ThreadPoolExecutor(self.threads - 1, thread_name_prefix="bayesmf")
        with suppress(RuntimeError):  # no thread can be started, as at the interpreter's end
            for _ in range(n):
                assert self._executor is not None
                helpers.append(self._executor.submit(work))
        return helpers
