"""Refuse limits of the system under which a command would abort without a word, or hang.

Under a limit on address space (`ulimit -v`) libraries whose threads or tables find no room abort,
or wait for ever. Most of what they ask for is never touched, so where there is such a limit they
are made to ask for less, and a limit that is below even that is refused.
"""

from __future__ import annotations

import os
from contextlib import suppress

from bayesmf.errors import InputError
from bayesmf.system.threads import cores

# What a small fit takes, with room to compile, and what threads take for each core.
NEEDED, FOR_A_CORE = 900 << 20, 48 << 20
# Parts that the memory of a process is divided into, of which each thread would have its own.
_ARENAS = -8  # M_ARENA_MAX of mallopt


def check_limits() -> None:
    """Refuse a limit on address space under which nothing runs; under any, ask for less."""
    limit = address_space()
    if limit is None:
        return
    needed = NEEDED + FOR_A_CORE * cores()
    if limit < needed:
        raise InputError(
            f"the limit on address space (ulimit -v) is {limit / 1e9:.2g} GB, and bayesmf needs "
            f"{needed / 1e9:.2g} GB, most of which it never touches: raise the limit, or limit the "
            "memory that is used (MemoryMax of systemd, --memory of containers)"
        )
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    import ctypes

    with suppress(AttributeError, OSError, TypeError):  # glibc has it, others need it not
        ctypes.CDLL(None).mallopt(_ARENAS, 1)


def address_space() -> int | None:
    """The limit on address space in bytes, None where there is none."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit
