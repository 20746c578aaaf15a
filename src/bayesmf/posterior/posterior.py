"""From draws to answers: mean, standard deviation and interval of a new rating.

Pairs are answered in chunks: a users x items array is never formed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.rated import Seen
from bayesmf.errors import InputError
from bayesmf.kernels.mixture import mixture_moments, mixture_quantile
from bayesmf.kernels.predict import predict_components, sum_expected
from bayesmf.kernels.types import readonly
from bayesmf.model.draws import Draws
from bayesmf.posterior.moments import FEWEST, PairMoments, rows_of
from bayesmf.system.forks import once
from bayesmf.system.threads import Pool, parts

Index = NDArray[np.int64]
Floats = NDArray[np.float64]
# Prior of a row under each draw: means, each a 1 x width array, and covariances.
Prior = tuple[NDArray[np.float32], NDArray[np.float64]]

POLICIES = ("mean", "ucb", "thompson")
# Components of one chunk of pairs, over all draws: 8 bytes each, so some 32 MB.
COMPONENTS = 4_000_000


class Mixtures(NamedTuple):
    """Predictive distributions of a chunk of pairs: mixtures of Gaussians, a component a draw.

    Attributes
    ----------
    lo, hi : int
        Range of the pairs, from `lo` to before `hi`.
    mu, var : ndarray of float32, shape (draws, hi - lo)
        Means and variances of the components, in units of the ratings.

    Examples
    --------
    >>> import numpy as np
    >>> from bayesmf import BayesianMF, Gibbs
    >>> ratings = [1, 1, 2, 2, 3], [7, 8, 7, 9, 8], [4.0, 1.0, 5.0, 3.0, 2.0]
    >>> model = BayesianMF(2, sampler=Gibbs(epochs=4), random_state=0).fit(ratings)
    >>> found = next(model.posterior_.chunks(np.array([0, 1]), np.array([2, 2])))
    >>> found.lo, found.hi, bool((found.var > 0).all())
    (0, 2, True)
    """

    lo: int
    hi: int
    mu: NDArray[np.float32]
    var: NDArray[np.float32]


@dataclass(frozen=True)
class Posterior:
    """Kept draws, in the units of the ratings, and what they predict.

    The predictive distribution of a new rating is a mixture of Gaussians, one component a draw:
    with mean `center + scale * prediction` and variance `scale^2 / tau`. Answers of `mean_std` are
    clipped to [low, high], the range of the training ratings; components and intervals never are.

    Where draws have conditional means, a pair's components are moved together so that their mean is
    the average of the expected predictions: draws give the spread, conditional means the location.

    Attributes
    ----------
    draws : Draws
        Rows of users and items, their prior's parameters and tau, by draw.
    seen : RatedItems
        Which items each user has rated.
    n_factors : int
        Number of latent factors.
    center, scale : float
        Mean and standard deviation of the training ratings, or 1 where they were not standardized.
    low, high : float
        Range of the training ratings.

    Examples
    --------
    >>> from bayesmf import BayesianMF, Gibbs
    >>> ratings = [1, 1, 2, 2, 3], [7, 8, 7, 9, 8], [4.0, 1.0, 5.0, 3.0, 2.0]
    >>> model = BayesianMF(2, sampler=Gibbs(epochs=4), random_state=0).fit(ratings)
    >>> posterior = model.posterior_
    >>> posterior.low, posterior.high, posterior.draws.users.shape[1:]
    (1.0, 5.0, (3, 3))
    """

    draws: Draws
    seen: Seen
    n_factors: int
    center: float
    scale: float
    low: float
    high: float

    def chunks(self, user: Index, item: Index) -> Iterator[Mixtures]:
        """Compute the predictive mixtures of pairs, in chunks.

        Parameters
        ----------
        user, item : ndarray of int64
            Row numbers, equally many; -1 stands for a row without training ratings.

        Yields
        ------
        Mixtures
            Those of the next pairs.

        Examples
        --------
        >>> import numpy as np
        >>> from bayesmf import BayesianMF, Gibbs
        >>> ratings = [1, 1, 2, 2, 3], [7, 8, 7, 9, 8], [4.0, 1.0, 5.0, 3.0, 2.0]
        >>> model = BayesianMF(2, sampler=Gibbs(epochs=4), random_state=0).fit(ratings)
        >>> pairs = np.array([0, 1]), np.array([2, 2])
        >>> [chunk.mu.shape[1] for chunk in model.posterior_.chunks(*pairs)]
        [2]
        """
        priors = self._priors(user, item)
        for part in parts(len(user), max(1, COMPONENTS // len(self.draws))):
            mu, var = self._components(user[part], item[part], priors)
            yield Mixtures(part.start, part.stop, mu, var)

    def expected(self, user: Index, item: Index) -> Iterator[tuple[Mixtures, Floats]]:
        """Compute the predictive mixtures of pairs, in chunks, and their means.

        Parameters
        ----------
        user, item : ndarray of int64
            Row numbers, equally many; -1 stands for a row without training ratings.

        Yields
        ------
        chunk : Mixtures
            Those of the next pairs.
        mean : ndarray of float64
            Expected ratings, clipped to the range of the training ratings.

        Examples
        --------
        >>> import numpy as np
        >>> from bayesmf import BayesianMF, Gibbs
        >>> ratings = [1, 1, 2, 2, 3], [7, 8, 7, 9, 8], [4.0, 1.0, 5.0, 3.0, 2.0]
        >>> model = BayesianMF(2, sampler=Gibbs(epochs=4), random_state=0).fit(ratings)
        >>> pairs = np.array([0, 1]), np.array([2, 2])
        >>> [mean.shape for chunk, mean in model.posterior_.expected(*pairs)]
        [(2,)]
        """
        for chunk in self.chunks(user, item):
            yield chunk, self.clip(chunk.mu.mean(0, dtype=np.float64))

    @once
    def unseen(self) -> tuple[Prior, Prior]:
        """Prior of rows without training ratings, of users and of items, for all draws."""
        draws = self.draws
        users = draws.user_mu.astype(np.float32)[:, None], covariances(draws.user_Lambda)
        items = draws.item_mu.astype(np.float32)[:, None], covariances(draws.item_Lambda)
        return users, items

    def _priors(self, user: Index, item: Index) -> tuple[Prior, Prior]:
        """`unseen` if any row is, else empty arrays: it costs a matrix inverse a draw."""
        if len(user) > 0 and min(user.min(), item.min()) < 0:
            return self.unseen
        nothing = np.empty((len(self.draws), 0, 0))
        return (nothing.astype(np.float32), nothing), (nothing.astype(np.float32), nothing)

    def _components(
        self, user: Index, item: Index, priors: tuple[Prior, Prior]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        draws = self.draws
        mu = np.empty((len(draws), len(user)), np.float32)
        var = np.empty_like(mu)
        user, item = readonly(user), readonly(item)
        users, items, *_ = rows_of(draws)
        predict_components(
            users, items, user, item, self.n_factors, *priors, readonly(draws.tau), mu, var
        )
        if draws.user_means is not None:
            mu += self._shift(mu, user, item)
        mu *= np.float32(self.scale)
        mu += np.float32(self.center)
        var *= np.float32(self.scale**2)
        return mu, var

    def _shift(self, mu: NDArray[np.float32], user: Index, item: Index) -> NDArray[np.float32]:
        """Shift of each pair's predictions after which their mean is the expected prediction."""
        users, _, user_means, item_means = rows_of(self.draws)
        expected = np.zeros(len(user))
        rated = self.seen.rated(user, item)
        sum_expected(user_means, item_means, users, user, item, rated, self.n_factors, expected)
        shift = expected / len(self.draws) - mu.mean(0, dtype=np.float64)
        shift[(user < 0) | (item < 0)] = 0.0
        return np.asarray(shift, np.float32)

    def clip(self, values: Floats) -> Floats:
        """Clip expected ratings to the range of the training ratings.

        Parameters
        ----------
        values : ndarray of float64
            Expected ratings.

        Returns
        -------
        ndarray of float64
            The same, none below `low` or above `high`.

        Examples
        --------
        >>> import numpy as np
        >>> from bayesmf import BayesianMF, Gibbs
        >>> ratings = [1, 1, 2, 2, 3], [7, 8, 7, 9, 8], [4.0, 1.0, 5.0, 3.0, 2.0]
        >>> model = BayesianMF(2, sampler=Gibbs(epochs=4), random_state=0).fit(ratings)
        >>> model.posterior_.clip(np.array([0.5, 3.0, 7.0])).tolist()
        [1.0, 3.0, 5.0]
        """
        return np.clip(values, self.low, self.high)

    def mean_std(
        self, user: Index, item: Index, threads: int | None = None
    ) -> tuple[Floats, Floats]:
        """Compute mean and standard deviation of a new rating of each pair, noise included.

        Parameters
        ----------
        user, item : ndarray of int64
            Row numbers, equally many; -1 stands for a row without training ratings.
        threads : int, optional
            Number of threads; one for each core by default. The answer does not depend on it.

        Returns
        -------
        mean : ndarray of float64
            Expected ratings, clipped to the range of the training ratings.
        std : ndarray of float64
            Standard deviations.

        Examples
        --------
        >>> import numpy as np
        >>> from bayesmf import BayesianMF, Gibbs
        >>> ratings = [1, 1, 2, 2, 3], [7, 8, 7, 9, 8], [4.0, 1.0, 5.0, 3.0, 2.0]
        >>> model = BayesianMF(2, sampler=Gibbs(epochs=4), random_state=0).fit(ratings)
        >>> mean, std = model.posterior_.mean_std(np.array([0, 1]), np.array([2, 2]))
        >>> bool(mean[0] == model.predict(1, 9))
        True
        """
        known = (user >= 0) & (item >= 0)
        if known.all():
            mean, variance = self._known_moments(user, item, threads)
        else:
            mean, variance = np.empty(len(user)), np.empty(len(user))
            found = self._known_moments(user[known], item[known], threads)
            mean[known], variance[known] = found
            mean[~known], variance[~known] = self._unseen_moments(user[~known], item[~known])
        return self.clip(mean), np.sqrt(variance)

    def _known_moments(
        self, user: Index, item: Index, threads: int | None
    ) -> tuple[Floats, Floats]:
        moments = PairMoments(self.draws, self.seen, self.n_factors)
        with Pool(threads) as pool:
            mean, variance = moments.mean_variance(user, item, pool)
        return self.center + self.scale * mean, self.scale**2 * variance + self.noise()

    def _unseen_moments(self, user: Index, item: Index) -> tuple[Floats, Floats]:
        """Mean and variance of pairs with an unseen row; equal pairs are answered once."""
        n_items = self.draws.items.shape[1]
        codes, back = np.unique((user + 1) * (n_items + 1) + item + 1, return_inverse=True)
        mean, variance = np.empty(len(codes)), np.empty(len(codes))
        for chunk in self.chunks(codes // (n_items + 1) - 1, codes % (n_items + 1) - 1):
            part = slice(chunk.lo, chunk.hi)
            mean[part], variance[part] = mixture_moments(chunk.mu, chunk.var)
        return mean[back], variance[back]

    def noise(self) -> float:
        """Compute the variance of a rating around its prediction, on average over draws.

        Returns
        -------
        float
            The variance, in squared units of the ratings.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Gibbs
        >>> ratings = [1, 1, 2, 2, 3], [7, 8, 7, 9, 8], [4.0, 1.0, 5.0, 3.0, 2.0]
        >>> model = BayesianMF(2, sampler=Gibbs(epochs=4), random_state=0).fit(ratings)
        >>> model.posterior_.noise() > 0
        True
        """
        return self.scale**2 * float(np.mean(1.0 / self.draws.tau))

    def interval(
        self, user: Index, item: Index, level: float, threads: int | None = None
    ) -> tuple[Floats, Floats]:
        """Compute the central interval that holds a new rating with probability `level`.

        Parameters
        ----------
        user, item : ndarray of int64
            Row numbers, equally many; -1 stands for a row without training ratings.
        level : float
            The probability, between 0 and 1.
        threads : int, optional
            Number of threads; one for each core by default. The answer does not depend on it.

        Returns
        -------
        low : ndarray of float64
            Lower bounds.
        high : ndarray of float64
            Upper bounds.

        Raises
        ------
        InputError
            If `level` is no probability.

        Examples
        --------
        >>> import numpy as np
        >>> from bayesmf import BayesianMF, Gibbs
        >>> ratings = [1, 1, 2, 2, 3], [7, 8, 7, 9, 8], [4.0, 1.0, 5.0, 3.0, 2.0]
        >>> model = BayesianMF(2, sampler=Gibbs(epochs=4), random_state=0).fit(ratings)
        >>> low, high = model.posterior_.interval(np.array([0]), np.array([2]), 0.8)
        >>> bool(low[0] < high[0])
        True
        """
        check_level(level)
        low, high = np.empty(len(user)), np.empty(len(user))
        priors = self._priors(user, item)

        def fill(part: slice) -> None:
            mu, var = self._components(user[part], item[part], priors)
            low[part] = mixture_quantile((1 - level) / 2, mu, var)
            high[part] = mixture_quantile((1 + level) / 2, mu, var)

        with Pool(threads) as pool:
            # Components of all threads together are those of one chunk.
            most = max(1, COMPONENTS // len(self.draws) // pool.threads)
            share = max(FEWEST // len(self.draws), -(-len(user) // pool.threads), 1)
            pool.each(fill, parts(len(user), min(share, most)))
        return low, high

    def traces(self, user: Index, item: Index) -> dict[str, Any]:
        """Collect draws of predictions, precisions and tau by chain, for diagnostics.

        Raw factors are left out: they may rotate and swap without anything having changed.

        Parameters
        ----------
        user, item : ndarray of int64
            Row numbers of the pairs whose predictions are followed.

        Returns
        -------
        dict of str to ndarray
            Arrays of shape (chains, draws, ...), cut to the shortest chain: "prediction", "tau",
            and precisions of factors ("lambda_U", "lambda_V") and biases ("lambda_a", "lambda_b").

        Examples
        --------
        >>> import numpy as np
        >>> from bayesmf import BayesianMF, Gibbs
        >>> ratings = [1, 1, 2, 2, 3], [7, 8, 7, 9, 8], [4.0, 1.0, 5.0, 3.0, 2.0]
        >>> model = BayesianMF(2, sampler=Gibbs(epochs=4), random_state=0).fit(ratings)
        >>> sorted(model.posterior_.traces(np.array([0, 1]), np.array([2, 2])))
        ['lambda_U', 'lambda_V', 'lambda_a', 'lambda_b', 'prediction', 'tau']
        """
        draws = self.draws
        mu, _ = self._components(user, item, self._priors(user, item))
        by_chain = [np.flatnonzero(draws.chain == c) for c in np.unique(draws.chain)]
        shortest = min(len(rows) for rows in by_chain)
        rows = np.array([r[:shortest] for r in by_chain])
        quantities = {"prediction": mu.astype(np.float64), "tau": draws.tau / self.scale**2}
        for side in ("user", "item"):
            Lambda = getattr(draws, f"{side}_Lambda")
            D = self.n_factors
            # Eigenvalues of a matrix: its diagonal changes as the factors rotate.
            factors = Lambda[:, :D] if Lambda.ndim == 2 else np.linalg.eigvalsh(Lambda[:, :D, :D])
            # Sorted, since columns may swap: only order statistics of precisions compare.
            quantities[f"lambda_{'U' if side == 'user' else 'V'}"] = np.sort(factors, axis=1)
            if Lambda.shape[1] > D:
                bias = Lambda[:, -1] if Lambda.ndim == 2 else Lambda[:, -1, -1]
                quantities[f"lambda_{'a' if side == 'user' else 'b'}"] = bias
        return {name: values[rows] for name, values in quantities.items()}


def covariances(Lambda: NDArray[np.float64]) -> NDArray[np.float64]:
    """Covariance matrices of precisions, which are given as matrices or as their diagonals."""
    if Lambda.ndim == 3:
        return np.asarray(np.linalg.inv(Lambda), np.float64)
    out = np.zeros((*Lambda.shape, Lambda.shape[1]))
    out[:, np.arange(Lambda.shape[1]), np.arange(Lambda.shape[1])] = 1.0 / Lambda
    return out


def check_level(level: object) -> None:
    """Refuse a level of intervals that is no probability."""
    if not isinstance(level, (int, float, np.floating)) or not 0 < level < 1:
        raise InputError(f"level must be between 0 and 1, such as 0.9, not {level!r}")
