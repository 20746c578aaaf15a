"""Ratings that come with a question: of new users, or more of known ones."""

from __future__ import annotations

from collections.abc import ItemsView, Mapping, Sized
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.ratings import Ratings
from bayesmf.errors import DataWarning, InputError, warn
from bayesmf.estimator.fitted import Found
from bayesmf.estimator.questions import is_single
from bayesmf.ids.id_map import IdMap
from bayesmf.ids.unknown import unknown_examples
from bayesmf.packed.ratings import PackedRatings
from bayesmf.posterior.fold_in import NewRatings, fold_in
from bayesmf.posterior.posterior import Posterior
from bayesmf.server.prepare import as_packed
from bayesmf.wording import printable

Index = NDArray[np.int64]
LARGEST = float(np.finfo(np.float32).max)
# What lies farther out is of another scale: in widths of the range of ratings, such as percentages
# of a five-star model, and in standard deviations.
MOST_WIDTHS, FARTHEST = 3.0, 1e4


class Sent(NamedTuple):
    """Ratings as they were sent: users, items by row number (-1 unknown) and ratings.

    `users` are ids, or None where all are of the one user who asks.
    """

    users: Any
    item_rows: Index
    rating: NDArray[np.float32]


def sent_ratings(found: Found, ratings: Any) -> Sent:
    """Read ratings that come with a question; those of unknown items are left out, and told of.

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
    _tell(found, known_items, rows, rating)
    known = rows >= 0
    users = users if users is None or known.all() else np.asarray(users)[known]
    return Sent(users, rows[known], rating[known].astype(np.float32))


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
    """Ratings of several users, as `fit` reads them."""
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
    """Whether it is one number, and none that single precision has no room for."""
    try:
        one = not isinstance(value, str) and np.ndim(value) == 0
        return one and abs(float(value)) <= LARGEST
    except (TypeError, ValueError, OverflowError):
        return False


def check_scale(posterior: Posterior, rating: NDArray[Any]) -> None:
    """Refuse ratings that cannot be meant on the scale of those that were learnt from."""
    width = posterior.high - posterior.low
    beyond = np.maximum(posterior.low - rating, rating - posterior.high)
    far = beyond > min(FARTHEST * posterior.scale, MOST_WIDTHS * width)
    if far.any():
        raise InputError(
            f"the rating {rating[far][0]:g} is of another scale than those that the model was "
            f"fitted on, {posterior.low:g} to {posterior.high:g}: check it, or fit again"
        )


def outside(posterior: Posterior, rating: NDArray[Any], what: str) -> str:
    """Sentence on ratings beyond those that were learnt from; empty where there are none."""
    # Bounds are of single precision.
    rating = rating.astype(np.float32)
    out = (rating < posterior.low) | (rating > posterior.high)
    if not out.any():
        return ""
    return (
        f"{int(out.sum()):,} of the {len(rating):,} {what}, such as {rating[out][0]:g}, lie "
        f"outside {posterior.low:g} to {posterior.high:g}, the range that was learnt from: are "
        "they on the same scale?"
    )


def _tell(found: Found, items: Any, rows: Index, rating: NDArray[np.float64]) -> None:
    """Warn of ratings that cannot be used, and of those that look wrong."""
    unknown = rows < 0
    if unknown.any():
        n, examples, hint = unknown_examples(found.item_ids, np.asarray(items)[unknown])
        listed = printable(", ".join(examples)) + (", ..." if n > len(examples) else "")
        count = int(unknown.sum())
        be, left = ("is", "is") if count == 1 else ("are", "are")
        warn(
            f"{count:,} of the {len(rows):,} ratings sent {be} of items that were not "
            f"learnt from ({'; '.join([listed, *([hint] if hint else [])])}) and {left} left out: "
            "partial_fit (bayesmf update) learns new items",
            DataWarning,
        )
    if told := outside(found.posterior, rating, "ratings sent"):
        warn(told, DataWarning)


def asked_of(found: Found, users: Any, ratings: Any) -> Found:
    """The model as it is or, where ratings are sent, for the users who are asked for."""
    if ratings is not None:
        return with_senders(found, users, ratings)
    if users is None:
        raise InputError(
            "say for whom: give the id of a user, or ratings={item: rating} of a new one"
        )
    return found


def with_senders(found: Found, users: Any, ratings: Any) -> Found:
    """The model for users who have sent ratings: they are all it knows of people.

    `users` are the ids that will be asked for, in any form; None stands for one without an id, who
    is user 0. Who has neither sent a rating nor been learnt from stays unknown.
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
    return found._replace(posterior=posterior, user_ids=ids.take(np.flatnonzero(known)))


def _one_id(user: Any) -> IdMap:
    """The map of one id, without what many need; None is 0."""
    if user is None or (isinstance(user, int | np.integer) and not isinstance(user, bool)):
        return IdMap(np.array([0 if user is None else int(user)]))
    return IdMap.encode([user], what="user")[0]
