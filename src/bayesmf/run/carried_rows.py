"""Updates: which draws are kept when ratings are added, and rows of new items under kept draws.

A draw depends on the ratings available when it was made; `Draws.missed` counts later ones. Chains
continue from their newest draws, and each new state replaces the draw that has missed most ratings,
until none has missed more than a share of all ratings.

A kept draw has no row for a new item, and computing it exactly under hundreds of draws would take
longer than the fit. But two draws of a posterior differ only by their axes and by chance, and known
items have rows under both. So the rows of the items with most ratings under one draw are regressed
on those under another, which predicts a new item's row, with the residual spread of known items.
The uncertainty given the item's own ratings is drawn separately for each draw.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.gather import regressors
from bayesmf.kernels.keys import STREAM_UPDATE, generator
from bayesmf.kernels.linalg import cholesky, second_moments, solve_upper
from bayesmf.kernels.pairs import draw_from_factors
from bayesmf.kernels.row_posterior import PaddedRows, all_known, make_row_scratch, solve_rows
from bayesmf.kernels.types import Rows, readonly
from bayesmf.model.priors import RowPrior
from bayesmf.process import Pool, parts

Index = NDArray[np.int64]

# The share of all ratings that a draw may have missed.
MOST_MISSED = 0.15
# Minimum number of new draws for a chain to continue; with fewer, fewer chains continue, in turn.
PER_CHAIN = 16
# Sweeps before states are draws, for each share of ratings that is new, and the most of them.
SETTLE_SWEEPS, MOST_SETTLING = 40, 24
# From this share on a fit from the beginning is advised.
MUCH_NEW = 0.5


@dataclass(frozen=True)
class UpdatePlan:
    """The fate of each draw.

    Attributes
    ----------
    source : ndarray of int64
        For each draw of the result, chain by chain, the old draw kept there; -1 for new ones.
    start : dict of int to int
        Chains that continue, and the old draw from which each starts.
    settling : int
        Sweeps of each before its states are draws.
    missed : ndarray of int64
        Ratings that each draw of the result has missed.
    chain : ndarray of int64
        The chain of each.
    """

    source: Index
    start: dict[int, int]
    settling: int
    missed: Index
    chain: Index

    def fresh(self, chain: int) -> Index:
        """Numbers of the new draws of a chain."""
        return np.flatnonzero((self.source < 0) & (self.chain == chain))

    @property
    def sweeps(self) -> int:
        """Sweeps of all chains."""
        return self.settling * len(self.start) + int((self.source < 0).sum())


def make_plan(chain: Index, missed: Index | None, n_new: int, n_ratings: int) -> UpdatePlan:
    """Plan an update by `n_new` ratings after which there are `n_ratings`.

    `chain` is the chain of each draw, ascending, its newest last; `missed` are the ratings that
    each draw has missed so far, None for none.
    """
    now = n_new + (np.zeros(len(chain), np.int64) if missed is None else missed)
    share = n_new / n_ratings
    fresh = _fresh(chain, now, share, MOST_MISSED * n_ratings)
    source, start, left = [], {}, []
    for number in np.unique(chain):
        own, n = np.flatnonzero(chain == number), fresh[int(number)]
        gone = own[np.argsort(-now[own], kind="stable")[:n]]
        stays = np.setdiff1d(own, gone)
        source.append(np.append(stays, np.full(n, -1)))
        left.append(np.append(now[stays], np.zeros(n, np.int64)))
        if n:
            start[int(number)] = int(own[-1])
    settling = min(MOST_SETTLING, round(SETTLE_SWEEPS * share))
    return UpdatePlan(np.concatenate(source), start, settling, np.concatenate(left), chain)


def _fresh(chain: Index, now: Index, share: float, limit: float) -> dict[int, int]:
    """New draws of each chain: as many as keep all within the limit in the long run, and now."""
    numbers, sizes = np.unique(chain, return_counts=True)
    total = min(len(chain), math.ceil(len(chain) * share / MOST_MISSED))
    over = [int((now[chain == c] > limit).sum()) for c in numbers]
    # Those that have missed most; ties by lower number.
    weights = [-float(now[chain == c].mean()) for c in numbers]
    active = np.argsort(weights, kind="stable")[: max(1, math.ceil(total / PER_CHAIN))]
    room = sizes[active].sum()
    quota = {int(k): math.ceil(total * sizes[k] / room) for k in active}
    return {
        int(c): min(int(sizes[k]), max(quota.get(k, 0), over[k])) for k, c in enumerate(numbers)
    }


Array = NDArray[np.float64]

# Known rows for the regression between two draws, for each column of a row.
KNOWN_PER_COLUMN = 12
# Ridge weight: prior weight of no relation between draws, in rows of the prior's size.
RIDGE = 0.1
# Rows of one task.
PART = 64


class Carried(NamedTuple):
    """Rows to carry over, and known ones for the regression."""

    rows: Index
    known: Index


def find_carried(counts: Index, new: Index, width: int) -> Carried | None:
    """Rows with too many new ratings for old draws of them, and the best known others.

    `counts` are the ratings of each row, `new` the new ones; no draw may have missed more than
    MOST_MISSED of all ratings, nor of those of a row. `width` is the number of columns of a row.
    """
    mostly = new > MOST_MISSED * counts
    if not mostly.any():
        return None
    others = np.flatnonzero(~mostly)
    order = np.argsort(-counts[others], kind="stable")[: KNOWN_PER_COLUMN * width]
    return Carried(np.flatnonzero(mostly), np.sort(others[order]))


class DrawSide(NamedTuple):
    """The kept side under one draw: rows, their conditional means, and the prior's mean."""

    rows: Rows
    means: Rows | None
    mu: Array


