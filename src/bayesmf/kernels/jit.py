"""How kernels are compiled: `njit` with a safer cache, and its options.

The compiler may reorder and fuse sums (FAST), which loops over ratings need to become vector code.
What it makes of a function then depends on what surrounds it. numba compiles a function for itself
and once more inside each function that calls it, and which of the copies runs depends on what the
process compiled, or found in numba's cache, before. Copies that differ in a last bit would make a
first run differ from a second. So what compiled code calls is one of three things:

| | |
|---|---|
| PART | always becomes part of its caller, so there is no copy to call |
| WITHIN | becomes part of its caller too, for callers that must not reorder: it does not either |
| APART | stays a function, for which every copy gives the same bits: nothing is reordered |

tests/kernels/test_jit.py holds all kernels to this.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numba
from numba.core import config, event
from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    IndexDataCacheFile,
    InTreeCacheLocator,
    NullCache,
    UserProvidedCacheLocator,
)
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


class CacheWarning(UserWarning):
    """Compiled code cannot be cached, so that every start takes longer; the message says why.

    Examples
    --------
    >>> import warnings
    >>> from bayesmf import CacheWarning
    >>> warnings.simplefilter("ignore", CacheWarning)  # an installation that nobody may write to
    """


class CacheFile(IndexDataCacheFile):
    """numba's file of a function's compiled versions, for several processes at once.

    numba numbers the versions, and two processes that compile two of them at the same time may
    choose the same number: the one would be loaded as the other. Here a version has a name of its
    own. Each file ends with a digest of its name and of the rest, which is compared before numba
    looks at it: what was cut short, changed, put under another name or left by someone else is not
    run, but compiled anew. That is against accidents. Who can write there can make us run what he
    likes, as who can write to our code.
    """

    def save(self, key: Any, data: Any) -> None:
        """Write the version first, then say where it is."""
        digest = hashlib.sha256(self._dump((self._source_stamp, key))).hexdigest()
        name = self._data_name_pattern.format(number=int(digest[:16], 16))
        self._save_data(name, data)
        self._save_index({**self._load_index(), key: name})

    def _load_index(self) -> dict[Any, str]:
        if not self._is_sound(self._index_path):
            return {}
        try:
            return dict(super()._load_index())
        except Exception:  # it may name a class that is gone since
            return {}

    def _load_data(self, name: str) -> Any:
        return super()._load_data(name) if self._is_sound(self._data_path(name)) else None

    @contextlib.contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[io.BytesIO]:
        content = io.BytesIO()
        yield content
        with super()._open_for_write(filepath) as file:
            # What numba reads ends before that.
            file.write(content.getvalue() + _seal(filepath, content.getvalue()))

    def _is_sound(self, path: str) -> bool:
        try:
            with open(path, "rb") as file:
                content = file.read()
        except OSError:
            return False
        end = len(content) - hashlib.sha256().digest_size
        return end >= 0 and content[end:] == _seal(path, content[:end])


def _seal(path: str, content: bytes) -> bytes:
    # The file's own name alone: a cache may be moved, or mounted elsewhere.
    return hashlib.sha256(os.path.basename(path).encode() + b"\0" + content).digest()


class _ReadOnly(InTreeCacheLocator):
    """Where code was compiled before, beside the source, where nothing can be written now."""

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> Any:
        """Ask for no more than the source."""
        return cls(py_func, py_file) if os.path.exists(py_file) else None


class _ReadOnlyChosen(UserProvidedCacheLocator):
    """Where code was compiled before, in the folder that NUMBA_CACHE_DIR names."""

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> Any:
        """Ask for no more than that it is there."""
        chosen: Any = config
        if not chosen.CACHE_DIR or not os.path.exists(py_file):
            return None
        made = cls(py_func, py_file)
        return made if os.path.isdir(made.get_cache_path()) else None


class _Locators(CompileResultCacheImpl):
    """numba's folders for compiled code, then those from which it can only be read."""

    _locator_classes = (  # type: ignore[assignment]
        *CompileResultCacheImpl._locator_classes, _ReadOnlyChosen, _ReadOnly,
    )  # fmt: skip


class KernelCache(FunctionCache):
    """numba's cache of a function: nothing that is wrong with it stops us, or is executed.

    Where code cannot be saved, that is said once, and it is compiled at each start.
    """

    _impl_class = _Locators
    # Whether it has been said, in this process.
    told = False

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self._cache_file.__class__ = CacheFile

    def _load_overload(self, sig: Any, target_context: Any) -> Any:
        """A version that was compiled before, None where there is none that can be used."""
        try:
            return super()._load_overload(sig, target_context)
        except MemoryError:
            raise
        except Exception:
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save a version; if that is not possible, not even try again."""
        if KernelCache.told:
            return
        try:
            super().save_overload(sig, data)
        except MemoryError:
            raise
        except Exception as error:
            _warn_uncached(f"{self._cache_path}: {getattr(error, 'strerror', None) or error}")


class _NoCache(NullCache):
    """The cache of a function for which numba finds no folder at all."""

    def save_overload(self, sig: Any, cres: Any) -> None:
        """Say so once."""
        if not KernelCache.told:
            _warn_uncached("there is no folder for it")


def _warn_uncached(reason: str) -> None:
    KernelCache.told = True
    warnings.warn(
        f"compiled code cannot be cached ({reason}), so each start compiles anew what it needs, "
        "for up to a minute: let NUMBA_CACHE_DIR name a folder that can be written to and has room",
        CacheWarning,
        stacklevel=2,
    )


def njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """numba's decorator of that name, with `KernelCache` where options say `cache`."""
    cached = options.pop("cache", False)

    def compiled(function: Callable[..., Any]) -> Any:
        kernel = numba.njit(**options)(function)
        # With NUMBA_DISABLE_JIT there is nothing to cache.
        if cached and hasattr(kernel, "_cache"):
            kernel._cache = _cache_of(function)
        return kernel

    return compiled


def _cache_of(function: Callable[..., Any]) -> KernelCache | _NoCache:
    try:
        return KernelCache(function)
    except (RuntimeError, OSError):  # no folder, or the source is gone
        return _NoCache()


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
        """A function has been compiled."""
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
        """Seconds spent compiling, what is under way included.

        Without the lock: a signal may come while the main thread has it, and whoever ends the
        program then waits for the line of progress, which asks here.
        """
        return self._before + (time.monotonic() - self._begun if self._depth else 0.0)


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
