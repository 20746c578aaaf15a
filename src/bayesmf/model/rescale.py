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

from bayesmf.model.params import Params
from bayesmf.model.priors import Prior
from bayesmf.model.slices import slice_sample

STEP_OUT = 1.0  # in log k, the first width of the slice: about what the hyper-priors leave open


def draw_scales(params: Params, prior: Prior, rng: np.random.Generator) -> np.ndarray:
    """Rescale every column of U and V in place, which leaves the posterior invariant.

    Returns the factors k of U's columns; V's are divided by them.
    """
    users, items = prior.columns(params.users), prior.columns(params.items)
    n_users, n_items = len(params.users), len(params.items)
    factors = np.ones(params.users.shape[1])
    for d in range(params.n_factors):
        q_users, q_items = users.weight(d), items.weight(d)
        if not (q_users > 0 and q_items > 0 and math.isfinite(q_users + q_items)):
            continue  # an empty column has no scale, nor one that is no number any more

        def log_density(x: float, q_users: float = q_users, q_items: float = q_items) -> float:
            return (
                (n_users - n_items) * x
                - users.power * math.log1p(q_users * math.exp(2 * x))
                - items.power * math.log1p(q_items * math.exp(-2 * x))
            )

        k = math.exp(slice_sample(log_density, 0.0, STEP_OUT, rng))
        users.rescale(d, k)
        items.rescale(d, 1 / k)
        factors[d] = k
    rescale(params, factors)
    return factors


def rescale(params: Params, factors: np.ndarray) -> None:
    """Columns of U times the factors, of V divided by them."""
    params.users *= factors.astype(np.float32)
    params.items *= (1.0 / factors).astype(np.float32)
