"""What users are ranked with: their own rows, and the rows of the items that may be recommended."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.pairs import pair_components
from bayesmf.kernels.row_posterior import Given
from bayesmf.kernels.types import Rows
from bayesmf.model.spread import spread_evenly
from bayesmf.posterior.noise import precisions_of
from bayesmf.posterior.posterior import Index, Posterior
from bayesmf.posterior.rows import NOTHING, Solved, lay_out
from bayesmf.process import parts

# Most draws by which the bonus of "ucb" and "lcb" knows what is not known of a user's own row when
# candidates are looked for: it costs width^2 for an item and draw.
BONUS_DRAWS = 8
# Draws whose scores are one matrix product: half again as fast as one by one, at 30 factors.
STACK = 16


class OwnRows(NamedTuple):
    """One user's rows under all draws, (draws, ...): see `Solved`."""

    means: Rows
    factors: Rows
    locations: Rows


@dataclass(frozen=True)
class Catalogue:
    """The items that may be recommended, under all draws, and the rows of users beside them.

    `rows` and `means` are those of `items`, (draws, items, width): expected scores are found from
    users' locations and `means`, all else from their means and `rows`.
    """

    posterior: Posterior
    items: Index
    rows: Rows
    means: Rows

    @classmethod
    def of(cls, posterior: Posterior, items: Index | None = None) -> Catalogue:
        """All items, or some of them by row number, ascending."""
        if posterior.users_kept:
            rows = means = posterior.expected_rows
        else:
            rows, means = posterior.sides.kept, posterior.sides.kept_means
        everything = np.arange(rows.shape[1])
        if items is None or len(items) == len(everything):
            return cls(posterior, everything, rows, means)
        same = means is rows
        rows = rows[:, items]
        return cls(posterior, items, rows, rows if same else means[:, items])

    @cached_property
    def stacked(self) -> list[Rows]:
        """`means` of some draws side by side, (items, draws x width): for longer products."""
        n = self.means.shape[1]
        return [
            np.ascontiguousarray(self.means[part].transpose(1, 0, 2)).reshape(n, -1)
            for part in parts(len(self.means), STACK)
        ]

    @cached_property
    def where(self) -> Index:
        """Position of each item of the model here, -1 for those that are not."""
        found = np.full(self.posterior.n_items, -1)
        found[self.items] = np.arange(len(self.items))
        return found

    def seen(self, user: int) -> Index:
        """Positions of the items that a user has rated."""
        at = self.where[self.posterior.seen.for_user(user)]
        return np.asarray(at[at >= 0])

    def users(self, rows: Index, bulk: bool = False) -> Solved:
        """Rows of users by number, -1 for one without ratings."""
        posterior, draws = self.posterior, self.posterior.draws
        if not posterior.users_kept:
            return posterior.sides.source.solve(rows, bulk=bulk)
        stored = [draws.kept, draws.kept_means]
        means, locations = (part[:, np.maximum(rows, 0)].transpose(1, 0, 2) for part in stored)
        unseen = (rows < 0)[:, None, None]
        prior = draws.user_mu.astype(np.float32)
        means, locations = np.where(unseen, prior, means), np.where(unseen, prior, locations)
        noise = (1.0 / precisions_of(draws, 0).of(rows)).astype(np.float32)
        return Solved(means, NOTHING, np.arange(len(rows)), locations, noise)

    @cached_property
    def some_draws(self) -> Index:
        """Draws by which a bonus knows users' rows, spread evenly."""
        return spread_evenly(self.posterior.draws.chain, BONUS_DRAWS)

    @cached_property
    def _given(self) -> Given:
        return lay_out(self.rows[self.some_draws], self.posterior.n_factors)

    def own_variance(self, own: OwnRows, items: Index) -> NDArray[np.float64]:
        """Variance that a user's own row leaves to predictions of items, by position."""
        if not len(own.factors):
            return np.zeros(len(items))
        some = self.some_draws
        means, factors = own.means[some][None], own.factors[some][None]
        shape = len(some), len(items)
        mu, var = np.empty(shape, np.float32), np.empty(shape, np.float32)
        pair_components(
            means, factors, np.zeros(1, np.int64), np.array([0, len(items)]), items, self._given,
            self.posterior.n_factors, np.zeros((1, len(some)), np.float32), mu, var,
        )  # fmt: skip
        return np.asarray(var.mean(0, dtype=np.float64))


def own_rows(solved: Solved, k: int) -> OwnRows:
    """The k-th of some users."""
    place = solved.place[k]
    factors = solved.factors[place] if len(solved.factors) else np.empty((0, 0), np.float32)
    return OwnRows(solved.means[place], factors, solved.locations[place])
