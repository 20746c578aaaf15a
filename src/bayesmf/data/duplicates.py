"""What becomes of ratings where a user rated an item more than once."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.errors import InputError

DUPLICATES = ("last", "mean", "error")

_log = logging.getLogger("bayesmf")


def check_duplicates(duplicates: str) -> None:
    """Refuse another word than those in :data:`DUPLICATES`."""
    if duplicates not in DUPLICATES:
        raise InputError(f"duplicates is one of {', '.join(DUPLICATES)}, not {duplicates!r}")


def drop_repeats(
    key: NDArray[np.int64],
    repeated: NDArray[np.int64],
    rating: NDArray[np.float32],
    timestamp: NDArray[np.int64] | None,
    duplicates: str,
) -> NDArray[np.bool_]:
    """Tell which ratings are left when one of each key is; its rating is put where it was.

    Parameters
    ----------
    key : numpy.ndarray
        Ratings with the same key are of one user and item.
    repeated : numpy.ndarray
        The keys that occur more than once, ascending, at least one.
    rating, timestamp : numpy.ndarray
        Of all ratings; those that are left are changed, to the mean or the sum.
    duplicates : {"last", "mean", "sum"}
        As for :class:`bayesmf.data.ratings.Ratings`; the sum is that of cells of a sparse matrix.
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
    """Positions of the last of each key, by time and then position; what their ratings become."""
    # By pair, then time, then position: the last of each group is the one that is left.
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
    """Say that a user rated an item more than once."""
    return InputError(
        f"User {user!r} rated item {item!r} more than once; clean the data or choose"
        " duplicates='last' or 'mean' (--duplicates)"
    )


def warn_of_repeats(extra: int, total: int, duplicates: str) -> None:
    """Log how many ratings were repeats; most of them are where a column is not what it seems."""
    _log.warning(
        "%s of the %s ratings are repeats of a user and an item; %s of each is left%s",
        f"{extra:,}",
        f"{total:,}",
        "the mean" if duplicates == "mean" else "the last",
        ": so many, is another column the user or the item?" if 3 * extra > total else "",
    )
