"""How kernels are compiled: `njit`, and its options.

The compiler may reorder and fuse sums (FAST), which is needed to vectorize loops over ratings. The
result then depends on the surrounding code. numba compiles a function by itself and again inside
each caller, and which copy runs depends on what was compiled or cached before. Copies that differ
in the last bit would make runs differ. So functions called from compiled code are of three kinds:

| | |
|---|---|
| PART | always inlined, so no separate copy is called |
| WITHIN | inlined in callers that must not reorder; does not reorder either |
| APART | not inlined; nothing is reordered, so every copy gives the same bits |

tests/kernels/test_jit.py checks all kernels.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

# nnan and ninf are off, because divergence is detected by NaN and infinity.
FAST = {"reassoc", "contract", "nsz", "arcp"}

# Functions called only from compiled code need no Python wrapper, which halves the compile time.
_INSIDE: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}

# Free bytes that a folder for compiled code must have: numba raises where its disk is full.
ROOM = 64 << 20

EXACT: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy"}
ENTRY: dict[str, Any] = {**EXACT, "fastmath": FAST}
PART: dict[str, Any] = {**ENTRY, **_INSIDE, "forceinline": True}
WITHIN: dict[str, Any] = {**EXACT, **_INSIDE, "forceinline": True}
APART: dict[str, Any] = {**EXACT, **_INSIDE}


class CacheWarning(UserWarning):
    """Compiled code cannot be cached, so every start takes longer; the message has the reason.

    Examples
    --------
    >>> import warnings
    >>> from bayesmf import CacheWarning
    >>> warnings.simplefilter("ignore", CacheWarning)  # an installation on a read-only disk
    """


def njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """numba's decorator, without cache if no folder is writable or has room."""

    def compiled(function: Callable[..., Any]) -> Any:
        if options.get("cache"):
            try:
                kernel = numba.njit(**options)(function)
                # With NUMBA_DISABLE_JIT this is the plain function.
                folder = kernel.stats.cache_path if hasattr(kernel, "stats") else None
                if folder is None or _has_room(folder):
                    if folder is not None:
                        _drop_stale(folder)
                    return kernel
                _warn_uncached(f"{folder} has no room")
            except RuntimeError:  # numba found no folder that can be written to
                _warn_uncached("no folder can be written to")
        return numba.njit(**{**options, "cache": False})(function)

    return compiled


@functools.cache
def _has_room(folder: str) -> bool:
    try:
        return shutil.disk_usage(folder).free >= ROOM
    except OSError:  # the folder may be made later
        return True


@functools.cache
def _drop_stale(folder: str) -> None:
    """Remove what was compiled from other sources than today's.

    numba compares the file of a function alone: it would use code with an older version of a
    helper from another file, and fails on a type that was renamed.
    """
    sources = hashlib.sha256(numba.__version__.encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        sources.update(source.read_bytes())
    stamp, now = Path(folder) / "sources.sha256", sources.hexdigest().encode()
    with contextlib.suppress(OSError):
        if stamp.exists() and stamp.read_bytes() == now:
            return
        for compiled in Path(folder).glob("*.nb[ic]"):
            compiled.unlink(missing_ok=True)
        stamp.write_bytes(now)


@functools.cache
def _warn_uncached(reason: str) -> None:
    warnings.warn(
        f"compiled code cannot be cached ({reason}), so each start compiles again, for up to a "
        "minute: set NUMBA_CACHE_DIR to a folder that is writable and has room",
        CacheWarning,
        stacklevel=2,
    )
