"""Posterior predictions: mean, standard deviation and interval of a new rating.

Pairs are processed in chunks: a users x items array is never formed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.training import RatedItems, TrainingData, add_ratings
from bayesmf.errors import InputError
from bayesmf.kernels.csr import RowLists
from bayesmf.kernels.mixture import mixture_moments, mixture_quantile
from bayesmf.kernels.types import Rows
from bayesmf.model.draws import Draws, RatingLevels, spread_evenly
from bayesmf.posterior.pairs import PairBlock, Progress, Sides, Tables, Work, each_block, sides_of
from bayesmf.posterior.rows import (
    ExactRows,
    RowSource,
    Solved,
    all_rows,
    natural_priors,
    precisions_of,
    stored_users,
    take_rows,
    weights_of,
)
from bayesmf.process import Pool, parts

Index = NDArray[np.int64]
Floats = NDArray[np.float64]

# Draws used for queries that need the rows of all users; at least one of each chain.
FEW_DRAWS = 16
# Components of one chunk of pairs over all draws, 8 bytes each: 32 MB.
COMPONENTS = 4_000_000
# Number of training ratings whose noise is averaged.
NOISE_PAIRS = 1 << 14


class Mixtures(NamedTuple):
    """Predictive distributions of a chunk of pairs: mixtures of Gaussians, a component a draw.

    Attributes
    ----------
    lo, hi : int
        Range of the pairs, from `lo` to before `hi`.
    mu, var : ndarray of float32, shape (draws, hi - lo)
        Means and variances of the components, in units of the ratings.
    mean : ndarray of float64, shape (hi - lo,)
        Expected ratings, clipped to the range of the training ratings.

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
    mean: Floats


