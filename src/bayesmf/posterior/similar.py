"""Rows that are alike: how two items, or two users, go together in what is predicted of them.

Rows cannot be compared as they are: every draw has axes of its own, and columns have their scale
from the other side. What can be compared is what they predict. Over people whose rows follow the
prior N(mu, Lambda^-1), the tastes for two items, U . V_j and U . V_k, have the correlation

    V_j^T C V_k / sqrt(V_j^T C V_j  V_k^T C V_k),    C = Lambda^-1,

which does not depend on axes or scale. It is found under each draw, so it comes with its spread.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from bayesmf.kernels.types import Rows
from bayesmf.posterior.all_rows import all_rows
from bayesmf.posterior.pairs import covariances
from bayesmf.posterior.posterior import Floats, Index, Posterior
from bayesmf.posterior.rows import ExactRows


def similar_items(posterior: Posterior, item: int) -> tuple[Floats, Floats]:
    """Mean and standard deviation over draws of the correlation of an item with all items."""
    base = posterior.with_items
    assert base.draws.items is not None
    return _correlations(base.draws.items, base.draws.user_Lambda, item, posterior.n_factors)


def similar_users(posterior: Posterior, user: int) -> tuple[Floats, Floats]:
    """The same for users, by what is expected of their rows."""
    draws = posterior.draws
    if draws.users is not None:
        rows = draws.users if draws.user_means is None else draws.user_means
        return _correlations(rows, draws.item_Lambda, user, posterior.n_factors)
    few = posterior.few_draws
    source = few.sides.source
    assert isinstance(source, ExactRows)
    # Remembered where they are no more than what may be; these are means alone, without factors.
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
