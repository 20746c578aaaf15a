"""Explanation of a prediction: the share of each of a user's ratings.

Given a draw of the items, the mean of a user's row is linear in the user's ratings,

    m_i = mu + sum over rated k of tau (r_k - b_k - mu . x_k) A_i^-1 x_k,

so a prediction m_i . x_j is a sum: mu . x_j, the prediction for a user without ratings, and one
term for each rating, which is 0 if the rating equals its prediction for such a user. This is exact.
The prediction without a rating differs from the sum without its term, because the rating is in A_i
too; it follows from a change of rank one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from bayesmf.errors import InputError
from bayesmf.kernels.types import Rows
from bayesmf.posterior.pairs import covariances
from bayesmf.posterior.posterior import Floats, Index, Posterior, known_ratings
from bayesmf.posterior.rows import ExactRows, all_rows, natural_priors


class Parts(NamedTuple):
    """A prediction under each draw, in the units of ratings: (draws, ratings) and (draws,).

    `shares` and `rest` add up to `prediction`; `effects` are the prediction minus the prediction
    without the rating. `items` and `ratings` are those of the user.
    """

    items: Index
    ratings: Floats
    shares: Floats
    effects: Floats
    rest: Floats
    prediction: Floats


def explain(posterior: Posterior, user: int, item: int) -> Parts:
    """The parts of the prediction of an item for a user, both by row number; -1 for a new user."""
    posterior = posterior.with_users
    draws, D, data = posterior.draws, posterior.n_factors, posterior.ratings
    assert draws.items is not None
    own = known_ratings(posterior, np.array([user]), "explain")
    rated, value = own.other.astype(np.int64), data.decode(own.value)
    # An unrated item is represented by its conditional mean, as in `predict` (docs/sampler.md).
    expected = user >= 0 and item not in rated
    target = (draws.kept_means if expected else draws.items)[:, item].astype(np.float64)
    x_j, b_j = _regressors(target[:, None], D)
    x_k, b_k = _regressors(draws.items[:, rated].astype(np.float64), D)
    x_j, b_j = x_j[:, 0], b_j[:, 0]
    mu = np.asarray(draws.user_mu, np.float64)
    usual = b_k + np.einsum("tkd,td->tk", x_k, mu)  # prediction for a user without ratings
    left = value - usual
    tau = _precisions(posterior, user, rated)
    # In double precision, so that shares add up. Not @, which starts BLAS threads.
    _, Lambda = natural_priors(draws.user_mu, draws.user_Lambda)
    A = Lambda + np.einsum("tkd,tke->tde", tau[:, :, None] * x_k, x_k)
    try:
        covariance = np.asarray(np.linalg.inv(A), np.float64)
    except np.linalg.LinAlgError:  # rows not made by a fit
        raise InputError("the model's rows cannot be computed with: fit again") from None
    reach = np.einsum("tde,te->td", covariance, x_j)
    weights = tau * np.einsum("tkd,td->tk", x_k, reach)
    moved = np.einsum("tde,te->td", covariance, np.einsum("tk,tkd->td", tau * left, x_k))
    errors = left - np.einsum("tkd,td->tk", x_k, moved)
    general = np.einsum("td,td->t", mu, x_j) + b_j
    scale, center = posterior.scale, posterior.center
    return Parts(
        rated,
        # Without the rounding errors of scaling.
        np.array([float(f"{x:.6g}") for x in center + scale * value.astype(np.float64)]),
        scale * weights * left,
        scale * _effects(x_k, covariance, tau, weights * errors),
        center + scale * general,
        center + scale * (general + np.einsum("td,td->t", moved, x_j)),
    )


def _precisions(posterior: Posterior, user: int, rated: Index) -> Floats:
    """Precisions of a user's ratings, (draws, ratings): the user's own times those of the items."""
    noise = posterior.sides.source.solve(np.array([user]), factors=False).noise[0]
    weights = posterior.sides.weights.of(rated)
    return np.asarray(weights.T / noise.astype(np.float64)[:, None])


def _effects(x_k: Floats, covariance: Floats, tau: Floats, pull: Floats) -> Floats:
    """Change of the prediction without each rating: A_i - tau x_k x_k^T, by Sherman-Morrison."""
    along = np.einsum("tkd,tde->tke", x_k, covariance)
    leverage = tau * np.einsum("tke,tke->tk", along, x_k)
    return np.asarray(pull / (1.0 - leverage))


def _regressors(rows: Floats, n_factors: int) -> tuple[Floats, Floats]:
    """[features, 1] of rows (draws, rows, width), and biases; features alone without biases."""
    x, bias = rows.copy(), np.zeros(rows.shape[:2])
    if rows.shape[2] > n_factors:
        bias = rows[:, :, n_factors].copy()
        x[:, :, n_factors] = 1.0
    return x, bias


def similar_items(posterior: Posterior, item: int) -> tuple[Floats, Floats]:
    """Mean and standard deviation over draws of the correlation of an item with all items."""
    base = posterior.with_items
    assert base.draws.items is not None
    return _correlations(base.draws.items, base.draws.user_Lambda, item, posterior.n_factors)


def similar_users(posterior: Posterior, user: int) -> tuple[Floats, Floats]:
    """The same for users, from the expected values of their rows."""
    draws = posterior.draws
    if draws.users is not None:
        rows = draws.users if draws.user_means is None else draws.user_means
        return _correlations(rows, draws.item_Lambda, user, posterior.n_factors)
    few = posterior.few_draws
    source = few.sides.source
    assert isinstance(source, ExactRows)
    # Cached within the limit; means alone, without factors.
    n_bytes = 4 * len(few.draws) * posterior.n_users * source.other.shape[2]
    rows = few.expected_rows if n_bytes <= source.budget else all_rows(source)[0]
    return _correlations(rows, few.draws.item_Lambda, user, posterior.n_factors)


def _correlations(rows: Rows, Lambda: Floats, row: int, D: int) -> tuple[Floats, Floats]:
    roots = np.linalg.cholesky(covariances(Lambda)[:, :D, :D])
    found = (_correlation(rows[t][:, :D], roots[t], row) for t in range(len(rows)))
    return _moments(found, rows.shape[1])


def _correlation(rows: Rows, root: Floats, row: int) -> Floats:
    """Correlations of one row with all, where root root^T is the covariance of the other side."""
    z = rows.astype(np.float64) @ root
    length = np.sqrt(np.einsum("nd,nd->n", z, z))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.nan_to_num(z @ z[row] / (length * length[row])))


def _moments(found: Iterable[Floats], n: int) -> tuple[Floats, Floats]:
    total, squares, count = np.zeros(n), np.zeros(n), 0
    for one in found:
        total += one
        squares += one * one
        count += 1
    mean = total / count
    return mean, np.sqrt(np.maximum(squares / count - mean * mean, 0.0))


def best(mean: Floats, row: int, n: int) -> Index:
    """The n rows of the highest mean, without `row` itself; of equals the lower number first."""
    order = np.lexsort((np.arange(len(mean)), -mean))
    return np.asarray(order[order != row][:n])
