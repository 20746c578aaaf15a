"""Gamma variates that belong to rows: counter-based, as all random numbers of workers are."""

from __future__ import annotations

import math

import numpy as np

from bayesmf.kernels.jit import EXACT, njit
from bayesmf.kernels.keys import philox

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
