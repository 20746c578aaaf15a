"""`evaluate`, `calibration`, `score`, `diagnose` and `to_arviz`: how good a model is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.checks import whole
from bayesmf.diagnostics import mixing
from bayesmf.diagnostics.calibration import Calibration
from bayesmf.diagnostics.calibrator import Calibrator
from bayesmf.diagnostics.metrics import Scorer, Scores
from bayesmf.errors import InputError
from bayesmf.estimator.fitted import Fitted, Found
from bayesmf.estimator.questions import HeldOut, held_out_ratings
from bayesmf.estimator.sklearn import r_squared
from bayesmf.posterior.levels import levels_of
from bayesmf.posterior.residuals import training_errors
from bayesmf.posterior.traces import traces
from bayesmf.process import Line
from bayesmf.reading.memory import Columns


class Scoring(Fitted):
    """The part of `BayesianMF` that judges predictions by held-out ratings, and chains by draws."""

    def score(self, X: Any, y: Any = None, *, columns: Columns | None = None) -> float:
        """Return the coefficient of determination R^2, as scikit-learn's regressors do.

        For RMSE use `evaluate`, or `scoring="neg_root_mean_squared_error"` in scikit-learn's tools.

        Parameters
        ----------
        X : Ratings, path-like, table, sparse matrix or tuple of array-like
            Held-out ratings, as for `fit`, or their pairs of user and item.
        y : array-like, optional
            The ratings of the pairs in `X`.
        columns : mapping, optional
            Which column is which, where names do not tell.

        Returns
        -------
        float
            1 for perfect predictions, 0 for those no better than the mean.

        Raises
        ------
        InputError
            If the ratings cannot be used.
        NotFittedError
            If the model has not been fitted.

        Warns
        -----
        DataWarning
            If ids were not in the training ratings, or ratings were.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Gibbs, Synthetic
        >>> train, test = Synthetic(60, 40, 1200).ratings().split(0.1)
        >>> model = BayesianMF(4, sampler=Gibbs(epochs=20), random_state=0).fit(train)
        >>> model.score(test) < 1
        True
        """
        fitted, test = self._held_out(X, y, columns)
        (mean,) = self._answers(test.user, test.item, fitted.posterior.mean)
        return r_squared(test.ratings.rating, mean)

    def evaluate(
        self,
        ratings: Any,
        y: Any = None,
        *,
        columns: Columns | None = None,
        progress: Callable[[int], Any] | None = None,
    ) -> Scores:
        """Score predictions on held-out ratings: RMSE, MAE, NLL, CRPS and coverage.

        Where ratings take few values, as stars do, also the log loss and the ranked probability
        score of `predict_proba`, and how many ratings the runs of `predict_levels` hold.

        Parameters
        ----------
        ratings : Ratings, path-like, table, sparse matrix or tuple of array-like
            Held-out ratings, as for `fit`, or their pairs of user and item.
        y : array-like, optional
            The ratings of the pairs in `ratings`.
        columns : mapping, optional
            Which column is which, where names do not tell.
        progress : callable, optional
            Called with the number of ratings scored since the last call.

        Returns
        -------
        Scores
            Scores, and counts of ratings with unknown ids and of training ratings among them.

        Raises
        ------
        InputError
            If the ratings cannot be used.
        NotFittedError
            If the model has not been fitted.

        Warns
        -----
        DataWarning
            If ids were not in the training ratings, or ratings were.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Gibbs, Synthetic
        >>> train, test = Synthetic(60, 40, 1200).ratings().split(0.1)
        >>> model = BayesianMF(4, sampler=Gibbs(epochs=20), random_state=0).fit(train)
        >>> found = model.evaluate(test)
        >>> found.n
        120
        >>> found.rmse < 1.5
        True
        """
        fitted, test = self._held_out(ratings, y, columns)
        scorer = Scorer(levels_of(fitted.posterior))
        self._score(scorer, fitted, test, progress)
        return replace(scorer.result(), **test.counts)

    def calibration(
        self,
        ratings: Any,
        y: Any = None,
        *,
        columns: Columns | None = None,
        progress: Callable[[int], Any] | None = None,
    ) -> Calibration:
        """Compare how many held-out ratings intervals hold with how many they promise.

        Coverage is found overall, and for groups of ratings: by how many training ratings users
        and items have, by how far users' training ratings are from their predictions, and by the
        standard deviation that was predicted.

        Parameters
        ----------
        ratings : Ratings, path-like, table, sparse matrix or tuple of array-like
            Held-out ratings, as for `fit`, or their pairs of user and item.
        y : array-like, optional
            The ratings of the pairs in `ratings`.
        columns : mapping, optional
            Which column is which, where names do not tell.
        progress : callable, optional
            Called with the number of ratings scored since the last call.

        Returns
        -------
        Calibration
            Its `verdict` says it in a sentence.

        Raises
        ------
        InputError
            If the ratings cannot be used.
        NotFittedError
            If the model has not been fitted.

        Warns
        -----
        DataWarning
            If ids were not in the training ratings, or ratings were.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Gibbs, Synthetic
        >>> train, test = Synthetic(60, 40, 1200).ratings().split(0.1)
        >>> model = BayesianMF(4, sampler=Gibbs(epochs=20), random_state=0).fit(train)
        >>> found = model.calibration(test)
        >>> len(found.groups)
        16
        """
        fitted, test = self._held_out(ratings, y, columns)
        calibrator = Calibrator(
            fitted.seen.user_counts(test.user),
            fitted.seen.item_counts(test.item),
            training_errors(fitted.posterior, test.user, self.n_workers),
            levels_of(fitted.posterior),
        )
        self._score(calibrator, fitted, test, progress)
        found = calibrator.result()
        return replace(found, overall=replace(found.overall, **test.counts))

    def _held_out(self, ratings: Any, y: Any, columns: Columns | None) -> tuple[Found, HeldOut]:
        """Result of the fit, and ratings with row numbers; warns of what spoils scores."""
        fitted = self._fitted()
        maps = fitted.user_ids, fitted.item_ids
        found = held_out_ratings(ratings, y, columns)
        if not len(found):
            raise InputError("there are no ratings to score: give at least one")
        test = HeldOut.from_ratings(found, maps, fitted.seen)
        test.warn()
        return fitted, test

    def _score(self, scorer: Any, fitted: Found, test: HeldOut, progress: Any) -> None:
        """Add all ratings and their predictions to a scorer, in chunks."""
        rating = test.ratings.rating
        with self._counting("scoring", len(rating), "ratings", progress) as done:
            for chunk, mean in fitted.posterior.expected(test.user, test.item):
                scorer.add(rating[chunk.lo : chunk.hi], mean, chunk.mu, chunk.var)
                done(chunk.hi - chunk.lo)

    def _traces(self, n_pairs: int, random_state: int) -> dict[str, NDArray[np.float64]]:
        """Draws of predictions of pairs at random, precisions and tau, by (chain, draw, ...)."""
        fitted = self._fitted()
        if hasattr(n_pairs, "__len__"):
            raise InputError(
                "diagnose looks at the chains alone: give held-out ratings to evaluate or "
                "calibration"
            )
        n_pairs = whole("n_pairs", n_pairs)
        rng = np.random.default_rng(whole("random_state", random_state, 0))
        n_users = len(fitted.user_ids)  # none, where it was saved without them: then anybody's
        user = rng.integers(0, n_users, n_pairs) if n_users else np.full(n_pairs, -1)
        item = rng.integers(0, len(fitted.item_ids), n_pairs)
        with Line(show=self.progress) as line:
            line.say("looking at draws")
            return traces(fitted.posterior, user, item)

    def diagnose(self, n_pairs: int = 200, random_state: int = 0) -> dict[str, dict[str, float]]:
        """Compute split R-hat and effective sample size of predictions, precisions and tau.

        These are details: `report_["convergence"]` has the number that decides.

        Parameters
        ----------
        n_pairs : int
            Pairs of user and item, chosen at random, whose predictions are followed.
        random_state : int
            Seed of that choice.

        Returns
        -------
        dict of str to dict
            For each quantity: the worst R-hat ("rhat"), the value that 95% stay below ("rhat_95"),
            the least and the median effective sample size ("ess_min", "ess_median").

        Raises
        ------
        InputError
            If an argument is not a whole number.
        NotFittedError
            If the model has not been fitted.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Gibbs, Synthetic
        >>> model = BayesianMF(4, sampler=Gibbs(epochs=20), random_state=0)
        >>> _ = model.fit(Synthetic(60, 40, 1200).ratings())
        >>> sorted(model.diagnose()["tau"])
        ['ess_median', 'ess_min', 'rhat', 'rhat_95']
        """
        traces = self._traces(n_pairs, random_state)
        return {name: mixing.summarize(trace) for name, trace in traces.items()}

    def to_arviz(self, n_pairs: int = 200, random_state: int = 0) -> Any:
        """Return draws of predictions, precisions and tau as an ArviZ object.

        Parameters
        ----------
        n_pairs : int
            Pairs of user and item, chosen at random, whose predictions are included.
        random_state : int
            Seed of that choice.

        Returns
        -------
        arviz.InferenceData or xarray.DataTree
            The former with ArviZ before 1.0, the latter since; it has a `posterior` group.

        Raises
        ------
        InputError
            If ArviZ is not installed.
        NotFittedError
            If the model has not been fitted.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Gibbs, Synthetic
        >>> model = BayesianMF(4, sampler=Gibbs(epochs=20), random_state=0)
        >>> _ = model.fit(Synthetic(60, 40, 1200).ratings())
        >>> "tau" in model.to_arviz()["posterior"]
        True
        """
        return mixing.to_arviz(self._traces(n_pairs, random_state))
