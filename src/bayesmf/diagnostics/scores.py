"""Scores of predictions on held-out ratings; R-hat and effective sample size of chains."""

import inspect
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bayesmf.checks import number_array
from bayesmf.data.tabular import Columns, Tabular
from bayesmf.errors import InputError
from bayesmf.kernels.mixture import mixture_cdf, mixture_crps, mixture_log_pdf
from bayesmf.wording import short

LEVELS = (50, 80, 90, 95)
"""Levels of the central prediction intervals whose coverage is scored, in percent."""

_MIN_DRAWS = 4
# Numbers held at a time by the chain diagnostics: they run over blocks of quantities.
_BLOCK_SIZE = 1 << 21

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class Scores(Tabular):
    """Scores of predictions for `n` held-out ratings.

    Attributes
    ----------
    n : int
        Number of ratings.
    rmse, mae : float
        Root mean squared and mean absolute error of the point predictions.
    nll : float
        Mean negative log density of the ratings under the predictive distribution.
    crps : float
        Mean continuous ranked probability score.
    coverage : dict of str to float
        Share of ratings inside the central prediction interval, by level in percent ("50", ...).
    rmse_se : float or None
        Standard error of the RMSE over ratings; None with fewer than two, or without error.
    unseen_users, unseen_items, unseen : int
        Ratings whose user, whose item, or one of them was not in the training ratings: the prior
        predicts them.
    learnt : int
        Ratings that the model was fitted on. They make scores look better than they are.

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
    mae: float
    nll: float
    crps: float
    coverage: dict[str, float]
    rmse_se: float | None = None
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
        return {
            "n": self.n,
            "rmse": self.rmse,
            "rmse_se": self.rmse_se,
            "mae": self.mae,
            "nll": self.nll,
            "crps": self.crps,
            "coverage": dict(self.coverage),
            "unseen_users": self.unseen_users,
            "unseen_items": self.unseen_items,
            "unseen": self.unseen,
            "learnt": self.learnt,
        }

    def __repr__(self) -> str:
        numbers = (
            f"{name}={short(getattr(self, name))}" for name in ("rmse", "mae", "nll", "crps")
        )
        shares = ", ".join(f"{level}%: {share:.1%}" for level, share in self.coverage.items())
        counts = [f"{k}={n:,}" for k in ("unseen", "learnt") if (n := getattr(self, k))]
        return (
            f"Scores({', '.join([f'n={self.n:,}', *numbers, f'coverage {{{shares}}}', *counts])})"
        )

    def _columns(self) -> Columns:
        flat = self.as_dict()
        coverage = flat.pop("coverage")
        flat |= {f"coverage_{level}": share for level, share in coverage.items()}
        return {name: [value] for name, value in flat.items()}


class Scorer:
    """Accumulate scores over chunks of pairs, so that no chunk has to stay in memory."""

    def __init__(self) -> None:
        self._n = 0
        self._squared = 0.0
        self._fourth = 0.0
        self._absolute = 0.0
        self._log_density = 0.0
        self._crps = 0.0
        self._inside = dict.fromkeys(LEVELS, 0)

    def add(
        self,
        y: npt.ArrayLike,
        mean: npt.ArrayLike,
        mu: npt.NDArray[np.floating[Any]],
        var: npt.NDArray[np.floating[Any]],
    ) -> None:
        """Add a chunk of pairs.

        Parameters
        ----------
        y : array-like, shape (n,)
            The ratings.
        mean : array-like, shape (n,)
            Point predictions; they need not be the mixtures' means (they may be clipped).
        mu, var : ndarray, shape (T, n)
            Means and variances of the predictive mixtures' components.
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
        )


def rmse(y: npt.ArrayLike, mean: npt.ArrayLike) -> float:
    """Return the root mean squared error of the point predictions `mean` of the ratings `y`."""
    return float(np.sqrt(np.mean(_some_errors(y, mean) ** 2)))


