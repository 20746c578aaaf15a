"""Training ratings in the units of the chains, by row numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.csr import (
    MOST_LEVELS,
    Origin,
    RowLists,
    code_ratings,
    find_rated,
    merge_rows,
    sort_rows,
    transpose,
)
from bayesmf.kernels.types import readonly

# Numbers counted at a time, so that memory is bounded.
COUNTED = 1 << 20


def count_numbers(numbers: NDArray[np.int32], n: int) -> NDArray[np.int64]:
    """Counts of the numbers below n, as np.bincount does, in bounded memory."""
    found = np.zeros(n, np.int64)
    for lo in range(0, len(numbers), COUNTED):
        found += np.bincount(numbers[lo : lo + COUNTED], minlength=n)
    return found


@dataclass(frozen=True)
class TrainingData:
    """Ratings in the units of the chain: centred and scaled, row numbers instead of ids.

    Sorted by user, then item; by item on request. Ratings of few distinct values are codes of one
    byte, and `levels` are the values. Arrays may be mapped from files.

    A model that was saved without users has `counts` alone.
    """

    by_user: RowLists
    n_items: int
    levels: NDArray[np.float32]
    turned: RowLists | None = None  # by item, if known
    origin: Origin | None = None  # the packed file, if workers can map it too
    counts: NDArray[np.int64] | None = None  # ratings of each item, if there are no users

    @classmethod
    def without_users(cls, counts: NDArray[np.int64]) -> TrainingData:
        """Numbers of ratings of items alone."""
        lists = RowLists(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.uint8))
        return cls(lists, len(counts), np.zeros(1, np.float32), counts=counts)

    @classmethod
    def from_triples(
        cls,
        user: NDArray[np.int32],
        item: NDArray[np.int32],
        value: NDArray[Any],
        n_users: int,
        n_items: int,
    ) -> TrainingData:
        """From triples in any order."""
        coded = code_ratings(value) if value.dtype == np.float32 else None
        code, levels = (value, np.zeros(1, np.float32)) if coded is None else coded
        return cls(sort_rows(user, item, code, n_users, n_items), n_items, levels)

    def __len__(self) -> int:
        return len(self.by_user)

    @property
    def n_users(self) -> int:
        return len(self.by_user.starts) - 1

    @cached_property
    def by_item(self) -> RowLists:
        """Ratings item by item."""
        return self.turned or transpose(self.by_user, self.n_items)

    def user_counts(self) -> NDArray[np.int64]:
        """Ratings of each user."""
        return self.by_user.counts()

    @property
    def has_users(self) -> bool:
        """Whether users and their ratings are known."""
        return self.counts is None

    @cached_property
    def _item_counts(self) -> NDArray[np.int64]:
        if self.counts is not None:
            return self.counts
        if self.turned is not None:
            return self.turned.counts()
        return count_numbers(self.by_user.other, self.n_items)

    def item_counts(self) -> NDArray[np.int64]:
        """Ratings of each item."""
        return self._item_counts

    def decode(self, code: NDArray[Any]) -> NDArray[Any]:
        """Ratings of codes."""
        return self.levels[code] if code.dtype == np.uint8 else code

    def triples(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[Any]]:
        """User, item and rating of all ratings, by user; for small data."""
        user = np.repeat(np.arange(self.n_users, dtype=np.int32), self.user_counts())
        return user, self.by_user.other, self.decode(self.by_user.value)

    def mean_square(self) -> float:
        """Mean of the squared ratings."""
        code = self.by_user.value
        if code.dtype == np.uint8:
            share = np.bincount(code, minlength=len(self.levels)) / len(code)
            return float(share @ np.square(self.levels, dtype=float))
        return float(np.mean(np.square(code, dtype=float)))


@dataclass(frozen=True)
class RatedItems:
    """Items that each user has rated, and numbers of ratings."""

    starts: NDArray[np.int64]
    items: NDArray[np.int32]
    counts: NDArray[np.int64] | None = None  # ratings of each item, if there are no users

    @classmethod
    def from_training(cls, data: TrainingData) -> Self:
        """From training ratings."""
        return cls(data.by_user.starts, data.by_user.other, data.counts)

    def for_user(self, user: int) -> NDArray[np.int64]:
        """Row numbers of the items that a user has rated."""
        if user < 0:
            return np.empty(0, np.int64)
        return self.items[self.starts[user] : self.starts[user + 1]].astype(np.int64)

    def rated(self, user: NDArray[np.int64], item: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which pairs are training ratings; fastest if pairs are grouped by user."""
        out = np.zeros(len(user), np.bool_)
        marks = np.zeros(max(self._n_items, int(item.max(initial=-1)) + 1), np.bool_)
        pairs = readonly(self.starts), readonly(self.items), readonly(user), readonly(item)
        find_rated(*pairs, marks, out)
        return out

    @cached_property
    def _n_items(self) -> int:
        return int(self.items.max(initial=-1)) + 1

    def user_counts(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Numbers of training ratings of users by row; 0 for an unseen one (-1)."""
        return _counts(np.append(np.diff(self.starts), 0), rows)

    def item_counts(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Numbers of training ratings of items by row; 0 for an unseen one (-1)."""
        found = count_numbers(self.items, self._n_items) if self.counts is None else self.counts
        return _counts(np.append(found, 0), rows)


def _counts(counts: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Counts by row; the last one is for unseen rows."""
    return np.asarray(counts[rows])


def add_ratings(
    data: TrainingData,
    moved: tuple[NDArray[np.int64], NDArray[np.int64]],
    sizes: tuple[int, int],
    user: NDArray[np.int32],
    item: NDArray[np.int32],
    value: NDArray[np.float32],
) -> TrainingData:
    """Add ratings, in the chain's units; the new rating of a known pair replaces the old one.

    Parameters
    ----------
    data
        The ratings so far.
    moved
        New rows of the users and items of `data`, ascending.
    sizes
        New numbers of users and of items.
    user, item, value
        The added ratings by new rows, each pair once.
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
    """Old and new ratings as codes of the same levels, or as they are if there are too many."""
    if old.dtype != np.uint8:
        return old, value, levels
    union = np.union1d(levels, value).astype(np.float32)
    if len(union) > MOST_LEVELS:
        return levels[old], value, np.zeros(1, np.float32)
    if not np.array_equal(union, levels):  # scaled, two levels may be the same
        old = np.searchsorted(union, levels).astype(np.uint8)[old]
    return old, np.searchsorted(union, value).astype(np.uint8), union
