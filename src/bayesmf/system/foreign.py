"""What other libraries raise, told by us: which of it is theirs, and why, in a few words."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import threading
from collections.abc import Iterator

from bayesmf.wording import cut

# More than that nobody reads, and a reason may quote all of a file.
_LONGEST = 300
_NUMBERED = re.compile(r"os error (\d+)")


def polars_errors(*more: type[BaseException]) -> tuple[type[BaseException], ...]:
    """What polars raises where it cannot read or write, a panic (no Exception) included; and more.

    For an `except`, which asks when something has been raised.
    """
    polars = sys.modules.get("polars")  # what has not been imported has raised nothing
    if polars is None:
        return more
    return polars.exceptions.PolarsError, polars.exceptions.PanicException, *more


def reason_of(error: BaseException) -> str:
    """Give the first line of what another library said, as much of it as one reads."""
    # Of the system's errors without the name, which the sentence has already.
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return cut(said.strip().partition("\n")[0].rstrip(".: "), _LONGEST) or "no reason given"


def as_os_error(error: BaseException) -> OSError | None:
    """The error of the system, also where another library has put it into its own words."""
    if isinstance(error, OSError) and error.errno is not None:
        return error
    found = _NUMBERED.search(str(error))
    return OSError(int(found[1]), os.strerror(int(found[1]))) if found else None


# -- what compiled libraries print ----------------------------------------------------------------


class _Silence:
    """How many ask for it, and where the standard error of compiled code was meanwhile."""

    allowed = False
    lock = threading.Lock()
    asking = 0
    before = -1


def separate_stderr() -> None:
    """Give Python a standard error of its own, so that that of compiled code can be silenced.

    For a program, which owns its standard error: a panic of polars prints where it happened, and a
    trace, before anyone can tell what it means.
    """
    try:
        if sys.stderr.fileno() != 2:
            return
        # Without a buffer: what could not be written must not be tried again at the end.
        raw = open(os.dup(2), "wb", buffering=0)  # noqa: SIM115
    except (AttributeError, OSError, ValueError):  # closed by the shell, or something else by now
        return
    sys.stderr = io.TextIOWrapper(
        raw, encoding=sys.stderr.encoding, errors="backslashreplace", write_through=True
    )
    _Silence.allowed = True


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Compiled code says nothing meanwhile; only where Python has a standard error of its own."""
    if not _Silence.allowed:
        yield
        return
    with _Silence.lock:
        if _Silence.asking == 0:
            _Silence.before = os.dup(2)
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 2)
            os.close(null)
        _Silence.asking += 1
    try:
        yield
    finally:
        with _Silence.lock:
            _Silence.asking -= 1
            if _Silence.asking == 0:
                os.dup2(_Silence.before, 2)
                os.close(_Silence.before)