def mae(y: npt.ArrayLike, mean: npt.ArrayLike) -> float:
    """Return the mean absolute error of the point predictions `mean` of the ratings `y`."""
    return float(np.mean(np.abs(_some_errors(y, mean))))


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


def _some_errors(y: npt.ArrayLike, mean: npt.ArrayLike) -> Floats:
    error = _errors(y, mean)
    if not len(error):
        raise InputError("there are no ratings to score: give at least one")
    return error


def split_rhat(x: npt.ArrayLike) -> Floats:
    """Return the split R-hat of each quantity (Gelman et al., BDA3, section 11.4).

    Each chain is halved (an odd middle draw is dropped), so that a trend within a chain shows as
    disagreement between its halves.

    Parameters
    ----------
    x : array-like, shape (n_chains, n_draws, n_quantities)
        Draws after burn-in.

    Returns
    -------
    ndarray of float64, shape (n_quantities,)
        NaN with fewer than 4 draws per chain, for quantities that are constant over all draws, and
        for quantities that are not finite; infinite if each half chain is stuck at its own value.
    """
    return _by_blocks(x, _split_rhat)


def effective_sample_size(x: npt.ArrayLike) -> Floats:
    """Return the effective number of independent draws behind the mean of each quantity.

    The autocorrelations of the split chains are combined as in Stan, with the variance that
    includes the disagreement between chains, and summed over Geyer's initial monotone positive
    sequence.

    Parameters
    ----------
    x : array-like, shape (n_chains, n_draws, n_quantities)
        Draws after burn-in.

    Returns
    -------
    ndarray of float64, shape (n_quantities,)
        At most N log10(N) for N draws in all (antithetic chains can exceed N).  NaN with fewer
        than 4 draws per chain, for constant quantities and for quantities that are not finite.
    """
    return _by_blocks(x, _split_ess)


