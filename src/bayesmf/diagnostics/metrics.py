"""Scores of predictions on held-out ratings: RMSE, MAE, NLL, CRPS, coverage, and of stars."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bayesmf.checks import number_array
from bayesmf.data.tabular import Columns, Tabular
from bayesmf.errors import InputError
from bayesmf.kernels.mixture import (
    mixture_bins,
    mixture_cdf,
    mixture_crps,
    mixture_log_pdf,
    shortest_runs,
)
from bayesmf.model.draws import RatingLevels
from bayesmf.wording import short

LEVELS = (50, 80, 90, 95)
"""Levels of the central prediction intervals whose coverage is scored, in percent."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, repr=False, kw_only=True)
class Scores(Tabular):
    """Scores of predictions for `n` held-out ratings.

    Attributes
    ----------
    n : int
        Number of ratings.
    rmse : float
        Root mean squared error of the point predictions.
    rmse_se : float or None
        Standard error of the RMSE over ratings; None with fewer than two, or without error.
    mae : float
        Mean absolute error of the point predictions.
    nll : float
        Mean negative log density of the ratings under the predictive distribution.
    crps : float
        Mean continuous ranked probability score.
    log_loss : float or None
        Mean negative log probability, in nats, that `predict_proba` gives to the level of the
        rating. This, `rps` and values by level are None if training ratings have more than 256
        distinct values, or a test rating is not one of them.
    rps : float or None
        Mean ranked probability score: squared differences between predicted and observed cumulative
        probability, summed over all levels but the last.
    coverage : dict of str to float
        Share of ratings inside the central prediction interval, by level in percent ("50", ...).
    level_coverage, level_promised : dict of str to float, or None
        Share of ratings inside the runs of `predict_levels`, and their mean probability, by level
        in percent. A run consists of whole levels, so its probability exceeds the requested one.
    unseen_users, unseen_items, unseen : int
        Ratings whose user, item, or either is not in the training data, predicted from the prior.
    learnt : int
        Ratings that the model was fitted on, which make scores too good.

    Examples
    --------
    >>> from bayesmf import BayesianMF, Gibbs, Synthetic
    >>> train, test = Synthetic(60, 40, 1200).ratings().split(0.2)
    >>> model = BayesianMF(4, sampler=Gibbs(epochs=20), random_state=0).fit(train)
    >>> scores = model.evaluate(test)
    >>> scores.n, sorted(scores.coverage)
    (240, ['50', '80', '90', '95'])
    """

    n: int
    rmse: float
    rmse_se: float | None = None
    mae: float
    nll: float
    crps: float
    log_loss: float | None = None
    rps: float | None = None
    coverage: dict[str, float]
    level_coverage: dict[str, float] | None = None
    level_promised: dict[str, float] | None = None
    unseen_users: int = 0
    unseen_items: int = 0
    unseen: int = 0
    learnt: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return the scores as plain numbers, for JSON.

        Returns
        -------
        dict
            Numbers by name; coverage by level is a dict of its own.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Gibbs, Synthetic
        >>> train, test = Synthetic(60, 40, 1200).ratings().split(0.2)
        >>> model = BayesianMF(4, sampler=Gibbs(epochs=20), random_state=0).fit(train)
        >>> model.evaluate(test).as_dict()["n"]
        240
        """
        return asdict(self)

    def __repr__(self) -> str:
        names = ("rmse", "mae", "nll", "crps", "log_loss", "rps")
        numbers = (f"{name}={short(x)}" for name in names if (x := getattr(self, name)) is not None)
        shares = ", ".join(f"{level}%: {share:.1%}" for level, share in self.coverage.items())
        counts = [f"{k}={n:,}" for k in ("unseen", "learnt") if (n := getattr(self, k))]
        return (
            f"Scores({', '.join([f'n={self.n:,}', *numbers, f'coverage {{{shares}}}', *counts])})"
        )

    def _columns(self) -> Columns:
        flat = self.as_dict()
        for kind in ("coverage", "level_coverage", "level_promised"):
            shares = flat.pop(kind) or {}
            flat |= {f"{kind}_{level}": share for level, share in shares.items()}
        return {name: [value] for name, value in flat.items()}


class Scorer:
    """Accumulate scores over chunks of pairs.

    `levels` are those of the training ratings, if any.
    """

    def __init__(self, levels: RatingLevels | None = None) -> None:
        self._levels = None if levels is None else LevelScorer(levels)
        self._n, self._squared, self._fourth, self._absolute = 0, 0.0, 0.0, 0.0
        self._log_density, self._crps = 0.0, 0.0
        self._inside = dict.fromkeys(LEVELS, 0)

    def add(
        self,
        y: npt.ArrayLike,
        mean: npt.ArrayLike,
        mu: npt.NDArray[np.floating[Any]],
        var: npt.NDArray[np.floating[Any]],
    ) -> None:
        """Add a chunk of ratings `y`, their point predictions `mean`, and mixtures (T, n).

        Point predictions may be clipped, so they need not be the mixtures' means.
        """
        rating = np.ascontiguousarray(y, dtype=np.float64)
        error = _errors(rating, mean)
        if mu.ndim != 2 or mu.shape != var.shape or mu.shape[1] != len(rating):
            raise InputError(
                f"mu {mu.shape} and var {var.shape} do not fit {len(rating)} ratings: "
                "give both with shape (draws, ratings)"
            )
        if not len(rating):
            return
        if self._levels is not None and not self._levels.add(rating, mu, var):
            self._levels = None
        pit = mixture_cdf(rating, mu, var)
        self._n += len(rating)
        squared = error * error
        self._squared += float(squared.sum())
        self._fourth += float(squared @ squared)
        self._absolute += float(np.abs(error).sum())
        self._log_density += float(mixture_log_pdf(rating, mu, var).sum())
        self._crps += float(mixture_crps(rating, mu, var).sum())
        for level in LEVELS:
            tail = (100 - level) / 200
            self._inside[level] += int(np.count_nonzero((pit >= tail) & (pit <= 1.0 - tail)))

    def _rmse_se(self) -> float | None:
        n, square = self._n, self._squared / max(self._n, 1)
        if n < 2 or square == 0:
            return None
        variance = max(self._fourth / n - square**2, 0.0) * n / (n - 1)
        # The delta method: d sqrt(x) = dx / (2 sqrt(x)).
        return float(np.sqrt(variance / n) / (2 * np.sqrt(square)))

    def result(self) -> Scores:
        """Return the scores of all pairs added so far."""
        n = self._n
        if n == 0:
            raise InputError("there are no ratings to score: give at least one")
        return Scores(
            n=n,
            rmse=float(np.sqrt(self._squared / n)),
            rmse_se=self._rmse_se(),
            mae=self._absolute / n,
            nll=-self._log_density / n,
            crps=self._crps / n,
            coverage={str(level): self._inside[level] / n for level in LEVELS},
            **({} if self._levels is None else self._levels.result()),
        )


class LevelScorer:
    """Accumulates scores of the probabilities of levels."""

    def __init__(self, levels: RatingLevels) -> None:
        self._levels, self._edges = levels, np.array(levels.edges)
        self._n, self._log, self._rps = 0, 0.0, 0.0
        self._inside = dict.fromkeys(LEVELS, 0)
        self._promised = dict.fromkeys(LEVELS, 0.0)

    def add(
        self, rating: Floats, mu: npt.NDArray[np.floating[Any]], var: npt.NDArray[np.floating[Any]]
    ) -> bool:
        """Add a chunk of pairs; False where a rating is none of the levels."""
        number = self._levels.numbers(rating)
        if number is None:
            return False
        proba = mixture_bins(self._edges, mu, var, self._levels.rounding)
        self._n += len(rating)
        given = np.maximum(proba[np.arange(len(rating)), number], np.finfo(np.float64).tiny)
        self._log -= float(np.log(given).sum())
        below = np.cumsum(proba, axis=1)[:, :-1]
        came = number[:, None] <= np.arange(len(self._edges))
        self._rps += float(np.square(below - came).sum())
        for level in LEVELS:
            first, last, held = shortest_runs(proba, level / 100)
            self._inside[level] += int(np.count_nonzero((first <= number) & (number <= last)))
            self._promised[level] += float(held.sum())
        return True

    def result(self) -> dict[str, Any]:
        """Scores of all pairs added so far, named as in `Scores`."""
        n = self._n
        return {
            "log_loss": self._log / n,
            "rps": self._rps / n,
            "level_coverage": {str(level): self._inside[level] / n for level in LEVELS},
            "level_promised": {str(level): self._promised[level] / n for level in LEVELS},
        }


def _errors(y: npt.ArrayLike, mean: npt.ArrayLike) -> Floats:
    # float64 first: the difference of two float32 ratings would be rounded again.
    rating = number_array("ratings", y).astype(np.float64, copy=False)
    prediction = number_array("predictions", mean).astype(np.float64, copy=False)
    if rating.ndim != 1 or rating.shape != prediction.shape:
        raise InputError(
            f"ratings {rating.shape} and their predictions {prediction.shape} do not match: "
            "give two vectors of the same length"
        )
    return rating - prediction