class Source(NamedTuple):
    """A new draw with the posteriors of the rows to carry over, given its other side.

    `means` and `factors` are those of `solve_rows`, one of each for a row; `tau` are the rows' own
    noise precisions, if any.
    """

    side: DrawSide
    means: Rows
    factors: Rows
    tau: Rows | None = None


def row_posteriors(
    rows: Index,
    ratings: tuple[Index, NDArray[np.int32], NDArray[Any], NDArray[np.float32]],
    other: Rows,
    prior: RowPrior,
    tau: Rows,
    weights: Rows | None,
    n_factors: int,
    pool: Pool,
) -> tuple[Rows, Rows]:
    """Means and factors of rows given the other side; `ratings` as `solve_rows` takes them.

    `tau` are precisions of the rows' ratings, `weights` those that ratings have by the other side.
    """
    given, width = regressors(other, n_factors, weights), other.shape[1]
    own = tau[rows].astype(np.float64)[:, None]
    means = np.empty((len(rows), 1, width), np.float32)
    factors = np.empty((len(rows), 1, width * (width + 1) // 2), np.float32)
    starts, partners, value, levels = ratings
    held = readonly(starts), readonly(partners), readonly(value), levels

    def run(part: slice) -> None:
        solve_rows(
            means[part], factors[part], own[part], np.arange(part.stop - part.start),
            readonly(rows[part]), held,
            PaddedRows(given.features[None], given.bias[None], given.root[None]), prior.natural(),
            all_known(1), n_factors, make_row_scratch(width, n_factors),
        )  # fmt: skip

    pool.each(run, parts(len(rows), PART))
    return means[:, 0], factors[:, 0]


def carry_over(
    which: Carried, source: Source, out: DrawSide, t: int, key: NDArray[np.uint32]
) -> None:
    """Set the rows under the draw `out`, and their conditional means, from those of `source`.

    `t` and `key`, the number of the draw and the key of its chain, are for the random numbers.
    """
    side = source.side
    by_means = side.means is not None and out.means is not None
    x, y = (side.means, out.means) if by_means else (side.rows, out.rows)
    assert x is not None and y is not None
    B, spread = _regression(x, y, which.known, side.mu, out.mu)
    n, width = source.means.shape
    z = generator(key, t, STREAM_UPDATE).standard_normal((2, n, width))
    # Each draw gets a separate draw of the row from its posterior under the source.
    own = np.empty((n, 1, width), np.float32)
    draw_from_factors(np.zeros_like(own), source.factors[:, None], z[0][:, None], own)
    # Not @, which would start BLAS threads.
    expected = out.mu + np.einsum("nd,de->ne", source.means - side.mu, B)
    drawn = np.einsum("nd,de->ne", own[:, 0], B) + np.einsum("nd,ed->ne", z[1], spread)
    out.rows[which.rows] = expected + drawn
    if out.means is not None:
        out.means[which.rows] = expected


def _regression(x: Rows, y: Rows, known: Index, mu_x: Array, mu_y: Array) -> tuple[Array, Array]:
    """Ridge regression of y - mu_y on x - mu_x: coefficients, root of the residual covariance.

    Without known rows B is zero, and rows follow the prior.
    """
    width = len(mu_x)
    both = np.hstack([x[known] - mu_x, y[known] - mu_y]).astype(np.float32)
    square = second_moments(both)[1] if len(known) else np.zeros((2 * width, 2 * width))
    xx, xy, yy = square[:width, :width], square[:width, width:], square[width:, width:]
    L = cholesky(xx + RIDGE * np.eye(width))
    half = _solve_lower(L, xy)
    # What is left of y's squares, and of a row of the prior's size where nothing is known.
    rest = yy - np.einsum("de,df->ef", half, half) + RIDGE * np.eye(width)
    return solve_upper(L, half), cholesky(rest / (len(known) + RIDGE))


def _solve_lower(L: Array, B: Array) -> Array:
    """np.linalg.solve(L, B) for lower L."""
    turned = np.ascontiguousarray(L[::-1, ::-1].T)
    return np.ascontiguousarray(solve_upper(turned, np.ascontiguousarray(B[::-1]))[::-1])
