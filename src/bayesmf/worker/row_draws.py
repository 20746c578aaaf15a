"""Draws of all rows of a stripe given the other side: by columns, or whole rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.blocks.stripes import Stripe
from bayesmf.kernels.columns import column_prior, draw_columns, longest_row
from bayesmf.kernels.gather import Regressors
from bayesmf.kernels.types import Rows
from bayesmf.kernels.whole_rows import DUAL_SHARE, draw_dual, draw_primal, make_work


def draw_rows(
    out: Rows,
    means: Rows,
    stripe: Stripe,
    regressors: Regressors,
    mu: NDArray[np.float64],
    Lambda: NDArray[np.float64],
    tau: float,
    n_factors: int,
    relax: float,
    joint: int | None,
    place: tuple[int, np.uint32],
    key: NDArray[np.uint32],
) -> float:
    """Draw every row of a stripe given the other side.

    `Lambda` is the diagonal or the matrix of the prior's precisions, `place` is (round, stream
    word). `joint` columns of a row are drawn together, all with None. `means` gets the conditional
    means, unless it has no rows. With `relax` above zero or by columns, both of which need
    means, `out` must hold the old rows. Returns the sum of squared errors of the new rows.
    """
    counts, sse = np.diff(stripe.starts), 0.0
    ratings = (*regressors, stripe.other, stripe.value, stripe.levels)
    whole = np.ones(len(out), np.bool_)
    if joint is not None:
        by_columns = counts <= longest_row(n_factors)
        whole = ~by_columns
        sse += draw_columns(
            out, means, np.flatnonzero(by_columns), stripe.rows, stripe.starts, ratings,
            column_prior(mu, Lambda), tau, n_factors, relax, joint == 1, place, key,
            whole,
        )  # fmt: skip
    if whole.any():
        sse += draw_whole(
            out, means, whole, stripe, ratings, mu, Lambda, tau, n_factors, relax, place, key
        )
    return float(sse)


def draw_whole(
    out: Rows,
    means: Rows,
    chosen: NDArray[np.bool_],
    stripe: Stripe,
    ratings: Any,
    mu: NDArray[np.float64],
    Lambda: NDArray[np.float64],
    tau: float,
    n_factors: int,
    relax: float,
    place: tuple[int, np.uint32],
    key: NDArray[np.uint32],
) -> float:
    """Draw the chosen rows of a stripe, all columns of a row together."""
    width = out.shape[1]
    few = int(DUAL_SHARE * width) if Lambda.ndim == 1 else -1
    matrix = np.diag(Lambda) if Lambda.ndim == 1 else Lambda
    # Not @, which would wake the threads of BLAS.
    shift = np.einsum("de,e->d", matrix, mu)
    dual = np.diff(stripe.starts) <= few
    work, sse = make_work(width, n_factors), 0.0
    for draw, rows, prior in (
        (draw_primal, chosen & ~dual, (shift, np.ascontiguousarray(matrix))),
        (draw_dual, chosen & dual, (mu, 1.0 / np.sqrt(np.diag(matrix)))),
    ):
        if rows.any():
            sse += draw(
                out, means, np.flatnonzero(rows), stripe.rows, stripe.starts, ratings, prior, tau,
                n_factors, relax, place, key, work,
            )  # fmt: skip
    return sse
