"""Precisions of the ratings of single rows, drawn where their squared errors lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.exact import Whole, exact_sums
from bayesmf.kernels.gather import SSE
from bayesmf.kernels.keys import STREAM_NOISE, StreamCounter, stream_word
from bayesmf.model.noise import RowNoise, evidence_of, half_errors, noise_sums
from bayesmf.model.refs import Part, value_of
from bayesmf.worker.tasks import Kept, Shared


@dataclass(frozen=True, eq=False)
class Law(Shared):
    """The distribution of the precisions of one side's rows, and where their random numbers are."""

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
class NoiseResult(Kept):
    """Precisions of rows; their sums, and those of what the rows were told times these."""

    goes = ("value",)
    together = True
    adds = ("sums", "weighted")
    value: Any
    sums: Whole
    weighted: Whole
    count: int = 0


@dataclass(frozen=True)
class NoiseTask:
    """Draw the precisions of some rows given sums of their ratings, of which one is their errors.

    `told` is (rows, sums), or parts of such sums that are added up in their order.
    """

    short = True
    chain: int
    partition: int
    told: tuple[Part, ...]
    shared: Law

    def execute(self, held: Any) -> NoiseResult:
        """As the law says; counts are those of all ratings of the rows."""
        law, told = self.shared, added(self.told)
        counts, numbers = held.row_counts(law.side), held.numbers(law.side)
        own = RowNoise(1.0, law.shape, law.rate, law.mean_one)
        value = own.draw_values(counts, told[:, SSE], numbers, law.counter)
        weighted = exact_sums(value.astype(np.float64)[:, None] * told)
        return NoiseResult(value, noise_sums(value, counts), weighted)


@dataclass(frozen=True)
class EvidenceResult:
    """Likelihoods of laws, as whole numbers."""

    evidence: Whole
    count: int = 0


@dataclass(frozen=True)
class EvidenceTask:
    """How likely the errors of some rows are under some laws of their precisions."""

    short = True
    chain: int
    partition: int
    told: tuple[Part, ...]
    side: int
    laws: NDArray[np.float64]
    mean_one: bool

    def execute(self, held: Any) -> EvidenceResult:
        counts = held.row_counts(self.side)
        errors = half_errors(counts, added(self.told)[:, SSE], self.mean_one)
        return EvidenceResult(evidence_of(self.laws, counts, errors))


def added(parts: tuple[Part, ...]) -> NDArray[np.float64]:
    """The sum of some arrays, in their order; numbers of rows become a column."""
    out = np.array(value_of(parts[0]), np.float64)
    for part in parts[1:]:
        out += value_of(part)
    return out[:, None] if out.ndim == 1 else out
