"""How likely squared errors are where precisions of rows are Gamma and integrated out."""

from __future__ import annotations

import math

import numpy as np

from bayesmf.kernels.exact import COARSE, FINE, LARGEST, SPOILT
from bayesmf.kernels.jit import EXACT as PLAIN
from bayesmf.kernels.jit import njit

# Square of what a rating is known to at best, for ratings of variance one: it comes to each squared
# error. Without it somebody who always gives five stars is known without any noise, and the size of
# the noise has no posterior: the likelihood grows without bound as beta goes to zero.
EXACT = 1e-4
# A precision below this is no number that float32 could divide by.
LEAST_TAU = 1e-12


@njit(**PLAIN)
def exact_evidence(laws, sizes, times, counts, errors):
    """Log density of the errors of all rows under each law (shape, rate), up to a constant.

    Row i has counts[i] ratings, whose squared errors add up to 2 `errors[i]`; `times` rows have
    each of the numbers `sizes` of ratings: Gamma functions are found once for each. Sums are whole
    numbers as those of kernels/exact.py, (laws, 2).
    """
    out = np.zeros((laws.shape[0], 2), np.int64)
    for p in range(laws.shape[0]):
        shape, rate = laws[p, 0], laws[p, 1]
        first = shape * math.log(rate) - math.lgamma(shape)
        coarse, fine, spoilt = np.int64(0), np.int64(0), False
        for k in range(sizes.shape[0]):
            x = first + math.lgamma(shape + 0.5 * sizes[k])
            spoilt = spoilt or not abs(x) < LARGEST
            if not spoilt:
                whole = np.rint(x / COARSE)
                coarse += times[k] * np.int64(whole)
                fine += times[k] * np.int64(np.rint((x - whole * COARSE) / FINE))
        for i in range(counts.shape[0]):
            x = -(shape + 0.5 * counts[i]) * math.log(rate + errors[i])
            if not abs(x) < LARGEST:
                spoilt = True
                break
            whole = np.rint(x / COARSE)
            coarse += np.int64(whole)
            fine += np.int64(np.rint((x - whole * COARSE) / FINE))
        out[p, 0] = np.int64(SPOILT) if spoilt else coarse
        out[p, 1] = np.int64(0) if spoilt else fine
    return out
