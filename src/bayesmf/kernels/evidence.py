"""How likely squared errors are where precisions of rows are Gamma and integrated out."""

from __future__ import annotations

import math

import numpy as np

from bayesmf.kernels.jit import ENTRY, njit

# Square of what a rating is known to at best, for ratings of variance one: it comes to each squared
# error. Without it somebody who always gives five stars is known without any noise, and the size of
# the noise has no posterior: the likelihood grows without bound as beta goes to zero.
EXACT = 1e-4
# A precision below this is no number that float32 could divide by.
LEAST_TAU = 1e-12


@njit(**ENTRY)
def log_evidence(shape, rate, sizes, times, halves, errors):
    """Log density of the errors of all rows given shape and rate, up to a constant.

    Row i has 2 `halves[i]` ratings, whose squared errors add up to 2 `errors[i]`; each of `sizes`
    is half of a number of ratings that `times` rows have: the Gamma functions are found once.
    """
    found = np.float64(len(halves)) * (shape * math.log(rate) - math.lgamma(shape))
    for k in range(len(sizes)):
        found += times[k] * math.lgamma(shape + sizes[k])
    for i in range(len(halves)):
        found -= (shape + halves[i]) * math.log(rate + errors[i])
    return found
