"""Exact draws of a stripe of rows: the tasks of a Gibbs half-sweep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.blocks.stripes import Stripe
from bayesmf.kernels.columns import column_prior, draw_columns, longest_row
from bayesmf.kernels.exact import Whole, exact_sums, packed_moments
from bayesmf.kernels.gather import (
    N_SUMS,
    SSE,
    HalfSweep,
    Regressors,
    RowRatings,
    regressors_of,
)
from bayesmf.kernels.keys import STREAM_ITEMS, STREAM_USERS, StreamCounter, stream_word
from bayesmf.kernels.row_posterior import make_row_scratch
from bayesmf.kernels.types import Rows
from bayesmf.kernels.whole_rows import DUAL_SHARE, draw_dual, draw_primal
from bayesmf.model.noise import evidence_of, half_errors
from bayesmf.model.priors import RowPrior, initial_rows
from bayesmf.model.refs import Part, value_of, writable_copy
from bayesmf.worker.tasks import RemoteResult, Shared


@dataclass(frozen=True, eq=False)
class RowContext(Shared):
    """Data that rows of one side depend on besides their ratings, common to all stripes.

    `other` are the rows of the other side, stripe by stripe, `weights` the weights that ratings
    have by them. Rows are over-relaxed by `relax`; 0 is a plain draw. `joint` columns are drawn
    together, all with None. `n_sums` as in `draw_rows`. `laws` of the rows' precisions are those
    whose likelihood is computed; with `full`, all second moments are.
    """

    side: int
    other: tuple[Part, ...]
    weights: tuple[Part | float | None, ...]
    prior: RowPrior
    n_factors: int
    relax: float
    joint: int | None
    n_sums: int
    laws: NDArray[np.float64] | None
    mean_one: bool
    full: bool
    round: int
    key: NDArray[np.uint32]

    def prepare(self) -> Regressors:
        """The other side as kernels read it."""
        weights = [value_of(weight) for weight in self.weights]
        return regressors_of([value_of(part) for part in self.other], self.n_factors, weights)

    @property
    def counter(self) -> StreamCounter:
        """Counter of the random numbers of these draws."""
        word = stream_word((STREAM_USERS, STREAM_ITEMS)[self.side], 0)
        return StreamCounter(self.round, word, self.key)


@dataclass(frozen=True)
class RowsResult(RemoteResult):
    """New rows of a stripe, their conditional means, and sums of the ratings of each.

    `row_stats` are weighted sums as named in kernels/gather.py; `sums` are those of all rows,
    `moments` those of the new rows and `evidence` the likelihoods of the laws, all as whole
    numbers.
    """

    rows: Any
    means: Any
    row_stats: Any
    sums: Whole
    moments: Whole
    evidence: Whole | None
    count: int
    side: int = 0

    @property
    def local_fields(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("means", "row_stats") if self.side == 0 else ("row_stats",)

    @property
    def shared_fields(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("rows",) if self.side == 0 else ("rows", "means")

    together = True
    adds = ("sums", "moments", "evidence")


@dataclass(frozen=True)
class RowsTask:
    """An exact draw of a stripe of rows of one side, given the whole other side.

    `rows` are the old rows; `tau` are the precisions of ratings of weight one, for each row or one
    for all.
    """

    chain: int
    partition: int
    rows: Part
    tau: Part | float
    shared: RowContext

    def execute(self, held: Stripe) -> RowsResult:
        """Algorithm 1, lines 4-9, for the rows of a stripe."""
        given = self.shared
        rows = writable_copy(
            self.rows
        )  # the task must stay as it was: it may have to be done again
        means = np.empty_like(rows)
        row_stats = draw_stripe(given, rows, means, self.tau, held)
        counts = held.counts
        evidence = None
        if given.laws is not None:
            errors = half_errors(counts, row_stats[:, SSE], given.mean_one)
            evidence = evidence_of(given.laws, counts, errors)
        moments = packed_moments(rows, given.full)
        return RowsResult(
            rows, means, row_stats, exact_sums(row_stats), moments, evidence, len(held), given.side
        )


def draw_stripe(
    context: RowContext, rows: Rows, means: Rows, tau: Part | float, stripe: Stripe
) -> NDArray[np.float64]:
    """Draw rows in place; returns the sums of their ratings."""
    tau = np.asarray(value_of(tau), np.float64)
    tau = np.full(len(rows), tau) if tau.ndim == 0 else tau
    sweep = HalfSweep(context.n_factors, tau, context.relax, context.counter)
    prior, joint, n_sums = context.prior, context.joint, context.n_sums
    return draw_rows(rows, means, stripe, context.ready, prior, sweep, joint, n_sums)


@dataclass(frozen=True)
class StartResult(RemoteResult):
    """Initial rows of a chain."""

    shared_fields = ("rows",)
    rows: Any
    count: int = 0


@dataclass(frozen=True)
class StartTask:
    """Draw initial rows of a stripe of users (side 0) or items (1), divided by `shrink`."""

    chain: int
    partition: int
    side: int
    n_factors: int
    bias: bool
    shrink: float
    key: NDArray[np.uint32]

    def execute(self, held: Any) -> StartResult:
        """Draw them by their numbers."""
        numbers = held.numbers(self.side)
        rows = initial_rows(numbers, self.n_factors, self.bias, self.side, self.key)
        return StartResult(rows / np.float32(self.shrink))


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
    whole, row_stats = np.ones(len(out), np.bool_), np.zeros((len(out), n_sums))
    if joint is not None:
        by_columns = np.diff(stripe.starts) <= longest_row(sweep.n_factors)
        whole = ~by_columns
        draw_columns(
            out, means, row_stats, np.flatnonzero(by_columns), ratings,
            column_prior(prior.mu, prior.Lambda), sweep, joint == 1, whole,
        )  # fmt: skip
    if whole.any():
        draw_whole(out, means, row_stats, whole, ratings, prior, sweep)
    return row_stats


def draw_whole(
    out: Rows,
    means: Rows,
    row_stats: NDArray[np.float64],
    chosen: NDArray[np.bool_],
    ratings: RowRatings,
    prior: RowPrior,
    sweep: HalfSweep,
) -> None:
    """Draw the chosen rows of a stripe, all columns of a row together."""
    width = out.shape[1]
    diagonal = prior.Lambda.ndim == 1
    dual = np.diff(ratings.starts) <= (int(DUAL_SHARE * width) if diagonal else -1)
    scratch = make_row_scratch(width, sweep.n_factors)
    if (rows := chosen & ~dual).any():
        own = prior.natural()
        draw_primal(out, means, row_stats, np.flatnonzero(rows), ratings, own, sweep, scratch)
    if (rows := chosen & dual).any():
        roots = prior.mu, 1.0 / np.sqrt(prior.Lambda)
        draw_dual(out, means, row_stats, np.flatnonzero(rows), ratings, roots, sweep, scratch)
