"""Draws of all rows of a stripe given the other side: by columns, or whole rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bayesmf.blocks.stripes import Stripe
from bayesmf.kernels.columns import column_prior, draw_columns, longest_row
from bayesmf.kernels.gather import N_SUMS, HalfSweep, Regressors, RowRatings
from bayesmf.kernels.row_posterior import make_row_scratch
from bayesmf.kernels.types import Rows
from bayesmf.kernels.whole_rows import DUAL_SHARE, draw_dual, draw_primal
from bayesmf.model.priors import RowPrior


def draw_rows(
    out: Rows,
    means: Rows,
    stripe: Stripe,
    regressors: Regressors,
    prior: RowPrior,
    sweep: HalfSweep,
    joint: int | None,
    n_sums: int = N_SUMS,
) -> NDArray[np.float64]:
    """Draw every row of a stripe given the other side.

    `joint` columns of a row are drawn together, all with None. `means` gets the conditional means,
    unless it has no rows. With over-relaxation or by columns, both of which need means, `out` must
    hold the old rows. Returns the sums of each new row's ratings, (rows, n_sums): all of them,
    or with 1 the squared errors alone, which takes less time.
    """
    ratings = RowRatings(
        stripe.rows, stripe.starts, stripe.other, stripe.value, stripe.levels, *regressors
    )
    whole, told = np.ones(len(out), np.bool_), np.zeros((len(out), n_sums))
    if joint is not None:
        by_columns = np.diff(stripe.starts) <= longest_row(sweep.n_factors)
        whole = ~by_columns
        draw_columns(
            out, means, told, np.flatnonzero(by_columns), ratings,
            column_prior(prior.mu, prior.Lambda), sweep, joint == 1, whole,
        )  # fmt: skip
    if whole.any():
        draw_whole(out, means, told, whole, ratings, prior, sweep)
    return told


def draw_whole(
    out: Rows,
    means: Rows,
    told: NDArray[np.float64],
    chosen: NDArray[np.bool_],
    ratings: RowRatings,
    prior: RowPrior,
    sweep: HalfSweep,
) -> None:
    """Draw the chosen rows of a stripe, all columns of a row together."""
    width = out.shape[1]
    diagonal = prior.mu.ndim == 1 and prior.Lambda.ndim == 1
    dual = np.diff(ratings.starts) <= (int(DUAL_SHARE * width) if diagonal else -1)
    scratch = make_row_scratch(width, sweep.n_factors)
    if (rows := chosen & ~dual).any():
        own = prior.natural()
        draw_primal(out, means, told, np.flatnonzero(rows), ratings, own, sweep, scratch)
    if (rows := chosen & dual).any():
        roots = prior.mu, 1.0 / np.sqrt(prior.Lambda)
        draw_dual(out, means, told, np.flatnonzero(rows), ratings, roots, sweep, scratch)
