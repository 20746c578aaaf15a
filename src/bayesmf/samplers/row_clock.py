"""Langevin steps, each row by its own clock."""

from __future__ import annotations

from dataclasses import dataclass

from bayesmf.samplers.clocks import ClockRule
from bayesmf.samplers.settings import documented


@documented
@dataclass(frozen=True)
class RowClock(ClockRule):
    """Preconditioned Langevin steps, each row by its own clock; rare rows are drawn exactly.

    Every row takes steps in units of its own relaxation time, so that rows with few ratings and
    rows with many forget where they began equally fast.

    See Also
    --------
    SGHMC : RowClock with momentum.
    SGLD : One step size for all rows, as the paper has it.

    Examples
    --------
    >>> from bayesmf import BayesianMF, RowClock, Synthetic
    >>> ratings = Synthetic(60, 40, 1200).ratings()
    >>> sampler = RowClock(grid=(2, 2), epochs=30, burn_in=10)
    >>> model = BayesianMF(2, sampler=sampler, random_state=0).fit(ratings)
    >>> model.report_["draws"]
    20
    """
