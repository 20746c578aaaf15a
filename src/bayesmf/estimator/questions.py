"""Pairs and held-out ratings by row number, and warnings about unknown ids."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Mapping, Set, Sized
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.ratings import Ratings
from bayesmf.data.training import RatedItems
from bayesmf.errors import DataWarning, InputError, warn
from bayesmf.estimator.fit import training_ratings
from bayesmf.estimator.fitted import FitResult
from bayesmf.ids.id_map import IdMap
from bayesmf.ids.unknown import unknown_examples
from bayesmf.packed.ratings import PackedRatings
from bayesmf.posterior.posterior import NewRatings, Posterior, fold_in
from bayesmf.run.prepare import as_packed
from bayesmf.wording import printable

Index = NDArray[np.int64]


@dataclass(frozen=True)
class Query:
    """Pairs of user and item by row number, -1 where an id is not in the training ratings.

    `given` are functions that return the ids as given. For one user and one item (`single`) answers
    are plain numbers. `left_out` marks a model saved without its users.
    """

    user: Index
    item: Index
    given: tuple[Callable[[], Any], Callable[[], Any]]
    maps: tuple[IdMap, IdMap]
    single: bool
    left_out: bool = False

    @classmethod
    def from_ids(cls, users: Any, items: Any, user_map: IdMap, item_map: IdMap) -> Self:
        """Look up ids: equally many, or one of them a single id."""
        one_user, one_item = is_single(users), is_single(items)
        user_values = [users] if one_user else users
        item_values = [items] if one_item else items
        user, item = user_map.lookup(user_values), item_map.lookup(item_values)
        if len(user) != len(item) and not one_user and not one_item:
            raise InputError(
                "users and items must be equally many, or one of them a single id, not "
                f"{len(user)} users and {len(item)} items"
            )
        n = max(len(user), len(item)) if len(user) and len(item) else 0
        rows = np.resize(user, n), np.resize(item, n)
        given = (lambda: user_values), (lambda: item_values)
        return cls(*rows, given, (user_map, item_map), one_user and one_item)

    @classmethod
    def from_ratings(cls, ratings: Ratings, user_map: IdMap, item_map: IdMap) -> Self:
        """Take the pairs of ratings, whose ids are looked up once each."""
        user, item = rows_of_ratings(ratings, user_map, item_map)
        given = (lambda: ratings.users), (lambda: ratings.items)
        return cls(user, item, given, (user_map, item_map), False)

    @cached_property
    def user_ids(self) -> NDArray[Any]:
        """Ids of the users as they were given."""
        return np.resize(_array(self.given[0]()), len(self.user))

    @cached_property
    def item_ids(self) -> NDArray[Any]:
        """Ids of the items as they were given."""
        return np.resize(_array(self.given[1]()), len(self.item))

    @property
    def known(self) -> NDArray[np.bool_]:
        """Which pairs have a user and an item that are in the training ratings."""
        return (self.user >= 0) & (self.item >= 0)

    def unknown(self) -> str:
        """Sentence on how many pairs have an unknown id, with examples; empty for none."""
        count = int(len(self.user) - self.known.sum())
        if not count:
            return ""
        users = [user for user in self.user_ids[self.user < 0].tolist() if user is not None]
        given = (
            ("user", self.maps[0], users),
            ("item", self.maps[1], self.item_ids[self.item < 0]),
        )
        have, get = ("has", "gets") if count == 1 else ("have", "get")
        examples = _examples(given)
        return (
            f"{count:,} of {len(self.user):,} pairs {have} {not_known(self.left_out)}"
            f"{f' ({examples})' if examples else ''} and {get} the prior's mean"
        )

    def warn_of_unknown(self) -> None:
        """Warn about pairs with an unknown id."""
        if warning := self.unknown():
            warn(f"{warning}; predict(..., return_known=True) returns which", DataWarning)


def rows_of_ratings(ratings: Ratings, user_map: IdMap, item_map: IdMap) -> tuple[Index, Index]:
    """Row numbers of the users and items of ratings in a model, -1 for unknown ones."""
    user = user_map.lookup(ratings.user_ids)[ratings.user_rows]
    item = item_map.lookup(ratings.item_ids)[ratings.item_rows]
    return user, item


def held_out_ratings(ratings: Any, y: Any, columns: Any) -> Ratings:
    """Ratings to score on, in any form that `fit` takes."""
    found = training_ratings(ratings, y, columns)
    if isinstance(found, PackedRatings):
        raise InputError("packed ratings are for fit: score on a file or a table of ratings")
    return found


@dataclass(frozen=True)
class HeldOut:
    """Ratings to score on, and the row numbers of their ids, -1 for unknown ones."""

    ratings: Ratings
    user: Index
    item: Index
    maps: tuple[IdMap, IdMap]
    seen: RatedItems

    @classmethod
    def from_ratings(cls, ratings: Ratings, maps: tuple[IdMap, IdMap], seen: RatedItems) -> Self:
        """Look up the rows of the ratings' ids in a model."""
        return cls(ratings, *rows_of_ratings(ratings, *maps), maps, seen)

    @cached_property
    def counts(self) -> dict[str, Any]:
        """Numbers of ratings with an unknown id, and of training ratings among them."""
        return {
            "unseen_users": int((self.user < 0).sum()),
            "unseen_items": int((self.item < 0).sum()),
            "unseen": int(((self.user < 0) | (self.item < 0)).sum()),
            "learnt": int(self.seen.rated(self.user, self.item).sum()),
        }

    def unseen_examples(self) -> str:
        """Examples of unknown ids, and a likely reason."""
        test = self.ratings
        return _examples(
            (
                ("user", self.maps[0], test.user_ids.ids[np.unique(test.user_rows[self.user < 0])]),
                ("item", self.maps[1], test.item_ids.ids[np.unique(test.item_rows[self.item < 0])]),
            )
        )

    def warn(self) -> None:
        """Warn about unknown ids, and about training ratings, which bias the scores."""
        if self.counts["unseen"]:
            what = not_known(left_out=not len(self.maps[0]))
            warn(
                f"{self.counts['unseen']:,} of {len(self.ratings):,} ratings have {what} "
                f"({self.unseen_examples()}) and are predicted from the prior",
                DataWarning,
            )
        if self.counts["learnt"]:
            warn(
                f"{self.counts['learnt']:,} of {len(self.ratings):,} ratings are in the training "
                "data, which makes the scores look better than they are: score on ratings that "
                "were held out",
                DataWarning,
            )


