"""Noise that is not one number: every user, every item, or both have precisions of their own.

The precision of a rating is tau_i, w_j, or tau_i w_j, with

    tau_i ~ Gamma(k, beta),   w_j ~ Gamma(k', k') beside tau_i, or Gamma(k, beta) alone,

by shape and rate, beta ~ Gamma(1, 1) for ratings of variance one, and 1 / sqrt(k), which is how far
precisions lie apart, half-normal (0, 1). All conditionals are exact: precisions given errors are
Gamma, beta is too, and k is found by a slice sampler: with precisions integrated out where the
errors are at hand, and with beta integrated out given precisions (docs/noise.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.evidence import EXACT, LEAST_TAU, log_evidence
from bayesmf.kernels.types import Rows
from bayesmf.model.slices import slice_sample

Array = NDArray[np.float64]

# What may have noise of its own; None is one number for all ratings.
NOISE_BY = ("user", "item", "both")
# What is watched of the noise's distribution, by the names that reports use, and in words: log tau
# and the relative spreads k^-1/2, which say what k and beta do and stay put where k is large and
# whatever it is makes no difference.
PARAMETERS = {
    "tau": "the size of the noise",
    "user_spread": "how much users differ in their noise",
    "item_spread": "how much items differ in their noise",
}
N_PARAMETERS = len(PARAMETERS)
# Before anything is known: precisions differ by a factor of two or so.
FIRST_SHAPE = 4.0
# Shape and rate of beta's prior.
RATE_SHAPE, RATE_RATE = 1.0, 1.0
STEP = 0.3  # in log k, the first width of its slice
# With precisions integrated out the slice's first width is NARROW over the root of the number of
# rows, as wide as what they leave open, and at most MOST of that. One time in WIDE_EVERY it is 1:
# a chain that begins far off would step there for hundreds of looks at all rows.
NARROW, MOST, WIDE_EVERY = 6.0, 8, 4


@dataclass(frozen=True)
class RowNoise:
    """Precisions of the rows of one side, and the Gamma distribution that they come from.

    With `mean_one` the rate is the shape: the other side has the size of the noise.
    """

    value: Rows
    shape: float = FIRST_SHAPE
    rate: float = FIRST_SHAPE
    mean_one: bool = False

    def draw(self, counts: NDArray[np.int64], sse: Array, rng: np.random.Generator) -> Self:
        """Shape, rate and precisions given the weighted squared errors of each row's ratings.

        Shape and rate come first, with the precisions integrated out: given these they would move
        in steps as small as the rows are many.
        """
        shape, rate = self._draw_law(counts, 0.5 * self._inexact(counts, sse), rng)
        return replace(self, shape=shape, rate=rate).draw_values(counts, sse, rng)

    def draw_values(self, counts: NDArray[np.int64], sse: Array, rng: np.random.Generator) -> Self:
        """Precisions given shape and rate too: for some rows, which alone do not tell these."""
        sse = self._inexact(counts, sse)
        found = rng.gamma(self.shape + 0.5 * counts) / (self.rate + 0.5 * sse)
        return replace(self, value=np.maximum(found, LEAST_TAU).astype(np.float32))

    def _inexact(self, counts: NDArray[np.int64], sse: Array) -> Array:
        """Squared errors of ratings that are known to EXACT; precisions of mean one are bounded."""
        return sse if self.mean_one else sse + EXACT * counts

    def _draw_law(
        self, counts: NDArray[np.int64], errors: Array, rng: np.random.Generator
    ) -> tuple[float, float]:
        """Shape and rate given the numbers of ratings and half their squared errors."""
        # Not unique, which sorts.
        times = np.bincount(counts)
        found = np.flatnonzero(times)
        halves, sizes, times = 0.5 * counts, 0.5 * found, times[found]
        step = 1.0 if rng.random() * WIDE_EVERY < 1 else NARROW / math.sqrt(len(halves))

        def log_density(log_k: float, log_mean: float) -> float:
            log_rate = log_k - log_mean
            found = log_shape_prior(log_k)
            if not self.mean_one:
                found += RATE_SHAPE * log_rate - RATE_RATE * math.exp(log_rate)
            k, rate = math.exp(log_k), math.exp(log_rate)
            return found + float(log_evidence(k, rate, sizes, times, halves, errors))

        # By shape and mean, which the errors tell apart; shape and rate go together.
        log_k, log_mean = math.log(self.shape), math.log(self.shape / self.rate)
        log_k = slice_sample(lambda x: log_density(x, log_mean), log_k, step, rng, MOST)
        if not self.mean_one:
            log_mean = slice_sample(lambda x: log_density(log_k, x), log_mean, step, rng, MOST)
        return math.exp(log_k), math.exp(log_k - log_mean)

    def draw_hyper(self, rng: np.random.Generator) -> Self:
        """Shape and rate given the precisions."""
        n, value = len(self.value), self.value.astype(np.float64)
        total, logs = float(value.sum()), float(np.log(value).sum())

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


def log_shape_prior(log_k: float) -> float:
    """log p(log k) where 1 / sqrt(k) is half-normal (0, 1), up to a constant."""
    return -0.5 * log_k - 0.5 * math.exp(-log_k)


@dataclass(frozen=True)
class Noise:
    """Precisions of users' and items' ratings, None on a side that has none of its own."""

    users: RowNoise | None = None
    items: RowNoise | None = None

    @classmethod
    def initial(cls, by: str, n_users: int, n_items: int) -> Noise:
        """All rows alike."""
        both = by == "both"
        return cls(
            RowNoise(np.ones(n_users, np.float32)) if by != "item" else None,
            RowNoise(np.ones(n_items, np.float32), mean_one=both) if by != "user" else None,
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
        sides = (
            one and replace(one, value=np.full_like(one.value, size), rate=one.shape / size)
            for one, size in zip((self.users, self.items), sizes, strict=True)
        )
        return Noise(*sides)

    def typical(self) -> float:
        """The mean of the precisions' distribution, what one number would be."""
        own = self.users or self.items
        assert own is not None
        return own.shape / own.rate

    def draw_hyper(self, rng: np.random.Generator) -> Noise:
        """Shapes and rates given all precisions, and the size that is either side's."""
        if self.users is None or self.items is None:
            return Noise(
                self.users and self.users.draw_hyper(rng), self.items and self.items.draw_hyper(rng)
            )
        x = _draw_exchange(self.users, self.items, rng)
        users = replace(self.users, value=self.users.value * np.float32(math.exp(x)))
        items = replace(self.items, value=self.items.value * np.float32(math.exp(-x)))
        return Noise(users.draw_hyper(rng), items.draw_hyper(rng))


def _draw_exchange(users: RowNoise, items: RowNoise, rng: np.random.Generator) -> float:
    """log c for (c tau_i, w_j / c), which no rating can tell apart: drawn with beta integrated out.

    The generalised Gibbs step of Liu and Sabatti (2000), as for columns in model/rescale.py.
    """
    n, m = len(users.value), len(items.value)
    total, weights = float(users.value.sum(dtype=float)), float(items.value.sum(dtype=float))
    power = RATE_SHAPE + n * users.shape

    def log_density(x: float) -> float:
        return (
            n * users.shape * x
            - power * math.log(RATE_RATE + math.exp(x) * total)
            - m * items.shape * x
            - items.shape * math.exp(-x) * weights
        )

    return slice_sample(log_density, 0.0, STEP, rng)
