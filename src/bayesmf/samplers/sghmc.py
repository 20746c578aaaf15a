"""Stochastic gradient Hamiltonian Monte Carlo."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bayesmf.samplers.base import Array
from bayesmf.samplers.clocks import FRICTION, RHO, ClockRule
from bayesmf.samplers.settings import documented, setting


@documented
@dataclass(frozen=True)
class SGHMC(ClockRule):
    """Stochastic gradient Hamiltonian Monte Carlo: RowClock with momentum.

    See Also
    --------
    RowClock : The rule without momentum.
    SGNHT : The rule with a thermostat for each row.

    Examples
    --------
    >>> from bayesmf import SGHMC, BayesianMF, Synthetic
    >>> ratings = Synthetic(60, 40, 1200).ratings()
    >>> sampler = SGHMC(epochs=30, burn_in=10, n_chains=2)
    >>> model = BayesianMF(2, sampler=sampler, random_state=0).fit(ratings)
    >>> model.report_["draws"]
    40
    """

    rho: float = setting(0.03, RHO)
    friction: float = setting(0.5, FRICTION)

    def persistence(self, eta: Array) -> Array:
        return np.maximum(1.0 - self.friction * np.sqrt(eta), 0.0)
