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
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.evidence import KNOWN_TO, LEAST_TAU, exact_evidence
from bayesmf.kernels.exact import exact_sums
from bayesmf.kernels.gamma import draw_gammas
from bayesmf.kernels.keys import StreamCounter
from bayesmf.kernels.types import Rows
from bayesmf.model.noise_law import RATE_RATE, RATE_SHAPE, log_shape_prior
from bayesmf.model.refs import Pieces
from bayesmf.model.slices import slice_sample

Array = NDArray[np.float64]
Index = NDArray[np.int64]

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
STEP = 0.3  # in log k, the first width of its slice


class NoiseSums(NamedTuple):
    """Of the precisions of n rows: their sum, that of their logarithms, and by ratings."""

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
    """Half the squared errors of rows, of ratings that are known to the root of KNOWN_TO.

    Precisions of mean one are bounded without that.
    """
    return 0.5 * (sse if mean_one else sse + KNOWN_TO * counts)


def evidence_of(laws: Array, counts: Index, errors: Array) -> NDArray[np.int64]:
    """How likely the (half) errors of rows are under each law, as whole numbers."""
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
    """Precisions of users' and items' ratings, None on a side that has none of its own."""

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
        users, items = self.users.scaled(x), self.items.scaled(-x)
        return Noise(users.draw_hyper(rng), items.draw_hyper(rng))


def _draw_exchange(users: RowNoise, items: RowNoise, rng: np.random.Generator) -> float:
    """log c for (c tau_i, w_j / c), which no rating can tell apart: drawn with beta integrated out.

    The generalised Gibbs step of Liu and Sabatti (2000), as for columns in model/rescale.py.
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
