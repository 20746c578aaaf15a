"""How likely squared errors are where precisions of rows are Gamma and integrated out."""

from __future__ import annotations

import math

import numpy as np

from bayesmf.kernels.exact import SPOILT, add_term
from bayesmf.kernels.jit import EXACT as PLAIN
from bayesmf.kernels.jit import WITHIN, njit

# Square of what a rating is known to at best, for ratings of variance one: it comes to each squared
# error. Without it somebody who always gives five stars is known without any noise, and the size of
# the noise has no posterior: the likelihood grows without bound as beta goes to zero.
KNOWN_TO = 1e-4
# A precision below this is no number that float32 could divide by.
LEAST_TAU = 1e-12


@njit(**WITHIN)
def log_rising(k, a):
    """lgamma(k + a) - lgamma(k) - a log(k), without the digits that a large k would take."""
    if k < 100.0:
        return math.lgamma(k + a) - math.lgamma(k) - a * math.log(k)
    # By Stirling's series, of which the next term is below 1e-9 here.
    return (k + a - 0.5) * math.log1p(a / k) - a + (1.0 / (k + a) - 1.0 / k) / 12.0


@njit(**PLAIN)
def exact_evidence(laws, sizes, times, counts, errors):
    """Log density of the errors of all rows under each law (shape, rate), up to a constant.

    Row i has counts[i] ratings, whose squared errors add up to 2 `errors[i]`; `times` rows have
    each of the numbers `sizes` of ratings: Gamma functions are found once for each. Sums are whole
    numbers as those of kernels/exact.py, (laws, 3). With n = counts[i] / 2 a row's term is

        lgamma(k + n) - lgamma(k) - n log(rate) - (k + n) log(1 + e / rate).
    """
    out = np.zeros((laws.shape[0], 3), np.int64)
    for p in range(laws.shape[0]):
        shape, rate, sound = laws[p, 0], laws[p, 1], True
        for j in range(sizes.shape[0]):
            n = 0.5 * sizes[j]
            x = log_rising(shape, n) + n * math.log(shape / rate)
            sound = sound and add_term(out[p], x, times[j])
        for i in range(counts.shape[0]):
            if not sound:
                break
            x = -(shape + 0.5 * counts[i]) * math.log1p(errors[i] / rate)
            sound = add_term(out[p], x, np.int64(1))
        if not sound:
            out[p, 0] = SPOILT
    return out
