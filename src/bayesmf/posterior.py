"""From draws to answers: mean, spread and interval of a new rating; the best items for a user.

Everything goes over given pairs in chunks: a users x items array is never formed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.draws import Draws
from bayesmf.errors import InputError
from bayesmf.kernels import add_expected, predict_components
from bayesmf.mixture import mixture_moments, mixture_quantile
from bayesmf.seen import Seen

Index = NDArray[np.int64]
Floats = NDArray[np.float64]

# Components of one chunk of pairs, over all draws: 8 bytes each, so some 32 MB.
COMPONENTS = 4_000_000


class Chunk(NamedTuple):
    """Pairs [lo, hi) with the components of their predictive mixtures, each (n_draws, hi - lo)."""

    lo: int
    hi: int
    mu: NDArray[np.float32]
    var: NDArray[np.float32]


class Ranked(NamedTuple):
    """An item for a user: its row number, expected rating, and spread of a new rating."""

    item: int
    mean: float
    std: float
    low: float
    high: float


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

    def check(self, n_users: int, n_items: int, where: str) -> None:
        """Refuse arrays that do not belong together: kernels would read beyond them."""
        draws, width = self.draws, self.draws.users.shape[-1]
        n, full = len(draws.tau), draws.user_Lambda.ndim == 3
        Lambda = (n, width, width) if full else (n, width)
        expected = {
            "users": (n, n_users, width), "items": (n, n_items, width), "user_mu": (n, width),
            "item_mu": (n, width), "user_Lambda": Lambda, "item_Lambda": Lambda, "chain": (n,),
        }  # fmt: skip
        if draws.user_means is not None:
            expected |= {"user_means": expected["users"], "item_means": expected["items"]}
        found = {name: np.shape(getattr(draws, name)) for name in expected}
        if n == 0 or found != expected or width - self.n_factors not in (0, 1):
            raise InputError(f"{where} holds arrays that do not fit together: fit again")

    def chunks(self, user: Index, item: Index) -> Iterator[Chunk]:
        """Predictive components of pairs; a row number of -1 stands for an unseen row."""
        size = max(1, COMPONENTS // len(self.draws))
        for lo in range(0, len(user), size):
            hi = min(lo + size, len(user))
            yield Chunk(lo, hi, *self._components(user[lo:hi], item[lo:hi]))

    def _components(
        self, user: Index, item: Index
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        draws = self.draws
        mu = np.empty((len(draws), len(user)), np.float32)
        var = np.empty_like(mu)
        user, item = _readonly(user), _readonly(item)
        unseen = len(user) > 0 and min(user.min(), item.min()) < 0
        width = draws.users.shape[2]
        for t in range(len(draws)):
            users, items = draws.priors(t)
            # Covariances are for unseen rows alone, and a matrix inverse each.
            x_cov, y_cov = (
                side.covariance() if unseen else np.zeros((width, width)) for side in (users, items)
            )
            predict_components(
                _readonly(draws.users[t]), _readonly(draws.items[t]), user, item, self.n_factors,
                (users.mu.astype(np.float32)[None], x_cov),
                (items.mu.astype(np.float32)[None], y_cov),
                1.0 / draws.tau[t], mu[t], var[t],
            )  # fmt: skip
        if draws.user_means is not None:
            mu += self._shift(mu, user, item)
        mu *= np.float32(self.scale)
        mu += np.float32(self.center)
        var *= np.float32(self.scale**2)
        return mu, var

    def _shift(self, mu: NDArray[np.float32], user: Index, item: Index) -> NDArray[np.float32]:
        """What to add to the pairs' predictions, so that their mean is the expected one."""
        draws = self.draws
        assert draws.user_means is not None and draws.item_means is not None
        expected = np.zeros(len(user))
        rated = self.seen.rated(user, item)
        for t in range(len(draws)):
            add_expected(
                _readonly(draws.user_means[t]), _readonly(draws.item_means[t]),
                _readonly(draws.users[t]), user, item, rated, self.n_factors, expected,
            )  # fmt: skip
        shift = expected / len(draws) - mu.mean(0, dtype=np.float64)
        shift[(user < 0) | (item < 0)] = 0.0
        return np.asarray(shift, np.float32)

    def clip(self, values: Floats) -> Floats:
        """To the range of the ratings seen."""
        return np.clip(values, self.low, self.high)

    def mean_std(self, user: Index, item: Index) -> tuple[Floats, Floats]:
        """Mean and standard deviation of a new rating of each pair, noise included."""
        mean, std = np.empty(len(user)), np.empty(len(user))
        for chunk in self.chunks(user, item):
            m, v = mixture_moments(chunk.mu, chunk.var)
            mean[chunk.lo : chunk.hi], std[chunk.lo : chunk.hi] = m, np.sqrt(v)
        return self.clip(mean), std

    def interval(self, user: Index, item: Index, level: float) -> tuple[Floats, Floats]:
        """Central interval that holds a new rating with probability `level`."""
        if isinstance(level, str) or not 0 < level < 1:
            raise InputError(f"level must lie between 0 and 1, such as 0.9; got {level!r}")
        low, high = np.empty(len(user)), np.empty(len(user))
        for chunk in self.chunks(user, item):
            part = slice(chunk.lo, chunk.hi)
            low[part] = mixture_quantile((1 - level) / 2, chunk.mu, chunk.var)
            high[part] = mixture_quantile((1 + level) / 2, chunk.mu, chunk.var)
        return low, high

    def top(
        self,
        user: int,
        n: int,
        *,
        exclude: Index,
        policy: str = "mean",
        level: float = 0.9,
        rng: np.random.Generator | None = None,
    ) -> list[Ranked]:
        """The n best items for a user, leaving out `exclude`.

        Policies: "mean", the expected rating; "ucb", mean plus one standard deviation of what
        is not known about it (noise left out); "thompson", one draw of the posterior at random.
        """
        score = self._scores(user, policy, rng or np.random.default_rng())
        score[exclude] = -np.inf
        n = min(n, int(np.sum(score > -np.inf)))
        best = np.argpartition(-score, max(n - 1, 0))[:n] if n else np.empty(0, np.int64)
        best = best[np.lexsort((best, -score[best]))]
        users = np.full(len(best), user)
        mean, std = self.mean_std(users, best)
        low, high = self.interval(users, best, level)
        return [
            Ranked(int(i), *map(float, row))
            for i, *row in zip(best, mean, std, low, high, strict=True)
        ]

    def _scores(self, user: int, policy: str, rng: np.random.Generator) -> Floats:
        n_items = self.draws.items.shape[1]
        items, users = np.arange(n_items), np.full(n_items, user)
        score = np.empty(n_items)
        pick = int(rng.integers(len(self.draws)))
        noise = self.scale**2 * float(np.mean(1.0 / self.draws.tau))
        for chunk in self.chunks(users, items):
            part = slice(chunk.lo, chunk.hi)
            if policy == "mean":
                score[part] = chunk.mu.mean(0, dtype=np.float64)
            elif policy == "ucb":
                mean, variance = mixture_moments(chunk.mu, chunk.var)
                score[part] = mean + np.sqrt(np.maximum(variance - noise, 0.0))
            elif policy == "thompson":
                score[part] = chunk.mu[pick]
            else:
                raise InputError(f"policy {policy!r} is none of 'mean', 'ucb', 'thompson'")
        return score

    def traces(self, user: Index, item: Index) -> dict[str, Any]:
        """Predictions of some pairs, precisions and tau by (chain, draw), for diagnostics.

        Raw factors are left out: they may rotate and swap without anything having changed.
        Chains are cut to the shortest.
        """
        draws = self.draws
        mu, _ = self._components(user, item)
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


def _readonly(array: NDArray[Any]) -> NDArray[Any]:
    """A plain view without writing: a kernel then compiles once for fitted and loaded models."""
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view
