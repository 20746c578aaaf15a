"""Which items each user was learnt from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.training import TrainingData, count_numbers
from bayesmf.kernels.csr import find_rated
from bayesmf.kernels.types import readonly


@dataclass(frozen=True)
class RatedItems:
    """Which items each user has rated: not to be recommended again, and how much there was."""

    starts: NDArray[np.int64]
    items: NDArray[np.int32]
    counts: NDArray[np.int64] | None = None  # ratings of each item, where there are no users

    @classmethod
    def from_training(cls, data: TrainingData) -> Self:
        """From the training ratings."""
        return cls(data.by_user.starts, data.by_user.other, data.counts)

    def for_user(self, user: int) -> NDArray[np.int64]:
        """Row numbers of the items that a user has rated."""
        if user < 0:
            return np.empty(0, np.int64)
        return self.items[self.starts[user] : self.starts[user + 1]].astype(np.int64)

    def rated(self, user: NDArray[np.int64], item: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which pairs are training ratings; quickest where a user's pairs stand together."""
        out = np.zeros(len(user), np.bool_)
        marks = np.zeros(max(self._n_items, int(item.max(initial=-1)) + 1), np.bool_)
        pairs = readonly(self.starts), readonly(self.items), readonly(user), readonly(item)
        find_rated(*pairs, marks, out)
        return out

    @cached_property
    def _n_items(self) -> int:
        return int(self.items.max(initial=-1)) + 1

    def user_counts(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Training ratings of users by row number; none of an unseen one (-1)."""
        return _counts(np.append(np.diff(self.starts), 0), rows)

    def item_counts(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Training ratings of items by row number; none of an unseen one (-1)."""
        found = count_numbers(self.items, self._n_items) if self.counts is None else self.counts
        return _counts(np.append(found, 0), rows)


def _counts(counts: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Counts by row number; the last is that of an unseen row."""
    return np.asarray(counts[rows])
