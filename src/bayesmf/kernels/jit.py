"""How kernels are compiled: `njit`, and its options.

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

import functools
import shutil
import warnings
from collections.abc import Callable
from typing import Any

import numba

# nnan and ninf stay off: divergence is noticed by looking for NaN and infinity.
FAST = {"reassoc", "contract", "nsz", "arcp"}

# What is called from compiled code alone needs no entry from Python: half of the compile time.
_INSIDE: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}

# Free bytes that a folder for compiled code must have: numba raises where its disk is full.
ROOM = 64 << 20

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
    >>> warnings.simplefilter("ignore", CacheWarning)  # an installation on a read-only disk
    """


def njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """numba's decorator, without its cache where no folder can take compiled code."""

    def compiled(function: Callable[..., Any]) -> Any:
        if options.get("cache"):
            try:
                kernel = numba.njit(**options)(function)
                # With NUMBA_DISABLE_JIT it is the plain function.
                folder = kernel.stats.cache_path if hasattr(kernel, "stats") else None
                if folder is None or _has_room(folder):
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
def _warn_uncached(reason: str) -> None:
    warnings.warn(
        f"compiled code cannot be cached ({reason}), so each start compiles again, for up to a "
        "minute: set NUMBA_CACHE_DIR to a folder that is writable and has room",
        CacheWarning,
        stacklevel=2,
    )
