"""The slow direction: a column of U against the same column of V.

(k U_d, V_d / k) predicts as (U_d, V_d) does, so only the priors hold the scale in place, and
conditional draws cross it in small steps. Here it is drawn at once, precisions integrated out, by a
move that leaves the posterior invariant: the generalised Gibbs step of Liu and Sabatti (2000) for
the group of rescalings. With x = log k and Haar measure dx its density is

    (n_users - n_items) x - A_U log(1 + q_U e^2x) - A_V log(1 + q_V e^-2x)

(docs/sampler.md). Precisions must be drawn right after, given the new rows.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.types import Rows
from bayesmf.model.moments import Moments, moments_of
from bayesmf.model.priors import Prior
from bayesmf.model.slices import slice_sample

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
        q_users, q_items = own.weight(d), other.weight(d)
        if not (q_users > 0 and q_items > 0 and math.isfinite(q_users + q_items)):
            continue  # an empty column has no scale, nor one that is no number any more

        def log_density(x: float, q_users: float = q_users, q_items: float = q_items) -> float:
            return (
                (n_users - n_items) * x
                - own.power * math.log1p(q_users * math.exp(2 * x))
                - other.power * math.log1p(q_items * math.exp(-2 * x))
            )

        k = math.exp(slice_sample(log_density, 0.0, STEP_OUT, rng))
        own.rescale(d, k)
        other.rescale(d, 1 / k)
        factors[d] = k
    return factors