def candidates(ids: IdMap, items: Any, exclude: Any) -> Index | None:
    """Row numbers, ascending, of the items that may be recommended; None for all of them."""
    if items is None and exclude is None:
        return None
    allowed = np.ones(len(ids), np.bool_)
    if items is not None:
        rows = _item_rows(ids, items, "items")
        allowed[:] = False
        allowed[rows[rows >= 0]] = True
    if exclude is not None:
        rows = _item_rows(ids, exclude, "exclude")
        allowed[rows[rows >= 0]] = False
    return np.flatnonzero(allowed)


def _item_rows(ids: IdMap, items: Any, what: str) -> Index:
    """Row numbers of items; warns about unknown ones."""
    values = list(items) if isinstance(items, Set) else [items] if is_single(items) else items
    rows = ids.lookup(values) if len(values) else np.empty(0, np.int64)
    if (rows < 0).any():
        examples = _examples((("item", ids, _array(values)[rows < 0]),))
        count = int((rows < 0).sum())
        be = "is" if count == 1 else "are"
        warn(
            f"{count:,} of the {len(rows):,} ids in {what} {be} not in "
            f"the training data ({examples}) and {be} left out",
            DataWarning,
        )
    return rows


def warn_of_unknown_users(users: Any, rows: Index, ids: IdMap, left_out: bool) -> None:
    """Warn about unknown users, whose recommendations follow from the prior."""
    unknown = rows < 0
    if unknown.any():
        count = int(unknown.sum())
        examples = _examples((("user", ids, _array(users)[unknown]),))
        what = (
            "unknown to a model saved without its users" if left_out else "not in the training data"
        )
        who = "the user" if len(rows) == 1 else f"{count:,} of {len(rows):,} users"
        warn(
            f"{who} {'is' if count == 1 else 'are'} {what} ({examples}): the items with the "
            "highest ratings in general are recommended",
            DataWarning,
        )


def not_known(left_out: bool) -> str:
    """Clause for warnings: why an id is unknown."""
    if not left_out:
        return "a user or an item that is not in the training data"
    return (
        "a user that this model does not know, as it was saved without its users, or an item that "
        "is not in the training data"
    )


def _examples(given: Any) -> str:
    """Unknown ids of each side, at most three, and a likely reason."""
    parts, hints = [], []
    for noun, ids, values in given:
        n, examples, hint = unknown_examples(ids, values)
        if n:
            listed = printable(", ".join(examples))
            parts.append(f"{noun} {listed}{', ...' if n > len(examples) else ''}")
            hints += [hint] if hint else []
    return "; ".join([*parts, *hints[:1]])


def is_single(ids: Any) -> bool:
    """Whether this is one id, not a column of them."""
    if isinstance(ids, list | tuple | range):  # without a look at all that is in it
        return False
    return isinstance(ids, str) or np.ndim(ids) == 0


