"""Rows that are new, or mostly: drawn anew under every draw that stays, from few of their ratings.

A new item's row under a draw follows from the rows of its raters, and these from all that the
raters have rated. To work that out for all raters under hundreds of draws would take longer than
the fit did. So a row is drawn from those of its ratings whose raters have rated least, as many as
the stated effort allows: a draw given some of the ratings, wider than one given all of them, and
never wrong. The draws that chains go on to know them all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bayesmf.blocks.stripes import Stripe, some_stripes
from bayesmf.errors import DivergenceError
from bayesmf.kernels.csr import RowLists
from bayesmf.kernels.gather import HalfSweep, regressors
from bayesmf.kernels.keys import STREAM_UPDATE, StreamCounter, stream_word
from bayesmf.kernels.types import Rows
from bayesmf.model.params import RowPrior
from bayesmf.worker.row_draws import draw_rows

Index = NDArray[np.int64]

# Ratings of a row that are enough under a draw that stays, and those that it gets in any case.
ENOUGH, LEAST = 64, 2
# Passes: the first without the rows themselves, the others given what the one before found. A row
# forgets where it began the sooner the more other ratings its raters have, so that passes times
# ratings of a rater are what counts, between limits.
PASSES, FEWEST_PASSES, MOST_PASSES = 50, 2, 10
# What all draws together may take, in ratings read: so many for each rating that there is, and a
# tenth of a second in any case.
EFFORT, LEAST_EFFORT = 3.0, 1e6


@dataclass(frozen=True)
class RareRows:
    """Rows of the kept side to draw anew, and ratings to draw them from.

    `own` has the chosen ratings of these rows, by number in `raters`, which has all ratings of
    those who gave them; `without` has them without those of these rows. `passes` is how often both
    are drawn in turn.
    """

    own: Stripe
    raters: Stripe
    without: Stripe
    passes: int


def find_rare(
    kept: RowLists,
    other: RowLists,
    levels: NDArray[np.float32],
    new: Index,
    width: int,
    n_draws: int,
) -> RareRows | None:
    """Rows of which half of the ratings or more are new, and what they are drawn from.

    Parameters
    ----------
    kept, other
        All ratings by the kept side's rows, and by the other's.
    levels
        What their codes stand for.
    new
        New ratings of each row of the kept side.
    width
        Columns of a row: to solve for a rater's costs about as much as so many ratings.
    n_draws
        Draws under which that is done.
    """
    counts, weights = kept.counts(), other.counts()
    stripes = some_stripes(kept, levels, (new > 0) & (2 * new >= counts), 1)
    if not stripes:
        return None
    all_ = stripes[0]
    row = np.repeat(np.arange(len(all_.rows)), np.diff(all_.starts))
    cost = weights[all_.other]
    passes = int(np.clip(PASSES / np.median(cost), FEWEST_PASSES, MOST_PASSES))
    budget = max(EFFORT * len(kept), LEAST_EFFORT) / (passes * n_draws)
    chosen = _choose(row, all_.starts, all_.other, cost + width, budget)
    # None is drawn from fewer ratings than it was drawn from before.
    before = (counts - new)[all_.rows]
    better = np.bincount(row[chosen], minlength=len(before)) > before
    chosen &= better[row]
    if not chosen.any():
        return None
    raters, at = np.unique(all_.other[chosen], return_inverse=True)
    lengths = np.bincount(row[chosen], minlength=len(before))[better]
    starts = np.append(0, np.cumsum(lengths)).astype(np.int64)
    value = all_.value[chosen]
    own = Stripe(all_.rows[better], starts, at.astype(np.int32), value, levels)
    mask = np.zeros(len(weights), np.bool_)
    mask[raters] = True
    theirs = some_stripes(other, levels, mask, 1)[0]
    return RareRows(own, theirs, _without(theirs, own.rows, len(counts)), passes)


def _choose(
    row: Index, starts: Index, rater: NDArray[np.int32], cost: Index, budget: float
) -> NDArray[np.bool_]:
    """Which ratings to draw from: of every row the cheapest, then the next, within the budget."""
    order = np.lexsort((rater, cost, row))
    rank = np.empty(len(row), np.int64)
    rank[order] = np.arange(len(row)) - starts[row[order]]
    turn = np.argsort(rank, kind="stable")
    first = np.zeros(len(row), np.bool_)
    first[np.unique(rater[turn], return_index=True)[1]] = True  # a rater is worked out once
    spent = np.empty(len(row))
    spent[turn] = np.cumsum(np.where(first, cost[turn], 0))
    return (rank < LEAST) | ((rank < ENOUGH) & (spent <= budget))


def _without(stripe: Stripe, rows: NDArray[np.int32], n_rows: int) -> Stripe:
    """A stripe without the ratings of some rows of the other side."""
    mask = np.ones(n_rows, np.bool_)
    mask[rows] = False
    left = mask[stripe.other]
    sums = np.append(0, np.cumsum(left))
    return replace(
        stripe, starts=sums[stripe.starts], other=stripe.other[left], value=stripe.value[left]
    )


def draw_rare(
    rare: RareRows,
    rows: Rows,
    means: Rows | None,
    priors: tuple[RowPrior, RowPrior],
    tau: float,
    n_factors: int,
    round_: int,
    key: NDArray[np.uint32],
) -> None:
    """Draw the rare rows of one draw anew, in place, and their conditional means.

    `priors` are those of the kept side and of the other.
    """
    numbers, width = rare.own.rows, rows.shape[1]
    found = np.zeros((len(numbers), width), np.float32)
    expected = np.zeros_like(found)
    theirs = np.zeros((len(rare.raters.rows), width), np.float32)
    for k in range(rare.passes):
        for side in (0, 1):
            counter = StreamCounter(round_, stream_word(STREAM_UPDATE, 2 * k + side), key)
            sweep = HalfSweep(n_factors, tau, 0.0, counter)
            if side == 0:
                stripe, given = rare.raters if k else rare.without, regressors(rows, n_factors)
                sse = draw_rows(theirs, theirs[:0], stripe, given, priors[1], sweep, None)
            else:
                given = regressors(theirs, n_factors)
                sse = draw_rows(found, expected, rare.own, given, priors[0], sweep, None)
            if not np.isfinite(sse):
                raise DivergenceError(
                    f"a precision matrix is not positive, at tau {tau:.3g}: fit again with all "
                    "ratings"
                )
        rows[numbers] = found
    if means is not None:
        means[numbers] = expected
