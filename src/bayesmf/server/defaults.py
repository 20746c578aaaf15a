"""Defaults that follow the data: how many factors, how many draws are kept."""

from __future__ import annotations

import numpy as np

from bayesmf.samplers.base import DataShape, Sampler

# Draws kept by default: as many as take DRAW_BYTES, between FEWEST_DRAWS and MAX_DRAWS.
MAX_DRAWS, DRAW_BYTES = 400, 450 << 20
FEWEST_DRAWS = 8
# Items are kept, wherever users are more or there is room for so many draws of items: so that new
# users need no more than their ratings.
ENOUGH_DRAWS = 100


def default_factors(shape: DataShape) -> int:
    """A third of the mean number of ratings per row, between 8 and 32."""
    return int(np.clip(round(shape.n_ratings / (shape.n_users + shape.n_items) / 3), 8, 32))


def default_draws(rows: int, noise: int, sampler: Sampler) -> int:
    """Draws that are kept by default, where rows and their noise take so many bytes of each."""
    per_draw = rows * (2 if sampler.stores_means else 1) + noise
    return int(np.clip(DRAW_BYTES // per_draw, FEWEST_DRAWS, MAX_DRAWS))


def default_side(n_users: int, n_items: int, width: int, sampler: Sampler) -> str:
    """The side whose draws are kept: items, unless users are far fewer; both for a point."""
    if not sampler.keeps_draws:
        return "both"
    per_draw = 4 * width * n_items * (2 if sampler.stores_means else 1)
    return "items" if n_items <= n_users or ENOUGH_DRAWS * per_draw <= DRAW_BYTES else "users"
