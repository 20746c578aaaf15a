"""Independent pieces of an answer on all cores: kernels release the interpreter's lock."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
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

    They start with the first call that has more than one part: a question about one pair needs
    none. What runs here must not call BLAS, which has threads of its own.
    """

    def __init__(self, threads: int | None = None) -> None:
        self.threads = cores() if threads is None else whole("n_workers", threads)
        self._executor: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)

    def each(self, function: Callable[[slice], Any], pieces: Iterable[slice]) -> None:
        """Call a function with every part; returns when all are done, raises what one raised."""
        pieces = list(pieces)
        if self.threads == 1 or len(pieces) < 2:
            for piece in pieces:
                function(piece)
            return
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self.threads, thread_name_prefix="bayesmf")
        for _ in self._executor.map(function, pieces):
            pass
