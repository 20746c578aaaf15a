"""What a policy ranks the items of one user by: one pass over the draws, without BLAS.

An item's score has the same bits whichever other items, users and threads there are. So it is what
decides between items that the products of many users (ranking.py) find equal but for rounding.
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

# Numbers that are read at a stretch, 16 MB: a millisecond or two, some times what a thread takes to
# start, and what others wait for at the end at the most.
STRETCH = 1 << 22


@dataclass(frozen=True)
class UserScores:
    """Scores of items for one user at a time, by a policy; `pick` is the draw of "thompson".

    Where pairs that were rated will not be asked for, `rated` may be False: their expectation has
    the user's own row (docs/sampler.md), which is then not looked for.
    """

    posterior: Posterior
    policy: str
    rated: bool
    pool: Pool

    def of(self, user: int, pick: int, items: Index) -> Floats:
        """What the items of a user are ranked by; a user of -1 is one nobody has seen."""
        draws = self.posterior.draws
        if user < 0:
            return self._of_unseen(pick, items)
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
            # A draw is moved by as much as draws are off on average: so each has a weight.
            weights = np.full(len(draws), -1.0 / len(draws))
            weights[pick] += 1.0
            expected += self._sums(own, draws.items, items, weights)
        return expected

    def _of_unseen(self, pick: int, items: Index) -> Floats:
        """By the prior's mean; what is not known of the user's row counts in "ucb"."""
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

        # Each number of a row meets all others.
        self._each(run, items, width * draws.items[:, :1].size)
        return mean + np.sqrt(variance + spread / len(draws))

    def _expected(self, user: int, items: Index) -> Floats:
        """The mean over draws, from conditional means where there are any."""
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
        """Over draws: weight times the user's row against the items' rows, and the items' bias."""
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
        """In stretches, on all threads if there is more than one; an item needs `numbers` read."""
        self.pool.each(run, parts(len(items), max(1, STRETCH // numbers)))


def lay_out(own: Any, n_factors: int, weights: Floats | None = None) -> NDArray[np.float32]:
    """A user's rows times weights, with a one for the item's bias in place of the user's own.

    Rows of eight columns and more are laid out for `laid_dot`: whole vectors, and a last one for
    the last eight columns, in which those that came before are zero.
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