def _array(values: Any) -> NDArray[Any]:
    """Ids as they were given, as an array: text stays text, however long."""
    if isinstance(values, np.ndarray):
        return values
    if hasattr(values, "to_numpy"):
        return np.asarray(values.to_numpy())
    plain = list(values)
    if not any(isinstance(value, str) for value in plain):
        try:
            return np.asarray(plain)
        except ValueError:  # lists of several lengths
            pass
    made = np.empty(len(plain), dtype=object)
    made[:] = plain
    return made


LARGEST = float(np.finfo(np.float32).max)
# Ratings farther out are refused as of another scale: in widths of the range of ratings (such as
# percentages for a five-star model), and in standard deviations.
MOST_WIDTHS, FARTHEST = 3.0, 1e4


class SentRatings(NamedTuple):
    """Ratings sent with a query: users, items by row number (-1 unknown) and ratings.

    `users` are ids, or None if all ratings are of one user.
    """

    users: Any
    item_rows: Index
    rating: NDArray[np.float32]


def sent_ratings(found: FitResult, ratings: Any) -> SentRatings:
    """Read ratings that come with a question; those of unknown items are left out with a warning.

    A mapping of items to ratings, or pairs of item and rating, are those of one user; everything
    else is read as `fit` reads it.
    """
    pairs = _pairs_of_one(ratings)
    if pairs is not None:
        users, items, rating = None, [item for item, _ in pairs], _numbers(pairs)
        rows = found.item_ids.lookup(items) if items else np.empty(0, np.int64)
        known_items: Any = np.array(items, object)
    else:
        table = sent_table(ratings)
        rows = found.item_ids.lookup(table.item_ids)[table.item_rows]
        users, rating = table.users, np.asarray(table.rating, np.float64)
        known_items = table.items
    check_scale(found.posterior, rating)
    _warn_of_sent(found, known_items, rows, rating)
    known = rows >= 0
    users = users if users is None or known.all() else np.asarray(users)[known]
    return SentRatings(users, rows[known], rating[known].astype(np.float32))


def _pairs_of_one(ratings: Any) -> list[tuple[Any, Any]] | None:
    """Items and ratings of one user: a mapping, a series, two columns, pairs; None for others."""
    if isinstance(ratings, Mapping):
        return None if _is_table(ratings) else list(ratings.items())
    columns = getattr(ratings, "columns", None)
    if columns is not None and len(columns) == 2:  # of pandas or polars
        first, second = (ratings[name] for name in columns)
        return list(zip(_listed(first), _listed(second), strict=True))
    if hasattr(ratings, "index") and hasattr(ratings, "to_dict") and columns is None:
        return list(zip(_listed(ratings.index), _listed(ratings), strict=True))
    if isinstance(ratings, np.ndarray) and ratings.ndim == 2 and ratings.shape[1] == 2:
        return list(zip(ratings[:, 0].tolist(), ratings[:, 1].tolist(), strict=True))
    if isinstance(ratings, ItemsView | list | tuple):
        given = list(ratings)
        if all(isinstance(p, tuple | list) and len(p) == 2 for p in given):
            return [(item, rating) for item, rating in given]
    return None


def _listed(column: Any) -> list[Any]:
    return list(column.to_list() if hasattr(column, "to_list") else column)


def _is_table(ratings: Mapping[Any, Any]) -> bool:
    """Whether a mapping is one of three columns or more, not of items to ratings."""
    columns = [isinstance(v, Sized) and not isinstance(v, str) for v in ratings.values()]
    return len(columns) > 2 and all(columns)


def sent_table(ratings: Any) -> Ratings:
    """Ratings of several users, read as `fit` does."""
    if isinstance(ratings, Ratings):
        return ratings
    if isinstance(ratings, Mapping) and not any(hasattr(v, "__len__") for v in ratings.values()):
        raise InputError(
            "ratings of several users need to say whose they are: send a table of user, item and "
            "rating"
        )
    if isinstance(ratings, PackedRatings) or as_packed(ratings) is not None:
        raise InputError("packed ratings are for fit: send a file or a table of ratings")
    return Ratings.from_data(ratings)


def _numbers(pairs: list[Any]) -> NDArray[np.float64]:
    for _, value in pairs:
        if not _is_number(value):
            raise InputError(
                f"a rating must be a finite number, not {value!r:.40}: send ratings as "
                "{item: rating}"
            )
    return np.array([float(value) for _, value in pairs], np.float64)


