"""How far users' training ratings are from their predictions."""

from __future__ import annotations

import numpy as np

from bayesmf.posterior.posterior import Floats, Index, Posterior
from bayesmf.posterior.rows import take_rows

# Most ratings of a user that are looked at, spread evenly over them: a spread is then known to 10%.
MOST = 50


def training_errors(posterior: Posterior, rows: Index, threads: int | None = None) -> Floats:
    """Root mean squared training error of users by row number, in units of the ratings.

    NaN for -1, and for everybody where the model lacks its ratings. Users are looked up once each.
    """
    out = np.full(len(rows), np.nan)
    if not posterior.has_ratings:
        return out
    users, of = np.unique(rows[rows >= 0], return_inverse=True)
    lists = take_rows(posterior.ratings.by_user, users)
    counts = np.diff(lists.starts)
    some = np.minimum(counts, MOST)
    ends = np.cumsum(some)
    nth = np.arange(int(some.sum())) - np.repeat(ends - some, some)
    at = np.repeat(lists.starts[:-1], some) + nth * np.repeat(counts, some) // np.repeat(some, some)
    owner = np.repeat(np.arange(len(users)), some)
    mean = posterior.mean(users[owner], lists.other[at].astype(np.int64), threads)
    code = lists.value[at]
    rating = posterior.center + posterior.scale * posterior.ratings.decode(code).astype(np.float64)
    squares = np.bincount(owner, np.square(rating - mean), len(users))
    with np.errstate(invalid="ignore"):
        found = np.sqrt(squares / some)
    out[rows >= 0] = found[of]
    return out
