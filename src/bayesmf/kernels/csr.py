"""Ratings of one side in rows (CSR), and counting sorts into that order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload
from numpy.typing import NDArray

from bayesmf.kernels.jit import APART, ENTRY, EXACT, njit
from bayesmf.kernels.types import readonly

MOST_LEVELS = 256
"""With no more distinct ratings than this, a rating is stored as a code of one byte."""

# 2^10 slots, four for each possible level, keep probes of the hash table short.
_SLOT_BITS = 10


class Origin(NamedTuple):
    """The packed file that lists are mapped from, its digest, and which copy it is."""

    path: str
    digest: str
    copy: str


@dataclass(frozen=True)
class RowLists:
    """The ratings of one side: row ``k`` has those from ``starts[k]`` to ``starts[k + 1]``.

    Parameters
    ----------
    starts
        Where each row begins (``int64``), and the number of ratings at the end.
    other
        Row number on the other side of each rating (``int32``), ascending inside a row.
    value
        Codes of the ratings (``uint8``), or the ratings themselves (``float32``).
    """

    starts: NDArray[np.int64]
    other: NDArray[np.int32]
    value: Any

    def __len__(self) -> int:
        return len(self.other)

    def counts(self) -> NDArray[np.int64]:
        """Number of ratings of each row."""
        return np.diff(self.starts)


def group_rows(
    row: NDArray[np.int32], other: NDArray[np.int32], value: NDArray[Any], n_rows: int
) -> RowLists:
    """Sort ratings by row, stably.

    Parameters
    ----------
    row, other, value
        The ratings, in any order.
    n_rows
        Number of rows; row numbers are below it.
    """
    starts = row_starts(row, n_rows)
    lists = RowLists(starts, np.empty(len(row), dtype=np.int32), np.empty_like(value))
    _deal(row, other, value, starts[:-1].copy(), lists.other, lists.value)
    return lists


def row_starts(row: NDArray[np.integer[Any]], n_rows: int) -> NDArray[np.int64]:
    """Start of each row once ratings are sorted by row, and the end.

    Parameters
    ----------
    row
        Row numbers of the ratings, in any order.
    n_rows
        Number of rows; row numbers are below it.
    """
    starts = np.zeros(n_rows + 1, dtype=np.int64)
    _count(row, starts)
    return starts


def transpose(lists: RowLists, n_other: int) -> RowLists:
    """The same ratings by rows of the other side.

    Parameters
    ----------
    lists
        The ratings of one side, in any order inside its rows.
    n_other
        Number of rows of the other side.
    """
    return transpose_some(lists, row_starts(lists.other, n_other), 0, n_other)


def transpose_some(lists: RowLists, starts: NDArray[np.int64], first: int, last: int) -> RowLists:
    """Ratings of the rows ``first`` to ``last - 1`` of the other side, row by row.

    Parameters
    ----------
    lists
        The ratings of one side, in any order inside its rows.
    starts
        Where each row of the other side begins, by `row_starts`.
    first, last
        The rows of the other side.
    """
    own = starts[first : last + 1] - starts[first]
    turned = RowLists(own, np.empty(own[-1], np.int32), np.empty(own[-1], lists.value.dtype))
    free = own[:-1].copy()
    _transpose(lists.starts, lists.other, lists.value, first, free, turned.other, turned.value)
    return turned


def sort_rows(
    row: NDArray[np.int32],
    other: NDArray[np.int32],
    value: NDArray[Any],
    n_rows: int,
    n_other: int,
) -> RowLists:
    """Sort ratings by row and, inside a row, by the other side, stably.

    Parameters
    ----------
    row, other, value
        The ratings, in any order.
    n_rows, n_other
        Numbers of rows of the two sides.
    """
    # Grouped by the other side first: transposing the groups visits it in ascending order.
    return transpose(group_rows(other, row, value, n_other), n_rows)


def merge_rows(old: RowLists, new: RowLists) -> RowLists:
    """Merge two lists of the same rows; a new rating replaces the old one of the same pair.

    Parameters
    ----------
    old, new
        Ratings by row and, inside a row, in ascending order of the other side, each pair once.
    """
    n = len(old) + len(new)
    starts = np.zeros(len(old.starts), np.int64)
    other, value = np.empty(n, np.int32), np.empty(n, old.value.dtype)
    given = (old.starts, old.other, old.value, new.starts, new.other, new.value)
    _merge(*map(readonly, given), starts, other, value)
    return RowLists(starts, other[: starts[-1]], value[: starts[-1]])


def code_ratings(
    rating: NDArray[np.float32],
) -> tuple[NDArray[np.uint8], NDArray[np.float32]] | None:
    """Replace ratings by codes of one byte; None if they have too many values.

    Parameters
    ----------
    rating
        Finite numbers.

    Returns
    -------
    tuple of numpy.ndarray or None
        The codes, and the distinct ratings, ascending: ``levels[codes]`` are the ratings.
    """
    codes = np.empty(len(rating), dtype=np.uint8)
    levels = np.empty(MOST_LEVELS, dtype=np.float32)
    count = _code(np.ascontiguousarray(rating, dtype=np.float32).view(np.uint32), codes, levels)
    if count > MOST_LEVELS:
        return None
    order = np.argsort(levels[:count])
    rank = np.empty(count, dtype=np.uint8)
    rank[order] = np.arange(count, dtype=np.uint8)
    return rank[codes], levels[order]


def rating_at(value: NDArray[Any], levels: NDArray[np.float32], n: int) -> Any:
    """In compiled code: rating n, coded or not."""
    return levels[value[n]] if value.dtype == np.uint8 else value[n]


@overload(rating_at, inline="always")
def _rating_at(value, levels, n):
    if isinstance(value.dtype, types.Integer):
        return lambda value, levels, n: levels[value[n]]
    return lambda value, levels, n: value[n]


@njit(**EXACT)
def _count(row, starts):
    """starts[1:] = np.cumsum(np.bincount(row)), where `starts` is zero."""
    for k in range(len(row)):
        starts[row[k] + 1] += 1
    for i in range(1, len(starts)):
        starts[i] += starts[i - 1]


@njit(**EXACT)
def _deal(row, other, value, free, other_out, value_out):
    """Put each rating at its row's first free position."""
    for k in range(len(row)):
        i = row[k]
        at = free[i]
        free[i] = at + 1
        other_out[at] = other[k]
        value_out[at] = value[k]


