"""How much memory Ray's object store needs for messages on their way."""

from __future__ import annotations

import shutil

from bayesmf.engines.base import Workload
from bayesmf.engines.ledger import payload
from bayesmf.process import memory_bytes

STORE = 512 << 20  # bytes for parameters on their way


def store_bytes(load: Workload) -> int | None:
    """Bytes for the ratings while they are sent, and for parameters; None leaves it to Ray.

    That is where memory is short, or its size is unknown. A store of known size can be made at the
    start: a page that is written for the first time costs as much as copying it several times.
    """
    memory = memory_bytes()
    try:
        free = shutil.disk_usage("/dev/shm").free
    except OSError:
        return None
    recipes = load.recipes or [None] * len(load.held)
    sent = [held for held, recipe in zip(load.held, recipes, strict=True) if recipe is None]
    size = sum(map(payload, sent)) + STORE
    # Shares of the machine's memory, and of what is free of the file system in memory.
    return size if memory is not None and size < min(0.3 * memory, 0.9 * free) else None
