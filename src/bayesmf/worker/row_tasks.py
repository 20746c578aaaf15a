"""Exact draws of a stripe of rows: what a Gibbs half-sweep is made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bayesmf.blocks.stripes import Stripe
from bayesmf.kernels.gather import SSE, HalfSweep, Regressors
from bayesmf.kernels.keys import StreamCounter, stream_word
from bayesmf.kernels.types import Rows
from bayesmf.model.params import RowPrior
from bayesmf.worker.row_draws import draw_rows


@dataclass(frozen=True)
class RowsResult:
    """New rows of a stripe, their conditional means, and sums of the ratings of each.

    These are weighted as the rows met their ratings, and of the kinds that kernels/gather.py names.
    """

    rows: Rows
    means: Rows
    told: NDArray[np.float64]
    count: int

    @property
    def sse(self) -> float:
        """Squared errors of all ratings of the stripe."""
        return float(self.told[:, SSE].sum())


@dataclass(frozen=True)
class RowsTask:
    """An exact draw of a stripe of rows of one side, given the whole other side.

    `rows` are as they were, for over-relaxation by `relax`: the new rows lie as far beyond their
    conditional mean as the old ones stood before it. 0 is a draw that forgets them. `joint` columns
    are drawn together, all with None. `other` are the `regressors` of the other side, `tau` the
    precisions of each row's ratings; `n_sums` as `draw_rows` takes it.
    """

    chain: int
    partition: int
    stream: int
    rows: Rows
    relax: float
    joint: int | None
    other: Regressors
    n_factors: int
    prior: RowPrior
    tau: NDArray[np.float64]
    n_sums: int
    round: int
    key: NDArray[np.uint32]

    def execute(self, held: Stripe) -> RowsResult:
        """Algorithm 1, lines 4-9, for the rows of a stripe."""
        rows = self.rows.copy()  # the task must stay as it was: it may have to be done again
        means = np.empty_like(rows)
        counter = StreamCounter(self.round, stream_word(self.stream, 0), self.key)
        sweep = HalfSweep(self.n_factors, self.tau, self.relax, counter)
        told = draw_rows(rows, means, held, self.other, self.prior, sweep, self.joint, self.n_sums)
        return RowsResult(rows, means, told, len(held))
