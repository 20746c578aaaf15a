"""`predict`, `predict_interval` and `predict_table`: expected ratings and their uncertainty."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from bayesmf.checks import yes_or_no
from bayesmf.data.ratings import Ratings
from bayesmf.errors import InputError
from bayesmf.estimator.fitted import Fitted
from bayesmf.estimator.questions import Query, result_for
from bayesmf.estimator.results import Predictions
from bayesmf.posterior.levels import Runs, level_probabilities, needed_levels, runs_of
from bayesmf.posterior.posterior import Posterior, check_level
from bayesmf.reading.memory import Columns, pairs_of, refuse_columns

Floats = NDArray[np.float64]
Id = int | str


class _NoLevels(InputError, AttributeError):
    """Error for an attribute this model lacks; makes `hasattr` return False."""


class Predicting(Fitted):
    """Predictions of pairs: the part of `BayesianMF` with `predict` and its relatives."""

    def _pairs(
        self, users: Any, items: Any, columns: Columns | None = None, ratings: Any = None
    ) -> tuple[Query, Posterior]:
        """The pairs of a query, and the posterior."""
        found = self._fitted()
        if items is None and isinstance(users, Ratings):
            refuse_columns(columns, "ratings")
            left_out, found = found.left_out, result_for(found, users.users, ratings)
            asked = Query.from_ratings(users, found.user_ids, found.item_ids)
            return replace(asked, left_out=left_out), found.posterior
        if items is None:
            users, items = pairs_of(users, columns)
        else:
            refuse_columns(columns, "users and items that are given apart")
        left_out, found = found.left_out, result_for(found, users, ratings)
        asked = Query.from_ids(0 if users is None else users, items, found.user_ids, found.item_ids)
        if users is None:  # one without an id, whose row is that of user 0
            asked = replace(asked, given=((lambda: [None]), asked.given[1]))
        return replace(asked, left_out=left_out), found.posterior

    @overload
    def predict(
        self, users: Id, items: Id, return_std: Literal[False] = False, *,
        return_known: Literal[False] = False, ratings: Any = None,
        columns: Columns | None = None,
    ) -> float: ...  # fmt: skip
    @overload
    def predict(
        self, users: Id, items: Id, return_std: Literal[True], *,
        return_known: Literal[False] = False, ratings: Any = None,
        columns: Columns | None = None,
    ) -> tuple[float, float]: ...  # fmt: skip
    @overload
    def predict(
        self, users: Any, items: Any = None, return_std: Literal[False] = False, *,
        return_known: Literal[False] = False, ratings: Any = None,
        columns: Columns | None = None,
    ) -> Floats: ...  # fmt: skip
    @overload
    def predict(
        self, users: Any, items: Any = None, *, return_std: Literal[True],
        return_known: Literal[False] = False, ratings: Any = None,
        columns: Columns | None = None,
    ) -> tuple[Floats, Floats]: ...  # fmt: skip
    @overload
    def predict(
        self, users: Any, items: Any, return_std: Literal[True], *,
        return_known: Literal[False] = False, ratings: Any = None,
        columns: Columns | None = None,
    ) -> tuple[Floats, Floats]: ...  # fmt: skip
    @overload
    def predict(
        self, users: Any, items: Any = None, return_std: bool = False, *,
        return_known: bool, ratings: Any = None, columns: Columns | None = None,
    ) -> tuple[Any, ...]: ...  # fmt: skip
    def predict(
        self,
        users: Any,
        items: Any = None,
        return_std: bool = False,
        *,
        return_known: bool = False,
        ratings: Any = None,
        columns: Columns | None = None,
    ) -> Any:
        """Predict the expected ratings of pairs of user and item.

        Parameters
        ----------
        users, items : id or array-like of ids
            Ids, equally many, or one of them a single id. Without `items`, the first argument is a
            table or an array of pairs, as scikit-learn's X, or a `Ratings`.
        return_std : bool
            Also return the standard deviation of a new rating, noise included.
        return_known : bool
            Also return which pairs have a user and an item of the training ratings. The others get
            the prior's mean and spread, with a warning unless this is True.
        ratings : mapping or as X of `fit`, optional
            Ratings of these users, new or known, used beside the training ratings: `{item: rating}`
            for one user, who may be None, else a table of user, item and rating. Exact, without a
            refit; the model is unchanged. A new rating of an item replaces the old one.
        columns : mapping, optional
            Names of the columns, such as `{"user": "customer"}`.

        Returns
        -------
        ndarray or tuple of ndarray
            Means; with `return_std` and `return_known` a tuple of means, standard deviations and
            flags. Plain numbers for a single pair.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Gibbs
        >>> model = BayesianMF(2, sampler=Gibbs(epochs=4), random_state=0)
        >>> cups = [("ann", "tea", 5), ("ann", "milk", 2), ("bob", "tea", 4), ("eve", "tea", 3)]
        >>> _ = model.fit(cups)
        >>> 1 <= model.predict("bob", "milk") <= 5
        True
        >>> mean, std = model.predict([("bob", "milk"), ("eve", "milk")], return_std=True)
        >>> mean.shape
        (2,)
        >>> new = model.predict(None, ["tea", "milk"], ratings={"tea": 1})
        >>> new.shape
        (2,)
        """
        yes_or_no("return_std", return_std)
        yes_or_no("return_known", return_known)
        asked, posterior = self._pairs(users, items, columns, ratings)
        if not return_known:
            asked.warn_of_unknown()
        if return_std:
            mean, std = self._answers(asked.user, asked.item, posterior.mean_std)
        else:
            (mean,), std = self._answers(asked.user, asked.item, posterior.mean), None
        wanted = (mean, True), (std, return_std), (asked.known, return_known)
        answers: list[Any] = [answer for answer, asked_for in wanted if asked_for]
        if asked.single:
            answers = [answer[0].item() for answer in answers]
        return tuple(answers) if len(answers) > 1 else answers[0]

    def predict_interval(
        self,
        users: Any,
        items: Any = None,
        level: float = 0.9,
        *,
        ratings: Any = None,
        columns: Columns | None = None,
    ) -> tuple[Any, Any]:
        """Predict the interval in which a new rating falls with probability `level`.

        Ratings are modelled as real numbers, so bounds may lie between stars or beyond the highest.
        For ratings with few values, `predict_levels` returns an interval of levels.

        Parameters
        ----------
        users, items : id or array-like of ids
            Pairs, as for `predict`.
        level : float
            The probability, between 0 and 1.
        ratings : mapping or as X of `fit`, optional
            Ratings of these users, as for `predict`.
        columns : mapping, optional
            Names of the columns, such as `{"user": "customer"}`.

        Returns
        -------
        low : ndarray, or float for a single pair
            Lower bounds of the central intervals.
        high : ndarray, or float for a single pair
            Upper bounds.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Gibbs, Synthetic
        >>> model = BayesianMF(4, sampler=Gibbs(epochs=20), random_state=0)
        >>> _ = model.fit(Synthetic(60, 40, 1200).ratings())
        >>> low, high = model.predict_interval(1, 2, level=0.8)
        >>> low < model.predict(1, 2) < high
        True
        """
        asked, posterior = self._pairs(users, items, columns, ratings)
        asked.warn_of_unknown()
        check_level(level)
        low, high = self._answers(asked.user, asked.item, partial(posterior.interval, level=level))
        return (float(low[0]), float(high[0])) if asked.single else (low, high)

    def predict_table(
        self,
        users: Any,
        items: Any = None,
        level: float = 0.9,
        *,
        ratings: Any = None,
        columns: Columns | None = None,
    ) -> Predictions:
        """Predict mean, standard deviation and interval of pairs, as a table.

        Parameters
        ----------
        users, items : id or array-like of ids
            Pairs, as for `predict`.
        level : float
            Probability of the interval, between 0 and 1.
        ratings : mapping or as X of `fit`, optional
            Ratings of these users, as for `predict`.
        columns : mapping, optional
            Names of the columns, such as `{"user": "customer"}`.

        Returns
        -------
        Predictions
            Has `to_pandas()`, `to_polars()` and `to_arrow()`; the column `known` marks pairs whose
            user and item are in the training ratings.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Gibbs, Synthetic
        >>> model = BayesianMF(4, sampler=Gibbs(epochs=20), random_state=0)
        >>> _ = model.fit(Synthetic(60, 40, 1200).ratings())
        >>> model.predict_table([1, 2], [3, 4]).to_polars().columns
        ['user', 'item', 'mean', 'std', 'low', 'high', 'known']
        """
        asked, posterior = self._pairs(users, items, columns, ratings)
        check_level(level)
        ask = partial(posterior.table, level=level)
        mean, std, low, high = self._answers(asked.user, asked.item, ask)
        ids = asked.user_ids, asked.item_ids
        return Predictions(*ids, mean, std, low, high, asked.known, level)

    @property
    def rating_levels_(self) -> Floats:
        """Distinct values of the training ratings, ascending: the columns of `predict_proba`."""
        try:
            return np.array(needed_levels(self._fitted().fitted.posterior, "rating_levels_").levels)
        except InputError as error:
            raise _NoLevels(str(error)) from None

    def predict_proba(
        self, users: Any, items: Any = None, *, ratings: Any = None, columns: Columns | None = None
    ) -> Floats:
        """Predict the probability of each level of a new rating, such as each number of stars.

        Ratings are divided into one bin for each level; the probability of a level is that of its
        bin under the predictive distribution. Edges are fitted to the training ratings: on
        average, each level is predicted as often as it occurs.

        Parameters
        ----------
        users, items : id or array-like of ids
            Pairs, as for `predict`.
        ratings : mapping or as X of `fit`, optional
            Ratings of these users, as for `predict`.
        columns : mapping, optional
            Names of the columns, such as `{"user": "customer"}`.

        Returns
        -------
        ndarray of float64, shape (n_pairs, n_levels)
            Probabilities; columns are the levels of `rating_levels_`, and rows sum to one. Of
            shape (n_levels,) for a single pair.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Gibbs, Synthetic
        >>> model = BayesianMF(4, sampler=Gibbs(epochs=20), random_state=0)
        >>> _ = model.fit(Synthetic(60, 40, 1200, stars=True).ratings())
        >>> model.rating_levels_.tolist()
        [1.0, 2.0, 3.0, 4.0, 5.0]
        >>> model.predict_proba([1, 2, 3], 4).shape
        (3, 5)
        >>> round(float(model.predict_proba(1, 4).sum()), 6)
        1.0
        """
        found, single, _ = self._proba("predict_proba", users, items, ratings, columns)
        return np.asarray(found[0] if single else found)

    def predict_levels(
        self,
        users: Any,
        items: Any = None,
        level: float = 0.9,
        *,
        ratings: Any = None,
        columns: Columns | None = None,
    ) -> tuple[Any, Any, Any]:
        """Predict the shortest run of levels that holds a new rating with at least `level`.

        `predict_interval` for ratings with few values: "3 to 5 stars, with 94%". Bounds are levels,
        both inclusive. The probability of a run of levels is rarely exactly `level`, so it is
        returned as well.

        Parameters
        ----------
        users, items : id or array-like of ids
            Pairs, as for `predict`.
        level : float
            The least probability, between 0 and 1.
        ratings : mapping or as X of `fit`, optional
            Ratings of these users, as for `predict`.
        columns : mapping, optional
            Names of the columns, such as `{"user": "customer"}`.

        Returns
        -------
        low : ndarray, or float for a single pair
            The lowest levels inside.
        high : ndarray, or float for a single pair
            The highest levels inside.
        probability : ndarray, or float for a single pair
            Probability of the runs: `level` or more.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Gibbs, Synthetic
        >>> model = BayesianMF(4, sampler=Gibbs(epochs=20), random_state=0)
        >>> _ = model.fit(Synthetic(60, 40, 1200, stars=True).ratings())
        >>> low, high, probability = model.predict_levels(1, 2, level=0.8)
        >>> low in (1, 2, 3, 4, 5), low <= high, probability >= 0.8
        (True, True, True)
        """
        check_level(level)
        proba, single, posterior = self._proba("predict_levels", users, items, ratings, columns)
        found: Runs = runs_of(needed_levels(posterior, "predict_levels"), proba, level)
        if single:
            return float(found.low[0]), float(found.high[0]), float(found.held[0])
        return found.low, found.high, found.held

    def _proba(
        self, what: str, users: Any, items: Any, ratings: Any, columns: Columns | None
    ) -> tuple[Floats, bool, Posterior]:
        """Probabilities of levels, whether this is a single pair, and the model's posterior."""
        own = self._fitted().fitted.posterior
        levels = needed_levels(own, what)
        asked, posterior = self._pairs(users, items, columns, ratings)
        asked.warn_of_unknown()
        ask = partial(level_probabilities, posterior, levels=levels)
        (found,) = self._answers(asked.user, asked.item, ask)
        return found, asked.single, own
