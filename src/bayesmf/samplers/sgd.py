"""Stochastic gradient ascent to the posterior's mode."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bayesmf.samplers.base import DECAY, Array, DataShape, GradientRule
from bayesmf.samplers.burn_in import BurnIn, FixedBurnIn
from bayesmf.samplers.settings import Positive, documented, setting

STEADY = 10.0  # epochs before the step begins to fall


@documented
@dataclass(frozen=True)
class SGD(GradientRule):
    """Stochastic gradient ascent to the posterior's mode; `DSGD` on a grid.

    It is SGLD without noise and with precisions held fixed; the last state is the only draw, so
    intervals of predictions show the noise of ratings alone.

    See Also
    --------
    SGLD : Its updates with noise, which draw from the posterior.

    Examples
    --------
    >>> from bayesmf import SGD, BayesianMF, Synthetic
    >>> ratings = Synthetic(60, 40, 1200).ratings()
    >>> model = BayesianMF(2, sampler=SGD(epochs=10, grid=(2, 2)), random_state=0).fit(ratings)
    >>> model.report_["draws"]
    1
    """

    regularization: float = setting(
        16.0,
        Positive(
            "The precisions of all columns, for ratings of variance one.",
            help="precision of all columns",
            metavar="R",
        ),
    )

    decay: float = setting(1.0, DECAY)

    n_chains = 1
    thin = None
    precision_every = None
    keeps_draws = False

    @property
    def initial_precision(self) -> float:
        """What precisions are and stay."""
        return self.regularization

    def default_epochs(self, shape: DataShape) -> float:
        return float(np.clip(3e7 / shape.n_ratings, 60, 300))

    def default_kappa(self, shape: DataShape) -> float:
        return max(1.0, STEADY * self.rounds_per_epoch(shape))

    def default_step(self, shape: DataShape, stiffest: float) -> float:
        return 0.7 / stiffest  # about a sixth of the largest stable step, 4 / stiffest

    def noise_variance(self, hbar: Array) -> Array:
        return np.zeros_like(hbar)

    def burn_in_rule(self, shape: DataShape) -> BurnIn:
        """All is on the way; a chain that has kept nothing keeps its last state."""
        return FixedBurnIn(np.inf)

    def precisions_drawn(self, burning: bool) -> bool:
        return False


DSGD = SGD
