"""Neal's (2003) slice sampler with stepping out, in one dimension."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from bayesmf.errors import DivergenceError

FARTHEST = 300.0  # from the start: for logarithms, from 354 on exp(2 x) overflows


def slice_sample(
    log_density: Callable[[float], float],
    start: float,
    step: float,
    rng: np.random.Generator,
    most: int | None = None,
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
    most
        Most widths of the slice; any number if None.

    Raises
    ------
    DivergenceError
        If the density at `start` is no number: no slice of it would ever be found.
    """
    level = log_density(start) - rng.exponential()
    if not math.isfinite(level):
        raise DivergenceError(
            "a chain left the numbers that can be computed with: where ratings are fitted without "
            "any error, use noise_by=None (--noise-by none), one precision for all of them"
        )
    low = start - step * rng.random()
    high = low + step
    # Steps that may be made to the left and to the right: shared at random, as reversals need it.
    left = math.inf if most is None else math.floor(most * rng.random())
    right = math.inf if most is None else most - 1 - left
    while left > 0 and log_density(low) > level and low > start - FARTHEST:
        low -= step
        left -= 1
    while right > 0 and log_density(high) > level and high < start + FARTHEST:
        high += step
        right -= 1
    while True:
        x = float(rng.uniform(low, high))
        if log_density(x) > level:
            return x
        if x < start:
            low = x
        else:
            high = x
