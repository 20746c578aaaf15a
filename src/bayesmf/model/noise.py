"""Heteroscedastic noise: separate precisions of users, of items, or of both.

The precision of a rating is tau_i, w_j, or tau_i w_j, with

    tau_i ~ Gamma(k, beta),   w_j ~ Gamma(k', k') beside tau_i, or Gamma(k, beta) alone,

by shape and rate, beta ~ Gamma(1, 1) for ratings of variance one, and 1 / sqrt(k), which is how far
precisions lie apart, half-normal (0, 1). All conditionals are exact: precisions given errors are
Gamma, beta is too, and k is found by a slice sampler: with precisions integrated out where the
errors are at hand, and with beta integrated out given precisions (docs/noise.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from bayesmf.errors import DivergenceError
from bayesmf.kernels.exact import exact_sums
from bayesmf.kernels.keys import StreamCounter
from bayesmf.kernels.noise import KNOWN_TO, LEAST_TAU, draw_gammas, exact_evidence
from bayesmf.kernels.types import Rows
from bayesmf.model.refs import Pieces

Array = NDArray[np.float64]

# Shape and rate of beta's prior.
RATE_SHAPE, RATE_RATE = 1.0, 1.0
# Width of the rectangle: random between NARROW over the root of the number of rows, a multiple of
# the posterior's width, and 1, for chains that begin far off.
NARROW = 8.0
FIRST, MORE = 8, 16  # points evaluated at once: mostly one of the first is in the slice


def log_shape_prior(log_k: float) -> float:
    """log p(log k) where 1 / sqrt(k) is half-normal (0, 1), up to a constant."""
    return -0.5 * log_k - 0.5 * math.exp(-log_k)


class LawSlice:
    """One step of shape and rate; with `mean_one` the rate is the shape.

    `laws` are the points to evaluate next, (points, 2) shapes and rates. `choose` takes the log
    densities of the errors under them and returns whether the step is done; `found` is the result.
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
        """Points to try in turn, each as if none before it was in the slice."""
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


Index = NDArray[np.int64]

# Values of `noise_by`; None is one precision for all ratings.
NOISE_BY = ("user", "item", "both")
# Monitored parameters of the noise, by name in reports, with descriptions: log tau and the relative
# spreads k^-1/2, which converge even if k is large and not identified.
PARAMETERS = {
    "tau": "the size of the noise",
    "user_spread": "how much users differ in their noise",
    "item_spread": "how much items differ in their noise",
}
N_PARAMETERS = len(PARAMETERS)
# Initial value: precisions differ by a factor of two or so.
FIRST_SHAPE = 4.0
STEP = 0.3  # in log k, the first width of its slice


class NoiseSums(NamedTuple):
    """Sums over the precisions of n rows: plain, of logarithms, and weighted by ratings."""

    n: int
    total: float
    logs: float
    by_rating: float = math.nan

    def scaled(self, x: float) -> NoiseSums:
        """Those of the precisions times exp(x)."""
        c = math.exp(x)
        return NoiseSums(self.n, c * self.total, self.logs + self.n * x, c * self.by_rating)


def noise_sums(value: Rows, counts: Index) -> NDArray[np.int64]:
    """Sums of some rows' precisions as whole numbers: plain, of logarithms, and by ratings."""
    x = value.astype(np.float64)
    return exact_sums(np.stack([x, np.log(x), x * counts], axis=1))


def half_errors(counts: Index, sse: Array, mean_one: bool) -> Array:
    """Half the squared errors of rows, plus KNOWN_TO for each rating.

    Precisions of mean one are bounded without it.
    """
    return 0.5 * (sse if mean_one else sse + KNOWN_TO * counts)


def evidence_of(laws: Array, counts: Index, errors: Array) -> NDArray[np.int64]:
    """Log likelihoods of the laws given the (half) errors of rows, as whole numbers."""
    times = np.bincount(counts)  # not unique, which sorts
    sizes = np.flatnonzero(times)
    return np.asarray(exact_evidence(laws, sizes, times[sizes], counts, errors))


