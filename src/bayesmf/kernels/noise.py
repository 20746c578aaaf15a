"""Standard normals for many rows at once: the numbers that `fill_normals` gives row by row.

A row has too few counters for vector code. Here the counters of several rows are in one list, and
the results are copied back into rows.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload
from numpy.typing import NDArray

from bayesmf.kernels.exact import SPOILT, add_term
from bayesmf.kernels.jit import APART, EXACT, WITHIN, njit
from bayesmf.kernels.keys import fill_counters, philox
from bayesmf.kernels.simd import LANES, load, store

_UNIT = 2.0**-32


@njit(**EXACT)
def draw_gammas(out, shape, number, round_, word3, k0, k1):
    """out[i] ~ Gamma(shape[i], 1), a function of number[i] and of round, word and key.

    Marsaglia and Tsang (2000); below a shape of one, Gamma(a + 1) U^(1/a).
    """
    for i in range(out.shape[0]):
        a = shape[i]
        d = (a if a >= 1.0 else a + 1.0) - 1.0 / 3.0
        c = 1.0 / math.sqrt(9.0 * d)
        quad = np.uint32(0)
        while True:
            w0, w1, w2, w3 = philox(quad, number[i], round_, word3, k0, k1)
            quad += np.uint32(1)
            radius = math.sqrt(-2.0 * math.log((np.float64(w0) + 1.0) * _UNIT))
            x = radius * math.cos(2.0 * math.pi * np.float64(w1) * _UNIT)
            v = 1.0 + c * x
            if v <= 0.0:
                continue
            v = v * v * v
            level = math.log((np.float64(w2) + 0.5) * _UNIT)
            if level < 0.5 * x * x + d - d * v + d * math.log(v):
                break
        out[i] = d * v
        if a < 1.0:
            out[i] *= math.exp(math.log((np.float64(w3) + 0.5) * _UNIT) / a)


# Counters drawn at once: their results fit the first-level cache.
COUNTERS = 288

_U = np.uint64
_LANES = np.uint64(LANES)


class NoiseScratch(NamedTuple):
    """Buffers for the noise of a few rows."""

    number: NDArray[np.uint32]  # of each row
    row: NDArray[np.uint32]  # number of the row of each counter
    quad: NDArray[np.uint32]  # position in the row of each counter, in fours
    planes: NDArray[np.float32]  # results, before they are copied into rows
    z: NDArray[np.float32]  # rows of noise, as wide as padded rows; the last is of zeros


def make_noise_scratch(width: int, padded_width: int, dtype: Any) -> NoiseScratch:
    """Allocate for rows of `width` columns that are stored in `padded_width`."""
    n_quads = (width + 3) // 4
    n_rows = max(COUNTERS // n_quads, LANES)
    counters = n_rows * n_quads + 2 * LANES
    return NoiseScratch(
        np.zeros(n_rows, np.uint32),
        np.zeros(counters, np.uint32),
        (np.arange(counters) % n_quads).astype(np.uint32),
        np.zeros(4 * counters, np.float32),
        np.zeros((n_rows + 2) * padded_width, dtype),
    )


@njit(**APART)
def fill_noise(noise, n_rows, width, padded_width, counter):
    """Standard normals for the first n_rows rows of `noise.number`.

    Row s is noise.z[s * padded_width :], of which the first `width` columns count.
    """
    number, row, planes, z = noise.number, noise.row, noise.planes, noise.z
    n_quads = _U((width + 3) // 4)
    room = _U(row.shape[0])
    for s in range(n_rows):
        for q in range(s * n_quads, s * n_quads + n_quads):
            row[q] = number[s]
    n = n_rows * n_quads
    n = (n + _LANES - _U(1)) // _LANES * _LANES
    key = counter.key
    fill_counters(planes, room, n, row, noise.quad, counter.round, counter.word, key[0], key[1])
    for s in range(n_rows):
        for p in range(_U(4)):
            # Whole vectors: the excess is overwritten by the next row.
            for q in range(_U(0), n_quads, _LANES):
                copy8(z, s * padded_width + p * n_quads + q, planes, p * room + s * n_quads + q)


def copy8(out: Any, to: Any, array: Any, at: Any) -> None:
    """In compiled code: out[to : to + 8] = array[at : at + 8], in the precision of `out`."""
    out[to : to + LANES] = array[at : at + LANES]


@overload(copy8, inline="always")
def _copy8(out, to, array, at):
    if out.dtype == array.dtype:
        return lambda out, to, array, at: store(out, to, load(array, at))

    def convert(out, to, array, at):
        for t in range(_LANES):
            out[to + t] = array[at + t]

    return convert


# Square of the assumed accuracy of a rating, for ratings of variance one, added to each squared
# error. Without it a user who always gives five stars has no noise, and the noise precision has no
# posterior: the likelihood is unbounded as beta goes to zero.
KNOWN_TO = 1e-4
# Float32 cannot divide by a precision below this.
LEAST_TAU = 1e-12


@njit(**WITHIN)
def log_rising(k, a):
    """lgamma(k + a) - lgamma(k) - a log(k), without cancellation for large k."""
    if k < 100.0:
        return math.lgamma(k + a) - math.lgamma(k) - a * math.log(k)
    # By Stirling's series, of which the next term is below 1e-9 here.
    return (k + a - 0.5) * math.log1p(a / k) - a + (1.0 / (k + a) - 1.0 / k) / 12.0


@njit(**EXACT)
def exact_evidence(laws, sizes, times, counts, errors):
    """Log density of the errors of all rows under each law (shape, rate), up to a constant.

    Row i has counts[i] ratings, whose squared errors add up to 2 `errors[i]`; `times` rows have
    each of the numbers `sizes` of ratings: Gamma functions are computed once each. Sums are whole
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
