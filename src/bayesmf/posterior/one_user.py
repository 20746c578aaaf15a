"""Scores by which a policy ranks the items of one user: one pass over the draws, without BLAS.

An item's score has the same bits whichever other items, users and threads there are. So it decides
between items that the matrix products of many users (ranking.py) find equal but for rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.keys import STREAM_THOMPSON, generator, make_key
from bayesmf.kernels.one_user import sum_moments, sum_scores
from bayesmf.kernels.pairs import draw_from_factors
from bayesmf.kernels.simd import LANES
from bayesmf.kernels.types import Rows, readonly
from bayesmf.posterior.catalogue import Catalogue, OwnRows
from bayesmf.posterior.policies import DRAWN
from bayesmf.posterior.posterior import Floats, Index
from bayesmf.process import Pool, parts

# Numbers that a thread reads as one part, 16 MB: a millisecond or two. That is several times what a
# thread takes to start, and the most that others wait for it at the end.
STRETCH = 1 << 22


class Pick(NamedTuple):
    """What "thompson" has drawn for a user: a draw's number, and noise for the user's own row."""

    draw: int
    noise: Floats


def thompson_pick(seed: int, user: int, n_draws: int, width: int, person: bool = True) -> Pick:
    """Draw for a user, by the seed and the user's number alone.

    Where the `person` is not drawn there is no noise: the row is the one that is expected given the
    picked draw of the items.
    """
    rng = generator(make_key(seed), user, STREAM_THOMPSON)
    draw = int(rng.integers(n_draws))
    return Pick(draw, rng.standard_normal(width) if person else np.zeros(width))


@dataclass(frozen=True)
class UserScores:
    """Scores of items for one user at a time, by a policy.

    `rated` may be False where rated pairs will not be asked for: their expectation uses the item's
    own row (docs/sampler.md), so they have to be looked up otherwise.
    """

    catalogue: Catalogue
    policy: str
    rated: bool
    pool: Pool

    def for_user(self, user: int, own: OwnRows, pick: Pick | None, items: Index) -> Floats:
        """Scores of items by position for a user by row number, -1 for one without ratings."""
        if self.policy in DRAWN:
            assert pick is not None
            return self._sums(
                thompson_row(own, pick)[None], self.catalogue.rows[pick.draw][None], items
            )
        expected = self.expected(user, own, items)
        if self.policy == "mean":
            return expected
        variance = self._variance(own, items) + self.catalogue.own_variance(own, items)
        return expected + np.sqrt(variance) * (1.0 if self.policy == "ucb" else -1.0)

    def expected(self, user: int, own: OwnRows, items: Index) -> Floats:
        """Mean over draws, from conditional means where that is right."""
        rows, means = self.catalogue.rows, self.catalogue.means
        if user < 0:
            return self._mean(own.means, rows, items)
        expected = self._mean(own.locations, means, items)
        if self.rated and not (own.locations is own.means and means is rows):
            seen = np.isin(items, self.catalogue.seen(user))
            expected[seen] = self._mean(own.means, rows, items[seen])
        return expected

    def _mean(self, own: Rows, rows: Rows, items: Index) -> Floats:
        bias = own[:, self.catalogue.posterior.n_factors :].sum(dtype=np.float64)
        return np.asarray((self._sums(own, rows, items) + bias) / len(own))

    def _sums(self, own: Any, rows: Rows, items: Index) -> Floats:
        """Sums over draws of the user's row . the item's row + the item's bias."""
        X, out = lay_out_user(own, self.catalogue.posterior.n_factors), np.zeros(len(items))
        Y = readonly(np.ascontiguousarray(rows))

        def run(part: slice) -> None:
            sum_scores(X, Y, items[part], out[part])

        self._each(run, items, rows[:, :1].size)
        return out

    def _variance(self, own: OwnRows, items: Index) -> Floats:
        """Variance over draws of the predictions by the user's means."""
        rows, n, D = self.catalogue.rows, len(items), self.catalogue.posterior.n_factors
        X, Y = lay_out_user(own.means, D), readonly(np.ascontiguousarray(rows))
        bias = np.asarray(own.means, np.float32)[:, D:].sum(1)
        first, total, squares = np.empty(n), np.zeros(n), np.zeros(n)

        def run(part: slice) -> None:
            some = first[part], total[part], squares[part]
            sum_moments(X, bias, Y, items[part], *some)

        self._each(run, items, rows[:, :1].size)
        total /= len(rows)
        squares /= len(rows)
        return np.asarray(np.maximum(squares - total * total, 0.0))

    def _each(self, run: Callable[[slice], None], items: Index, numbers: int) -> None:
        """Call `run` for parts of the items, on all threads; an item reads so many `numbers`."""
        self.pool.each(run, parts(len(items), max(1, STRETCH // numbers)))


def thompson_row(own: OwnRows, pick: Pick) -> Rows:
    """A draw of the user's row given the items of the picked draw: the two are a joint draw."""
    t = pick.draw
    row = np.array(own.means[t], np.float32)
    if len(own.factors):
        out = np.empty((1, 1, len(row)), np.float32)
        z = pick.noise[None, None]
        draw_from_factors(row[None, None], np.array(own.factors[t])[None, None], z, out)
        row = out[0, 0]
    return row


def lay_out_user(own: Any, n_factors: int) -> NDArray[np.float32]:
    """A user's rows, with a one for the item's bias in place of the user's bias.

    Rows of eight columns and more are laid out for `laid_dot`: whole vectors, and a last one for
    the last eight columns, in which columns that came before are zero.
    """
    rows = np.array(own, np.float32)
    rows[:, n_factors:] = 1.0
    n, width = rows.shape
    if width < LANES:
        return rows
    before = (width - 1) // LANES * LANES
    out = np.zeros((n, before + LANES), np.float32)
    out[:, :before] = rows[:, :before]
    out[:, before + LANES - (width - before) :] = rows[:, before:]
    return out