@dataclass(frozen=True)
class RowNoise:
    """Precisions of the rows of one side, and the Gamma distribution that they come from.

    `value` are an array or `Pieces`, or one number where all rows are alike. With `mean_one` the
    rate is the shape: the other side has the size of the noise. `sums` are those of values that
    lie with workers.
    """

    value: Any
    shape: float = FIRST_SHAPE
    rate: float = FIRST_SHAPE
    mean_one: bool = False
    sums: NoiseSums | None = None

    def draw_values(
        self, counts: Index, sse: Array, numbers: NDArray[np.int32], counter: StreamCounter
    ) -> Rows:
        """Precisions of some rows given shape, rate and the weighted squared errors of each."""
        found, (round_, word, key) = np.empty(len(counts)), counter
        draw_gammas(found, self.shape + 0.5 * counts, numbers, round_, word, key[0], key[1])
        found /= self.rate + half_errors(counts, sse, self.mean_one)
        return np.maximum(found, LEAST_TAU).astype(np.float32)

    def known_sums(self) -> NoiseSums:
        """Sums of all precisions."""
        if self.sums is not None:
            return self.sums
        value = np.asarray(self.value).astype(np.float64)
        return NoiseSums(value.size, float(value.sum()), float(np.log(value).sum()))

    def scaled(self, x: float) -> Self:
        """With precisions times exp(x)."""
        c, value, sums = np.float32(math.exp(x)), self.value, self.sums
        if isinstance(value, float):
            value = float(value * c)
        else:
            value = value.scaled(float(c)) if isinstance(value, Pieces) else value * c
        return replace(self, value=value, sums=sums and sums.scaled(x))

    def draw_hyper(self, rng: np.random.Generator) -> Self:
        """Shape and rate given the precisions."""
        n, total, logs, _ = self.known_sums()

        def log_density(log_k: float) -> float:
            k = math.exp(log_k)
            found = k * logs - n * math.lgamma(k) + log_shape_prior(log_k)
            if self.mean_one:
                return found + n * k * log_k - k * total
            power = RATE_SHAPE + n * k
            return found + math.lgamma(power) - power * math.log(RATE_RATE + total)

        k = math.exp(slice_sample(log_density, math.log(self.shape), STEP, rng))
        if self.mean_one:
            return replace(self, shape=k, rate=k)
        rate = rng.gamma(RATE_SHAPE + n * k) / (RATE_RATE + total)
        return replace(self, shape=k, rate=float(rate))


@dataclass(frozen=True)
class Noise:
    """Precisions of users' and items' ratings, None for a side without separate noise."""

    users: RowNoise | None = None
    items: RowNoise | None = None

    @classmethod
    def initial(cls, by: str, n_users: int, n_items: int) -> Noise:
        """All rows alike."""
        both = by == "both"
        users, items = (NoiseSums(n, float(n), 0.0) for n in (n_users, n_items))
        return cls(
            RowNoise(1.0, sums=users) if by != "item" else None,
            RowNoise(1.0, mean_one=both, sums=items) if by != "user" else None,
        )

    def side(self, side: int) -> RowNoise | None:
        """That of users (0) or items (1)."""
        return self.items if side else self.users

    def with_side(self, side: int, found: RowNoise) -> Noise:
        """With other precisions of users (0) or items (1)."""
        return replace(self, **{("users", "items")[side]: found})

    def alike(self, tau: float) -> Noise:
        """All rows with the same precisions, whose product is tau."""
        both = self.users is not None and self.items is not None
        sizes = tau, 1.0 if both else tau
        sides = []
        for one, size in zip((self.users, self.items), sizes, strict=True):
            if one is not None:
                # Rounded as rows' own precisions are: a checkpoint has them so.
                n, size = one.known_sums().n, float(np.float32(size))
                sums = NoiseSums(n, n * size, n * math.log(size))
                one = replace(one, value=size, rate=one.shape / size, sums=sums)
            sides.append(one)
        return Noise(*sides)

    def typical(self) -> float:
        """The mean of the precisions' distribution, comparable to a single tau."""
        own = self.users or self.items
        assert own is not None
        return own.shape / own.rate

    def draw_hyper(self, rng: np.random.Generator) -> Noise:
        """Draw shapes and rates given all precisions, and the scale exchanged between sides."""
        if self.users is None or self.items is None:
            return Noise(
                self.users and self.users.draw_hyper(rng), self.items and self.items.draw_hyper(rng)
            )
        x = _draw_exchange(self.users, self.items, rng)
        users, items = self.users.scaled(x), self.items.scaled(-x)
        return Noise(users.draw_hyper(rng), items.draw_hyper(rng))


def _draw_exchange(users: RowNoise, items: RowNoise, rng: np.random.Generator) -> float:
    """Draw log c for (c tau_i, w_j / c), which has the same likelihood; beta integrated out.

    The generalised Gibbs step of Liu and Sabatti (2000), as for columns in model/scale.py.
    """
    n, total = users.known_sums()[:2]
    m, weights = items.known_sums()[:2]
    power = RATE_SHAPE + n * users.shape

    def log_density(x: float) -> float:
        return (
            n * users.shape * x
            - power * math.log(RATE_RATE + math.exp(x) * total)
            - m * items.shape * x
            - items.shape * math.exp(-x) * weights
        )

    return slice_sample(log_density, 0.0, STEP, rng)


LONGEST = 300.0  # from the start: for logarithms, from 354 on exp(2 x) overflows


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
    """
    level = log_density(start) - rng.exponential()
    if not math.isfinite(level):
        raise DivergenceError(
            "a chain left the numbers that can be computed with: where ratings are fitted without "
            "any error, use noise_by=None (--noise-by none), one precision for all of them"
        )
    low = start - step * rng.random()
    high = low + step
    # Steps to the left and to the right, divided at random for reversibility.
    left = math.inf if most is None else math.floor(most * rng.random())
    right = math.inf if most is None else most - 1 - left
    while left > 0 and log_density(low) > level and low > start - LONGEST:
        low -= step
        left -= 1
    while right > 0 and log_density(high) > level and high < start + LONGEST:
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
