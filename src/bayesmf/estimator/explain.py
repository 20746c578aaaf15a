"""`explain`, `similar_items`, `similar_users` and `rows`: what lies behind predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.checks import whole
from bayesmf.data.tabular import Columns, Tabular
from bayesmf.errors import DataWarning, InputError, warn
from bayesmf.estimator.fitted import Fitted, Found
from bayesmf.estimator.fold_in import asked_of, with_senders
from bayesmf.estimator.questions import is_single
from bayesmf.ids.id_map import IdMap
from bayesmf.posterior import similar
from bayesmf.posterior.explain import explain
from bayesmf.posterior.posterior import Floats, Index
from bayesmf.wording import short, shown


@dataclass(frozen=True, repr=False)
class Explanation(Tabular):
    """Why an item is predicted as it is: what each of the user's ratings adds, and its spread.

    As a table it has a row for each rating, the largest share first: item, rating, share,
    share_std, effect, effect_std.

    Attributes
    ----------
    prediction : float
        The expected rating, not clipped to the range of ratings.
    rest : float
        What is predicted for somebody nobody knows: what people in general think of the item.
        `rest + shares.sum()` is the prediction.
    items : ndarray
        Ids of the items that the user has rated, the largest share first.
    ratings : ndarray of float64
        The user's ratings of them.
    shares, share_std : ndarray of float64
        What each rating adds to the prediction, on average over draws, and its standard deviation:
        nothing where it is the rating that people in general would give.
    effects, effect_std : ndarray of float64
        By how much the prediction would change back if the rating had never been given.

    Examples
    --------
    >>> from bayesmf import BayesianMF, Gibbs
    >>> ratings = [1, 1, 2, 2, 3], [7, 8, 7, 9, 8], [4.0, 1.0, 5.0, 3.0, 2.0]
    >>> model = BayesianMF(2, sampler=Gibbs(epochs=4), random_state=0).fit(ratings)
    >>> found = model.explain(1, 9)
    >>> bool(abs(found.rest + found.shares.sum() - found.prediction) < 1e-6)
    True
    """

    prediction: float
    rest: float
    items: NDArray[Any]
    ratings: Floats
    shares: Floats
    share_std: Floats
    effects: Floats
    effect_std: Floats

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        return f"Explanation({short(self.prediction)} = {self._sum()})"

    def _sum(self, most: int = 3) -> str:
        """The prediction as a sum of its largest parts."""
        parts = [f"{short(self.rest)} for people in general"]
        for item, rating, share, std in self._rows(most):
            parts.append(f"{share:+.2f} +/- {std:.2f} for {item!r} rated {rating:g}")
        left = len(self) - most
        if left > 0:
            parts.append(f"{float(self.shares[most:].sum()):+.2f} for {left:,} more")
        return " ".join(parts)

    def _rows(self, n: int) -> list[tuple[Any, float, float, float]]:
        columns = self.items[:n], self.ratings[:n], self.shares[:n], self.share_std[:n]
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def _columns(self) -> Columns:
        return {
            "item": self.items,
            "rating": self.ratings,
            "share": self.shares,
            "share_std": self.share_std,
            "effect": self.effects,
            "effect_std": self.effect_std,
        }

    def _title(self) -> str:
        return (
            f"{short(self.prediction)}: {short(self.rest)} and the shares of {len(self):,} ratings"
        )


@dataclass(frozen=True, repr=False)
class Neighbours(Tabular):
    """Items, or users, that are most alike one of them: their correlation, and its spread.

    As a table it has a row for each: id, similarity, std.

    Attributes
    ----------
    ids : ndarray
        Their ids, the most alike first.
    similarity, std : ndarray of float64
        Correlation of what is predicted of the two, on average over draws, and its standard
        deviation: 1 for two that every person likes alike, 0 for two that have nothing in common.

    Examples
    --------
    >>> from bayesmf import BayesianMF, Gibbs
    >>> ratings = [1, 1, 2, 2, 3], [7, 8, 7, 9, 8], [4.0, 1.0, 5.0, 3.0, 2.0]
    >>> model = BayesianMF(2, sampler=Gibbs(epochs=4), random_state=0).fit(ratings)
    >>> len(model.similar_items(7))
    2
    """

    ids: NDArray[Any]
    similarity: Floats
    std: Floats

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        few = zip(self.ids[:3].tolist(), self.similarity[:3].tolist(), strict=True)
        best = ", ".join(f"{id!r} {value:.2f}" for id, value in few)
        return f"Neighbours({best}{', ...' if len(self) > 3 else ''})"

    def _columns(self) -> Columns:
        return {"id": self.ids, "similarity": self.similarity, "std": self.std}

    def _title(self) -> str:
        return repr(self)


class Explaining(Fitted):
    """The part of `BayesianMF` that tells what lies behind predictions."""

    def explain(
        self, user: Any = None, item: Any = None, *, ratings: Any = None, draw: int | None = None
    ) -> Explanation:
        """Tell what each of a user's ratings adds to the prediction of an item.

        The mean of a user's row is linear in the user's ratings, so the shares are exact: together
        with `rest` they add up to the prediction.

        Parameters
        ----------
        user : int or str, optional
            Id of the user; none is needed where `ratings` are sent.
        item : int or str
            Id of the item.
        ratings : mapping or list of tuple, optional
            Ratings of this user, `{item: rating}`, beside what was learnt from.
        draw : int, optional
            Explain the prediction of one draw alone; all are averaged over by default.

        Returns
        -------
        Explanation
            Shares and effects of the user's ratings, as arrays and as a table.

        Raises
        ------
        InputError
            If the item is not known, or an argument is not as described.
        NotFittedError
            If the model has not been fitted.

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
        fitted = asked_of(self._fitted(), user, ratings)
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
        """Find the items that are most alike an item: those that the same people like.

        Parameters
        ----------
        item : int or str
            Id of the item.
        n : int
            How many to find.

        Returns
        -------
        Neighbours
            Ids with their correlation over people, without biases, and its spread over draws.

        Raises
        ------
        InputError
            If the item is not known.
        NotFittedError
            If the model has not been fitted.

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
        return _neighbours(fitted.item_ids, row, n, *similar.similar_items(fitted.posterior, row))

    def similar_users(self, user: Any, n: int = 10) -> Neighbours:
        """Find the users whose taste is most alike that of a user.

        The rows of all users are worked out for this, under some of the draws: seconds for a
        million ratings, minutes for a hundred million.

        Parameters
        ----------
        user : int or str
            Id of the user.
        n : int
            How many to find.

        Returns
        -------
        Neighbours
            Ids with their correlation over items, without biases, and its spread over draws.

        Raises
        ------
        InputError
            If the user is not known.
        NotFittedError
            If the model has not been fitted.

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
        return _neighbours(fitted.user_ids, row, n, *similar.similar_users(fitted.posterior, row))

    def rows(
        self, *, items: Any = None, users: Any = None, ratings: Any = None, draw: int = -1
    ) -> NDArray[np.float32]:
        """Return vectors of items or users under one draw, for vector databases.

        The inner product of a user's vector and an item's is the rating that this draw predicts.
        Take all vectors from one draw: each draw has axes of its own, so vectors of several draws
        must not be averaged or mixed; average what they predict instead. One draw's best ten are
        mostly not those of `recommend`, which averages over all draws: take a hundred candidates
        and let `recommend` choose, or use `bayesmf.integrations.vectors`, which takes more draws.

        Parameters
        ----------
        items : array-like, optional
            Ids of items whose vectors are wanted.
        users : array-like, optional
            Ids of users whose vectors are wanted, instead of items.
        ratings : as X of `fit`, or mapping, optional
            Ratings of these users, beside what was learnt from.
        draw : int
            Number of the draw; the last by default.

        Returns
        -------
        ndarray of float32, shape (n, n_factors + 2)
            A vector for each id.

        Raises
        ------
        InputError
            If an id is not known, or both or neither of items and users are given.
        NotFittedError
            If the model has not been fitted.

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


def _item_vectors(fitted: Found, items: Any, draw: int) -> NDArray[np.float32]:
    """[scale V, center + scale b, 1] of items."""
    posterior, values = fitted.posterior.with_items, [items] if is_single(items) else items
    rows = _all_known(fitted.item_ids, values, "item")
    assert posterior.draws.items is not None
    own, D = posterior.draws.items[_draw(draw, len(posterior.draws))][rows], posterior.n_factors
    out = np.ones((len(rows), D + 2), np.float32)
    out[:, :D] = own[:, :D] * posterior.scale
    out[:, D] = own[:, D:].sum(1) * posterior.scale + posterior.center
    return out


def _user_vectors(fitted: Found, users: Any, ratings: Any, draw: int) -> NDArray[np.float32]:
    """[E U, 1, scale E a] of users, given the items of the draw."""
    if ratings is not None:
        fitted = with_senders(fitted, users, ratings)
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
        raise InputError(f"{what} {bad} was not learnt from: give one of the model's {what}s")
    return rows


def _neighbours(ids: IdMap, row: int, n: int, mean: Floats, std: Floats) -> Neighbours:
    found = similar.best(mean, row, n)
    return Neighbours(np.asarray(ids.ids[found]), mean[found], std[found])
