"""The answers `evaluate`, `calibration`, `score` and `diagnose`: how good a model is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.checks import whole
from bayesmf.diagnostics import scores as diagnostics
from bayesmf.diagnostics.calibration import Calibration, Calibrator
from bayesmf.errors import InputError
from bayesmf.estimator.fitted import Fitted, Found
from bayesmf.estimator.questions import HeldOut, held_out_ratings
from bayesmf.estimator.sklearn import r_squared
from bayesmf.reading.memory import Columns
from bayesmf.system.progress import Line


class Scoring(Fitted):
    """A fitted model's part that judges: predictions by held-out ratings, chains by their draws."""

    def score(self, X: Any, y: Any = None, *, columns: Columns | None = None) -> float:
        """The coefficient of determination R^2, which scikit-learn's regressors score by.

        For RMSE use `evaluate`, or `scoring="neg_root_mean_squared_error"` in scikit-learn's tools.

        Parameters
        ----------
        X, y
            Pairs and their ratings, or ratings alone, as for `fit`.
        columns : mapping, optional
            Which column is which, where names do not tell.

        Returns
        -------
        float
            1 for perfect predictions, 0 for those no better than the mean.

        Raises
        ------
        InputError
            For ratings that cannot be used.
        NotFittedError
            Before a fit.

        Warns
        -----
        DataWarning
            If ids were not learnt from, or ratings were.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Synthetic
        >>> train, test = Synthetic(60, 40, 1200).ratings().split(0.1)
        >>> BayesianMF(4, random_state=0).fit(train).score(test) < 1
        True
        """
        fitted, test = self._held_out(X, y, columns)
        mean = np.empty(len(test.user))

        def answer(part: slice) -> None:
            pairs = test.user[part], test.item[part]
            mean[part], _ = fitted.posterior.mean_std(*pairs, self.n_workers)

        self._in_parts("scoring", len(mean), "ratings", answer)
        return r_squared(test.ratings.rating, mean)

    def evaluate(
        self,
        ratings: Any,
        y: Any = None,
        *,
        columns: Columns | None = None,
        progress: Callable[[int], Any] | None = None,
    ) -> diagnostics.Scores:
        """RMSE, MAE, NLL, CRPS and coverage on ratings that were held out.

        Parameters
        ----------
        ratings, y
            Ratings, or pairs and their ratings, as for `fit`.
        columns : mapping, optional
            Which column is which, where names do not tell.
        progress : callable, optional
            Called with the number of ratings scored since the last call.

        Returns
        -------
        Scores
            It also counts ratings with unknown ids, and those that the model has learnt from.

        Raises
        ------
        InputError
            For ratings that cannot be used.
        NotFittedError
            Before a fit.

        Warns
        -----
        DataWarning
            If ids were not learnt from, or ratings were.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Synthetic
        >>> train, test = Synthetic(60, 40, 1200).ratings().split(0.1)
        >>> BayesianMF(4, random_state=0).fit(train).evaluate(test).n
        120
        """
        scorer = diagnostics.Scorer()
        fitted, test = self._held_out(ratings, y, columns)
        self._show(scorer, fitted, test, progress)
        return replace(scorer.result(), **test.counts)

    def calibration(
        self,
        ratings: Any,
        y: Any = None,
        *,
        columns: Columns | None = None,
        progress: Callable[[int], Any] | None = None,
    ) -> Calibration:
        """How well intervals hold held-out ratings, overall and by how much was known of each.

        Parameters
        ----------
        ratings, y, columns, progress
            As for `evaluate`.

        Returns
        -------
        Calibration
            Its `verdict` says it in a sentence.

        Raises
        ------
        InputError
            For ratings that cannot be used.
        NotFittedError
            Before a fit.

        Warns
        -----
        DataWarning
            If ids were not learnt from, or ratings were.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Synthetic
        >>> train, test = Synthetic(60, 40, 1200).ratings().split(0.1)
        >>> len(BayesianMF(4, random_state=0).fit(train).calibration(test).groups)
        6
        """
        fitted, test = self._held_out(ratings, y, columns)
        calibrator = Calibrator(
            fitted.seen.user_counts(test.user), fitted.seen.item_counts(test.item)
        )
        self._show(calibrator, fitted, test, progress)
        found = calibrator.result()
        return replace(found, overall=replace(found.overall, **test.counts))

    def _held_out(self, ratings: Any, y: Any, columns: Columns | None) -> tuple[Found, HeldOut]:
        """Who answers, and ratings with their rows' numbers; warns of what spoils scores."""
        fitted = self._fitted()
        maps = fitted.user_ids, fitted.item_ids
        test = HeldOut.of(held_out_ratings(ratings, y, columns), maps, fitted.seen)
        test.warn()
        return fitted, test

    def _show(self, scorer: Any, fitted: Found, test: HeldOut, progress: Any) -> None:
        """Show a scorer all predictions, in chunks."""
        rating = test.ratings.rating
        with self._counting("scoring", len(rating), "ratings", progress) as done:
            for chunk, mean in fitted.posterior.expected(test.user, test.item):
                scorer.add(rating[chunk.lo : chunk.hi], mean, chunk.mu, chunk.var)
                done(chunk.hi - chunk.lo)

    def _traces(self, n_pairs: int, seed: int) -> dict[str, NDArray[np.float64]]:
        fitted = self._fitted()
        if hasattr(n_pairs, "__len__"):
            raise InputError(
                "diagnose looks at the chains alone: give held-out ratings to evaluate or "
                "calibration"
            )
        n_pairs, seed = whole("n_pairs", n_pairs), whole("seed", seed, 0)
        rng = np.random.default_rng(seed)
        user = rng.integers(0, len(fitted.user_ids), n_pairs)
        item = rng.integers(0, len(fitted.item_ids), n_pairs)
        with Line(show=self.progress) as line:
            line.say("looking at draws")
            return fitted.posterior.traces(user, item)

    def diagnose(self, n_pairs: int = 200, seed: int = 0) -> dict[str, dict[str, float]]:
        """Split R-hat and effective sample size of predictions, precisions and tau.

        This is detail: `report_["convergence"]` has the number that decides.

        Parameters
        ----------
        n_pairs : int
            Pairs of user and item, chosen at random, whose predictions are looked at.
        seed : int
            Of that choice.

        Returns
        -------
        dict of str to dict
            By quantity: the worst R-hat ("rhat"), that which 95% stay below ("rhat_95"), the least
            and the median effective sample size ("ess_min", "ess_median").

        Raises
        ------
        NotFittedError
            Before a fit.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Synthetic
        >>> model = BayesianMF(4, random_state=0).fit(Synthetic(60, 40, 1200).ratings())
        >>> sorted(model.diagnose()["tau"])
        ['ess_median', 'ess_min', 'rhat', 'rhat_95']
        """
        return {
            name: diagnostics.mixing(trace) for name, trace in self._traces(n_pairs, seed).items()
        }

    def to_arviz(self, n_pairs: int = 200, seed: int = 0) -> Any:
        """Traces of predictions, precisions and tau as an ArviZ object.

        Parameters
        ----------
        n_pairs, seed : int
            As for `diagnose`.

        Returns
        -------
        arviz.InferenceData or xarray.DataTree
            With a `posterior` group.

        Raises
        ------
        InputError
            If ArviZ is not installed.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Synthetic
        >>> model = BayesianMF(4, random_state=0).fit(Synthetic(60, 40, 1200).ratings())
        >>> "tau" in model.to_arviz()["posterior"]
        True
        """
        return diagnostics.to_arviz(self._traces(n_pairs, seed))
