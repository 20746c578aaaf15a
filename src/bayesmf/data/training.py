"""Ratings as chains learn from them: in their units, by row numbers, in lists of users."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.csr import Origin, RowLists, code_ratings, sort_rows, transpose
from bayesmf.system.forks import once


@dataclass(frozen=True)
class TrainingData:
    """Ratings in the units of the chain: centred and scaled, row numbers instead of ids.

    By user, then item; by item where that is asked for, found once. Ratings of few values are codes
    of one byte, and `levels` are what codes stand for. All may be mapped from files.
    """

    by_user: RowLists
    n_items: int
    levels: NDArray[np.float32]
    turned: RowLists | None = None  # by item, where it is known
    origin: Origin | None = None  # the folder that all are mapped from, where workers can do so too

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

    @once
    def by_item(self) -> RowLists:
        """Ratings item by item."""
        return self.turned or transpose(self.by_user, self.n_items)

    def user_counts(self) -> NDArray[np.int64]:
        """Ratings of each user."""
        return self.by_user.counts()

    @once
    def _item_counts(self) -> NDArray[np.int64]:
        if self.turned is not None:
            return self.turned.counts()
        return np.bincount(self.by_user.other, minlength=self.n_items)

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
