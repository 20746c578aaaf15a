"""Draws of predictions, precisions and tau by chain, for diagnostics."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesmf.posterior.posterior import Floats, Index, Posterior
from bayesmf.posterior.rows import take_rows


def traces(posterior: Posterior, user: Index, item: Index) -> dict[str, Any]:
    """Collect draws of predictions of pairs, of precisions and of tau, by chain.

    Raw factors are not included: they may rotate and swap without changing the model. Arrays are
    (chains, draws, ...), cut to the shortest chain: "prediction", "tau", and precisions of factors
    ("lambda_U", "lambda_V") and biases ("lambda_a", "lambda_b").
    """
    draws = posterior.draws
    mu = np.empty((len(draws), len(user)))
    for chunk in posterior.chunks(user, item):
        mu[:, chunk.lo : chunk.hi] = chunk.mu
    by_chain = [np.flatnonzero(draws.chain == c) for c in np.unique(draws.chain)]
    shortest = min(len(rows) for rows in by_chain)
    rows = np.array([r[:shortest] for r in by_chain])
    quantities = {"prediction": mu, "tau": draws.tau / posterior.scale**2}
    for side in ("user", "item"):
        Lambda = getattr(draws, f"{side}_Lambda")
        D = posterior.n_factors
        # Eigenvalues of a matrix: its diagonal changes as the factors rotate.
        factors = Lambda[:, :D] if Lambda.ndim == 2 else np.linalg.eigvalsh(Lambda[:, :D, :D])
        # Sorted, since columns may swap: only order statistics of precisions compare.
        quantities[f"lambda_{'U' if side == 'user' else 'V'}"] = np.sort(factors, axis=1)
        if Lambda.shape[1] > D:
            bias = Lambda[:, -1] if Lambda.ndim == 2 else Lambda[:, -1, -1]
            quantities[f"lambda_{'a' if side == 'user' else 'b'}"] = bias
    return {name: values[rows] for name, values in quantities.items()}


# Maximum number of ratings of a user, spread evenly: gives a standard deviation to within 10%.
MOST = 50


def training_errors(posterior: Posterior, rows: Index, threads: int | None = None) -> Floats:
    """Root mean squared training error of users by row number, in units of the ratings.

    NaN for -1, and for all users if the model lacks its ratings. Each user is computed once.
    """
    out = np.full(len(rows), np.nan)
    if not posterior.ratings.has_users:
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
