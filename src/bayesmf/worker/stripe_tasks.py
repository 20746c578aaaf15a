"""What is found of all rows of a stripe: moments, numbers of ratings by weight; some rows taken."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.exact import Whole, exact_sums, packed_moments
from bayesmf.model.refs import Part, value_of
from bayesmf.worker.noise_tasks import added
from bayesmf.worker.tasks import Kept

# Numbers of ratings are counted in bins, so many to a doubling, from 2^-LOWEST on.
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
class WeighedResult(Kept):
    """Ratings of rows by weight, `n`, their sum, and how many rows have how many of them.

    `squares` are sums of the rows' squares times their ratings.
    """

    n: Any
    total: Whole
    bins: NDArray[np.int32] | None
    squares: Whole
    count: int = 0
    fixed: bool = True

    @property
    def stays(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("n",) if self.fixed else ()

    @property
    def goes(self) -> tuple[str, ...]:  # type: ignore[override]
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


def most_stay_below(bins: NDArray[np.integer[Any]], share: float) -> float:
    """A number of ratings that so large a share of rows stays below, to a few per cent."""
    rank = math.ceil(share * (int(bins.sum()) - 1))
    place = int(np.searchsorted(np.cumsum(bins), rank + 1))
    return float(2.0 ** ((place + 1) / BINS - LOWEST))


@dataclass(frozen=True)
class TakeResult(Kept):
    """Some rows of a stripe, and numbers of theirs."""

    goes = ("rows", "weight")
    rows: Any
    weight: Any
    count: int = 0


@dataclass(frozen=True)
class TakeTask:
    """Copy some rows of a stripe, with the weights of their ratings, for those who need no more."""

    short = True
    chain: int
    partition: int
    rows: Part
    weight: Part | float | None
    at: NDArray[np.int32]

    def execute(self, held: Any) -> TakeResult:
        rows, weight = value_of(self.rows)[self.at], self.weight
        if weight is None or isinstance(weight, float):
            return TakeResult(rows, None)
        return TakeResult(rows, value_of(weight)[self.at])
