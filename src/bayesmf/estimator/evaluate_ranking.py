"""`evaluate_ranking`: how many of the items that a user liked are on the list of the best."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bayesmf.checks import finite, whole
from bayesmf.data.rated import RatedItems
from bayesmf.diagnostics.ranking import ListScorer, RankingScores, why_left_out
from bayesmf.errors import DataWarning, InputError, warn
from bayesmf.estimator.questions import HeldOut, held_out_ratings
from bayesmf.estimator.recommend import Recommending
from bayesmf.posterior.policies import PolicyName
from bayesmf.process import parts
from bayesmf.reading.memory import Columns

Index = NDArray[np.int64]

# Users whose lists are in memory at a time.
TOGETHER = 4096


class RankScoring(Recommending):
    """The part of `BayesianMF` that judges recommendations by held-out ratings."""

    def evaluate_ranking(
        self,
        ratings: Any,
        y: Any = None,
        *,
        k: int = 10,
        relevant: float = 4.0,
        policy: PolicyName = "mean",
        random_state: int | None = None,
        columns: Columns | None = None,
        progress: Callable[[int], Any] | None = None,
    ) -> RankingScores:
        """Score lists of recommendations on held-out ratings: NDCG, recall, precision and others.

        For every user, all items that the model knows are ranked, without those that the user rated
        in training. Items that the user gave `relevant` or more in the held-out ratings count as
        liked, all others as not, rated or not. The same is done for popularity: the items with most
        training ratings. docs/ranking.md says what to make of the comparison.

        Parameters
        ----------
        ratings : Ratings, path-like, table, sparse matrix or tuple of array-like
            Held-out ratings, as for `fit`, or their pairs of user and item.
        y : array-like, optional
            The ratings of the pairs in `ratings`.
        k : int
            How many items a list has.
        relevant : float
            The least rating that counts as liked.
        policy : {"mean", "ucb", "lcb", "thompson", "thompson-items"}
            What to rank by, as for `recommend`.
        random_state : int, optional
            Seed of policies that draw; new draws each time by default.
        columns : mapping, optional
            Which column is which, where names do not tell.
        progress : callable, optional
            Called with the number of users ranked since the last call.

        Returns
        -------
        RankingScores
            Scores of the model and of popularity, and how many users were left out, and why: those
            without a liked item that could be on their list.

        Raises
        ------
        InputError
            If an argument is not as described, or no user is left to score.
        NotFittedError
            If the model has not been fitted.

        Warns
        -----
        DataWarning
            If users were not in the training ratings, or ratings were.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Gibbs, Synthetic
        >>> train, test = Synthetic(60, 40, 1200, stars=True).ratings().split(0.2)
        >>> model = BayesianMF(4, sampler=Gibbs(epochs=20), random_state=0).fit(train)
        >>> found = model.evaluate_ranking(test, k=5)
        >>> found.k, found.policy, found.model.hit_rate >= found.model.precision
        (5, 'mean', True)
        """
        fitted = self._fitted()
        k, relevant = whole("k", k), finite("relevant", relevant)
        maps = fitted.user_ids, fitted.item_ids
        held = HeldOut.from_ratings(held_out_ratings(ratings, y, columns), maps, fitted.seen)
        liked = Liked.from_held_out(held, relevant)
        liked.warn(held)
        n_items = len(fitted.item_ids)
        own, common = ListScorer(k, n_items), ListScorer(k, n_items)
        popularity = Popularity(fitted.seen, n_items)
        with self._counting("ranking", len(liked.user), "users", progress) as done:
            for part in liked.parts():
                users = held.ratings.user_ids.ids[liked.test_user[part]]
                best = self.recommend_many(
                    users, k, policy=policy, random_state=random_state, progress=done
                )
                ranked = np.full(best.items.shape, -1, np.int64)
                ranked[best.filled] = fitted.item_ids.lookup(best.items[best.filled])
                own.add(ranked, *liked.of(part))
                common.add(popularity.top(liked.user[part], k), *liked.of(part))
        return RankingScores(
            k, relevant, policy, len(liked.user), n_items, own.result(), common.result(),
            int((liked.user < 0).sum()), **liked.left_out,
        )  # fmt: skip


@dataclass(frozen=True)
class Liked:
    """The held-out items that users liked, and could be recommended; by user, known ones first.

    `test_user` are the users' rows in the held-out ratings, `user` those in the model, -1 for an
    unseen one. User n likes the rows `item[starts[n] : starts[n + 1]]`.
    """

    test_user: Index
    user: Index
    starts: Index
    item: Index
    left_out: dict[str, int]

    @classmethod
    def from_held_out(cls, held: HeldOut, relevant: float) -> Self:
        """Find them, or say in a sentence why there are none."""
        rating, who = held.ratings.rating, held.ratings.user_rows
        if not len(rating):
            raise InputError("there are no ratings to score: give at least one")
        high = rating >= np.float32(relevant)  # ratings are of single precision, too
        if not high.any():
            raise InputError(
                f"no held-out rating is {relevant:g} or more, the highest is {rating.max():g}: "
                "give a lower relevant"
            )
        known = high & (held.item >= 0)
        new = known & ~held.seen.rated(held.user, held.item)
        n = [len(np.unique(who[some])) for some in (slice(None), high, known, new)]
        names = ("no_relevant", "unknown_items", "learnt")
        left_out = dict(zip(names, (-np.diff(n)).tolist(), strict=True))
        if not new.any():
            why = why_left_out(relevant, **left_out)
            raise InputError(
                f"no user of the held-out ratings is left to rank for ({why}): give ratings that "
                "were held out, of items that were learnt from"
            )
        # Unseen users come last: they are asked for together, which warns once.
        order = np.flatnonzero(new)
        order = order[np.lexsort((who[order], held.user[order] < 0))]
        first = np.flatnonzero(np.diff(who[order], prepend=-1))
        starts = np.append(first, len(order))
        at = order[first]
        return cls(who[at].astype(np.int64), held.user[at], starts, held.item[order], left_out)

    def parts(self) -> Iterator[slice]:
        """Blocks of users; the unseen ones, whose lists are alike, are one."""
        known = int((self.user >= 0).sum())
        yield from parts(known, TOGETHER)
        if known < len(self.user):
            yield slice(known, len(self.user))

    def of(self, part: slice) -> tuple[Index, Index]:
        """Starts and items of a block of users."""
        starts = self.starts[part.start : part.stop + 1]
        return starts - starts[0], self.item[starts[0] : starts[-1]]

    def warn(self, held: HeldOut) -> None:
        """Warn of held-out ratings that were learnt from."""
        if held.counts["learnt"]:
            warn(
                f"{held.counts['learnt']:,} of {len(held.ratings):,} ratings were learnt from, and "
                "their items are on nobody's list: score on ratings that were held out",
                DataWarning,
            )


class Popularity:
    """The items with most training ratings; of equal ones the lower row number first."""

    def __init__(self, seen: RatedItems, n_items: int) -> None:
        self._seen = seen
        counts = seen.item_counts(np.arange(n_items))
        self.order = np.argsort(-counts, kind="stable")
        self._rated = np.zeros(n_items, np.bool_)

    def top(self, users: Index, k: int) -> Index:
        """The k first that a user has not rated, by the users' row numbers; -1 where none is left.

        An unseen user (-1) has rated none.
        """
        out = np.full((len(users), min(k, len(self.order))), -1, np.int64)
        for row, user in zip(out, users.tolist(), strict=True):
            rated = self._seen.for_user(user)
            first = self.order[: k + len(rated)]
            self._rated[rated] = True
            best = first[~self._rated[first]][:k]
            self._rated[rated] = False
            row[: len(best)] = best
        return out