@dataclass(frozen=True)
class Posterior:
    """Kept draws of one side and the training ratings, from which predictions follow.

    Given a draw of the items, a user's row is Gaussian with a mean and a precision that follow from
    the user's own ratings. So the predictive distribution of a new rating is a mixture of
    Gaussians, one component a draw: with mean `center + scale * m_i . V_j` and variance
    `scale^2 (V_j^T A_i^-1 V_j + 1 / tau)`; or the other way round, where draws of users are kept.
    Where draws of both are, components are `U_i . V_j` and `1 / tau`. Answers of `mean_std` are
    clipped to [low, high], the range of the training ratings; components and intervals never are.

    If draws have conditional means, a pair's components are shifted so that their mean is the
    average of the expected predictions: draws give the spread, conditional means the location.

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
    levels : RatingLevels or None
        Distinct ratings and the edges between them, if saved without the training ratings.

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
    levels: RatingLevels | None = None

    @property
    def n_users(self) -> int:
        """Number of users with training ratings."""
        return self.ratings.n_users

    @property
    def n_items(self) -> int:
        """Number of items."""
        return self.ratings.n_items

    @cached_property
    def seen(self) -> RatedItems:
        """Which items each user has rated."""
        return RatedItems.from_training(self.ratings)

    def need_ratings(self, what: str) -> None:
        """Refuse a question that needs the training ratings, where a model lacks them."""
        if not self.ratings.has_users:
            raise InputError(
                f"{what} needs the ratings of the fit, but this model was saved without its users: "
                "use one that was saved with them"
            )

    @property
    def users_kept(self) -> bool:
        """Whether users are kept, and items integrated out."""
        return self.draws.items is None

    @cached_property
    def sides(self) -> Sides:
        """The kept side, and the source of the other side's rows."""
        return sides_of(self.draws, self._source(), self.n_factors)

    def _source(self) -> RowSource:
        draws, D = self.draws, self.n_factors
        if draws.users is not None and draws.items is not None:
            return stored_users(draws, D)
        users, items = (draws.user_mu, draws.user_Lambda), (draws.item_mu, draws.item_Lambda)
        own, lists = (items, "by_item") if self.users_kept else (users, "by_user")
        side = int(self.users_kept)
        return ExactRows(
            draws.kept, natural_priors(*own), precisions_of(draws, side),
            weights_of(draws, 1 - side), getattr(self.ratings, lists), self.ratings.levels, D,
        )  # fmt: skip

    @cached_property
    def expected_rows(self) -> Rows:
        """Conditional means of all rows of the side that is not kept, (draws, rows, width)."""
        source = self.sides.source
        assert isinstance(source, ExactRows)
        return all_rows(source)[0]

    # Not cached if it is the posterior itself: a reference cycle would keep it from being freed.
    @property
    def with_items(self) -> Self:
        """This posterior with draws of items: if users are kept, items drawn given each draw."""
        return self._with_drawn_items if self.users_kept else self

    @cached_property
    def _with_drawn_items(self) -> Self:
        source = self.sides.source
        assert isinstance(source, ExactRows)
        means, drawn = all_rows(source, draw=True)
        made = replace(self.draws, users=None, user_means=None, items=drawn, item_means=means)
        return replace(self, draws=made)

    @property
    def with_users(self) -> Self:
        """This posterior with users integrated out."""
        base = self.with_items
        return base if base.draws.users is None else base._without_stored_users

    @cached_property
    def _without_stored_users(self) -> Self:
        return replace(self, draws=replace(self.draws, users=None, user_means=None))

    @cached_property
    def few_draws(self) -> Self:
        """This posterior with FEW_DRAWS, spread evenly."""
        return self.with_draws(spread_evenly(self.draws.chain, FEW_DRAWS))

    def with_draws(self, which: Index) -> Self:
        """This posterior with some of the draws, by number, ascending."""
        return replace(self, draws=self.draws.select(which))

    def with_ratings(self, ratings: TrainingData) -> Self:
        """This posterior for other users, with the same draws of items.

        `ratings` are those of these users, in the chain's units, of the same items. Users are
        integrated out; padded copies of the items are shared.
        """
        draws = replace(self.draws, users=None, user_means=None, user_tau=None)
        made = replace(self, draws=draws, ratings=ratings)
        shared, source = self.sides, made._source()
        if isinstance(shared.source, ExactRows) and "everything" in shared.source.__dict__:
            assert isinstance(source, ExactRows)
            source = replace(source, own=shared.source.everything)
        made.__dict__["sides"] = shared.with_source(source)
        return made

    def __getstate__(self) -> dict[str, Any]:
        """The fields, without cached values."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def _each(
        self,
        user: Index,
        item: Index,
        work: Work,
        threads: Pool | int | None = None,
        factors: bool = True,
        progress: Progress | None = None,
    ) -> None:
        """Call `work` with the blocks of pairs, on a pool or a number of threads."""

        def rated(own: Index, slot: Index) -> NDArray[np.bool_]:
            return self.seen.rated(*((slot, own) if self.users_kept else (own, slot)))

        pairs = (item, user) if self.users_kept else (user, item)
        with nullcontext(threads) if isinstance(threads, Pool) else Pool(threads) as pool:
            each_block(self.sides, pairs, rated, pool, work, factors, progress)

    def chunks(self, user: Index, item: Index, threads: int | None = None) -> Iterator[Mixtures]:
        """Compute the predictive mixtures of pairs, in chunks.

        Parameters
        ----------
        user, item : ndarray of int64
            Row numbers, equally many; -1 stands for a row without training ratings.
        threads : int, optional
            Number of threads; one for each core by default. The result does not depend on it.

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
                yield self._mixtures(user[part], item[part], part, pool)

    def _mixtures(self, user: Index, item: Index, part: slice, pool: Pool) -> Mixtures:
        mu = np.empty((len(self.draws), len(user)), np.float32)
        var, expected = np.empty_like(mu), np.empty(len(user))

        def work(at: Index, block: PairBlock, solved: Solved, tables: Tables) -> None:
            found = self.sides.components(block, solved, tables)
            mu[:, at], var[:, at], expected[at] = found.moved(), found.var, found.expected

        self._each(user, item, work, pool)
        mu *= np.float32(self.scale)
        mu += np.float32(self.center)
        var *= np.float32(self.scale**2)
        mean = self.clip(self.center + self.scale * expected)
        return Mixtures(part.start, part.stop, mu, var, mean)

    def clip(self, values: Floats) -> Floats:
        """Clip expected ratings to the range of the training ratings."""
        return np.clip(values, self.low, self.high)

    def mean_std(
        self,
        user: Index,
        item: Index,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> tuple[Floats, Floats]:
        """Compute mean and standard deviation of a new rating of each pair, noise included.

        Parameters
        ----------
        user, item : ndarray of int64
            Row numbers, equally many; -1 stands for a row without training ratings.
        threads : int, optional
            Number of threads; one for each core by default. The result does not depend on it.
        progress : callable, optional
            Called with the number of pairs answered since the last call.

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
        return self._summary(user, item, None, threads, progress)[:2]

    def _summary(
        self,
        user: Index,
        item: Index,
        level: float | None,
        threads: int | None,
        progress: Progress | None,
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """Mean, standard deviation and, given a level, both bounds, in one pass."""
        mean, std, low, high = np.zeros((4, len(user)))

        def work(at: Index, block: PairBlock, solved: Solved, tables: Tables) -> None:
            found = self.sides.components(block, solved, tables)
            mean[at], std[at] = found.expected, np.sqrt(mixture_moments(found.mu, found.var)[1])
            if level is not None:
                mu = found.moved()
                low[at] = mixture_quantile((1 - level) / 2, mu, found.var)
                high[at] = mixture_quantile((1 + level) / 2, mu, found.var)

        self._each(user, item, work, threads, progress=progress)
        center, scale = self.center, self.scale
        mean = self.clip(center + scale * mean)
        return mean, scale * std, center + scale * low, center + scale * high

    def table(
        self,
        user: Index,
        item: Index,
        level: float,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """Results of `mean_std` and `interval`, in little more time than the latter."""
        check_level(level)
        return self._summary(user, item, level, threads, progress)

    def mean(
        self,
        user: Index,
        item: Index,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> Floats:
        """Compute the expected rating of each pair, as `mean_std` does, in less time.

        Parameters
        ----------
        user, item : ndarray of int64
            Row numbers, equally many; -1 stands for a row without training ratings.
        threads : int, optional
            Number of threads; one for each core by default. The result does not depend on it.
        progress : callable, optional
            Called with the number of pairs answered since the last call.

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

        def work(at: Index, block: PairBlock, solved: Solved, tables: Tables) -> None:
            mean[at] = self.sides.expected(block, solved, tables)

        self._each(user, item, work, threads, factors=False, progress=progress)
        return self.clip(self.center + self.scale * mean)

    def noise(self) -> float:
        """Compute the variance of a rating around its prediction, on average over draws.

        Returns
        -------
        float
            The variance, in squared units of the ratings; with separate noise of users or items,
            the mean over training ratings.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Gibbs
        >>> ratings = [1, 1, 2, 2, 3], [7, 8, 7, 9, 8], [4.0, 1.0, 5.0, 3.0, 2.0]
        >>> model = BayesianMF(2, sampler=Gibbs(epochs=4), random_state=0).fit(ratings)
        >>> model.posterior_.noise() > 0
        True
        """
        if self.draws.noise_by is None:
            return self.scale**2 * float(np.mean(1.0 / self.draws.tau))
        if not self.ratings.has_users:
            items = np.arange(self.n_items)
            return float(self.noise_of(np.full(len(items), -1), items).mean())
        lists = self.ratings.by_user
        at = np.linspace(0, len(self.ratings) - 1, min(len(self.ratings), NOISE_PAIRS)).astype(int)
        user = np.searchsorted(lists.starts, at, side="right") - 1
        return float(self.noise_of(user, np.asarray(lists.other[at], np.int64)).mean())

    def noise_of(self, user: Index, item: Index) -> Floats:
        """Compute the noise variance of ratings of pairs, on average over draws.

        Parameters
        ----------
        user, item : ndarray of int64
            Row numbers, equally many; -1 stands for a row without training ratings.

        Returns
        -------
        ndarray of float64
            The variance of each pair's rating, in squared units of the ratings: one value for all
            pairs, or that of the user, the item, or both.

        Examples
        --------
        >>> import numpy as np
        >>> from bayesmf import BayesianMF, Gibbs
        >>> ratings = [1, 1, 2, 2, 3], [7, 8, 7, 9, 8], [4.0, 1.0, 5.0, 3.0, 2.0]
        >>> model = BayesianMF(2, sampler=Gibbs(epochs=4), random_state=0).fit(ratings)
        >>> bool(model.posterior_.noise_of(np.array([0]), np.array([2]))[0] > 0)
        True
        """
        own, slot = (item, user) if self.users_kept else (user, item)
        rows, at = np.unique(own, return_inverse=True)
        kept, where = np.unique(slot, return_inverse=True)
        weights, out = self.sides.weights.of(kept), np.empty(len(own))
        known = self.sides.source.precisions(rows)
        for part in parts(len(own), max(1, COMPONENTS // len(self.draws))):
            out[part] = (1.0 / (known[at[part]] * weights[where[part]])).mean(1)
        return np.asarray(self.scale**2 * out)

    def interval(
        self,
        user: Index,
        item: Index,
        level: float,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> tuple[Floats, Floats]:
        """Compute the central interval that holds a new rating with probability `level`.

        Parameters
        ----------
        user, item : ndarray of int64
            Row numbers, equally many; -1 stands for a row without training ratings.
        level : float
            The probability, between 0 and 1.
        threads : int, optional
            Number of threads; one for each core by default. The result does not depend on it.
        progress : callable, optional
            Called with the number of pairs answered since the last call.

        Returns
        -------
        low : ndarray of float64
            Lower bounds.
        high : ndarray of float64
            Upper bounds.

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
        return self.table(user, item, level, threads, progress)[2:]


def check_level(level: object) -> None:
    """Raise InputError for a level outside (0, 1), or where (1 + level) / 2 rounds to 1."""
    if not isinstance(level, (int, float, np.floating)) or not 0 < level < 1 > (1 + level) / 2:
        raise InputError(f"level must be between 0 and 1, such as 0.9, not {level!r}")


def known_ratings(posterior: Posterior, rows: Index, what: str) -> RowLists:
    """Ratings of users by row number; none for -1, a new user. `what` needs them."""
    if (rows >= 0).any():
        posterior.need_ratings(what)
    return take_rows(posterior.ratings.by_user, rows)


class NewRatings(NamedTuple):
    """Ratings sent with a query, in the units of ratings, oldest first.

    `user` is a position among the users of the query, `item` a row number.
    """

    user: Index
    item: Index
    rating: NDArray[np.float32]


def fold_in(posterior: Posterior, rows: Index, new: NewRatings) -> Posterior:
    """The posterior for users by row number, -1 for new ones, with ratings added to theirs.

    User k of the result is rows[k]. Of two ratings of one user for one item the last counts.
    """
    base: Posterior = posterior.with_items
    known = known_ratings(base, rows, "adding ratings to those of a known user")
    value = ((new.rating - np.float32(base.center)) / np.float32(base.scale)).astype(np.float32)
    last = last_of_equals(new.user * base.n_items + new.item)
    sizes = len(rows), base.n_items
    data = add_ratings(
        TrainingData(known, base.n_items, base.ratings.levels),
        (np.arange(sizes[0]), np.arange(sizes[1])),
        sizes,
        new.user[last].astype(np.int32),
        new.item[last].astype(np.int32),
        value[last],
    )
    return base.with_ratings(data)


def last_of_equals(cell: Index) -> Index:
    """Positions of the last of all equal numbers, in ascending order of the numbers."""
    # np.unique finds the first, so of the list turned round.
    return len(cell) - 1 - np.unique(cell[::-1], return_index=True)[1]