def _is_number(value: Any) -> bool:
    """Whether this is one number within the range of single precision."""
    try:
        one = not isinstance(value, str) and np.ndim(value) == 0
        return one and abs(float(value)) <= LARGEST
    except (TypeError, ValueError, OverflowError):
        return False


def check_scale(posterior: Posterior, rating: NDArray[Any]) -> None:
    """Refuse ratings that are clearly on another scale than the training ratings."""
    width = posterior.high - posterior.low
    beyond = np.maximum(posterior.low - rating, rating - posterior.high)
    far = beyond > min(FARTHEST * posterior.scale, MOST_WIDTHS * width)
    if far.any():
        raise InputError(
            f"the rating {rating[far][0]:g} is of another scale than those that the model was "
            f"fitted on, {posterior.low:g} to {posterior.high:g}: check it, or fit again"
        )


def outside(posterior: Posterior, rating: NDArray[Any], what: str) -> str:
    """Sentence on ratings outside the range of the training ratings; empty for none."""
    # Bounds are of single precision.
    rating = rating.astype(np.float32)
    out = (rating < posterior.low) | (rating > posterior.high)
    if not out.any():
        return ""
    return (
        f"{int(out.sum()):,} of the {len(rating):,} {what}, such as {rating[out][0]:g}, lie "
        f"outside {posterior.low:g} to {posterior.high:g}, the range of the training ratings: are "
        "they on the same scale?"
    )


def _warn_of_sent(found: FitResult, items: Any, rows: Index, rating: NDArray[np.float64]) -> None:
    """Warn about ratings of unknown items, and outside the range of the training ratings."""
    unknown = rows < 0
    if unknown.any():
        n, examples, hint = unknown_examples(found.item_ids, np.asarray(items)[unknown])
        listed = printable(", ".join(examples)) + (", ..." if n > len(examples) else "")
        count = int(unknown.sum())
        be = "is" if count == 1 else "are"
        warn(
            f"{count:,} of the {len(rows):,} ratings sent {be} of items that are not in "
            f"the training data ({'; '.join([listed, *([hint] if hint else [])])}) and {be} left "
            "out: partial_fit (bayesmf update) adds new items",
            DataWarning,
        )
    if warning := outside(found.posterior, rating, "ratings sent"):
        warn(warning, DataWarning)


def result_for(found: FitResult, users: Any, ratings: Any) -> FitResult:
    """The result of the fit, with sent ratings (if any) folded in."""
    if ratings is not None:
        return with_sent_ratings(found, users, ratings)
    if users is None and found.base is None:
        raise InputError(
            "say for whom: give the id of a user, or ratings={item: rating} of a new one"
        )
    return found


def folded_in(model: Any, users: Any, ratings: Any) -> Any:
    """A copy of a model with sent ratings folded in, for several queries.

    Queries to it take the same `users`, None for one without an id, and no ratings.
    """
    made = copy(model)
    made._found = with_sent_ratings(model._fitted(), users, ratings)
    return made


def with_sent_ratings(found: FitResult, users: Any, ratings: Any) -> FitResult:
    """The model with sent ratings folded in; its users are those of the query alone.

    `users` are the ids of the query, in any form; None is a user without an id, numbered 0. A user
    without any rating stays unknown.
    """
    sent = sent_ratings(found, ratings)
    one = users is None or is_single(users)
    if sent.users is None and not one:
        raise InputError(
            "ratings of several users need to say whose they are: send a table of user, item and "
            "rating"
        )
    if users is None and sent.users is not None:
        raise InputError(
            "ratings of one user are items and ratings, such as {item: rating}: several users are "
            "for recommend_many, or say which user is asked for"
        )
    ids = _one_id(users) if one else IdMap.encode(users, what="user")[0]
    rows = np.full(1, -1) if users is None else found.user_ids.lookup(ids)
    if sent.users is None:
        owner = np.zeros(len(sent.rating), np.int64)
    else:
        owner = ids.lookup(sent.users)
    known = rows >= 0
    known[owner[owner >= 0]] = True
    place = np.where(known, np.cumsum(known) - 1, -1)
    own = owner >= 0
    new = NewRatings(place[owner[own]], sent.item_rows[own], sent.rating[own])
    posterior = fold_in(found.posterior, rows[known], new)
    asked = ids.take(np.flatnonzero(known))
    return found._replace(posterior=posterior, user_ids=asked, base=found.base or found)


def _one_id(user: Any) -> IdMap:
    """An `IdMap` of one id; None is 0."""
    if user is None or (isinstance(user, int | np.integer) and not isinstance(user, bool)):
        return IdMap(np.array([0 if user is None else int(user)]))
    return IdMap.encode([user], what="user")[0]
