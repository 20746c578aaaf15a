"""The stochastic gradient Nose-Hoover thermostat."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bayesmf.samplers.base import Array
from bayesmf.samplers.clocks import FRICTION, ClockRule
from bayesmf.samplers.settings import Positive, documented, setting
from bayesmf.samplers.survival import kinetic_survival


@documented
@dataclass(frozen=True)
class SGNHT(ClockRule):
    """Stochastic gradient Nose-Hoover thermostat: friction finds out how hot mini-batches are.

    The thermostat sees momenta. Mini-batches that are visited without replacement heat momenta more
    than they heat the rows, because their noise sums to zero over a pass: by so much a row's
    momenta are left hotter than one.

    See Also
    --------
    SGHMC : The rule with a friction that stays.

    Examples
    --------
    >>> from bayesmf import SGNHT, BayesianMF, Synthetic
    >>> ratings = Synthetic(60, 40, 1200).ratings()
    >>> sampler = SGNHT(epochs=30, burn_in=10)
    >>> model = BayesianMF(2, sampler=sampler, random_state=0).fit(ratings)
    >>> model.report_["draws"]
    20
    """

    friction: float = setting(0.5, FRICTION)
    gain: float = setting(
        0.5,
        Positive(
            "How fast a row's thermostat follows its kinetic energy.",
            help="how fast the thermostat reacts",
            metavar="G",
        ),
    )

    def persistence(self, eta: Array) -> Array:
        return np.maximum(1.0 - self.friction * np.sqrt(eta), 0.0)

    def known(self, eta: Array, visits: Array) -> Array:
        return kinetic_survival(eta, self.persistence(eta), visits) - self.heat(eta, visits)
