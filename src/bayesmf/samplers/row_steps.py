"""How long a step each row may take, for rules with a clock for each row.

A step is in units of the row's own relaxation time: the preconditioner P_d = 1 / (tau n m_d +
Lambda_dd) makes every row's curvature about one. What is left to choose is how much of a row's
variance may come from the mini-batches' gradient noise, and that depends on how its visits are
spread; see `survival`. The updates themselves are in kernels/row_clock.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bayesmf.samplers.base import Array
from bayesmf.samplers.clocks import ClockRule


@dataclass(frozen=True)
class RowFacts:
    """What a row's clock depends on, for the rows of one side.

    `n` are its ratings, `visits` its visits in a pass over all ratings (infinite where ratings
    are drawn with replacement, so that no pass ever ends), `noise` the variance of the mini-batch
    gradient in units of the likelihood's curvature.
    """

    n: Array
    visits: Array
    noise: Array
    per_visit: Array


@dataclass(frozen=True)
class Steps:
    """A row's step, the share of momentum it keeps, and the share of variance already there."""

    eta: NDArray[np.float32]
    persistence: NDArray[np.float32]
    share: NDArray[np.float32]


# The largest share of a row's variance that uneven visits may bring, whatever the rule says.
MOST_UNEVEN = 0.25
# Steps that are tried, one and a half per cent apart.
_LADDER = np.geomspace(1e-9, 2.0, 1440)


def longest(rule: ClockRule, visits: Array, noise: Array, rho: float) -> Array:
    """The longest step up to which `noise` of gradients brings at most `rho` of the variance.

    Up to which, not at which: with momentum, longer steps may be quiet again, but only where the
    curvature is just one.
    """
    out = np.empty(len(visits))
    for k in np.unique(visits):
        heat = np.maximum.accumulate(rule.heat(_LADDER, np.full_like(_LADDER, k)))
        own = visits == k
        most = rho / np.maximum(noise[own], 1e-12)
        out[own] = _LADDER[np.maximum(np.searchsorted(heat, most, side="right") - 1, 0)]
    return out


def stable_steps(facts: RowFacts, width: int) -> Array:
    """The longest step that is stable for rows seen through few ratings at a time.

    Seen through c ratings, the curvature of a visit in units of P is up to (1 + sqrt(width / c))^2,
    at most 2 (width + c) / c; a step times that has to stay below 4.
    """
    c = facts.per_visit
    return 2.0 * c / (width + c)


def uneven(facts: RowFacts, width: int) -> Array:
    """Variance of the curvature that visits meet, in units of its mean squared.

    About width / c for visits of c ratings that are not all of the row's. (Some rows meet partners
    far longer than the mean, so that theirs is several times as large.)
    """
    c = facts.per_visit
    return (1.0 - c / facts.n) * (width + c) / c


def clock_steps(
    rule: ClockRule,
    facts: RowFacts,
    stable: Array,
    delta_max: float,
    rho: float,
    unequal: Array | None = None,
) -> Steps:
    """Every row's step under the limits of the time; `stable` is 0 for rows that do not move.

    Where visits meet curvatures that differ (`uneven`), steps of length eta act as steps of none
    would on another posterior: one that is narrower by eta/4 times that variance, and whose mean
    has moved as well, because what is met later in a pass is met where the earlier has led. Nothing
    of the noise can make up for it: it is small where steps are short, and how small is up to the
    rule (`uneven`) and its rho.
    """
    pairs = np.stack([facts.visits, facts.noise], axis=1)
    kinds, where = np.unique(np.round(pairs, 9), axis=0, return_inverse=True)
    limit = longest(rule, kinds[:, 0], kinds[:, 1], rho)[where.reshape(-1)]
    if unequal is not None:
        forever = np.full(len(unequal), np.inf)
        most = min(rule.uneven * rho, MOST_UNEVEN)
        limit = np.minimum(limit, longest(rule, forever, unequal, most))
    eta = np.minimum(np.minimum(limit, stable), delta_max)
    moving = np.maximum(eta, 1e-12)
    share = facts.noise * rule.known(moving, facts.visits)
    return Steps(*(a.astype(np.float32) for a in (eta, rule.persistence(moving), share)))
