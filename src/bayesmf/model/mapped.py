"""Arrays for draws: in memory if small, else in a temporary file."""

from __future__ import annotations

import logging
import mmap
import os
import tempfile
from functools import cache

import numpy as np

from bayesmf.kernels.types import Rows

log = logging.getLogger("bayesmf")

# Bytes above which an array is mapped.
MAP_ABOVE_BYTES = 32 << 20


def release_pages(array: Rows) -> None:
    """Let the system write pages of a mapped array and free their memory."""
    advice = getattr(mmap, "MADV_DONTNEED", None)  # not everywhere
    if isinstance(array, np.memmap) and advice is not None:
        array._mmap.madvise(advice)  # type: ignore[attr-defined]


def allocate(n: int, shape: tuple[int, ...]) -> Rows:
    """An array for n draws: in memory if it is small, else in a temporary file.

    The file is unlinked, so none is left when the process ends. Disk space is allocated now: a full
    disk would kill the process later. Without enough space the array is in memory.
    """
    size = 4 * n * int(np.prod(shape))
    if size >= MAP_ABOVE_BYTES:
        try:
            with tempfile.TemporaryFile(prefix="bayesmf-draws-") as file:
                _take_room(file.fileno(), size)
                return np.memmap(file, np.float32, "r+", 0, (n, *shape))  # keeps it open
        except OSError as error:
            _warn_once(error.strerror or str(error))
    return np.empty((n, *shape), np.float32)


def _take_room(handle: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle, 0, size)
        return
    piece, left = bytes(1 << 20), size
    while left:
        left -= os.write(handle, piece[:left])


@cache
def _warn_once(reason: str) -> None:
    log.warning(
        "the temporary folder has no room for draws (%s): they stay in memory; TMPDIR can name "
        "another folder", reason,
    )  # fmt: skip
