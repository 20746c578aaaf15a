"""Stretches of users, small enough to be sorted in memory: without repeats, and item by item."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.duplicates import drop_repeats, repeat_error
from bayesmf.ids.id_map import IdMap
from bayesmf.kernels.csr import RowLists, code_ratings, group_rows, sort_rows, transpose
from bayesmf.packed.sorted_chunks import CodedValues, SortedChunks, Stretch
from bayesmf.packed.values import about_values


class UserPart(NamedTuple):
    """The ratings of a stretch of users, sorted."""

    lists: RowLists
    by_item: RowLists
    """Those ratings item by item, of the items that have any."""
    items: NDArray[np.int32]
    """The rows of ``by_item``."""
    repeats: int
    """How many ratings were left out."""
    about: dict[str, Any]
    """Levels, range and moments."""


def sort_users(
    chunks: SortedChunks,
    numbers: Sequence[int],
    rows: tuple[int, int],
    n_items: int,
    duplicates: str,
    ids: Callable[[str], IdMap],
) -> UserPart:
    """Gather and sort the ratings of a stretch of users.

    Parameters
    ----------
    chunks, numbers
        The sorted chunks by user, and their numbers.
    rows
        The first user, and the one behind the last.
    n_items
        Number of all items.
    duplicates
        As for :func:`bayesmf.pack`.
    ids
        Gives the ids of a side, for an error message.
    """
    first, stop = rows
    found = chunks.gather(numbers, first, stop, chunks.ratings)
    lists = without_repeats(found, first, stop - first, n_items, duplicates, ids)
    repeats = len(found.row) - len(lists)
    del found
    return sorted_part(lists, first, n_items, repeats)


def sort_items(
    chunks: SortedChunks,
    numbers: Sequence[int],
    rows: tuple[int, int],
    n_users: int,
    values: CodedValues,
) -> RowLists:
    """Gather and sort the ratings of a stretch of items.

    Parameters
    ----------
    chunks, numbers
        The sorted chunks by item, and their numbers.
    rows
        The first item, and the one behind the last.
    n_users
        Number of all users.
    values
        Of the chunks.
    """
    first, stop = rows
    row, other, value, _ = chunks.gather(numbers, first, stop, values)
    check_range(row, stop - first)
    check_range(other, n_users)
    # Chunks follow each other by user, so users ascend inside an item.
    return group_rows(row, other, value, stop - first)


def sorted_part(lists: RowLists, first: int, n_items: int, repeats: int) -> UserPart:
    """Code the ratings of users from ``first`` on, and group them by item as well.

    Parameters
    ----------
    lists
        The ratings, as `without_repeats` gave them.
    first
        The first user.
    n_items
        Number of all items.
    repeats
        How many ratings were left out.
    """
    # Repeats may leave other ratings than were read: levels are known at the end.
    codes, levels = code_ratings(lists.value) or (lists.value, None)
    lists = RowLists(lists.starts, lists.other, codes)
    turned = transpose(lists, n_items)
    np.add(turned.other, first, out=turned.other)
    items = np.flatnonzero(turned.counts())
    starts = np.append(turned.starts[items], len(turned))
    by_item = RowLists(starts, turned.other, turned.value)
    return UserPart(lists, by_item, items.astype(np.int32), repeats, about_values(codes, levels))


def without_repeats(
    found: Stretch,
    first: int,
    n_rows: int,
    n_items: int,
    duplicates: str,
    ids: Callable[[str], IdMap],
) -> RowLists:
    """Sort the ratings of some users, and leave one of each user and item.

    Parameters
    ----------
    found
        The ratings, as they were gathered; some are changed.
    first, n_rows
        The first user, and how many there are.
    n_items
        Number of all items.
    duplicates
        As for :func:`bayesmf.pack`.
    ids
        Gives the ids of a side, for an error message.
    """
    row, other, rating, time = found
    check_range(row, n_rows)
    check_range(other, n_items)
    lists = sort_rows(row, other, rating, n_rows, n_items)
    at, of = _repeats(lists)
    if not len(at):
        return lists
    if duplicates == "error":
        raise repeat_error(ids("user")[first + of[0]], ids("item")[lists.other[at[0]]])
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


def check_range(rows: NDArray[np.int32], n: int) -> None:
    """Raise ValueError for numbers that no row has: kernels would write elsewhere."""
    if len(rows) and int(rows.view(np.uint32).max()) >= n:
        raise ValueError("a row is out of range")


def cut_rows(counts: NDArray[np.int64], most: int) -> list[int]:
    """Cut rows into stretches of at most so many ratings, or of one row."""
    ends = np.cumsum(counts)
    cuts = [0]
    while cuts[-1] < len(counts):
        before = int(ends[cuts[-1] - 1]) if cuts[-1] else 0
        stop = int(np.searchsorted(ends, before + most, side="right"))
        cuts.append(max(stop, cuts[-1] + 1))
    return cuts
