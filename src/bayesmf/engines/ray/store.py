"""How much memory messages need on their way through Ray's store."""

from __future__ import annotations

import os
import shutil

from bayesmf.engines.base import Workload
from bayesmf.engines.ledger import payload

STORE = 512 << 20  # bytes for parameters on their way


def store_bytes(work: Workload) -> int | None:
    """Of a store for the ratings while they are sent, and for parameters; None: as Ray thinks fit.

    A store of known size can be made at the start: a page that is written for the first time costs
    as much as copying it several times.
    """
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        free = shutil.disk_usage("/dev/shm").free
    except (OSError, ValueError):
        return None
    recipes = work.recipes or [None] * len(work.held)
    sent = [held for held, recipe in zip(work.held, recipes, strict=True) if recipe is None]
    size = sum(map(payload, sent)) + STORE
    return size if size < min(0.3 * memory, 0.9 * free) else None
