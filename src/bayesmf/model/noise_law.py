"""Shape and rate of the precisions of rows, drawn with the precisions integrated out.

By slices (Neal 2003) in log k and log k / beta, which the errors tell apart: a rectangle is laid
around where the law is now and shrunk towards it, point after point, until one lies in the slice.
Which points come next does not depend on the errors as long as none was in it. So the server names
some of them beforehand, and workers tell how likely their errors are under each, where these lie.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from bayesmf.errors import DivergenceError

Array = NDArray[np.float64]

# Shape and rate of beta's prior.
RATE_SHAPE, RATE_RATE = 1.0, 1.0
# The rectangle is at least NARROW over the root of the number of rows wide, some times what they
# leave open, and at most 1, at random in between: a chain that begins far off has a long way to go.
NARROW = 8.0
FIRST, MORE = 8, 16  # points that are named at once: mostly one of the first is in the slice


def log_shape_prior(log_k: float) -> float:
    """log p(log k) where 1 / sqrt(k) is half-normal (0, 1), up to a constant."""
    return -0.5 * log_k - 0.5 * math.exp(-log_k)


class LawSlice:
    """One step of shape and rate; with `mean_one` the rate is the shape.

    `laws` are to be looked at next, (points, 2) shapes and rates. `choose` takes the logarithms of
    the errors' densities under them, and says whether the step is done: then `found` is the law.
    """

    def __init__(
        self, shape: float, rate: float, mean_one: bool, n_rows: int, rng: np.random.Generator
    ) -> None:
        self._mean_one, self._rng = mean_one, rng
        self._start = np.array([math.log(shape), math.log(shape / rate)][: 1 if mean_one else 2])
        narrow = NARROW / math.sqrt(n_rows)
        width = max(narrow, narrow ** rng.random())
        self._low = self._start - width * rng.random(len(self._start))
        self._high = self._low + width
        self._drop, self._level = rng.exponential(), math.nan
        self._points = [self._start, *self._shrunk(FIRST)]
        self.found: tuple[float, float] = (shape, rate)

    def _shrunk(self, n: int) -> list[Array]:
        """Points to be looked at in turn, as if none before them was in the slice."""
        points = []
        for _ in range(n):
            x = self._rng.uniform(self._low, self._high)
            self._low = np.where(x < self._start, x, self._low)
            self._high = np.where(x < self._start, self._high, x)
            points.append(x)
        return points

    @property
    def laws(self) -> Array:
        return np.array([self._law(x) for x in self._points])

    def _law(self, x: Array) -> tuple[float, float]:
        return math.exp(x[0]), math.exp(x[0] - (0.0 if self._mean_one else x[1]))

    def choose(self, evidence: Array) -> bool:
        densities = [
            self._log_prior(x) + float(e) for x, e in zip(self._points, evidence, strict=True)
        ]
        if math.isnan(self._level):
            self._level = densities[0] - self._drop
            if not math.isfinite(self._level):
                raise DivergenceError(
                    "a chain left the numbers that can be computed with: where ratings are fitted "
                    "without any error, use noise_by=None (--noise-by none), one precision for all "
                    "of them"
                )
        for x, density in zip(self._points, densities, strict=True):
            if density > self._level and x is not self._start:
                self.found = self._law(x)
                return True
        self._points = self._shrunk(MORE)
        return False

    def _log_prior(self, x: Array) -> float:
        found = log_shape_prior(float(x[0]))
        if self._mean_one:
            return found
        log_rate = float(x[0] - x[1])
        return found + RATE_SHAPE * log_rate - RATE_RATE * math.exp(log_rate)
