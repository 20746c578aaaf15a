"""Precisions of single users and items, drawn where a round has their squared errors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bayesmf.chains.state import ChainState
from bayesmf.kernels.keys import STREAM_NOISE, generator
from bayesmf.kernels.types import Rows
from bayesmf.samplers.base import DataShape

Index = NDArray[np.int64]
Floats = NDArray[np.float64]


def draw_row_noise(state: ChainState, t: int, side: int, counts: Index, errors: Floats) -> None:
    """Draw the precisions of all users (0) or items (1), where these have their own."""
    noise = state.precisions.noise
    own = None if noise is None else noise.side(side)
    if noise is None or own is None:
        return
    rng = generator(state.key, 2 * t + side, STREAM_NOISE)
    found = noise.with_side(side, own.draw(counts, errors, rng))
    state.precisions = replace(state.precisions, noise=found)


def mean_weighted(state: ChainState, side: int, counts: Index, errors: Floats) -> float:
    """Sum of squared errors from those of rows, weighted by the precisions of the other `side`.

    The weights' mean is taken off: where all weigh the same it is the plain sum.
    """
    weights = state.precisions.weights(side)
    total = float(errors.sum())
    if weights is None:
        return total
    return total * float(counts.sum()) / float(counts @ weights.astype(np.float64))


def rating_weights(own: Rows | None, other: Rows | None, shape: DataShape) -> tuple[Rows, Rows]:
    """Weights of users' and of items' ratings, ones where there are none."""
    return (
        np.ones(shape.n_users, np.float32) if own is None else own,
        np.ones(shape.n_items, np.float32) if other is None else other,
    )


def taken(weights: Rows | None, rows: NDArray[np.int32]) -> Rows | None:
    """Weights of some rows."""
    return None if weights is None else weights[rows]
