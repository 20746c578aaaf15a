"""`recommend` and `recommend_many`: the best items for one user, or for many at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.checks import whole, yes_or_no
from bayesmf.errors import DataWarning, InputError, warn
from bayesmf.estimator.fitted import Fitted, Found
from bayesmf.estimator.fold_in import asked_of, sent_table, with_senders
from bayesmf.estimator.questions import candidates, is_single, warn_of_unknown_users
from bayesmf.estimator.results import Recommendation, RecommendationList, Recommendations
from bayesmf.posterior.policies import PolicyName
from bayesmf.posterior.posterior import check_level
from bayesmf.posterior.ranking import Question, rank_users


class Recommending(Fitted):
    """The part of `BayesianMF` that recommends items to users."""

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
            Id of the user. One that was not in the training ratings is recommended to by the
            `ratings` sent, or from the prior.
        n : int
            How many items; fewer come back only where no more are left.
        ratings : mapping or list of tuple, optional
            Ratings of this user, `{item: rating}`, that count beside what was learnt from. Exact,
            in milliseconds, without a refit; the model stays as it is.
        items : array-like, optional
            Ids of the items to choose from; all by default.
        exclude : array-like, optional
            Ids of items that are not to be recommended.
        policy : {"mean", "ucb", "lcb", "thompson", "thompson-items"}
            What to rank by: the expected rating; the expected rating plus its standard deviation,
            a bonus for what is not known yet; minus it, for what is surely good; one joint draw of
            the user's row and the items, so that an item comes first as often as it is the best; or
            a draw of the items and the row that is expected given them, which explores items alone
            and is for strangers: what is learnt of a person who never comes back is lost.
            The bonus is `std` without `model.posterior_.noise_of`: ratings' noise is no reason to
            try an item. Means are compared before they are cut to the range of ratings.
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

        Raises
        ------
        InputError
            If an argument is not as described.
        NotFittedError
            If the model has not been fitted.

        Warns
        -----
        DataWarning
            If the user was not in the training ratings and sends none, or items are not known.

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
        fitted = asked_of(self._fitted(), user, ratings)
        row = np.array([fitted.user_ids.index(0 if user is None else user)])
        if user is not None:
            warn_of_unknown_users([user], row, fitted.user_ids, self._fitted().left_out)
        elif row[0] < 0:
            warn(
                "no rating was sent that can be used: what people in general rate highest is "
                "recommended",
                DataWarning,
            )
        choice = candidates(fitted.item_ids, items, exclude)
        question = Question(n, policy, exclude_seen, level, choice)
        with self._counting("recommending", 1, "users") as done:
            found, numbers = self._ranked(fitted, row, question, random_state, done)
        told = zip(found[0].tolist(), *(row[0].tolist() for row in numbers), strict=True)
        return RecommendationList(
            Recommendation(fitted.item_ids[j], *numbers) for j, *numbers in told if j >= 0
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
            Ids; all users of the training ratings by default, or all who send `ratings`.
        n : int
            How many items for each user.
        ratings : as X of `fit`, optional
            A table of user, item and rating: ratings of new or known users that count beside what
            was learnt from, without a refit.
        items : array-like, optional
            Ids of the items to choose from; all by default.
        exclude : array-like, optional
            Ids of items that are not to be recommended.
        policy : {"mean", "ucb", "lcb", "thompson", "thompson-items"}
            What to rank by, as for `recommend`. Where it draws, each user has a random draw of its
            own, which depends on `random_state` and the user, not on who else is asked for.
        exclude_seen : bool
            Leave out items that the user has rated.
        level : float, optional
            Probability that a new rating falls in its interval; without it there are no intervals.
        random_state : int, optional
            Seed of policies that draw; new draws each time by default.
        progress : callable, optional
            Called with the number of users done since the last call.

        Returns
        -------
        Recommendations
            Arrays whose row k belongs to user k, and a table of all of them.

        Raises
        ------
        InputError
            If an argument is not as described.
        NotFittedError
            If the model has not been fitted.

        Warns
        -----
        DataWarning
            If users were not in the training ratings and send none, or items are not known.

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
            fitted = with_senders(fitted, users, sent)
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
        fitted: Found,
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


def _as_many(users: Any) -> Any:
    return [users] if is_single(users) else users
