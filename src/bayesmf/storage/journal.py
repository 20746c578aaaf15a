"""A folder that only one process works in."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bayesmf.errors import InputError
from bayesmf.storage import lock
from bayesmf.storage.regular import open_handle

log = logging.getLogger("bayesmf")

_LOCK = "lock"


@contextlib.contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Make a folder and keep other processes out of it; a crash lets them in again."""
    folder.mkdir(parents=True, exist_ok=True)
    if not lock.EXIST:
        log.warning("this system has no locks: let no other process write to %s meanwhile", folder)
        yield
        return
    while True:
        with os.fdopen(open_handle(folder / _LOCK, os.O_RDWR | os.O_CREAT), "r+b") as stream:
            if not lock.try_lock(stream.fileno()):
                raise InputError(
                    f"Another process is at work in {folder}: wait for it to end, or end it"
                )
            if not _is_at(stream, folder / _LOCK):
                continue  # whoever had it has just removed it with all the rest
            try:
                yield
            finally:
                lock.unlock(stream.fileno())
            return


def _is_at(stream: Any, path: Path) -> bool:
    """Whether an open file still has its name."""
    try:
        return os.path.samestat(os.fstat(stream.fileno()), os.lstat(path))
    except FileNotFoundError:
        return False
