"""Kept draws of one side with the ratings of the other: where rows and answers come from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.rated import RatedItems
from bayesmf.data.training import TrainingData
from bayesmf.errors import InputError
from bayesmf.kernels.csr import RowLists
from bayesmf.kernels.types import Rows
from bayesmf.model.draws import Draws
from bayesmf.model.levels import RatingLevels
from bayesmf.model.spread import spread_evenly
from bayesmf.posterior.all_rows import all_rows
from bayesmf.posterior.noise import precisions_of, weights_of
from bayesmf.posterior.pairs import Sides, sides_of
from bayesmf.posterior.rows import ExactRows, RowSource, StoredRows, natural_priors, take_rows

Index = NDArray[np.int64]

# Most draws, but one of each chain, for what needs the rows of all users under each.
FEW_DRAWS = 16


@dataclass(frozen=True)
class KeptDraws:
    """Draws and ratings, and the two sides that they make: one is kept, the other worked out."""

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

    @cached_property
    def sides(self) -> Sides:
        """The kept side, and where rows of the other come from."""
        return sides_of(self.draws, self._source(), self.n_factors)

    def _source(self) -> RowSource:
        draws, D = self.draws, self.n_factors
        users, items = (draws.user_mu, draws.user_Lambda), (draws.item_mu, draws.item_Lambda)
        if draws.users is not None and draws.items is not None:
            means = draws.users if draws.user_means is None else draws.user_means
            noise = precisions_of(draws, 0), weights_of(draws, 1)
            return StoredRows(draws.users, means, draws.items, users, *noise, D)
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

    # Not remembered where it is the posterior itself: that would keep it from being freed.
    @property
    def with_items(self) -> Self:
        """This posterior with draws of items: where users are kept, items drawn given each draw."""
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
        """This posterior with users integrated out, whatever was kept."""
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
        """Answer from some of the draws.

        Parameters
        ----------
        which : ndarray of int64
            Numbers of the draws, ascending.

        Returns
        -------
        Posterior
            The same of these draws alone.

        Examples
        --------
        >>> import numpy as np
        >>> from bayesmf import BayesianMF, Gibbs
        >>> ratings = [1, 1, 2, 2, 3], [7, 8, 7, 9, 8], [4.0, 1.0, 5.0, 3.0, 2.0]
        >>> model = BayesianMF(2, sampler=Gibbs(epochs=8), random_state=0).fit(ratings)
        >>> len(model.posterior_.with_draws(np.array([0, 1])).draws)
        2
        """
        return replace(self, draws=self.draws.select(which))

    def with_ratings(self, ratings: TrainingData) -> Self:
        """Answer for other users, by the same draws of items.

        Users are integrated out; what was laid out of the items is shared.

        Parameters
        ----------
        ratings : TrainingData
            Ratings of these users, in the chain's units, of the same items.

        Returns
        -------
        Posterior
            The same for these users alone.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Gibbs
        >>> ratings = [1, 1, 2, 2, 3], [7, 8, 7, 9, 8], [4.0, 1.0, 5.0, 3.0, 2.0]
        >>> model = BayesianMF(2, sampler=Gibbs(epochs=4), random_state=0).fit(ratings)
        >>> model.posterior_.with_ratings(model.posterior_.ratings).n_users
        3
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
        """The fields alone, without what was worked out from them."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def known_ratings(posterior: KeptDraws, rows: Index, what: str) -> RowLists:
    """Ratings of users by row number, -1 for new ones, which have none; `what` needs them."""
    if (rows >= 0).any():
        posterior.need_ratings(what)
    if posterior.has_ratings:
        return take_rows(posterior.ratings.by_user, rows)
    return RowLists(np.zeros(len(rows) + 1, np.int64), np.empty(0, np.int32), np.empty(0, np.uint8))
