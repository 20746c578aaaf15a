"""Stretches of neighbouring rows, sorted in memory: without repeats, by user and by item."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.duplicates import drop_repeats, repeat_error
from bayesmf.ids.id_map import IdMap
from bayesmf.kernels.csr import (
    MOST_LEVELS,
    RowLists,
    code_ratings,
    group_rows,
    sort_rows,
    transpose,
)
from bayesmf.packed.sorted_chunks import CodedValues, SortedChunks, Stretch


class ValueStats(NamedTuple):
    """Levels, range and moments of some ratings."""

    n: int
    levels: list[float] | None
    """Distinct ratings, ascending; None where there are too many."""
    low: float
    high: float
    mean: float
    squared_deviations: float

    def as_meta(self) -> dict[str, Any]:
        """Return all but the number of ratings."""
        meta = self._asdict()
        del meta["n"]
        return meta


class UserPart(NamedTuple):
    """The ratings of a stretch of users, sorted."""

    lists: RowLists
    by_item: RowLists
    """The same ratings grouped by item, of the items that have any."""
    items: NDArray[np.int32]
    """The rows of ``by_item``."""
    repeats: int
    """Number of repeats left out."""
    stats: ValueStats


def sort_users(
    chunks: SortedChunks,
    numbers: Sequence[int],
    rows: tuple[int, int],
    duplicates: str,
    ids: Mapping[str, IdMap],
) -> UserPart:
    """Gather and sort the ratings of users from ``rows[0]`` to ``rows[1] - 1``.

    Parameters
    ----------
    chunks, numbers
        The sorted chunks by user, and their numbers.
    rows
        The first user, and the one after the last.
    duplicates
        As for :func:`bayesmf.pack`.
    ids
        Of both sides.
    """
    first, stop = rows
    found = chunks.gather(numbers, first, stop, chunks.ratings)
    lists = _without_repeats(found, first, stop - first, duplicates, ids)
    repeats = len(found.row) - len(lists)
    del found
    # Levels are those of the remaining ratings.
    codes, levels = code_ratings(lists.value) or (lists.value, None)
    lists = RowLists(lists.starts, lists.other, codes)
    turned = transpose(lists, len(ids["item"]))
    np.add(turned.other, first, out=turned.other)
    items = np.flatnonzero(turned.counts())
    starts = np.append(turned.starts[items], len(turned))
    by_item = RowLists(starts, turned.other, turned.value)
    return UserPart(lists, by_item, items.astype(np.int32), repeats, _stats(codes, levels))


def sort_items(
    chunks: SortedChunks,
    numbers: Sequence[int],
    rows: tuple[int, int],
    n_users: int,
    values: CodedValues,
) -> RowLists:
    """Gather and sort the ratings of items from ``rows[0]`` to ``rows[1] - 1``."""
    first, stop = rows
    row, other, value, _ = chunks.gather(numbers, first, stop, values)
    _check_range(row, stop - first)
    _check_range(other, n_users)
    # Chunks follow each other by user, so users ascend inside an item.
    return group_rows(row, other, value, stop - first)


def _without_repeats(
    found: Stretch, first: int, n_rows: int, duplicates: str, ids: Mapping[str, IdMap]
) -> RowLists:
    """Sort the ratings of some users, and keep one of each user and item."""
    row, other, rating, time = found
    n_items = len(ids["item"])
    _check_range(row, n_rows)
    _check_range(other, n_items)
    lists = sort_rows(row, other, rating, n_rows, n_items)
    at, of = _repeats(lists)
    if not len(at):
        return lists
    if duplicates == "error":
        raise repeat_error(ids["user"][first + of[0]], ids["item"][lists.other[at[0]]])
    repeated_keys = np.unique(of * n_items + lists.other[at])
    del lists
    key = row.astype(np.int64) * n_items + other
    left = drop_repeats(key, repeated_keys, rating, time, duplicates)
    del key
    return sort_rows(row[left], other[left], rating[left], n_rows, n_items)


def _repeats(lists: RowLists) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find the ratings that repeat the one before them, and their rows."""
    at = np.flatnonzero(lists.other[1:] == lists.other[:-1]) + 1
    row = np.searchsorted(lists.starts, at, side="right") - 1
    same = lists.starts[row] != at
    return at[same], row[same]


def _check_range(rows: NDArray[np.int32], n: int) -> None:
    """Raise ValueError for row numbers out of range, with which kernels would write elsewhere."""
    if len(rows) and int(rows.view(np.uint32).max()) >= n:
        raise ValueError("a row is out of range")


def cut_rows(counts: NDArray[np.int64], most: int) -> list[int]:
    """Cut rows into stretches of at most `most` ratings, or of one row."""
    ends = np.cumsum(counts)
    cuts = [0]
    while cuts[-1] < len(counts):
        before = int(ends[cuts[-1] - 1]) if cuts[-1] else 0
        stop = int(np.searchsorted(ends, before + most, side="right"))
        cuts.append(max(stop, cuts[-1] + 1))
    return cuts


def _stats(value: NDArray[Any], levels: NDArray[np.float32] | None) -> ValueStats:
    """Levels, range and moments of ratings, or of their codes among `levels`."""
    if levels is None:
        ratings, weight = value.astype(np.float64), np.ones(1)
    else:
        ratings = levels.astype(np.float64)
        weight = np.bincount(value, minlength=len(levels)).astype(np.float64)
    mean = float(np.sum(ratings * weight)) / len(value)
    return ValueStats(
        n=len(value),
        levels=None if levels is None else levels.tolist(),
        low=float(ratings.min()),
        high=float(ratings.max()),
        mean=mean,
        squared_deviations=float(np.sum((ratings - mean) ** 2 * weight)),
    )


def joint_stats(parts: Sequence[ValueStats]) -> ValueStats:
    """Merge statistics; squared deviations are about the mean, for ratings far from zero."""
    n = sum(part.n for part in parts)
    mean = math.fsum(part.n * part.mean for part in parts) / n
    squares = (part.squared_deviations + part.n * (part.mean - mean) ** 2 for part in parts)
    return ValueStats(
        n=n,
        levels=_all_levels(parts),
        low=min(part.low for part in parts),
        high=max(part.high for part in parts),
        mean=mean,
        squared_deviations=math.fsum(squares),
    )


def _all_levels(parts: Sequence[ValueStats]) -> list[float] | None:
    found: set[float] = set()
    for part in parts:
        if part.levels is None:
            return None
        found.update(part.levels)
    return sorted(found) if len(found) <= MOST_LEVELS else None