@njit(**EXACT)
def _transpose(starts, other, value, first, free, other_out, value_out):
    """Put each rating of the rows from `first` on at its row's first free position.

    These are as many rows as `free` has entries: rows of the other side of the given ratings.
    """
    for i in range(len(starts) - 1):
        for k in range(starts[i], starts[i + 1]):
            j = other[k] - first
            if 0 <= j < len(free):
                at = free[j]
                free[j] = at + 1
                other_out[at] = i
                value_out[at] = value[k]


@njit(**EXACT)
def _merge(
    starts, other, value, new_starts, new_other, new_value, starts_out, other_out, value_out
):
    """Merge two sorted lists of each row; a new rating replaces an old one."""
    at = 0
    for i in range(len(starts) - 1):
        k, n = starts[i], new_starts[i]
        while k < starts[i + 1] or n < new_starts[i + 1]:
            ended = n == new_starts[i + 1]
            if ended or (k < starts[i + 1] and other[k] < new_other[n]):
                other_out[at], value_out[at] = other[k], value[k]
                k += 1
            else:
                if k < starts[i + 1] and other[k] == new_other[n]:
                    k += 1
                other_out[at], value_out[at] = new_other[n], new_value[n]
                n += 1
            at += 1
        starts_out[i + 1] = at


@njit(**EXACT)
def _code(bits, codes, levels):
    """Code ratings, given by their bits, in the order in which levels appear; count the levels."""
    slots = np.full(1 << _SLOT_BITS, -1, dtype=np.int16)
    known = levels.view(np.uint32)
    count = 0
    for k in range(len(bits)):
        # Minus zero is zero.
        value = np.int64(bits[k]) if bits[k] != 0x80000000 else 0
        slot = (value * 2654435769 & 0xFFFFFFFF) >> (32 - _SLOT_BITS)
        while slots[slot] >= 0 and known[slots[slot]] != value:
            slot = (slot + 1) & ((1 << _SLOT_BITS) - 1)
        if slots[slot] < 0:
            if count == len(levels):
                return count + 1
            slots[slot] = count
            known[count] = value
            count += 1
        codes[k] = slots[slot]
    return count


@njit(**ENTRY)
def find_rated(starts, items, user, item, marks, out):
    """out[n] = whether item[n] is among the items of user[n], which are ascending.

    Many pairs of one user are looked up in a table of marks, few by bisection. `marks` has one
    entry for each item and is all False, before and after.
    """
    n, end = 0, user.shape[0]
    while n < end:
        i, begin = user[n], n
        while n < end and user[n] == i:
            n += 1
        if i < 0:
            out[begin:n] = False
        elif starts[i + 1] - starts[i] < 8 * (n - begin):
            lookup_marked(items[starts[i] : starts[i + 1]], item[begin:n], marks, out[begin:n])
        else:
            lookup_bisected(items[starts[i] : starts[i + 1]], item[begin:n], out[begin:n])


@njit(**APART)
def lookup_marked(items, wanted, marks, out):
    """out[n] = whether wanted[n] is one of the items, through a table of marks."""
    for s in range(items.shape[0]):
        marks[items[s]] = True
    for n in range(wanted.shape[0]):
        out[n] = wanted[n] >= 0 and marks[wanted[n]]
    for s in range(items.shape[0]):
        marks[items[s]] = False


@njit(**APART)
def lookup_bisected(items, wanted, out):
    """out[n] = whether wanted[n] is one of the items."""
    for n in range(wanted.shape[0]):
        lo, hi = 0, items.shape[0]
        while lo < hi:
            middle = (lo + hi) // 2
            if items[middle] < wanted[n]:
                lo = middle + 1
            else:
                hi = middle
        out[n] = lo < items.shape[0] and items[lo] == wanted[n]
