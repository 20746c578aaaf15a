"""From draws to answers: mean, spread and interval of a new rating.

Everything goes over given pairs in chunks: a users x items array is never formed.
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
from bayesmf.posterior.moments import FEWEST, Moments, rows_of
from bayesmf.system.forks import once
from bayesmf.system.threads import Pool, parts

Index = NDArray[np.int64]
Floats = NDArray[np.float64]
# Of all draws: means, each a 1 x width array, and covariances.
Prior = tuple[NDArray[np.float32], NDArray[np.float64]]

POLICIES = ("mean", "ucb", "thompson")
# Components of one chunk of pairs, over all draws: 8 bytes each, so some 32 MB.
COMPONENTS = 4_000_000


class Chunk(NamedTuple):
    """Pairs [lo, hi) with the components of their predictive mixtures, each (n_draws, hi - lo)."""

    lo: int
    hi: int
    mu: NDArray[np.float32]
    var: NDArray[np.float32]


@dataclass(frozen=True)
class Posterior:
    """Draws with the units of the ratings.

    A new rating is `center + scale * prediction`, with noise variance `scale^2 / tau`. The mean is
    clipped to [low, high], the range of the ratings seen; draws and intervals never are.

    Where draws have conditional means, a pair's components are moved together so that their mean is
    the average of the expected predictions: the draws tell the spread, the means the place.
    """

    draws: Draws
    seen: Seen
    n_factors: int
    center: float
    scale: float
    low: float
    high: float

    def chunks(self, user: Index, item: Index) -> Iterator[Chunk]:
        """Predictive components of pairs; a row number of -1 stands for an unseen row."""
        priors = self._priors(user, item)
        for part in parts(len(user), max(1, COMPONENTS // len(self.draws))):
            mu, var = self._components(user[part], item[part], priors)
            yield Chunk(part.start, part.stop, mu, var)

    def expected(self, user: Index, item: Index) -> Iterator[tuple[Chunk, Floats]]:
        """The same with the expected ratings of each chunk, clipped to the range seen."""
        for chunk in self.chunks(user, item):
            yield chunk, self.clip(chunk.mu.mean(0, dtype=np.float64))

    @once
    def unseen(self) -> tuple[Prior, Prior]:
        """Means and covariances of rows nobody has seen, of users and items, for all draws."""
        draws = self.draws
        users = draws.user_mu.astype(np.float32)[:, None], covariances(draws.user_Lambda)
        items = draws.item_mu.astype(np.float32)[:, None], covariances(draws.item_Lambda)
        return users, items

    def _priors(self, user: Index, item: Index) -> tuple[Prior, Prior]:
        """What `unseen` says if any of the rows is, else nothing: it is a matrix inverse a draw."""
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
        rows, pairs = rows_of(draws)[:2], (user, item)
        predict_components(rows, pairs, self.n_factors, *priors, readonly(draws.tau), mu, var)
        if draws.user_means is not None:
            mu += self._shift(mu, user, item)
        mu *= np.float32(self.scale)
        mu += np.float32(self.center)
        var *= np.float32(self.scale**2)
        return mu, var

    def _shift(self, mu: NDArray[np.float32], user: Index, item: Index) -> NDArray[np.float32]:
        """What to add to the pairs' predictions, so that their mean is the expected one."""
        users, _, user_means, item_means = rows_of(self.draws)
        expected = np.zeros(len(user))
        rated = self.seen.rated(user, item)
        sum_expected(user_means, item_means, users, user, item, rated, self.n_factors, expected)
        shift = expected / len(self.draws) - mu.mean(0, dtype=np.float64)
        shift[(user < 0) | (item < 0)] = 0.0
        return np.asarray(shift, np.float32)

    def clip(self, values: Floats) -> Floats:
        """To the range of the ratings seen."""
        return np.clip(values, self.low, self.high)

    def mean_std(
        self, user: Index, item: Index, threads: int | None = None
    ) -> tuple[Floats, Floats]:
        """Mean and standard deviation of a new rating of each pair, noise included.

        By `threads` threads, one for each core by default; the answer does not depend on them.
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
        moments = Moments(self.draws, self.seen, self.n_factors)
        with Pool(threads) as pool:
            mean, variance = moments.mean_variance(user, item, pool)
        return self.center + self.scale * mean, self.scale**2 * variance + self.noise()

    def _unseen_moments(self, user: Index, item: Index) -> tuple[Floats, Floats]:
        """Of pairs with an unseen row: all of one known row are alike, and asked for once."""
        n_items = self.draws.items.shape[1]
        codes, places = np.unique((user + 1) * (n_items + 1) + item + 1, return_inverse=True)
        mean, variance = np.empty(len(codes)), np.empty(len(codes))
        for chunk in self.chunks(codes // (n_items + 1) - 1, codes % (n_items + 1) - 1):
            part = slice(chunk.lo, chunk.hi)
            mean[part], variance[part] = mixture_moments(chunk.mu, chunk.var)
        return mean[places], variance[places]

    def noise(self) -> float:
        """Variance of a rating around its prediction, on average over draws."""
        return self.scale**2 * float(np.mean(1.0 / self.draws.tau))

    def interval(
        self, user: Index, item: Index, level: float, threads: int | None = None
    ) -> tuple[Floats, Floats]:
        """Central interval that holds a new rating with probability `level`."""
        check_level(level)
        low, high = np.empty(len(user)), np.empty(len(user))
        priors = self._priors(user, item)

        def run(part: slice) -> None:
            mu, var = self._components(user[part], item[part], priors)
            low[part] = mixture_quantile((1 - level) / 2, mu, var)
            high[part] = mixture_quantile((1 + level) / 2, mu, var)

        with Pool(threads) as pool:
            # Components of all threads together are those of one chunk.
            most = max(1, COMPONENTS // len(self.draws) // pool.threads)
            share = max(FEWEST // len(self.draws), -(-len(user) // pool.threads), 1)
            pool.each(run, parts(len(user), min(share, most)))
        return low, high

    def traces(self, user: Index, item: Index) -> dict[str, Any]:
        """Predictions of some pairs, precisions and tau by (chain, draw), for diagnostics.

        Raw factors are left out: they may rotate and swap without anything having changed.
        Chains are cut to the shortest.
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
            # Of a matrix the eigenvalues: its diagonal turns with the factors.
            factors = Lambda[:, :D] if Lambda.ndim == 2 else np.linalg.eigvalsh(Lambda[:, :D, :D])
            # Sorted: columns have no names, only their precisions' order statistics compare.
            quantities[f"lambda_{'U' if side == 'user' else 'V'}"] = np.sort(factors, axis=1)
            if Lambda.shape[1] > D:
                bias = Lambda[:, -1] if Lambda.ndim == 2 else Lambda[:, -1, -1]
                quantities[f"lambda_{'a' if side == 'user' else 'b'}"] = bias
        return {name: values[rows] for name, values in quantities.items()}


def covariances(Lambda: NDArray[np.float64]) -> NDArray[np.float64]:
    """Inverses of precisions, given as matrices or as their diagonals, as matrices."""
    if Lambda.ndim == 3:
        return np.asarray(np.linalg.inv(Lambda), np.float64)
    out = np.zeros((*Lambda.shape, Lambda.shape[1]))
    out[:, np.arange(Lambda.shape[1]), np.arange(Lambda.shape[1])] = 1.0 / Lambda
    return out


def check_level(level: object) -> None:
    """Refuse what is no share of intervals."""
    if not isinstance(level, (int, float, np.floating)) or not 0 < level < 1:
        raise InputError(f"level must lie between 0 and 1, such as 0.9; got {level!r}")
