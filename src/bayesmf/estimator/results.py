"""Result types: predictions, recommendations, explanations; also shown and exported as tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.tabular import Columns, Tabular
from bayesmf.posterior.posterior import Floats, Index
from bayesmf.wording import short


@dataclass(frozen=True, repr=False)
class Predictions(Tabular):
    """Predictions of pairs: mean, standard deviation and interval of a new rating.

    Iteration gives a named tuple for each pair; `pandas.DataFrame(found)` and
    `polars.DataFrame(found)` work, too.

    Attributes
    ----------
    users, items : ndarray
        The ids of the query; None for a user without one.
    mean, std : ndarray of float64
        Expected rating, and standard deviation of a new one, noise included.
    low, high : ndarray of float64
        Bounds between which a new rating falls with probability `level`.
    known : ndarray of bool
        False where the user or the item was not in the training ratings, so the prior answers.
    level : float
        Probability of the interval.

    Examples
    --------
    >>> from bayesmf import BayesianMF, Gibbs
    >>> ratings = [1, 1, 2, 2, 3], [7, 8, 7, 9, 8], [4.0, 1.0, 5.0, 3.0, 2.0]
    >>> model = BayesianMF(2, sampler=Gibbs(epochs=4), random_state=0).fit(ratings)
    >>> found = model.predict_table([1, 3], [9, 9], level=0.8)
    >>> found
    Predictions(2 pairs, intervals of 80%)
    >>> [row.known for row in found]
    [True, True]
    """

    users: NDArray[Any]
    items: NDArray[Any]
    mean: Floats
    std: Floats
    low: Floats
    high: Floats
    known: NDArray[np.bool_]
    level: float

    def __len__(self) -> int:
        return len(self.mean)

    def __repr__(self) -> str:
        unknown = int(len(self) - self.known.sum())
        note = f", {unknown:,} of them with an unknown id" if unknown else ""
        return f"Predictions({len(self):,} pairs, intervals of {self.level:.0%}{note})"

    def _columns(self) -> Columns:
        names = ("mean", "std", "low", "high", "known")
        ids = {"user": self.users, "item": self.items}
        return ids | {name: getattr(self, name) for name in names}

    def _title(self) -> str:
        return repr(self)


class Recommendation(NamedTuple):
    """An item for a user, with the expected rating and the interval of a new one.

    Attributes
    ----------
    item : int or str
        Id of the item.
    mean, std : float
        Expected rating, and standard deviation of a new one, noise included.
    low, high : float
        Bounds of the interval of a new rating.

    Examples
    --------
    >>> from bayesmf import BayesianMF, Gibbs
    >>> ratings = [1, 1, 2, 2, 3], [7, 8, 7, 9, 8], [4.0, 1.0, 5.0, 3.0, 2.0]
    >>> model = BayesianMF(2, sampler=Gibbs(epochs=4), random_state=0).fit(ratings)
    >>> best = model.recommend(1)[0]
    >>> best.item, best.low < best.mean < best.high
    (9, True)
    """

    item: Any
    mean: float
    std: float
    low: float
    high: float

    def __repr__(self) -> str:
        numbers = ", ".join(f"{name}={short(getattr(self, name))}" for name in self._fields[1:])
        return f"Recommendation(item={self.item!r}, {numbers})"


class RecommendationList(list[Recommendation], Tabular):
    """The best items of one user, best first: a list of `Recommendation` that is also a table.

    Parameters
    ----------
    iterable : iterable of Recommendation
        The items.

    Examples
    --------
    >>> from bayesmf import BayesianMF, Gibbs
    >>> ratings = [1, 1, 2, 2, 3], [7, 8, 7, 9, 8], [4.0, 1.0, 5.0, 3.0, 2.0]
    >>> model = BayesianMF(2, sampler=Gibbs(epochs=4), random_state=0).fit(ratings)
    >>> model.recommend(3, n=2).to_polars().columns
    ['item', 'mean', 'std', 'low', 'high']
    """

    def __iter__(self) -> Any:
        return list.__iter__(self)

    def _columns(self) -> Columns:
        fields = Recommendation._fields
        return {name: [getattr(one, name) for one in self] for name in fields}


@dataclass(frozen=True, repr=False)
class Recommendations(Tabular):
    """The best items of many users: row k of each array belongs to `users[k]`.

    As a table (`to_pandas()`, `to_polars()`, `to_arrow()`, iteration) it has a row for each user
    and item: user, rank, item, mean, std, and low and high where there are intervals.

    Attributes
    ----------
    users : ndarray, shape (n_users,)
        Ids of the users.
    items : ndarray, shape (n_users, n)
        Ids of items, best first; beyond `counts[k]` -1, or None for string ids.
    mean, std : ndarray of float64, shape (n_users, n)
        Expected rating, and standard deviation of a new one; NaN beyond `counts[k]`.
    low, high : ndarray of float64, shape (n_users, n), or None
        Interval of a new rating, where a `level` was given; NaN beyond `counts[k]`.
    counts : ndarray of int64, shape (n_users,)
        Number of items of each user: fewer than n only if no more are left.

    Examples
    --------
    >>> from bayesmf import BayesianMF, Gibbs
    >>> ratings = [1, 1, 2, 2, 3], [7, 8, 7, 9, 8], [4.0, 1.0, 5.0, 3.0, 2.0]
    >>> model = BayesianMF(2, sampler=Gibbs(epochs=4), random_state=0).fit(ratings)
    >>> found = model.recommend_many([1, 3], n=2)
    >>> found
    Recommendations(3 items for 2 users)
    >>> found.items[0].tolist(), found.counts.tolist()
    ([9, -1], [1, 2])
    """

    users: NDArray[Any]
    items: NDArray[Any]
    mean: Floats
    std: Floats
    low: Floats | None
    high: Floats | None
    counts: Index

    @classmethod
    def from_rows(
        cls, users: Any, item_ids: NDArray[Any], items: Index, numbers: list[Floats]
    ) -> Self:
        """Make recommendations from row numbers of items.

        Parameters
        ----------
        users : array-like, shape (n_users,)
            Ids of the users.
        item_ids : ndarray
            Ids of all items by row number.
        items : ndarray of int64, shape (n_users, n)
            Row numbers of the items, best first, -1 where none is left.
        numbers : list of ndarray, shape (n_users, n)
            Mean and std, and low and high where there are intervals.

        Returns
        -------
        Recommendations
            The same with ids.

        Examples
        --------
        >>> import numpy as np
        >>> from bayesmf import Recommendations
        >>> rows, numbers = np.array([[1, 0]]), [np.array([[4.5, 4.0]]), np.array([[0.9, 0.8]])]
        >>> Recommendations.from_rows(["ann"], np.array([7, 8]), rows, numbers).items.tolist()
        [[8, 7]]
        """
        filled = items >= 0
        named = np.full(items.shape, -1 if item_ids.dtype.kind == "i" else None, item_ids.dtype)
        named[filled] = item_ids[items[filled]]
        low, high = numbers[2:] or (None, None)
        return cls(np.asarray(users), named, numbers[0], numbers[1], low, high, filled.sum(1))

    def __len__(self) -> int:
        return int(self.counts.sum())

    def __repr__(self) -> str:
        return f"Recommendations({len(self):,} items for {len(self.users):,} users)"

    def _title(self) -> str:
        return repr(self)

    def _columns(self) -> Columns:
        user, rank = np.nonzero(self.filled)
        numbers = {"mean": self.mean, "std": self.std, "low": self.low, "high": self.high}
        return {
            "user": self.users[user],
            "rank": rank + 1,
            "item": self.items[self.filled],
            **{name: x[self.filled] for name, x in numbers.items() if x is not None},
        }

    @property
    def filled(self) -> NDArray[np.bool_]:
        """Which entries of the arrays hold an item, shape (n_users, n)."""
        return np.arange(self.items.shape[1]) < self.counts[:, None]


@dataclass(frozen=True, repr=False)
class Explanation(Tabular):
    """Parts of a prediction: what each of the user's ratings adds, and its spread.

    As a table it has a row for each rating, the largest share first: item, rating, share,
    share_std, effect, effect_std.

    Attributes
    ----------
    prediction : float
        The expected rating, not clipped to the range of ratings.
    rest : float
        Prediction for a user without ratings. `rest + shares.sum()` is the prediction.
    items : ndarray
        Ids of the items that the user has rated, the largest share first.
    ratings : ndarray of float64
        The user's ratings of them.
    shares, share_std : ndarray of float64
        What each rating adds to the prediction: mean and standard deviation over draws. Zero for a
        rating equal to its prediction for a user without ratings.
    effects, effect_std : ndarray of float64
        Prediction minus the prediction without this rating.

    Examples
    --------
    >>> from bayesmf import BayesianMF, Gibbs
    >>> ratings = [1, 1, 2, 2, 3], [7, 8, 7, 9, 8], [4.0, 1.0, 5.0, 3.0, 2.0]
    >>> model = BayesianMF(2, sampler=Gibbs(epochs=4), random_state=0).fit(ratings)
    >>> found = model.explain(1, 9)
    >>> bool(abs(found.rest + found.shares.sum() - found.prediction) < 1e-6)
    True
    """

    prediction: float
    rest: float
    items: NDArray[Any]
    ratings: Floats
    shares: Floats
    share_std: Floats
    effects: Floats
    effect_std: Floats

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        return f"Explanation({short(self.prediction)} = {self._sum()})"

    def _sum(self, most: int = 3) -> str:
        """The prediction as a sum of its largest parts."""
        parts = [f"{short(self.rest)} for people in general"]
        for item, rating, share, std in self._rows(most):
            parts.append(f"{share:+.2f} +/- {std:.2f} for {item!r} rated {rating:g}")
        left = len(self) - most
        if left > 0:
            parts.append(f"{float(self.shares[most:].sum()):+.2f} for {left:,} more")
        return " ".join(parts)

    def _rows(self, n: int) -> list[tuple[Any, float, float, float]]:
        columns = self.items[:n], self.ratings[:n], self.shares[:n], self.share_std[:n]
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def _columns(self) -> Columns:
        return {
            "item": self.items,
            "rating": self.ratings,
            "share": self.shares,
            "share_std": self.share_std,
            "effect": self.effects,
            "effect_std": self.effect_std,
        }

    def _title(self) -> str:
        return (
            f"{short(self.prediction)}: {short(self.rest)} and the shares of {len(self):,} ratings"
        )


@dataclass(frozen=True, repr=False)
class Neighbours(Tabular):
    """The items (or users) most similar to one of them: correlations and their spread.

    As a table it has a row for each: id, similarity, std.

    Attributes
    ----------
    ids : ndarray
        Ids, the most similar first.
    similarity, std : ndarray of float64
        Correlation of the predictions of the two: mean and standard deviation over draws.

    Examples
    --------
    >>> from bayesmf import BayesianMF, Gibbs
    >>> ratings = [1, 1, 2, 2, 3], [7, 8, 7, 9, 8], [4.0, 1.0, 5.0, 3.0, 2.0]
    >>> model = BayesianMF(2, sampler=Gibbs(epochs=4), random_state=0).fit(ratings)
    >>> len(model.similar_items(7))
    2
    """

    ids: NDArray[Any]
    similarity: Floats
    std: Floats

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        few = zip(self.ids[:3].tolist(), self.similarity[:3].tolist(), strict=True)
        best = ", ".join(f"{id!r} {value:.2f}" for id, value in few)
        return f"Neighbours({best}{', ...' if len(self) > 3 else ''})"

    def _columns(self) -> Columns:
        return {"id": self.ids, "similarity": self.similarity, "std": self.std}

    def _title(self) -> str:
        return repr(self)
