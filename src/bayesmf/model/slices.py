"""Neal's (2003) slice sampler with stepping out, in one dimension."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

FARTHEST = 300.0  # from the start: for logarithms, from 354 on exp(2 x) overflows


def slice_sample(
    log_density: Callable[[float], float], start: float, step: float, rng: np.random.Generator
) -> float:
    """One step from `start`, which leaves the distribution invariant.

    Parameters
    ----------
    log_density
        Logarithm of the density, up to a constant.
    start
        Where it is now.
    step
        First width of the slice, about that of the distribution.
    rng
        Source of random numbers.
    """
    level = log_density(start) - rng.exponential()
    low = start - step * rng.random()
    high = low + step
    while log_density(low) > level and low > start - FARTHEST:
        low -= step
    while log_density(high) > level and high < start + FARTHEST:
        high += step
    while True:
        x = float(rng.uniform(low, high))
        if log_density(x) > level:
            return x
        if x < start:
            low = x
        else:
            high = x
