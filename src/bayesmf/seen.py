"""Which items each user was learnt from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from bayesmf.batches import TrainingData
from bayesmf.kernels import find_rated


@dataclass(frozen=True)
class Seen:
    """Which items each user has rated: not to be recommended again, and how much there was."""

    starts: NDArray[np.int64]
    items: NDArray[np.int32]

    @classmethod
    def of_data(cls, data: TrainingData) -> Self:
        """From the training ratings."""
        order = np.lexsort((data.item, data.user))
        starts = np.zeros(data.n_users + 1, np.int64)
        np.cumsum(data.user_counts(), out=starts[1:])
        return cls(starts, data.item[order])

    def of(self, user: int) -> NDArray[np.int64]:
        """Row numbers of the items that a user has rated."""
        if user < 0:
            return np.empty(0, np.int64)
        return self.items[self.starts[user] : self.starts[user + 1]].astype(np.int64)

    def rated(self, user: NDArray[np.int64], item: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which pairs are training ratings."""
        out = np.zeros(len(user), np.bool_)
        find_rated(self.starts, self.items, user, item, out)
        return out

    def of_users(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Training ratings of users by row number; none of an unseen one (-1)."""
        return _counts(np.diff(self.starts), rows)

    def of_items(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Training ratings of items by row number; none of an unseen one (-1)."""
        return _counts(np.bincount(self.items, minlength=1), rows)


def _counts(counts: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.where(rows < 0, 0, counts[rows])
