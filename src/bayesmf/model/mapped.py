"""Room for draws: in memory where it is small, else in a file that the system may page out."""

from __future__ import annotations

import logging
import mmap
import os
import tempfile
from functools import cache

import numpy as np

from bayesmf.kernels.types import Rows

log = logging.getLogger("bayesmf")

# Smaller arrays of draws stay in memory; larger ones are mapped, so the system may page them out.
MAP_ABOVE_BYTES = 32 << 20


def let_go(array: Rows) -> None:
    """Leave what was written to a mapped array to the system: it is not read until the end."""
    advice = getattr(mmap, "MADV_DONTNEED", None)  # not everywhere
    if isinstance(array, np.memmap) and advice is not None:
        array._mmap.madvise(advice)  # type: ignore[attr-defined]


def allocate(n: int, shape: tuple[int, ...]) -> Rows:
    """An array for n draws: in memory where it is small, else in a temporary file.

    The file has no name, so that nothing is left of it however the process ends, and all of its
    room is taken now: a page for which a disk has no room is a signal that ends the process. Where
    there is not enough, memory is taken after all.
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
