"""Short tasks on the rows of a stripe: noise precisions, moments, weighted counts, predictions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.exact import Whole, exact_sums, packed_moments
from bayesmf.kernels.gather import SSE
from bayesmf.kernels.gradient import predict_pairs
from bayesmf.kernels.keys import STREAM_NOISE, StreamCounter, stream_word
from bayesmf.kernels.types import Rows
from bayesmf.model.noise import RowNoise, evidence_of, half_errors, noise_sums
from bayesmf.model.refs import Part, value_of
from bayesmf.worker.tasks import RemoteResult, Shared

# Histogram of numbers of ratings: BINS bins for each factor of two, from 2^-LOWEST on.
BINS, LOWEST, N_BINS = 32, 16, 32 * 48


@dataclass(frozen=True)
class MomentsResult:
    """Moments of a stripe's rows, as whole numbers."""

    moments: Whole
    count: int = 0


@dataclass(frozen=True)
class MomentsTask:
    """First and second moments of the rows of a stripe."""

    short = True
    chain: int
    partition: int
    rows: Part
    full: bool

    def execute(self, held: Any) -> MomentsResult:
        rows = np.ascontiguousarray(value_of(self.rows))
        return MomentsResult(packed_moments(rows, self.full))


@dataclass(frozen=True)
class WeighedResult(RemoteResult):
    """Weighted numbers of ratings of rows, `n`, with their sum and histogram.

    `squares` are sums of the rows' squares times their ratings.
    """

    n: Any
    total: Whole
    bins: NDArray[np.int32] | None
    squares: Whole
    count: int = 0
    fixed: bool = True

    @property
    def local_fields(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("n",) if self.fixed else ()

    @property
    def shared_fields(self) -> tuple[str, ...]:  # type: ignore[override]
        return () if self.fixed else ("n",)


@dataclass(frozen=True)
class WeighedTask:
    """Count the ratings of a stripe's rows by weight, from the sums of blocks or as they are."""

    chain: int
    partition: int
    side: int
    rows: Part
    sums: tuple[Part, ...]
    fixed: bool

    def execute(self, held: Any) -> WeighedResult:
        n = added(self.sums)[:, 0] if self.sums else held.row_counts(self.side).astype(np.float64)
        rows = value_of(self.rows).astype(np.float64)
        bins = None
        if self.sums:
            place = np.floor(BINS * (np.log2(np.maximum(n, 2.0**-LOWEST)) + LOWEST))
            place = np.clip(place, 0, N_BINS - 1).astype(np.int64)
            bins = np.bincount(place, minlength=N_BINS).astype(np.int32)
        return WeighedResult(
            n.astype(np.float32) if self.sums else None, exact_sums(n), bins,
            exact_sums(n[:, None] * rows * rows), fixed=self.fixed,
        )  # fmt: skip


def approximate_quantile(bins: NDArray[np.integer[Any]], share: float) -> float:
    """The number of ratings that is the quantile `share` over rows, to a few per cent."""
    rank = math.ceil(share * (int(bins.sum()) - 1))
    place = int(np.searchsorted(np.cumsum(bins), rank + 1))
    return float(2.0 ** ((place + 1) / BINS - LOWEST))


@dataclass(frozen=True, eq=False)
class Law(Shared):
    """The distribution of the precisions of one side's rows, and their random counter."""

    side: int
    shape: float
    rate: float
    mean_one: bool
    round: int
    key: NDArray[np.uint32]

    @property
    def counter(self) -> StreamCounter:
        return StreamCounter(self.round, stream_word(STREAM_NOISE, self.side), self.key)


@dataclass(frozen=True)
class NoiseResult(RemoteResult):
    """Precisions of rows; their sums, and sums of the rows' statistics times these."""

    shared_fields = ("value",)
    together = True
    adds = ("sums", "weighted")
    value: Any
    sums: Whole
    weighted: Whole
    count: int = 0


@dataclass(frozen=True)
class NoiseTask:
    """Draw the precisions of some rows given sums of their ratings, including squared errors.

    `row_stats` is (rows, sums), or parts of such sums that are added up in their order.
    """

    short = True
    chain: int
    partition: int
    row_stats: tuple[Part, ...]
    shared: Law

    def execute(self, held: Any) -> NoiseResult:
        """Draw from the law given all ratings of the rows."""
        law, row_stats = self.shared, added(self.row_stats)
        counts, numbers = held.row_counts(law.side), held.numbers(law.side)
        own = RowNoise(1.0, law.shape, law.rate, law.mean_one)
        value = own.draw_values(counts, row_stats[:, SSE], numbers, law.counter)
        weighted = exact_sums(value.astype(np.float64)[:, None] * row_stats)
        return NoiseResult(value, noise_sums(value, counts), weighted)


@dataclass(frozen=True)
class EvidenceResult:
    """Likelihoods of laws, as whole numbers."""

    evidence: Whole
    count: int = 0


@dataclass(frozen=True)
class EvidenceTask:
    """Likelihoods of some laws of precisions, given the errors of some rows."""

    short = True
    chain: int
    partition: int
    row_stats: tuple[Part, ...]
    side: int
    laws: NDArray[np.float64]
    mean_one: bool

    def execute(self, held: Any) -> EvidenceResult:
        counts = held.row_counts(self.side)
        errors = half_errors(counts, added(self.row_stats)[:, SSE], self.mean_one)
        return EvidenceResult(evidence_of(self.laws, counts, errors))


def added(parts: tuple[Part, ...]) -> NDArray[np.float64]:
    """The sum of some arrays, in their order; numbers of rows become a column."""
    out = np.array(value_of(parts[0]), np.float64)
    for part in parts[1:]:
        out += value_of(part)
    return out[:, None] if out.ndim == 1 else out


Floats = NDArray[np.float64]


class StripePairs(NamedTuple):
    """Pairs: positions in the stripe and among all rows of the other side, -1 for unseen ones.

    `rated` marks training pairs.
    """

    own: NDArray[np.int64]
    other: NDArray[np.int64]
    rated: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class PairContext(Shared):
    """The other side, sent to the pairs: rows, weights, and conditional means, if any.

    `side` is where pairs are scored. `mu` are the prior means of users and items; `tau` the
    precision of ratings where rows have none of their own.
    """

    side: int
    other: tuple[Part, ...]
    means: tuple[Part, ...] | None
    weights: tuple[Part, ...] | float | None
    mu: tuple[Floats, Floats]
    n_factors: int
    tau: float

    def prepare(self) -> tuple[Rows, Rows | None, Rows | None]:
        """All rows, means and weights of the other side in one array each."""
        weights = self.weights if isinstance(self.weights, tuple) else None
        rows, means, found = (
            None if parts is None else np.concatenate([value_of(part) for part in parts])
            for parts in (self.other, self.means, weights)
        )
        assert rows is not None
        return rows, means, found


@dataclass(frozen=True)
class PairsResult:
    """Predictions from conditional means, of the state itself, and variances of the noise."""

    expected: NDArray[np.float32]
    drawn: NDArray[np.float32]
    spread: Floats
    count: int = 0


@dataclass(frozen=True)
class PairsTask:
    """Predict the pairs of a stripe.

    Given V, precisions and tau the rows of U are independent, so E[m_i(V) . m_j(U)] is
    E[U_i . V_j] for an unrated pair; for a rated one U_i enters m_j, and only
    E[U_i . m_j(U)] is the same. `aside` marks predictions outside of the algorithm: an
    engine with a virtual clock does not count them.
    """

    short = True
    chain: int
    partition: int
    rows: Part
    means: Part | None
    tau: Part | float | None
    pairs: StripePairs
    shared: PairContext
    aside: bool = False

    def execute(self, held: Any) -> PairsResult:
        """Predict; an unseen row is at its prior's mean."""
        other, other_means, _ = self.shared.ready
        rows = value_of(self.rows)
        drawn = self._predict(rows, other)
        expected = drawn
        if self.means is not None:
            means = value_of(self.means)
            expected = self._predict(means, other_means)
            users_own = self.shared.side == 0
            rated = self._predict(rows, other_means) if users_own else self._predict(means, other)
            expected = np.where(self.pairs.rated, rated, expected)
        unseen = (self.pairs.own < 0) | (self.pairs.other < 0)
        if unseen.any():
            expected = np.array(expected)
            expected[unseen] = self._from_priors(rows, other, unseen)
        return PairsResult(expected, drawn, self._spread())

    def _predict(self, own: Rows, other: Rows) -> NDArray[np.float32]:
        out = np.empty(len(self.pairs.own), np.float32)
        own, other = np.ascontiguousarray(own), np.ascontiguousarray(other)
        # Any row will do for unseen ones: the result is replaced.
        at = (np.maximum(x, 0).astype(np.int32) for x in self.pairs[:2])
        predict_pairs(own, other, *at, self.shared.n_factors, out)
        return out

    def _from_priors(self, own: Rows, other: Rows, unseen: NDArray[np.bool_]) -> Rows:
        D, side = self.shared.n_factors, self.shared.side
        x, y = (
            np.where(
                at[unseen][:, None] < 0, mu.astype(np.float32), rows[np.maximum(at[unseen], 0)]
            )
            for rows, mu, at in (
                (own, self.shared.mu[side], self.pairs.own),
                (other, self.shared.mu[1 - side], self.pairs.other),
            )
        )
        out: Rows = (x[:, :D] * y[:, :D]).sum(1)
        out += x[:, D:].sum(1) + y[:, D:].sum(1)  # biases, where there are any
        return out

    def _spread(self) -> Floats:
        """Variances of the noise of the pairs' ratings."""
        n = len(self.pairs.own)
        precision = np.full(n, self.shared.tau)
        weights = self.shared.ready[2]
        own = None if self.tau is None else np.asarray(value_of(self.tau), np.float64)
        for value, at in ((own, self.pairs.own), (weights, self.pairs.other)):
            if value is not None:
                precision *= value if value.ndim == 0 else value[np.maximum(at, 0)]
        if isinstance(self.shared.weights, float):
            precision *= self.shared.weights
        return 1.0 / precision
