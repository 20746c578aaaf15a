"""From draws to answers: mean, standard deviation and interval of a new rating.

Pairs are answered in chunks: a users x items array is never formed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.rated import RatedItems
from bayesmf.data.training import TrainingData
from bayesmf.errors import InputError
from bayesmf.kernels.mixture import mixture_moments, mixture_quantile
from bayesmf.kernels.types import Rows
from bayesmf.model.draws import Draws
from bayesmf.posterior.all_rows import all_rows
from bayesmf.posterior.pairs import Block, Sides, each_block, sides_of
from bayesmf.posterior.rows import ExactRows, RowSource, Solved, StoredRows, natural_priors
from bayesmf.system.forks import once
from bayesmf.system.threads import Pool, parts

Index = NDArray[np.int64]
Floats = NDArray[np.float64]

POLICIES = ("mean", "ucb", "lcb", "thompson")
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
    """Kept draws of one side, ratings of the other, and what they predict.

    Given a draw of the items, a user's row is Gaussian with a mean and a precision that follow from
    the user's own ratings. So the predictive distribution of a new rating is a mixture of
    Gaussians, one component a draw: with mean `center + scale * m_i . V_j` and variance
    `scale^2 (V_j^T A_i^-1 V_j + 1 / tau)`; or the other way round, where draws of users are kept.
    Where draws of both are, components are `U_i . V_j` and `1 / tau`. Answers of `mean_std` are
    clipped to [low, high], the range of the training ratings; components and intervals never are.

    Where draws have conditional means, a pair's components are moved together so that their mean is
    the average of the expected predictions: draws give the spread, conditional means the location.

    Attributes
    ----------
    draws : Draws
        Rows of the kept side, the parameters of both sides' priors and tau, by draw.
    ratings : TrainingData
        The training ratings, by row number and in the chain's units.
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
    >>> posterior.low, posterior.high, posterior.n_users
    (1.0, 5.0, 3)
    """

    draws: Draws
    ratings: TrainingData
    n_factors: int
    center: float
    scale: float
    low: float
    high: float

    @property
    def n_users(self) -> int:
        """Number of users with training ratings."""
        return self.ratings.n_users

    @property
    def n_items(self) -> int:
        """Number of items."""
        return self.ratings.n_items

    @once
    def seen(self) -> RatedItems:
        """Which items each user has rated."""
        return RatedItems.from_training(self.ratings)

    @property
    def has_ratings(self) -> bool:
        """Whether the training ratings are here; folders of earlier versions held none."""
        return self.ratings.has_values

    def need_ratings(self, what: str) -> None:
        """Refuse a question that needs the training ratings, where a model lacks them.

        Parameters
        ----------
        what : str
            What was asked for, such as "explain".

        Raises
        ------
        InputError
            If the model was saved without users, or by an earlier version.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Gibbs
        >>> ratings = [1, 1, 2, 2, 3], [7, 8, 7, 9, 8], [4.0, 1.0, 5.0, 3.0, 2.0]
        >>> model = BayesianMF(2, sampler=Gibbs(epochs=4), random_state=0).fit(ratings)
        >>> model.posterior_.need_ratings("explain")
        """
        if not self.has_ratings:
            why = (
                "and its folder is of an earlier version, which saved none: fit again"
                if self.ratings.has_users
                else "and it was saved without its users: use one that was saved with them"
            )
            raise InputError(f"{what} needs the ratings that the model has learnt from, {why}")

    @property
    def users_kept(self) -> bool:
        """Whether items are the side that is worked out."""
        return self.draws.items is None

    @once
    def sides(self) -> Sides:
        """The kept side, and where rows of the other come from."""
        return sides_of(self.draws, self._source(), self.n_factors)

    def _source(self) -> RowSource:
        draws, D = self.draws, self.n_factors
        users, items = (draws.user_mu, draws.user_Lambda), (draws.item_mu, draws.item_Lambda)
        if draws.users is not None and draws.items is not None:
            means = draws.users if draws.user_means is None else draws.user_means
            return StoredRows(draws.users, means, draws.items, users, D)
        own, lists = (items, "by_item") if self.users_kept else (users, "by_user")
        return ExactRows(
            draws.kept, natural_priors(*own), draws.tau, getattr(self.ratings, lists),
            self.ratings.levels, D,
        )  # fmt: skip

    @once
    def expected_items(self) -> Rows:
        """Conditional means of all items, where users are kept: what items are ranked by."""
        source = self.sides.source
        assert isinstance(source, ExactRows)
        return all_rows(source)[0]

    @once
    def with_items(self) -> Posterior:
        """This posterior with draws of items: where users are kept, items drawn given each draw."""
        source = self.sides.source
        if not self.users_kept:
            return self
        assert isinstance(source, ExactRows)
        means, drawn = all_rows(source, draw=True)
        made = replace(self.draws, users=None, user_means=None, items=drawn, item_means=means)
        return replace(self, draws=made)

    def __getstate__(self) -> dict[str, Any]:
        """The fields alone, without what was worked out from them."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def _each(self, user: Index, item: Index, pool: Pool, work: Any, factors: bool = True) -> None:
        """Call `work` with the blocks of pairs, as `each_block` has it."""

        def rated(own: Index, slot: Index) -> NDArray[np.bool_]:
            return self.seen.rated(*((slot, own) if self.users_kept else (own, slot)))

        own, slot = (item, user) if self.users_kept else (user, item)
        each_block(self.sides, own, slot, rated, pool, work, factors)

    def chunks(self, user: Index, item: Index, threads: int | None = None) -> Iterator[Mixtures]:
        """Compute the predictive mixtures of pairs, in chunks.

        Parameters
        ----------
        user, item : ndarray of int64
            Row numbers, equally many; -1 stands for a row without training ratings.
        threads : int, optional
            Number of threads; one for each core by default. The answer does not depend on it.

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
        with Pool(threads) as pool:
            for part in parts(len(user), max(1, COMPONENTS // len(self.draws))):
                mu, var, _ = self._mixtures(user[part], item[part], pool)
                yield Mixtures(part.start, part.stop, mu, var)

    def _mixtures(
        self, user: Index, item: Index, pool: Pool
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], Floats]:
        """Components of pairs, and their expected ratings, in the units of the ratings."""
        mu = np.empty((len(self.draws), len(user)), np.float32)
        var, expected = np.empty_like(mu), np.empty(len(user))

        def work(at: Index, block: Block, solved: Solved, sides: Sides) -> None:
            found = sides.components(block, solved)
            mu[:, at], var[:, at], expected[at] = found.moved(), found.var, found.expected

        self._each(user, item, pool, work)
        mu *= np.float32(self.scale)
        mu += np.float32(self.center)
        var *= np.float32(self.scale**2)
        return mu, var, self.center + self.scale * expected

    def expected(
        self, user: Index, item: Index, threads: int | None = None
    ) -> Iterator[tuple[Mixtures, Floats]]:
        """Compute the predictive mixtures of pairs, in chunks, and their means.

        Parameters
        ----------
        user, item : ndarray of int64
            Row numbers, equally many; -1 stands for a row without training ratings.
        threads : int, optional
            Number of threads; one for each core by default. The answer does not depend on it.

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
        with Pool(threads) as pool:
            for part in parts(len(user), max(1, COMPONENTS // len(self.draws))):
                mu, var, mean = self._mixtures(user[part], item[part], pool)
                yield Mixtures(part.start, part.stop, mu, var), self.clip(mean)

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
        mean, variance = np.empty(len(user)), np.empty(len(user))

        def work(at: Index, block: Block, solved: Solved, sides: Sides) -> None:
            found = sides.components(block, solved)
            mean[at], variance[at] = found.expected, mixture_moments(found.mu, found.var)[1]

        with Pool(threads) as pool:
            self._each(user, item, pool, work)
        return self.clip(self.center + self.scale * mean), self.scale * np.sqrt(variance)

    def mean(self, user: Index, item: Index, threads: int | None = None) -> Floats:
        """Compute the expected rating of each pair, as `mean_std` does, in less time.

        Parameters
        ----------
        user, item : ndarray of int64
            Row numbers, equally many; -1 stands for a row without training ratings.
        threads : int, optional
            Number of threads; one for each core by default. The answer does not depend on it.

        Returns
        -------
        ndarray of float64
            Expected ratings, clipped to the range of the training ratings.

        Examples
        --------
        >>> import numpy as np
        >>> from bayesmf import BayesianMF, Gibbs
        >>> ratings = [1, 1, 2, 2, 3], [7, 8, 7, 9, 8], [4.0, 1.0, 5.0, 3.0, 2.0]
        >>> model = BayesianMF(2, sampler=Gibbs(epochs=4), random_state=0).fit(ratings)
        >>> pairs = np.array([0, 1]), np.array([2, 2])
        >>> bool((model.posterior_.mean(*pairs) == model.posterior_.mean_std(*pairs)[0]).all())
        True
        """
        mean = np.empty(len(user))

        def work(at: Index, block: Block, solved: Solved, sides: Sides) -> None:
            mean[at] = sides.expected(block, solved)

        with Pool(threads) as pool:
            self._each(user, item, pool, work, factors=False)
        return self.clip(self.center + self.scale * mean)

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

        def work(at: Index, block: Block, solved: Solved, sides: Sides) -> None:
            found = sides.components(block, solved)
            mu = found.moved()
            low[at] = mixture_quantile((1 - level) / 2, mu, found.var)
            high[at] = mixture_quantile((1 + level) / 2, mu, found.var)

        with Pool(threads) as pool:
            self._each(user, item, pool, work)
        return self.center + self.scale * low, self.center + self.scale * high

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
        with Pool() as pool:
            mu = self._mixtures(user, item, pool)[0]
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


def check_level(level: object) -> None:
    """Refuse a level of intervals that is no probability."""
    if not isinstance(level, (int, float, np.floating)) or not 0 < level < 1:
        raise InputError(f"level must be between 0 and 1, such as 0.9, not {level!r}")
