"""Splits of ratings into train and test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bayesmf.checks import whole
from bayesmf.errors import InputError


class Splitting:
    """Mixin of `Ratings` with its splits: at random, by user, by time, into folds."""

    user_rows: NDArray[np.int32]
    timestamp: NDArray[np.int64] | None
    n_users: Any

    def __len__(self) -> int:
        raise NotImplementedError

    def take(self, index: Any) -> Self:
        """Some of the ratings, with the same id maps."""
        raise NotImplementedError

    def _need(self, n: int) -> None:
        raise NotImplementedError

    def split(self, share: float = 0.1, random_state: int = 0) -> tuple[Self, Self]:
        """Split at random into train and test.

        Parameters
        ----------
        share : float
            Share of the ratings that goes to test, between 0 and 1.
        random_state : int
            The same number gives the same split.

        Returns
        -------
        tuple of Ratings
            Train and test, with the same id maps.

        Raises
        ------
        InputError
            If there are not two ratings, or an argument is invalid.

        Examples
        --------
        >>> from bayesmf import Synthetic
        >>> train, test = Synthetic(60, 40, 1_000).ratings().split(0.2, random_state=1)
        >>> len(train), len(test)
        (800, 200)
        """
        count = self._test_count(share)
        order = _generator(random_state).permutation(len(self))
        return self._part(order[:count])

    def split_by_user(self, share: float = 0.1, random_state: int = 0) -> tuple[Self, Self]:
        """Split at random, the same share of every user's ratings.

        Parameters
        ----------
        share : float
            Share of each user's ratings that goes to test, at least one of them; users
            with one rating stay in train.
        random_state : int
            The same number gives the same split.

        Returns
        -------
        tuple of Ratings
            Train and test, with the same id maps.

        Raises
        ------
        InputError
            If every user has one rating only, or an argument is invalid.

        Examples
        --------
        >>> from bayesmf import Ratings
        >>> ratings = Ratings([1, 1, 1, 2, 2, 3], [7, 8, 9, 7, 8, 7], [1, 2, 3, 4, 5, 6])
        >>> train, test = ratings.split_by_user(0.4)
        >>> test.users.tolist()
        [1, 2]
        """
        self._test_count(share)
        order = np.lexsort((_generator(random_state).random(len(self)), self.user_rows))
        counts = np.bincount(self.user_rows, minlength=self.n_users)
        held = np.where(counts > 1, np.clip(np.rint(share * counts), 1, counts - 1), 0)
        grouped = self.user_rows[order]
        rank = np.arange(len(self)) - (np.cumsum(counts) - counts)[grouped]
        test = order[rank < held[grouped]]
        if not len(test):
            raise InputError("Every user has one rating only: use split instead")
        return self._part(test)

    def split_by_time(self, share: float = 0.1) -> tuple[Self, Self]:
        """Split by time: the latest share goes to test.

        Parameters
        ----------
        share : float
            Share of the ratings that goes to test; of equal times, the later in position.

        Returns
        -------
        tuple of Ratings
            Train and test, with the same id maps.

        Raises
        ------
        InputError
            If the ratings have no timestamps, or `share` is not between 0 and 1.

        Examples
        --------
        >>> from bayesmf import Ratings
        >>> days = ["2024-03-01", "2023-01-01", "2022-05-05"]
        >>> ratings = Ratings([1, 1, 2], [7, 8, 7], [1, 2, 3], days)
        >>> train, test = ratings.split_by_time(0.3)
        >>> test.users.tolist(), test.items.tolist()
        ([1], [7])
        """
        if self.timestamp is None:
            raise InputError("These ratings have no timestamps: they cannot be split by time")
        count = self._test_count(share)
        return self._part(np.argsort(self.timestamp, kind="stable")[-count:])

    def k_folds(self, k: int = 5, random_state: int = 0) -> Iterator[tuple[Self, Self]]:
        """Iterate over ``k`` pairs of train and test; each rating is in one test set.

        Parameters
        ----------
        k : int
            Number of folds, 2 or more.
        random_state : int
            The same number gives the same folds.

        Returns
        -------
        iterator of tuple of Ratings
            Train and test of each fold, with the same id maps.

        Raises
        ------
        InputError
            If there are fewer ratings than folds, or an argument is invalid.

        Examples
        --------
        >>> from bayesmf import Synthetic
        >>> ratings = Synthetic(60, 40, 1_000).ratings()
        >>> [len(test) for train, test in ratings.k_folds(3)]
        [334, 333, 333]
        """
        if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or not 2 <= k <= len(self):
            raise InputError(f"k must be a whole number from 2 to {len(self)}, not {k!r}")
        order = _generator(random_state).permutation(len(self))
        return (self._part(fold) for fold in np.array_split(order, k))

    def _test_count(self, share: float) -> int:
        if not isinstance(share, (int, float, np.number)) or not 0 < share < 1:
            raise InputError(f"share must be a number between 0 and 1, not {share!r}")
        self._need(2)
        return min(max(round(float(share) * len(self)), 1), len(self) - 1)

    def _part(self, test: NDArray[np.int64]) -> tuple[Self, Self]:
        held = np.zeros(len(self), dtype=bool)
        held[test] = True
        return self.take(~held), self.take(held)


def _generator(random_state: int) -> np.random.Generator:
    return np.random.default_rng(whole("random_state", random_state, 0))
