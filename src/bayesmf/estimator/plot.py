"""`plot_convergence`, `plot_calibration` and `plot_uncertainty`: a fitted model in pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.chains.monitor import BURN_SHARE
from bayesmf.diagnostics.calibration import Calibration
from bayesmf.diagnostics.convergence import headline
from bayesmf.errors import InputError
from bayesmf.estimator.evaluate import Scoring
from bayesmf.plots import panels
from bayesmf.plots import style as canvas
from bayesmf.plots.panels import RowSpread
from bayesmf.posterior.posterior import Posterior

# Most rows that are drawn, and partners that each is averaged over: seconds for any model.
ROWS, PARTNERS = 1500, 40
WIDTH, HEIGHT = 6.4, 4.6  # inches


class Plotting(Scoring):
    """The part of `BayesianMF` that draws what `Scoring` finds."""

    def plot_convergence(self, ax: Any = None) -> Any:
        """Draw the error over epochs, with the verdict on convergence as the title.

        Thin lines are the training RMSE of each chain, the thick one is the RMSE of the validation
        set, if `fit` was given one. What is left of the line "burn-in ends" was thrown away.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Axes to draw into. By default a new figure is made, which notebooks show.

        Returns
        -------
        matplotlib.axes.Axes
            The Axes that were drawn into.

        Raises
        ------
        NotFittedError
            If the model has not been fitted.
        InputError
            If matplotlib is missing, `ax` is no Axes, or the model was saved by an early version,
            without its history.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Gibbs, Synthetic
        >>> train, test = Synthetic(60, 40, 1_000).ratings().split(0.2)
        >>> model = BayesianMF(2, sampler=Gibbs(epochs=20), random_state=0)
        >>> _ = model.fit(train, validation=test)
        >>> ax = model.plot_convergence()
        >>> ax.get_xlabel()
        'passes over the ratings (log scale)'
        """
        self._fitted()
        if not self.history_:
            raise InputError(
                "the model has no history of its passes, as those saved by earlier versions: fit "
                "again to see it"
            )
        title = convergence_title(self.report_)
        with canvas.given_or_new(ax, WIDTH, HEIGHT) as ax:
            panels.convergence(ax, self.history_, burn_in_end(self.report_, self.history_), title)
        return ax

    def plot_calibration(self, ratings: Any, ax: Any = None) -> Any:
        """Draw how far intervals are from what they promise, with the verdict as the title.

        Curves are the share of held-out ratings inside intervals of 50% to 95%, less what was
        promised: of all ratings (thick), by training ratings of their user (lines) and of their
        item (dashes), and of the lowest and the highest fifth by training error of their user
        (dots) and by predicted standard deviation (dots and dashes). Grey is what is allowed, the
        ring is the worst gap of all groups, which decides.

        Parameters
        ----------
        ratings : Ratings, path-like, table, sparse matrix, tuple of array-like or Calibration
            Held-out ratings, in any form that `fit` takes, or what `calibration` found for them.
        ax : matplotlib.axes.Axes, optional
            Axes to draw into. By default a new figure is made, which notebooks show.

        Returns
        -------
        matplotlib.axes.Axes
            The Axes that were drawn into.

        Raises
        ------
        NotFittedError
            If the model has not been fitted.
        InputError
            If matplotlib is missing, `ax` is no Axes, or the ratings cannot be used.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Gibbs, Synthetic
        >>> train, test = Synthetic(60, 40, 1_000).ratings().split(0.2)
        >>> model = BayesianMF(2, sampler=Gibbs(epochs=20), random_state=0)
        >>> _ = model.fit(train)
        >>> ax = model.plot_calibration(test)
        >>> ax.get_xlabel()
        'promised coverage of the interval (%)'
        """
        self._fitted()
        canvas.check_matplotlib()  # before the work
        found = ratings if isinstance(ratings, Calibration) else self.calibration(ratings)
        with canvas.given_or_new(ax, WIDTH, HEIGHT + 1.0) as ax:
            panels.calibration(ax, found)
        return ax

    def plot_uncertainty(self, ax: Any = None) -> Any:
        """Draw the uncertainty of predictions against the number of ratings.

        Each point is an item, or a user: the standard deviation of its predictions, without the
        noise of a single rating, on average over some partners that are chosen at random, the same
        each time. What has many ratings is known better.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Axes to draw into. By default a new figure is made, which notebooks show.

        Returns
        -------
        matplotlib.axes.Axes
            The Axes that were drawn into.

        Raises
        ------
        NotFittedError
            If the model has not been fitted.
        InputError
            If matplotlib is missing, or `ax` is no Axes.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Gibbs, Synthetic
        >>> model = BayesianMF(2, sampler=Gibbs(epochs=20), random_state=0)
        >>> _ = model.fit(Synthetic(60, 40, 1_000).ratings())
        >>> ax = model.plot_uncertainty()
        >>> ax.get_ylabel()
        'sd of the prediction without noise (points)'
        """
        posterior = self._fitted().posterior
        canvas.check_matplotlib()  # before the work
        with self._counting("measuring what is not known", 2, "sides") as done:
            items = spread_by_row(posterior, "item", self.n_workers)
            done(1)
            users = spread_by_row(posterior, "user", self.n_workers)
        with canvas.given_or_new(ax, WIDTH, HEIGHT) as ax:
            panels.uncertainty(ax, items, users, len(posterior.draws))
        return ax


def convergence_title(report: Mapping[str, Any]) -> str:
    """Verdict of the report in few words; models of earlier versions have none."""
    found = report.get("convergence") or {}
    return headline(found) if "state" in found else "Errors over the passes of a fit"


def burn_in_end(report: Mapping[str, Any], history: Sequence[Mapping[str, Any]]) -> float | None:
    """Epoch with which the longest burn-in of a chain ended; None where there was none."""
    if not any(event["draws"] for event in history):
        return None  # SGD keeps its last state
    if report.get("sampler", {}).get("burn_in") is None:
        # No burn-in was asked for: a share of what the run became is left out.
        return BURN_SHARE * max(event["epoch"] for event in history) or None
    return max((event["epoch"] for event in history if event["burning"]), default=None)


def spread_by_row(posterior: Posterior, side: str, threads: int | None = None) -> RowSpread:
    """Standard deviation of predictions without noise, by row of one side."""
    draws, seen = posterior.draws, posterior.seen
    n_users, n_items = posterior.n_users, posterior.n_items
    n_rows, n_partners = (n_items, n_users) if side == "item" else (n_users, n_items)
    rng = np.random.default_rng(0)  # the same rows and partners each time
    rows = _some(rng, n_rows, ROWS)
    # Without users, items are seen by somebody of whom nothing is known.
    partners = _some(rng, n_partners, PARTNERS) if n_partners else np.full(1, -1)
    here, there = np.repeat(rows, len(partners)), np.tile(partners, len(rows))
    user, item = (there, here) if side == "item" else (here, there)
    _, std = posterior.mean_std(user, item, threads)
    spread = np.sqrt(np.maximum(std**2 - posterior.noise_of(user, item), 0.0))
    if len(draws) == 1:
        spread[:] = 0.0  # and no dust of roundings
    counts = seen.item_counts(rows) if side == "item" else seen.user_counts(rows)
    # A log axis has no zero; every row has been learnt from once.
    return RowSpread(np.maximum(counts, 1), spread.reshape(len(rows), len(partners)).mean(1))


def _some(rng: np.random.Generator, n: int, most: int) -> NDArray[np.int64]:
    """All of n rows, or `most` of them at random, ascending."""
    return np.arange(n) if n <= most else np.sort(rng.choice(n, most, replace=False))
