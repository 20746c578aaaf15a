"""Ratings as chains learn from them: in their units, by row numbers, in lists of users."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.csr import Origin, RowLists, code_ratings, sort_rows, transpose

# Numbers that are counted at a time: as int64, a few megabytes of what may not fit in memory.
COUNTED = 1 << 20


def count_numbers(numbers: NDArray[np.int32], n: int) -> NDArray[np.int64]:
    """How often each of the numbers below n occurs, as np.bincount does, in little memory."""
    found = np.zeros(n, np.int64)
    for lo in range(0, len(numbers), COUNTED):
        found += np.bincount(numbers[lo : lo + COUNTED], minlength=n)
    return found


@dataclass(frozen=True)
class TrainingData:
    """Ratings in the units of the chain: centred and scaled, row numbers instead of ids.

    By user, then item; by item where that is asked for, found once. Ratings of few values are codes
    of one byte, and `levels` are what codes stand for. All may be mapped from files.

    A model that was loaded may lack the ratings: folders of earlier versions hold which items were
    rated, not how (their lists have no values); those saved without users hold `counts` alone.
    """

    by_user: RowLists
    n_items: int
    levels: NDArray[np.float32]
    turned: RowLists | None = None  # by item, where it is known
    origin: Origin | None = None  # the folder that all are mapped from, where workers can do so too
    counts: NDArray[np.int64] | None = None  # ratings of each item, where there are no users

    @classmethod
    def without_users(cls, counts: NDArray[np.int64]) -> TrainingData:
        """No ratings of anybody; how many each item had is known."""
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
        """Whether users are here, and which items they have rated."""
        return self.counts is None

    @property
    def has_values(self) -> bool:
        """Whether the ratings themselves are here."""
        return self.has_users and self.by_user.value is not None

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
        """Ratings from what stands for them."""
        return self.levels[code] if code.dtype == np.uint8 else code

    def triples(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[Any]]:
        """User, item and rating of all ratings, by user: for small data alone."""
        user = np.repeat(np.arange(self.n_users, dtype=np.int32), self.user_counts())
        return user, self.by_user.other, self.decode(self.by_user.value)

    def mean_square(self) -> float:
        """Mean of the squared ratings."""
        code = self.by_user.value
        if code.dtype == np.uint8:
            share = np.bincount(code, minlength=len(self.levels)) / len(code)
            return float(share @ np.square(self.levels, dtype=float))
        return float(np.mean(np.square(code, dtype=float)))
