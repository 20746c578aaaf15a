"""Repeated ratings of a user and an item."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.errors import InputError

DUPLICATES = ("last", "mean", "error")

_log = logging.getLogger("bayesmf")


def check_duplicates(duplicates: str) -> None:
    """Refuse a value that is not in :data:`DUPLICATES`."""
    if duplicates not in DUPLICATES:
        raise InputError(f"duplicates is one of {', '.join(DUPLICATES)}, not {duplicates!r}")


def drop_repeats(
    key: NDArray[np.int64],
    repeated: NDArray[np.int64],
    rating: NDArray[np.float32],
    timestamp: NDArray[np.int64] | None,
    duplicates: str,
) -> NDArray[np.bool_]:
    """Mask of ratings with one of each key; `rating` is changed there to the mean or the sum.

    `repeated` are the keys that occur more than once, ascending. The sum is for cells of a sparse
    matrix.
    """
    nearest = repeated[np.minimum(np.searchsorted(repeated, key), len(repeated) - 1)]
    left = np.equal(nearest, key)
    del nearest
    rows = np.flatnonzero(left)
    times = None if timestamp is None else timestamp[rows]
    last, value = _last_of_repeats(key[rows], rating[rows], times, duplicates)
    np.logical_not(left, out=left)
    left[rows[last]] = True
    rating[rows[last]] = value
    return left


def _last_of_repeats(
    key: NDArray[np.int64],
    rating: NDArray[np.float32],
    timestamp: NDArray[np.int64] | None,
    duplicates: str,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Positions of the last of each key, by time and then position, and their new ratings."""
    # By key, then time, then position: the last of each group is kept.
    order = np.lexsort((key,) if timestamp is None else (timestamp, key))
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    last = order[np.append(starts[1:], len(order)) - 1]
    if duplicates == "last":
        return last, rating[last]
    sizes = np.diff(starts, append=len(order))
    sums = np.add.reduceat(rating[order].astype(np.float64), starts)
    if duplicates == "mean":
        return last, (sums / sizes).astype(np.float32)
    if np.any(np.abs(sums) > np.finfo(np.float32).max):
        raise InputError(
            "Cells of the sparse matrix that are stored several times have sums too large for"
            " single precision; divide all ratings by a number"
        )
    return last, sums.astype(np.float32)


def repeat_error(user: Any, item: Any) -> InputError:
    """Error: a user rated an item more than once."""
    return InputError(
        f"User {user!r} rated item {item!r} more than once; clean the data or choose"
        " duplicates='last' or 'mean' (--duplicates)"
    )


def warn_of_repeats(extra: int, total: int, duplicates: str) -> None:
    """Log how many ratings were repeats; many suggest that a column was mistaken."""
    _log.warning(
        "%s of the %s ratings are repeats of a user and an item; %s of each is kept%s",
        f"{extra:,}",
        f"{total:,}",
        "the mean" if duplicates == "mean" else "the last",
        "; check which columns are the user and the item" if 3 * extra > total else "",
    )
