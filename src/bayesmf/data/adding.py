"""Training ratings to which others are added."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.training import TrainingData
from bayesmf.kernels.csr import MOST_LEVELS, RowLists, merge_rows, sort_rows

Index = NDArray[np.int64]


def add_ratings(
    data: TrainingData,
    moved: tuple[Index, Index],
    sizes: tuple[int, int],
    user: NDArray[np.int32],
    item: NDArray[np.int32],
    value: NDArray[np.float32],
) -> TrainingData:
    """Add ratings, in the chain's units; of a pair that has a rating the new one counts.

    Parameters
    ----------
    data
        The ratings so far.
    moved
        Where the users and items of `data` are now, ascending.
    sizes
        Numbers of users and of items now.
    user, item, value
        The new ratings by row numbers of now, each pair once.
    """
    lists, (users, items) = data.by_user, moved
    old, new, levels = _recoded(lists.value, data.levels, value)
    counts = np.zeros(sizes[0], np.int64)
    counts[users] = lists.counts()
    starts = np.zeros(sizes[0] + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    other = lists.other if len(items) == sizes[1] else items.astype(np.int32)[lists.other]
    added = sort_rows(user, item, new, *sizes)
    merged = merge_rows(RowLists(starts, np.asarray(other), np.asarray(old)), added)
    return TrainingData(merged, sizes[1], levels)


def _recoded(
    old: NDArray[Any], levels: NDArray[np.float32], value: NDArray[np.float32]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.float32]]:
    """Old and new ratings as codes of the same levels; as they are where these are too many."""
    if old.dtype != np.uint8:
        return old, value, levels
    union = np.union1d(levels, value).astype(np.float32)
    if len(union) > MOST_LEVELS:
        return levels[old], value, np.zeros(1, np.float32)
    if len(union) > len(levels):
        old = np.searchsorted(union, levels).astype(np.uint8)[old]
    return old, np.searchsorted(union, value).astype(np.uint8), union
