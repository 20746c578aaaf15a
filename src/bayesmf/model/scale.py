"""Scale moves: factors of the columns of U and V, drawn by slice sampling (docs/sampler.md, 4)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.gather import BB, BT, FB, FF, FT
from bayesmf.kernels.types import Rows
from bayesmf.model.noise import slice_sample
from bayesmf.model.priors import Columns, Moments, Prior, moments_of

STEP = 0.1  # in log k, the first width of the slice
FARTHEST = 20.0  # in log k: limit of the step


def draw_amplitudes(
    rows: Rows | Moments, n_factors: int, prior: Prior, sums: NDArray[np.float64],
    rng: np.random.Generator,
) -> NDArray[np.float64]:  # fmt: skip
    """Factors of the features and the biases of one side's rows, one for each column.

    Parameters
    ----------
    rows
        Rows of the side of `sums`, or their moments.
    n_factors
        Columns that are features.
    prior
        The hyper-prior of the rows.
    sums
        Sums over all ratings as kernels/gather.py names them, times the ratings' precisions.
    rng
        Source of random numbers.
    """
    known = moments_of(rows)
    n, width = known.n, len(known.total)
    columns, factors = prior.columns(known), np.ones(width)
    features, bias = slice(0, n_factors), slice(n_factors, width)
    k = _draw(columns, factors, features, n, sums[FT] - sums[FB], sums[FF], rng)
    if width > n_factors:
        _draw(columns, factors, bias, n, sums[BT] - k * sums[FB], sums[BB], rng)
    return factors


def _draw(
    columns: Columns,
    factors: NDArray[np.float64],
    which: slice,
    n: int,
    fit: float,
    form: float,
    rng: np.random.Generator,
) -> float:
    """Draw the factor k of some columns of n rows; the likelihood is exp(k fit - k^2 form / 2)."""
    size = n * len(factors[which])
    if not (form > 0 and math.isfinite(form + fit)):
        return 1.0

    def log_density(x: float) -> float:
        if abs(x) > FARTHEST:
            return -math.inf
        k = math.exp(x)
        factors[which] = k
        return size * x + k * fit - 0.5 * k * k * form + columns.log_scaled(factors)

    k = math.exp(slice_sample(log_density, 0.0, STEP, rng))
    factors[which] = k
    return k


Array = NDArray[np.float64]

STEP_OUT = 1.0  # in log k, the first width of the slice: about what the hyper-priors leave open


def draw_scales(
    users: Rows | Moments, items: Rows | Moments, n_factors: int, prior: Prior,
    rng: np.random.Generator,
) -> Array:  # fmt: skip
    """Factors k of U's columns, by which V's are divided, leaving the posterior invariant.

    Rows are given by their moments. Biases, columns from `n_factors` on, have factors of one.
    """
    sides = moments_of(users), moments_of(items)
    n_users, n_items = sides[0].n, sides[1].n
    own, other = (prior.columns(side) for side in sides)
    factors = np.ones(len(sides[0].total))
    for d in range(n_factors):
        now = own.log_scale(d, 0.0), other.log_scale(d, 0.0)
        if not all(-math.inf < log < 0 for log in now):
            continue  # a zero or non-finite column has no scale

        def log_density(x: float, d: int = d) -> float:
            return (n_users - n_items) * x + own.log_scale(d, x) + other.log_scale(d, -x)

        k = math.exp(slice_sample(log_density, 0.0, STEP_OUT, rng))
        own.rescale(d, k)
        other.rescale(d, 1 / k)
        factors[d] = k
    return factors
