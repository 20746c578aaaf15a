"""New users, and new ratings of known ones: rows follow from ratings, nothing is refitted.

A question about users who send ratings is asked of a posterior of its own, which shares the draws:
its users are those of the question, each with what is known of it and what is new.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.adding import add_ratings
from bayesmf.data.training import TrainingData
from bayesmf.posterior.kept import known_ratings
from bayesmf.posterior.posterior import Index, Posterior


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
    last = last_of_equals(new.user * base.n_items + new.item)
    sizes = len(rows), base.n_items
    data = add_ratings(
        TrainingData(known, base.n_items, base.ratings.levels),
        (np.arange(sizes[0]), np.arange(sizes[1])),
        sizes,
        new.user[last].astype(np.int32),
        new.item[last].astype(np.int32),
        value[last],
    )
    return base.with_ratings(data)


def last_of_equals(cell: Index) -> Index:
    """Positions of the last of all equal numbers, in ascending order of the numbers."""
    # np.unique finds the first, so of the list turned round.
    return len(cell) - 1 - np.unique(cell[::-1], return_index=True)[1]
