"""What a fork leaves behind: polars without its threads, and locks that nobody will open.

A forked process has a copy of everything but threads. Work that polars gives to its own would wait
for ever, so after such a fork nothing here asks it to: ids and columns in memory are read without
it, and what cannot be, as a file, is refused in a sentence. Whether polars has begun any threads is
told by their names, where the system tells (Linux); elsewhere it counts as soon as it is imported.
"""

from __future__ import annotations

import os
import re
import sys

from bayesmf.errors import InputError

# Where Linux lists the threads of a process.
_TASKS = "/proc/self/task"


class _State:
    """Whether polars' threads were lost in a fork of this process, or of one before it."""

    lost = False
    losing = False


def polars_is_lost() -> bool:
    """Whether this process was forked from one in which polars had threads."""
    return _State.lost


def check_polars(what: str) -> None:
    """Refuse what needs polars where it would wait for ever."""
    if _State.lost:
        raise InputError(
            f"{what} is not possible in this process, which was forked after polars had been used "
            'and so lacks its threads: start processes with the method "spawn" or "forkserver" of '
            "multiprocessing, or do this before the fork and pass the data on in memory"
        )


def _note_threads() -> None:
    """Before a fork: whether there are threads that the child will lack."""
    _State.losing = _State.lost or ("polars" in sys.modules and _polars_has_threads())


def _polars_has_threads() -> bool:
    name = re.compile(re.escape(os.environ.get("POLARS_THREAD_NAME", "polars")) + r"-\d|async-exec")
    try:
        tasks = os.listdir(_TASKS)
    except OSError:
        return True
    return any(name.match(_name_of(task)) for task in tasks)


def _name_of(task: str) -> str:
    try:
        with open(f"{_TASKS}/{task}/comm", encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:  # it has ended meanwhile
        return ""


def _take_over() -> None:
    """In the child: what was noted is so from now on."""
    _State.lost = _State.losing


if hasattr(os, "register_at_fork"):  # not on Windows, where nobody forks
    os.register_at_fork(before=_note_threads, after_in_child=_take_over)
