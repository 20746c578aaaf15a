"""How kernels are compiled: `njit` with a safer cache, and its options.

The compiler may reorder and fuse sums (FAST), which loops over ratings need to become vector code.
What it makes of a function then depends on what surrounds it. numba compiles a function for itself
and once more inside each function that calls it, and which of the copies runs depends on what the
process compiled, or found in numba's cache, before. Copies that differ in a last bit would make a
first run differ from a second. So what compiled code calls is one of three things:

| | |
|---|---|
| PART | always becomes part of its caller, so there is no copy to call |
| WITHIN | the same, for callers that must not reorder: it does not either |
| APART | stays a function, for which every copy gives the same bits: nothing is reordered |

tests/test_compiling.py holds all kernels to this.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import numba
from numba.core import event
from numba.core.caching import IndexDataCacheFile
from numba.core.compiler_lock import global_compiler_lock

# nnan and ninf stay off: divergence is noticed by looking for NaN and infinity.
FAST = {"reassoc", "contract", "nsz", "arcp"}

# What is called from compiled code alone needs no entry from Python: half of the compile time.
_INSIDE: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}

EXACT: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy"}
ENTRY: dict[str, Any] = {**EXACT, "fastmath": FAST}
PART: dict[str, Any] = {**ENTRY, **_INSIDE, "forceinline": True}
WITHIN: dict[str, Any] = {**EXACT, **_INSIDE, "forceinline": True}
APART: dict[str, Any] = {**EXACT, **_INSIDE}


class CacheFile(IndexDataCacheFile):
    """numba's file of a function's compiled versions, for several processes at once.

    numba numbers the versions, and two processes that compile two of them at the same time may
    choose the same number: the one would be loaded as the other. Here a version has a name of its
    own. What an older bayesmf left behind may name a class that is gone, which is no error here.
    """

    def save(self, key: Any, data: Any) -> None:
        """Write the version first, then say where it is."""
        digest = hashlib.sha256(self._dump((self._source_stamp, key))).hexdigest()
        name = self._data_name_pattern.format(number=int(digest[:16], 16))
        self._save_data(name, data)
        self._save_index({**self._load_index(), key: name})

    def _load_index(self) -> dict[Any, str]:
        try:
            return dict(super()._load_index())
        except (AttributeError, ImportError):
            return {}


def njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """numba's decorator of that name."""

    def compiled(function: Callable[..., Any]) -> Any:
        kernel = numba.njit(**options)(function)
        if options.get("cache"):
            kernel._cache._cache_file.__class__ = CacheFile
        return kernel

    return compiled


class CompileClock(event.Listener):
    """How long this process has been compiling; loading from numba's cache does not count.

    Compiling is silent and may take a minute, so whoever shows a line of progress asks here, and
    may leave a function in `observers` that is called, on the compiling thread, when it begins.
    """

    def __init__(self) -> None:
        self.observers: list[Callable[[], None]] = []
        self._lock, self._depth = threading.Lock(), 0
        self._before, self._begun = 0.0, 0.0

    def on_start(self, event: Any) -> None:
        """A function is being compiled, perhaps inside another."""
        with self._lock:
            self._depth += 1
            if self._depth == 1:
                self._begun = time.monotonic()
        for observer in tuple(self.observers):
            observer()

    def on_end(self, event: Any) -> None:
        """It has been."""
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                self._before += time.monotonic() - self._begun

    @property
    def depth(self) -> int:
        """How many functions are being compiled, each for the one before."""
        return self._depth

    @property
    def busy(self) -> bool:
        """Whether something is being compiled now."""
        return self._depth > 0

    def seconds(self) -> float:
        """All of it, what is under way included."""
        with self._lock:
            now = time.monotonic() - self._begun if self._depth else 0.0
            return self._before + now


CLOCK = CompileClock()
event.register("numba:compile", CLOCK)


def _fresh_clock() -> None:
    """In the child of a fork: no thread is there that could open the clock's lock."""
    CLOCK._lock = threading.Lock()
    global_compiler_lock.release()


if hasattr(os, "register_at_fork"):
    # A fork waits for the end of what another thread compiles: the child, where that thread is not,
    # would wait for ever to compile anything, or load it from the cache.
    os.register_at_fork(
        before=global_compiler_lock.acquire,
        after_in_parent=global_compiler_lock.release,
        after_in_child=_fresh_clock,
    )
