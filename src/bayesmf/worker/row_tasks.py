"""Exact draws of a stripe of rows: what a Gibbs half-sweep is made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bayesmf.blocks.stripes import Stripe
from bayesmf.kernels.gather import HalfSweep, Regressors
from bayesmf.kernels.keys import StreamCounter, stream_word
from bayesmf.kernels.types import Rows
from bayesmf.model.params import RowPrior
from bayesmf.worker.row_draws import draw_rows


@dataclass(frozen=True)
class RowsResult:
    """New rows of a stripe, their conditional means, and the squared errors they leave."""

    rows: Rows
    means: Rows
    sse: float
    count: int


@dataclass(frozen=True)
class RowsTask:
    """An exact draw of a stripe of rows of one side, given the whole other side.

    `rows` are as they were, for over-relaxation by `relax`: the new rows lie as far beyond their
    conditional mean as the old ones stood before it. 0 is a draw that forgets them. `joint` columns
    are drawn together, all with None. `other` are the `regressors` of the other side.
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
    tau: float
    round: int
    key: NDArray[np.uint32]

    def execute(self, held: Stripe) -> RowsResult:
        """Algorithm 1, lines 4-9, for the rows of a stripe."""
        rows = self.rows.copy()  # the task must stay as it was: it may have to be done again
        means = np.empty_like(rows)
        counter = StreamCounter(self.round, stream_word(self.stream, 0), self.key)
        sweep = HalfSweep(self.n_factors, self.tau, self.relax, counter)
        sse = draw_rows(rows, means, held, self.other, self.prior, sweep, self.joint)
        return RowsResult(rows, means, sse, len(held))
