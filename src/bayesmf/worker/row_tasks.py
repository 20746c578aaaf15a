"""Exact draws of a stripe of rows: what a Gibbs half-sweep is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.blocks.stripes import Stripe
from bayesmf.kernels.exact import Whole, exact_sums, packed_moments
from bayesmf.kernels.gather import SSE, HalfSweep, Regressors, regressors_of
from bayesmf.kernels.keys import STREAM_ITEMS, STREAM_USERS, StreamCounter, stream_word
from bayesmf.kernels.types import Rows
from bayesmf.model.noise import evidence_of, half_errors
from bayesmf.model.priors import RowPrior, initial_rows
from bayesmf.model.refs import Part, own_copy, value_of
from bayesmf.worker.row_draws import draw_rows
from bayesmf.worker.tasks import Kept, Shared


@dataclass(frozen=True, eq=False)
class Given(Shared):
    """What rows of one side are drawn from besides their ratings, the same for all stripes.

    `other` are the rows of the other side, stripe by stripe, `weights` the weights that ratings
    have by them. Rows are over-relaxed by `relax`: the new ones lie as far beyond their
    conditional mean as the old ones stood before it; 0 is a draw that forgets them. `joint` columns
    are drawn together, all with None. `n_sums` as `draw_rows` takes it. `laws` of the rows'
    precisions are those whose likelihood is asked for; `full` asks for all second moments.
    """

    side: int
    other: tuple[Part, ...]
    weights: tuple[Part | float | None, ...]
    prior: RowPrior
    n_factors: int
    relax: float
    joint: int | None
    n_sums: int
    laws: NDArray[np.float64] | None
    mean_one: bool
    full: bool
    round: int
    key: NDArray[np.uint32]

    def prepare(self) -> Regressors:
        """The other side in the form in which kernels read it."""
        weights = [value_of(weight) for weight in self.weights]
        return regressors_of([value_of(part) for part in self.other], self.n_factors, weights)

    @property
    def counter(self) -> StreamCounter:
        """Where the random numbers of these draws are."""
        word = stream_word((STREAM_USERS, STREAM_ITEMS)[self.side], 0)
        return StreamCounter(self.round, word, self.key)


@dataclass(frozen=True)
class RowsResult(Kept):
    """New rows of a stripe, their conditional means, and sums of the ratings of each.

    These, `told`, are weighted as the rows met their ratings, and of the kinds that
    kernels/gather.py names; `sums` are those of all rows, `moments` those of the new rows and
    `evidence` the likelihoods of the laws that were asked for, all as whole numbers.
    """

    rows: Any
    means: Any
    told: Any
    sums: Whole
    moments: Whole
    evidence: Whole | None
    count: int
    side: int = 0

    @property
    def stays(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("means", "told") if self.side == 0 else ("told",)

    @property
    def goes(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("rows",) if self.side == 0 else ("rows", "means")

    together = True
    adds = ("sums", "moments", "evidence")


@dataclass(frozen=True)
class RowsTask:
    """An exact draw of a stripe of rows of one side, given the whole other side.

    `rows` are as they were; `tau` are the precisions of ratings of weight one, for each row or one
    for all.
    """

    chain: int
    partition: int
    rows: Part
    tau: Part | float
    shared: Given

    def execute(self, held: Stripe) -> RowsResult:
        """Algorithm 1, lines 4-9, for the rows of a stripe."""
        given = self.shared
        rows = own_copy(self.rows)  # the task must stay as it was: it may have to be done again
        means = np.empty_like(rows)
        told = self.draw(rows, means, held)
        counts = held.counts
        evidence = None
        if given.laws is not None:
            errors = half_errors(counts, told[:, SSE], given.mean_one)
            evidence = evidence_of(given.laws, counts, errors)
        moments = packed_moments(rows, given.full)
        return RowsResult(
            rows, means, told, exact_sums(told), moments, evidence, len(held), given.side
        )

    def draw(self, rows: Rows, means: Rows, stripe: Stripe) -> NDArray[np.float64]:
        """Draw rows in place; returns the sums of their ratings."""
        given = self.shared
        tau = np.asarray(value_of(self.tau), np.float64)
        tau = np.full(len(rows), tau) if tau.ndim == 0 else tau
        sweep = HalfSweep(given.n_factors, tau, given.relax, given.counter)
        return draw_rows(
            rows, means, stripe, given.ready, given.prior, sweep, given.joint, given.n_sums
        )


@dataclass(frozen=True)
class StartResult(Kept):
    """Rows that a chain begins with."""

    goes = ("rows",)
    rows: Any
    count: int = 0


@dataclass(frozen=True)
class StartTask:
    """Rows to begin with, of a stripe of users (side 0) or items (1), divided by `shrink`."""

    chain: int
    partition: int
    side: int
    n_factors: int
    bias: bool
    shrink: float
    key: NDArray[np.uint32]

    def execute(self, held: Any) -> StartResult:
        """Draw them by their numbers."""
        numbers = held.numbers(self.side)
        rows = initial_rows(numbers, self.n_factors, self.bias, self.side, self.key)
        return StartResult(rows / np.float32(self.shrink))


@dataclass(frozen=True)
class RareStripe:
    """Ratings of the rows of a stripe that are drawn exactly, and which of its rows these are."""

    stripe: Stripe
    at: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.stripe)


@dataclass(frozen=True)
class RareResult(Kept):
    """All rows of a stripe, some of them new."""

    rows: Any
    fixed: bool
    finite: bool
    count: int = 0

    @property
    def stays(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("rows",) if self.fixed else ()

    @property
    def goes(self) -> tuple[str, ...]:  # type: ignore[override]
        return () if self.fixed else ("rows",)


@dataclass(frozen=True)
class RareTask(RowsTask):
    """An exact draw of some rows of a stripe; those of a `fixed` side stay with their worker."""

    fixed: bool

    def execute(self, held: RareStripe) -> RareResult:  # type: ignore[override]
        """Rows that are drawn by mini-batches stay as they are."""
        rows, at = own_copy(self.rows), held.at
        own, tau = rows[at], value_of(self.tau)
        tau = tau if isinstance(tau, float) else tau[at]
        task = RowsTask(self.chain, self.partition, own, tau, self.shared)
        told = task.draw(own, np.empty_like(own), held.stripe)
        rows[at] = own
        return RareResult(rows, self.fixed, bool(np.isfinite(told[:, SSE].sum())))
