"""Rows that are new, under draws that were made before: carried over from draws that know them.

A draw that stays has no row for a new item, and to work one out from the rows of all who rated it,
under each of hundreds of draws, would take longer than the fit did. But two draws of a posterior
differ by their axes and by chance alone, and known items have rows under both. So the rows of the
best known items under one draw are regressed on those under another, and a new item's row under the
one is what that says of its row under the other, with the spread that known items have around it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.keys import STREAM_UPDATE, generator
from bayesmf.kernels.linalg import cholesky, second_moments, solve_upper
from bayesmf.kernels.types import Rows

Index = NDArray[np.int64]
Array = NDArray[np.float64]

# Known rows that tell how two draws go together, for each column of a row.
KNOWN_PER_COLUMN = 12
# Weight of the guess that draws have nothing in common, in rows of the prior's size.
RIDGE = 1.0


class Carried(NamedTuple):
    """Rows to carry over, and known ones to learn the way from."""

    rows: Index
    known: Index


def find_carried(counts: Index, new: Index, width: int) -> Carried | None:
    """Rows of which half of the ratings or more are new, if any, and the best known others.

    Parameters
    ----------
    counts, new
        Ratings of each row, and how many of them are new.
    width
        Columns of a row.
    """
    mostly = 2 * new >= counts
    if not mostly.any():
        return None
    others = np.flatnonzero(~mostly)
    order = np.argsort(-counts[others], kind="stable")[: KNOWN_PER_COLUMN * width]
    return Carried(np.flatnonzero(mostly), np.sort(others[order]))


class Side(NamedTuple):
    """The kept side under one draw: rows, their conditional means, and the prior's mean."""

    rows: Rows
    means: Rows | None
    mu: Array


def carry_over(which: Carried, source: Side, out: Side, t: int, key: NDArray[np.uint32]) -> None:
    """Set the rows under a draw, and their conditional means, from those under another draw.

    Parameters
    ----------
    which
        The rows.
    source
        The draw that knows them.
    out
        The draw that gets them.
    t, key
        Number of the draw and key of its chain, for the random numbers.
    """
    way, spread = _way(source.rows, out.rows, which.known, source.mu, out.mu)
    noise = generator(key, t, STREAM_UPDATE).standard_normal((len(which.rows), len(out.mu)))
    # Not @, which would wake the threads of BLAS.
    carried = np.einsum("nd,de->ne", source.rows[which.rows] - source.mu, way)
    out.rows[which.rows] = out.mu + carried + np.einsum("nd,ed->ne", noise, spread)
    if out.means is not None and source.means is not None:
        way, _ = _way(source.means, out.means, which.known, source.mu, out.mu)
        carried = np.einsum("nd,de->ne", source.means[which.rows] - source.mu, way)
        out.means[which.rows] = out.mu + carried


def _way(x: Rows, y: Rows, known: Index, mu_x: Array, mu_y: Array) -> tuple[Array, Array]:
    """B for which (x - mu_x) B is nearest to y - mu_y, and a root of the covariance of the rest.

    By ridge regression: with nothing known B is zero, and rows are as the prior expects them.
    """
    width = len(mu_x)
    both = np.hstack([x[known] - mu_x, y[known] - mu_y]).astype(np.float32)
    square = second_moments(both)[1] if len(known) else np.zeros((2 * width, 2 * width))
    xx, xy, yy = square[:width, :width], square[:width, width:], square[width:, width:]
    L = cholesky(xx + RIDGE * np.eye(width))
    half = _solve_lower(L, xy)
    # What is left of y's squares, and of a row of the prior's size where nothing is known.
    rest = yy - np.einsum("de,df->ef", half, half) + RIDGE * np.eye(width)
    return solve_upper(L, half), cholesky(rest / (len(known) + 1.0))


def _solve_lower(L: Array, B: Array) -> Array:
    """np.linalg.solve(L, B) for lower L."""
    turned = np.ascontiguousarray(L[::-1, ::-1].T)
    return np.ascontiguousarray(solve_upper(turned, np.ascontiguousarray(B[::-1]))[::-1])
