"""Scores by which a policy ranks the items of one user: one pass over the draws, without BLAS.

An item's score has the same bits whichever other items, users and threads there are. So it decides
between items that the matrix products of many users (ranking.py) find equal but for rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.one_user import sum_moments, sum_scores, sum_spreads
from bayesmf.kernels.simd import LANES
from bayesmf.kernels.types import Rows, readonly
from bayesmf.posterior.posterior import Floats, Index, Posterior
from bayesmf.system.threads import Pool, parts

# Numbers that a thread reads as one part, 16 MB: a millisecond or two. That is several times what a
# thread takes to start, and the most that others wait for it at the end.
STRETCH = 1 << 22


@dataclass(frozen=True)
class UserScores:
    """Scores of items for one user at a time, by a policy; `pick` is the draw of "thompson".

    `rated` may be False where rated pairs will not be asked for: their expectation uses the user's
    own row (docs/sampler.md), so they have to be looked up otherwise.
    """

    posterior: Posterior
    policy: str
    rated: bool
    pool: Pool

    def for_user(self, user: int, pick: int, items: Index) -> Floats:
        """Scores of items for a user by row number, -1 for one without training ratings."""
        draws = self.posterior.draws
        if user < 0:
            return self._for_unseen(pick, items)
        own = draws.users[:, user]
        if self.policy == "ucb":
            mean, variance = self._moments(own, items)
            if draws.user_means is not None:
                mean = self._expected(user, items)
            return mean + np.sqrt(variance)
        if self.policy == "thompson" and draws.user_means is None:
            return self._sums(own[pick : pick + 1], draws.items[pick : pick + 1], items)
        expected = self._expected(user, items)
        if self.policy == "thompson":
            # The picked draw less the mean of all draws, plus the expectation: a weight for each.
            weights = np.full(len(draws), -1.0 / len(draws))
            weights[pick] += 1.0
            expected += self._sums(own, draws.items, items, weights)
        return expected

    def _for_unseen(self, pick: int, items: Index) -> Floats:
        """Scores by the prior's mean; "ucb" adds the prior's variance of the user's row."""
        posterior, draws = self.posterior, self.posterior.draws
        if self.policy == "thompson":
            one = slice(pick, pick + 1)
            return self._sums(draws.user_mu[one], draws.items[one], items)
        if self.policy == "mean":
            return self._sums(draws.user_mu, draws.items, items) / len(draws)
        mean, variance = self._moments(draws.user_mu, items)
        spread, covariance = np.zeros(len(items)), posterior.unseen[0][1]
        Y, width = readonly(np.ascontiguousarray(draws.items)), draws.items.shape[2]

        def run(part: slice) -> None:
            room = np.empty(width)
            sum_spreads(Y, covariance, items[part], posterior.n_factors, room, spread[part])

        # A quadratic form: each number of a row is multiplied by all others.
        self._each(run, items, width * draws.items[:, :1].size)
        return mean + np.sqrt(variance + spread / len(draws))

    def _expected(self, user: int, items: Index) -> Floats:
        """Mean over draws, from conditional means where there are any."""
        draws = self.posterior.draws
        if draws.user_means is None or draws.item_means is None:
            return self._mean(draws.users[:, user], draws.items, items)
        expected = self._mean(draws.user_means[:, user], draws.item_means, items)
        if self.rated:
            rated = self.posterior.seen.rated(np.full(len(items), user), items)
            expected[rated] = self._mean(draws.users[:, user], draws.item_means, items[rated])
        return expected

    def _mean(self, own: Any, rows: Rows, items: Index) -> Floats:
        bias = np.asarray(own)[:, self.posterior.n_factors :].sum(dtype=np.float64)
        return np.asarray((self._sums(own, rows, items) + bias) / len(own))

    def _sums(self, own: Any, rows: Rows, items: Index, weights: Floats | None = None) -> Floats:
        """Sums over draws of weight times (the user's row . the item's row + the item's bias)."""
        X, out = lay_out(own, self.posterior.n_factors, weights), np.zeros(len(items))
        Y = readonly(np.ascontiguousarray(rows))

        def run(part: slice) -> None:
            sum_scores(X, Y, items[part], out[part])

        self._each(run, items, rows[:, :1].size)
        return out

    def _moments(self, own: Any, items: Index) -> tuple[Floats, Floats]:
        """Mean and variance of the draws' predictions."""
        draws, n = self.posterior.draws, len(items)
        X, Y = lay_out(own, self.posterior.n_factors), readonly(np.ascontiguousarray(draws.items))
        bias = np.asarray(own, np.float32)[:, self.posterior.n_factors :].sum(1)
        first, total, squares = np.empty(n), np.zeros(n), np.zeros(n)

        def run(part: slice) -> None:
            some = first[part], total[part], squares[part]
            sum_moments(X, bias, Y, items[part], *some)

        self._each(run, items, draws.items[:, :1].size)
        total /= len(draws)
        squares /= len(draws)
        return first + total, np.maximum(squares - total * total, 0.0)

    def _each(self, run: Callable[[slice], None], items: Index, numbers: int) -> None:
        """Call `run` for parts of the items, on all threads; an item reads so many `numbers`."""
        self.pool.each(run, parts(len(items), max(1, STRETCH // numbers)))


def lay_out(own: Any, n_factors: int, weights: Floats | None = None) -> NDArray[np.float32]:
    """A user's rows times weights, with a one for the item's bias in place of the user's bias.

    Rows of eight columns and more are laid out for `laid_dot`: whole vectors, and a last one for
    the last eight columns, in which columns that came before are zero.
    """
    rows = np.array(own, np.float32)
    rows[:, n_factors:] = 1.0
    if weights is not None:
        rows *= weights.astype(np.float32)[:, None]
    n, width = rows.shape
    if width < LANES:
        return rows
    before = (width - 1) // LANES * LANES
    out = np.zeros((n, before + LANES), np.float32)
    out[:, :before] = rows[:, :before]
    out[:, before + LANES - (width - before) :] = rows[:, before:]
    return out
