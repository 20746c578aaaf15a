"""How large the effects of one side are: drawn at once, against the ratings, with precisions out.

Where rows have few ratings each, draws of rows given precisions and of precisions given rows move
in small steps between "large effects, little noise" and the other way round: hundreds of sweeps
from a start without any effects. (k V, k b) with the same likelihood terms is one number for all
rows, so it moves far: the generalised Gibbs step of Liu and Sabatti (2000) for the group of
scalings, features and biases by a factor each. It is the interweaving of Yu and Meng (2011).

With f the features' part of a prediction, b the row's bias and t what they explain, the likelihood
of (k, l) is exp(k FT + l BT - (k^2 FF + 2 k l FB + l^2 BB) / 2), with precisions in the sums; the
prior has precisions integrated out (docs/noise.md). Precisions must be drawn right after.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.gather import BB, BT, FB, FF, FT
from bayesmf.kernels.types import Rows
from bayesmf.model.moments import Moments, moments_of
from bayesmf.model.priors import GammaColumns, Prior, WishartColumns
from bayesmf.model.slices import slice_sample

STEP = 0.1  # in log k, the first width of the slice
FARTHEST = 20.0  # in log k: beyond it nothing is left, or nothing holds it


def draw_amplitudes(
    rows: Rows | Moments, n_factors: int, prior: Prior, sums: NDArray[np.float64],
    rng: np.random.Generator,
) -> NDArray[np.float64]:  # fmt: skip
    """Factors of the features and the biases of one side's rows, one for each column.

    Parameters
    ----------
    rows
        Rows, or their moments, of the side whose ratings `sums` are of.
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
    columns: GammaColumns | WishartColumns,
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
