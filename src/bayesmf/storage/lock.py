"""Locks on folders and files that are open: they end with the process, and leave nothing behind.

Windows has no such locks. There processes that write to one path at the same time are not kept
apart (each still writes beside it and renames), nothing that others left is swept, and whoever
begins a long job is told so.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

# Seconds for which another process is waited for: it does nothing here but make or rename a folder.
PATIENCE = 10.0

EXIST = fcntl is not None


@contextlib.contextmanager
def one_writer(folder: Path) -> Iterator[bool]:
    """Keep other writers out of a folder for a moment, and tell whether that was possible.

    Where folders have no locks, or somebody keeps one for long (anybody may), things are done all
    the same: they are whole without it, and only what others have left cannot be told.
    """
    handle = open_for_lock(folder)
    if handle is None:
        yield False
        return
    try:
        end = time.monotonic() + PATIENCE
        while (alone := try_lock(handle)) is False and time.monotonic() < end:
            time.sleep(0.002)
        yield bool(alone)
    finally:
        release(handle)


def open_for_lock(path: Path, folder: bool = True) -> int | None:
    """A folder (or a file), open, where there are locks and it may be opened."""
    if not EXIST:
        return None
    try:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        return os.open(path, flags | (os.O_DIRECTORY if folder else 0))
    except PermissionError:  # one may be allowed to write where one may not look
        return None


def try_lock(handle: int) -> bool | None:
    """Lock what is open until it is closed: False if another process has, None if none can."""
    if not EXIST:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # some shared file systems have no locks for folders
        return None
    return True


def unlock(handle: int) -> None:
    """Let others have the lock: a process that was forked meanwhile has the same one."""
    if EXIST:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_UN)


def release(handle: int) -> None:
    """Unlock and close."""
    unlock(handle)
    os.close(handle)