def _by_blocks(x: npt.ArrayLike, statistic: Any) -> Floats:
    draws = np.asarray(x)
    if draws.ndim != 3:
        raise InputError(
            f"draws have shape {draws.shape}: "
            "give them with shape (n_chains, n_draws, n_quantities)"
        )
    chains, length, quantities = draws.shape
    out = np.full(quantities, np.nan)
    if chains == 0 or length < _MIN_DRAWS:
        return out
    width = max(1, _BLOCK_SIZE // (chains * length))
    for start in range(0, quantities, width):
        block = draws[:, :, start : start + width].astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            out[start : start + width] = statistic(_halved(block))
    return out


def _halved(block: Floats) -> Floats:
    """Return the half chains as rows: (2 * n_chains, n_draws // 2, n_quantities)."""
    half = block.shape[1] // 2
    return np.concatenate([block[:, :half], block[:, -half:]])


def _centred(halves: Floats) -> tuple[Floats, Floats]:
    """Return each half chain less its mean, and the means.

    The first draw is taken off before: a half chain that does not move is then exactly zero.
    """
    moved = halves - halves[:, :1]
    offset = moved.mean(axis=1, keepdims=True)
    return moved - offset, (halves[:, :1] + offset)[:, 0]


def _split_rhat(halves: Floats) -> Floats:
    length = halves.shape[1]
    centred, means = _centred(halves)
    within = (centred**2).sum(axis=1).mean(axis=0) / (length - 1)
    between = _centred(means[None])[0][0]
    over = (between**2).sum(axis=0) / (len(means) - 1)
    # Zero over zero is the NaN of a constant quantity, more over zero the infinity of a stuck one.
    rhat: Floats = np.sqrt((length - 1) / length + over / within)
    return rhat


def _split_ess(halves: Floats) -> Floats:
    chains, length, quantities = halves.shape
    centred, means = _centred(halves)
    # Padding to twice the length keeps the cyclic convolution from wrapping round.
    size = 1 << (2 * length - 1).bit_length()
    power = np.zeros((size // 2 + 1, quantities))
    for chain in centred:
        power += np.abs(np.fft.rfft(chain, n=size, axis=0)) ** 2
    covariance = np.fft.irfft(power, n=size, axis=0)[:length] / (chains * length)
    # The FFT leaves dust on chains that do not move; the plain sum gives their exact zero.
    covariance[0] = (centred**2).mean(axis=(0, 1))
    within = covariance[0] * length / (length - 1)
    between = (_centred(means[None])[0][0] ** 2).sum(axis=0) / (chains - 1)
    correlation = 1.0 - (within - covariance) / (covariance[0] + between)
    correlation[0] = 1.0
    time = np.maximum(_autocorrelation_time(correlation), 1.0 / np.log10(chains * length))
    constant = (covariance[0] == 0.0) & (between == 0.0)
    return np.where(constant, np.nan, chains * length / time)


def _autocorrelation_time(correlation: Floats) -> Floats:
    """Return 1 + 2 * sum of correlations over Geyer's initial monotone positive sequence."""
    pairs = max(1, (len(correlation) - 1) // 2)
    even = correlation[0 : 2 * pairs : 2]
    sums = even + correlation[1 : 2 * pairs : 2]
    positive = np.logical_and.accumulate(~(sums < 0.0), axis=0)
    # Stan counts a sequence that stays positive to the end as rejected at its last pair.
    positive[max(1, pairs - 1) :] = False
    time: Floats = -1.0 + 2.0 * np.where(positive, np.minimum.accumulate(sums), 0.0).sum(axis=0)
    # Stan's refinement: the even half of the first rejected pair still counts once if positive.
    first = positive.sum(axis=0)
    rejected = np.take_along_axis(even, np.minimum(first, pairs - 1)[None], axis=0)[0]
    return time + np.where(first < pairs, np.maximum(rejected, 0.0), 0.0)


def to_arviz(quantities: Mapping[str, npt.NDArray[Any]]) -> Any:
    """Return the draws as an ArviZ object with a `posterior` group.

    Parameters
    ----------
    quantities : mapping of str to ndarray, shape (n_chains, n_draws, ...)
        Draws by name.

    Returns
    -------
    arviz.InferenceData or xarray.DataTree
        The former with ArviZ before 1.0, the latter since.
    """
    posterior = {name: np.asarray(draws) for name, draws in quantities.items()}
    leading = {draws.shape[:2] for draws in posterior.values()}
    if len(leading) != 1 or len(next(iter(leading))) != 2:
        raise InputError(
            "quantities do not share their chains and draws: "
            "give at least one, each with shape (n_chains, n_draws, ...)"
        )
    try:
        # Some versions warn about their own future when imported: not the caller's concern.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import arviz
    except ImportError:
        raise InputError("arviz is not installed: pip install arviz") from None
    if "posterior" in inspect.signature(arviz.from_dict).parameters:
        return arviz.from_dict(posterior=posterior)
    return arviz.from_dict({"posterior": posterior})


def mixing(x: Floats) -> dict[str, float]:
    """Return the worst split R-hat and effective sample size of quantities, and typical ones.

    Parameters
    ----------
    x : ndarray of shape (chains, draws, ...)
        Draws of the quantities.

    Returns
    -------
    dict
        "rhat" (largest), "rhat_95" (95% quantile), "ess_min" and "ess_median".
    """
    x = x.reshape(x.shape[0], x.shape[1], -1)
    rhat, ess = split_rhat(x), effective_sample_size(x)
    return {
        "rhat": _extreme(rhat, np.nanmax),
        "rhat_95": _extreme(rhat, lambda values: np.nanquantile(values, 0.95)),
        "ess_min": _extreme(ess, np.nanmin),
        "ess_median": _extreme(ess, np.nanmedian),
    }


def _extreme(values: Floats, statistic: Any) -> float:
    return float(statistic(values)) if np.isfinite(values).any() else float("nan")
