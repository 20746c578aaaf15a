"""New users, and new ratings of known ones: rows follow from ratings, nothing is refitted.

A question about users who send ratings is asked of a posterior of its own, which shares the draws:
its users are those of the question, each with what is known of it and what is new.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.training import TrainingData
from bayesmf.kernels.csr import MOST_LEVELS, RowLists, sort_rows
from bayesmf.posterior.kept import known_ratings
from bayesmf.posterior.posterior import Index, Posterior
from bayesmf.posterior.rows import ExactRows


class NewRatings(NamedTuple):
    """Ratings that come with a question, in the units of ratings, oldest first.

    `user` is a position among the users of the question, `item` a row number.
    """

    user: Index
    item: Index
    rating: NDArray[np.float32]


def fold_in(posterior: Posterior, rows: Index, new: NewRatings) -> Posterior:
    """The posterior for users by row number, -1 for new ones, with ratings added to theirs.

    User k of the result is rows[k]. Of two ratings of one user for one item the last counts.
    """
    base: Posterior = posterior.with_items
    known = known_ratings(base, rows, "adding ratings to those of a known user")
    value = ((new.rating - np.float32(base.center)) / np.float32(base.scale)).astype(np.float32)
    data = merged(known, base.ratings, new, value, len(rows))
    draws = replace(base.draws, users=None, user_means=None)
    made = replace(base, draws=draws, ratings=data)
    source = made._source()
    shared = base.sides
    if isinstance(shared.source, ExactRows) and "everything" in shared.source.__dict__:
        assert isinstance(source, ExactRows)
        source = replace(source, own=shared.source.everything)
    made.__dict__["sides"] = shared.with_source(source)
    return made


def merged(
    known: RowLists,
    base: TrainingData,
    new: NewRatings,
    value: NDArray[np.float32],
    n_users: int,
) -> TrainingData:
    """Known ratings of users and new ones, which replace those of the same item."""
    user = np.concatenate([np.repeat(np.arange(n_users), known.counts()), new.user])
    item = np.concatenate([known.other.astype(np.int64), new.item])
    cell = user * base.n_items + item
    # The last of equals: np.unique finds the first, so of the list turned round.
    last = len(cell) - 1 - np.unique(cell[::-1], return_index=True)[1]
    codes, levels = _joined(known.value, base.levels, value)
    lists = sort_rows(
        user[last].astype(np.int32), item[last].astype(np.int32), codes[last], n_users, base.n_items
    )
    return TrainingData(lists, base.n_items, levels)


def _joined(
    code: NDArray[Any], levels: NDArray[np.float32], value: NDArray[np.float32]
) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """Known codes and new ratings as codes of more levels, or as numbers where these are many."""
    if code.dtype != np.uint8:
        return np.concatenate([code, value]), levels
    every = np.unique(np.concatenate([levels, value]))
    if len(every) > MOST_LEVELS:
        return np.concatenate([levels[code], value]), np.zeros(1, np.float32)
    turned = np.searchsorted(every, levels).astype(np.uint8)
    return np.concatenate([turned[code], np.searchsorted(every, value).astype(np.uint8)]), every
