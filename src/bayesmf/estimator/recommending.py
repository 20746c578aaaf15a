"""`recommend` and `recommend_many`: the best items for one user, or for many at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.checks import whole, yes_or_no
from bayesmf.errors import DataWarning, InputError, warn
from bayesmf.estimator.fitted import FitResult, Fitted
from bayesmf.estimator.questions import (
    candidates,
    is_single,
    result_for,
    sent_table,
    warn_of_unknown_users,
    with_sent_ratings,
)
from bayesmf.estimator.results import (
    Explanation,
    Neighbours,
    Recommendation,
    RecommendationList,
    Recommendations,
)
from bayesmf.ids.id_map import IdMap
from bayesmf.posterior import PolicyName
from bayesmf.posterior.explain import best, explain, similar_items, similar_users
from bayesmf.posterior.posterior import Floats, Index, check_level
from bayesmf.posterior.ranking import Question, rank_users
from bayesmf.wording import shown


class Recommending(Fitted):
    """Rankings and explanations: `recommend`, `explain` and others of `BayesianMF`."""

    def recommend(
        self,
        user: Any = None,
        n: int = 10,
        *,
        ratings: Any = None,
        items: Any = None,
        exclude: Any = None,
        policy: PolicyName = "mean",
        exclude_seen: bool = True,
        level: float = 0.9,
        random_state: int | None = None,
    ) -> RecommendationList:
        """Recommend the n best items to a user, without those already rated.

        `recommend_many` gives the same answer for many users at once.

        Parameters
        ----------
        user : int or str, optional
            Id of the user. For one without training ratings, recommendations follow from `ratings`
            or the prior.
        n : int
            Number of items; fewer are returned only if no more are left.
        ratings : mapping or list of tuple, optional
            Ratings of this user, `{item: rating}`, that count beside training ratings. Exact,
            in milliseconds, without a refit; the model stays as it is.
        items : array-like, optional
            Ids of the items to choose from; all by default.
        exclude : array-like, optional
            Ids of items not to recommend.
        policy : {"mean", "ucb", "lcb", "thompson", "thompson-items"}
            Score to rank by. "mean": the expected rating. "ucb", "lcb": plus or minus its standard
            deviation without the noise of a rating (`model.posterior_.noise_of`); "ucb" favours
            uncertain items. "thompson": one joint draw of the user's row and the items, so that an
            item comes first with the probability that it is the best. "thompson-items": a draw of
            the items and the row expected given them, which explores items alone, for users who do
            not return. Scores are compared before clipping to the range of ratings.
        exclude_seen : bool
            Leave out items that the user has rated.
        level : float
            Probability that a new rating falls in the interval of its item.
        random_state : int, optional
            Seed of policies that draw; a new draw each time by default.

        Returns
        -------
        RecommendationList
            A list of `Recommendation`, best first.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Gibbs
        >>> ratings = [1, 1, 2, 2, 3], [7, 8, 7, 9, 8], [4.0, 1.0, 5.0, 3.0, 2.0]
        >>> model = BayesianMF(2, sampler=Gibbs(epochs=4), random_state=0).fit(ratings)
        >>> [found.item for found in model.recommend(1)]
        [9]
        >>> [found.item for found in model.recommend(ratings={7: 5, 9: 1})]
        [8]
        """
        check_level(level)
        if isinstance(user, list | tuple) or getattr(user, "ndim", 0) > 0:
            raise InputError("recommend is for one user: pass several to recommend_many")
        fitted = result_for(self._fitted(), user, ratings)
        row = np.array([fitted.user_ids.index(0 if user is None else user)])
        if user is not None:
            warn_of_unknown_users([user], row, fitted.user_ids, self._fitted().left_out)
        elif row[0] < 0:
            warn(
                "no rating was sent that can be used: the items with the highest ratings in "
                "general are recommended",
                DataWarning,
            )
        choice = candidates(fitted.item_ids, items, exclude)
        question = Question(n, policy, exclude_seen, level, choice)
        with self._counting("recommending", 1, "users") as done:
            found, numbers = self._ranked(fitted, row, question, random_state, done)
        best = zip(found[0].tolist(), *(row[0].tolist() for row in numbers), strict=True)
        return RecommendationList(
            Recommendation(fitted.item_ids[j], *numbers) for j, *numbers in best if j >= 0
        )

    def recommend_many(
        self,
        users: Any = None,
        n: int = 10,
        *,
        ratings: Any = None,
        items: Any = None,
        exclude: Any = None,
        policy: PolicyName = "mean",
        exclude_seen: bool = True,
        level: float | None = None,
        random_state: int | None = None,
        progress: Callable[[int], Any] | None = None,
    ) -> Recommendations:
        """Recommend the n best items to each of many users, as arrays.

        Parameters
        ----------
        users : array-like, optional
            Ids; by default all users of the training ratings, or of `ratings`.
        n : int
            How many items for each user.
        ratings : as X of `fit`, optional
            A table of user, item and rating: ratings of new or known users that count beside
            training ratings, without a refit.
        items : array-like, optional
            Ids of the items to choose from; all by default.
        exclude : array-like, optional
            Ids of items that are not to be recommended.
        policy : {"mean", "ucb", "lcb", "thompson", "thompson-items"}
            Score to rank by, as for `recommend`. Policies that draw use a separate draw for each
            user, which depends on `random_state` and the user, not on the other users.
        exclude_seen : bool
            Leave out items that the user has rated.
        level : float, optional
            Probability that a new rating falls in its interval; no intervals by default.
        random_state : int, optional
            Seed of policies that draw; new draws each time by default.
        progress : callable, optional
            Called with the number of users done since the last call.

        Returns
        -------
        Recommendations
            Arrays whose row k belongs to user k, and a table of all of them.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Gibbs, Synthetic
        >>> model = BayesianMF(4, sampler=Gibbs(epochs=20), random_state=0)
        >>> _ = model.fit(Synthetic(60, 40, 1200).ratings())
        >>> model.recommend_many([1, 2, 3], n=5).items.shape
        (3, 5)
        >>> new = [("ann", 7, 5.0), ("ann", 9, 1.0), ("bob", 7, 2.0)]
        >>> model.recommend_many(ratings=new, n=5).users.tolist()
        ['ann', 'bob']
        """
        fitted = self._fitted()
        if ratings is not None:
            sent = sent_table(ratings)
            users = sent.compact().user_ids.ids if users is None else _as_many(users)
            fitted = with_sent_ratings(fitted, users, sent)
        elif users is None:
            users = fitted.user_ids.ids
        else:
            users = _as_many(users)
        rows = fitted.user_ids.lookup(users)
        warn_of_unknown_users(users, rows, fitted.user_ids, self._fitted().left_out)
        choice = candidates(fitted.item_ids, items, exclude)
        question = Question(n, policy, exclude_seen, level, choice)
        with self._counting("recommending", len(rows), "users", progress) as done:
            found = self._ranked(fitted, rows, question, random_state, done)
        return Recommendations.from_rows(users, fitted.item_ids.ids, *found)

    def _ranked(
        self,
        fitted: FitResult,
        rows: NDArray[np.int64],
        question: Question,
        random_state: Any,
        progress: Callable[[int], Any] | None = None,
    ) -> tuple[NDArray[np.int64], list[NDArray[np.float64]]]:
        """Row numbers of the best items of users by row number, and their mean, std, low, high."""
        if random_state is None:
            random_state = int(np.random.SeedSequence().generate_state(1)[0])
        question = replace(
            question,
            n=whole("n", question.n),
            exclude_seen=yes_or_no("exclude_seen", question.exclude_seen),
            seed=whole("random_state", random_state, 0),
        )
        return rank_users(fitted.posterior, rows, question, self.n_workers, progress)

    def explain(
        self, user: Any = None, item: Any = None, *, ratings: Any = None, draw: int | None = None
    ) -> Explanation:
        """Compute what each of a user's ratings adds to the prediction of an item.

        The mean of a user's row is linear in the user's ratings, so the shares are exact: together
        with `rest` they add up to the prediction.

        Parameters
        ----------
        user : int or str, optional
            Id of the user; optional with `ratings`.
        item : int or str
            Id of the item.
        ratings : mapping or list of tuple, optional
            Ratings of this user, `{item: rating}`, beside training ratings.
        draw : int, optional
            Explain the prediction of one draw; the average over all draws by default.

        Returns
        -------
        Explanation
            Shares and effects of the user's ratings, as arrays and as a table.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Gibbs
        >>> ratings = [1, 1, 2, 2, 3], [7, 8, 7, 9, 8], [4.0, 1.0, 5.0, 3.0, 2.0]
        >>> model = BayesianMF(2, sampler=Gibbs(epochs=4), random_state=0).fit(ratings)
        >>> sorted(model.explain(1, 9).items.tolist())
        [7, 8]
        >>> model.explain(item=9, ratings={7: 5}).items.tolist()
        [7]
        """
        fitted = result_for(self._fitted(), user, ratings)
        row = fitted.user_ids.index(0 if user is None else user)
        if row < 0:
            who = "the new user" if user is None else f"user {user!r}"
            warn(
                f"no rating of {who} is known: the prediction is what people in general think of "
                "the item, and nothing else explains it",
                DataWarning,
            )
        posterior = fitted.posterior
        if draw is not None:
            posterior = posterior.with_draws(np.array([_draw(draw, len(posterior.draws))]))
        found = explain(posterior, row, _known(fitted.item_ids, item, "item"))
        shares, effects = found.shares.mean(0), found.effects.mean(0)
        order = np.argsort(-np.abs(shares), kind="stable")
        return Explanation(
            float(found.prediction.mean()),
            float(found.rest.mean()),
            np.asarray(fitted.item_ids.ids[found.items[order]]),
            found.ratings[order],
            shares[order],
            found.shares.std(0)[order],
            effects[order],
            found.effects.std(0)[order],
        )

    def similar_items(self, item: Any, n: int = 10) -> Neighbours:
        """Find the items most similar to an item: those that the same users like.

        Parameters
        ----------
        item : int or str
            Id of the item.
        n : int
            Number of items.

        Returns
        -------
        Neighbours
            Ids, correlations over users (without biases), and their spread over draws.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Gibbs, Synthetic
        >>> model = BayesianMF(4, sampler=Gibbs(epochs=20), random_state=0)
        >>> _ = model.fit(Synthetic(60, 40, 1200).ratings())
        >>> len(model.similar_items(3, n=5))
        5
        """
        fitted = self._fitted()
        row, n = _known(fitted.item_ids, item, "item"), whole("n", n)
        return _neighbours(fitted.item_ids, row, n, *similar_items(fitted.posterior, row))

    def similar_users(self, user: Any, n: int = 10) -> Neighbours:
        """Find the users most similar to a user.

        This computes the rows of all users under some of the draws: seconds for a million ratings,
        minutes for a hundred million.

        Parameters
        ----------
        user : int or str
            Id of the user.
        n : int
            Number of users.

        Returns
        -------
        Neighbours
            Ids, correlations over items (without biases), and their spread over draws.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Gibbs, Synthetic
        >>> model = BayesianMF(4, sampler=Gibbs(epochs=20), random_state=0)
        >>> _ = model.fit(Synthetic(60, 40, 1200).ratings())
        >>> len(model.similar_users(3, n=5))
        5
        """
        fitted = self._fitted()
        row, n = _known(fitted.user_ids, user, "user"), whole("n", n)
        return _neighbours(fitted.user_ids, row, n, *similar_users(fitted.posterior, row))

    def rows(
        self, *, items: Any = None, users: Any = None, ratings: Any = None, draw: int = -1
    ) -> NDArray[np.float32]:
        """Return vectors of items or users under one draw, for vector databases.

        The inner product of a user's and an item's vector is the rating predicted by this draw.
        Take all vectors from one draw: the axes differ between draws, so average predictions, not
        vectors. The best ten of one draw differ from those of `recommend`, which averages over all
        draws: retrieve a hundred candidates and rank them with `recommend`, or use
        `bayesmf.integrations.vectors`, which takes more draws.

        Parameters
        ----------
        items : array-like, optional
            Ids of items.
        users : array-like, optional
            Ids of users, instead of items.
        ratings : as X of `fit`, or mapping, optional
            Ratings of these users, beside training ratings.
        draw : int
            Number of the draw; the last by default.

        Returns
        -------
        ndarray of float32, shape (n, n_factors + 2)
            A vector for each id.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Gibbs, Synthetic
        >>> model = BayesianMF(4, sampler=Gibbs(epochs=20), random_state=0)
        >>> _ = model.fit(Synthetic(60, 40, 1200).ratings())
        >>> scores = model.rows(users=[1, 2]) @ model.rows(items=[3, 4, 5]).T
        >>> scores.shape
        (2, 3)
        """
        fitted = self._fitted()
        if items is not None and users is None and ratings is None:
            return _item_vectors(fitted, items, draw)
        if items is None and (users is not None or ratings is not None):
            return _user_vectors(fitted, users, ratings, draw)
        raise InputError("rows are of items=[...] or of users=[...]: give one of them")


def _as_many(users: Any) -> Any:
    return [users] if is_single(users) else users


def _item_vectors(fitted: FitResult, items: Any, draw: int) -> NDArray[np.float32]:
    """[scale V, center + scale b, 1] of items."""
    posterior, values = fitted.posterior.with_items, [items] if is_single(items) else items
    rows = _all_known(fitted.item_ids, values, "item")
    assert posterior.draws.items is not None
    own, D = posterior.draws.items[_draw(draw, len(posterior.draws))][rows], posterior.n_factors
    out = np.ones((len(rows), D + 2), np.float32)
    out[:, :D] = own[:, :D] * posterior.scale
    out[:, D] = own[:, D:].sum(1) * posterior.scale + posterior.center
    return out


def _user_vectors(fitted: FitResult, users: Any, ratings: Any, draw: int) -> NDArray[np.float32]:
    """[E U, 1, scale E a] of users, given the items of the draw."""
    if ratings is not None:
        fitted = with_sent_ratings(fitted, users, ratings)
    values = [0] if users is None else [users] if is_single(users) else users
    rows = _all_known(fitted.user_ids, values, "user")
    if len(rows):
        fitted.posterior.need_ratings("rows(users=...)")
    which = np.array([_draw(draw, len(fitted.posterior.draws))])
    posterior = fitted.posterior.with_users.with_draws(which)
    solved, D = posterior.sides.source.solve(rows, factors=False), posterior.n_factors
    own = solved.means[solved.place, 0]
    out = np.ones((len(rows), D + 2), np.float32)
    out[:, :D], out[:, D + 1] = own[:, :D], own[:, D:].sum(1) * posterior.scale
    return out


def _draw(draw: Any, n: int) -> int:
    """The number of a draw, from the end where it is negative."""
    if isinstance(draw, bool) or not isinstance(draw, int | np.integer) or not -n <= draw < n:
        raise InputError(f"draw must be a whole number from {-n} to {n - 1}, not {draw!r}")
    return int(draw) % n


def _known(ids: IdMap, id: Any, what: str) -> int:
    """The row number of one id that must be known."""
    if not is_single(id) or id is None:
        raise InputError(f"give the id of one {what}, not {shown(id)}")
    return int(_all_known(ids, [id], what)[0])


def _all_known(ids: IdMap, values: Any, what: str) -> Index:
    if not len(ids):
        raise InputError(
            f"the model holds no {what}s: it was saved without them; send ratings instead"
        )
    rows = ids.lookup(values)
    if len(rows) and rows.min() < 0:
        bad = list(values)[int(np.argmin(rows))]
        bad = shown(bad.item() if isinstance(bad, np.generic) else bad)
        raise InputError(
            f"{what} {bad} is not in the training data: give one of the model's {what}s"
        )
    return rows


def _neighbours(ids: IdMap, row: int, n: int, mean: Floats, std: Floats) -> Neighbours:
    found = best(mean, row, n)
    return Neighbours(np.asarray(ids.ids[found]), mean[found], std[found])
