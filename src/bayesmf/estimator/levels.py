"""`predict_proba` and `predict_levels`: ratings that take few values, such as stars."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.errors import InputError
from bayesmf.estimator.predict import Predicting
from bayesmf.posterior.levels import Runs, level_probabilities, needed_levels, runs_of
from bayesmf.posterior.posterior import Posterior, check_level
from bayesmf.reading.memory import Columns

Floats = NDArray[np.float64]


class _NoLevels(InputError, AttributeError):
    """An attribute that this model does not have, as `hasattr` is to find."""


class PredictingLevels(Predicting):
    """The part of `BayesianMF` that predicts which of few values a rating takes."""

    @property
    def rating_levels_(self) -> Floats:
        """The values that training ratings take, ascending: the columns of `predict_proba`."""
        try:
            return np.array(needed_levels(self._fitted().posterior, "rating_levels_").levels)
        except InputError as error:
            raise _NoLevels(str(error)) from None

    def predict_proba(
        self, users: Any, items: Any = None, *, ratings: Any = None, columns: Columns | None = None
    ) -> Floats:
        """Predict the probability of each level of a new rating, such as each number of stars.

        The line of ratings is cut into a bin for each level, and a level has the probability that
        the predictive distribution gives to its bin. Cuts are learnt from training ratings: each
        level is predicted, on average, as often as it was given.

        Parameters
        ----------
        users, items : id or array-like of ids
            Pairs, as for `predict`.
        ratings : mapping or as X of `fit`, optional
            Ratings of the users asked for, new or known, that count beside what was learnt from:
            `{item: rating}` for one user, who may be None, else a table of user, item and rating.
            Exact, without a refit; the model stays as it is. Where an item was rated before, the
            new rating counts.
        columns : mapping, optional
            Which column of a table is the user and which the item, where names do not tell.

        Returns
        -------
        ndarray of float64, shape (n_pairs, n_levels)
            Probabilities; columns are the levels of `rating_levels_`, and rows sum to one. Of
            shape (n_levels,) where a single pair was asked for.

        Raises
        ------
        InputError
            If training ratings take more than 256 values, or the pairs cannot be used.
        NotFittedError
            If the model has not been fitted.

        Warns
        -----
        DataWarning
            If ids were not in the training ratings.

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

        What `predict_interval` is for real numbers, this is for stars: "3 to 5 stars, with 94%".
        Bounds are levels and both are inside. A run of whole levels can rarely have just the
        probability that was asked for, so the one that it has is told.

        Parameters
        ----------
        users, items : id or array-like of ids
            Pairs, as for `predict`.
        level : float
            The least probability, between 0 and 1.
        ratings : mapping or as X of `fit`, optional
            Ratings of the users asked for, new or known, that count beside what was learnt from:
            `{item: rating}` for one user, who may be None, else a table of user, item and rating.
            Exact, without a refit; the model stays as it is. Where an item was rated before, the
            new rating counts.
        columns : mapping, optional
            Which column of a table is the user and which the item, where names do not tell.

        Returns
        -------
        low : ndarray, or float for a single pair
            The lowest levels inside.
        high : ndarray, or float for a single pair
            The highest levels inside.
        probability : ndarray, or float for a single pair
            What the runs hold: `level` or more.

        Raises
        ------
        InputError
            If training ratings take more than 256 values, `level` is no probability, or the pairs
            cannot be used.
        NotFittedError
            If the model has not been fitted.

        Warns
        -----
        DataWarning
            If ids were not in the training ratings.

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
        """Probabilities of levels, whether it was a single pair, and the model's own posterior."""
        own = self._fitted().posterior
        levels = needed_levels(own, what)
        asked, posterior = self._pairs(users, items, columns, ratings)
        asked.warn_of_unknown()
        ask = partial(level_probabilities, posterior, levels=levels)
        (found,) = self._answers(asked.user, asked.item, ask)
        return found, asked.single, own
