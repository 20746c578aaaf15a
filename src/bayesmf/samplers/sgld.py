"""SGD and SGLD, the paper's algorithms; DSGD and DSGLD on a grid."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from bayesmf.blocks.blocks import inverse
from bayesmf.samplers import schedules
from bayesmf.samplers.base import BATCHES, DECAY, Array, DataShape, GradientRule, check_settings
from bayesmf.samplers.schedules import BurnIn, FixedBurnIn, burn_in_rule
from bayesmf.samplers.settings import (
    BURN_IN,
    INITIAL_PRECISION,
    N_CHAINS,
    PRECISION_EVERY,
    THIN,
    OneOf,
    Positive,
    documented,
    setting,
)

STEADY = 10.0  # epochs before the step begins to fall
# Variance that mini-batches may add to a busy row, as a multiple of its own, if drawn with
# replacement and with the other side's rows of length one in every column. Dealt mini-batches add
# less than a tenth of it (samplers/momentum.py), and rows are shorter. Busier rows get more, but
# their variance is small; shorter steps would make rare rows converge in thousands of epochs.
HEAT = 6.0
# That is for burn-in. For kept draws steps are shorter by this factor: standard deviations of rows
# are then some 3% too large; with full steps they would be a quarter too large.
COOL = 0.5
# The same where they are drawn with replacement.
HEAT_DRAWN = 0.5


@documented
@dataclass(frozen=True)
class SGD(GradientRule):
    """Stochastic gradient ascent to the posterior's mode; `DSGD` on a grid.

    SGLD without noise and with fixed precisions; the last state is the only draw, so prediction
    intervals contain the noise of ratings only.

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
        """The fixed precisions."""
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
        """Burn-in never ends; a chain without draws keeps its last state."""
        return FixedBurnIn(np.inf)

    def precisions_drawn(self, burning: bool) -> bool:
        return False


DSGD = SGD


@documented
@dataclass(frozen=True)
class SGLD(GradientRule):
    """Stochastic gradient Langevin dynamics (Section 3.2 of the paper); `DSGLD` on a grid.

    A grid of n x n blocks with n chains is the paper's DSGLD-S, an n x 1 grid with n chains its
    DSGLD-C. With `group_size=1` each block of any grid is a group by itself, as in DSGLD-C: a chain
    updates one block in a round, and as many chains as there are blocks run on different blocks.

    See Also
    --------
    SGHMC : A step for each row, so that rare and busy rows relax in the same time.
    Gibbs : Exact draws of the rows, the best choice on one machine.

    Examples
    --------
    >>> from bayesmf import SGLD, BayesianMF, Synthetic
    >>> ratings = Synthetic(60, 40, 1200).ratings()
    >>> sampler = SGLD(grid=(2, 2), n_chains=2, epochs=30, burn_in=10)
    >>> model = BayesianMF(2, sampler=sampler, random_state=0).fit(ratings)
    >>> model.report_["draws"]
    40
    """

    n_chains: int = setting(1, N_CHAINS)
    burn_in: float | str | BurnIn | None = setting(None, BURN_IN)
    thin: float | None = setting(None, THIN)
    noise: str = setting(
        "matched",
        OneOf(
            "Variance of the noise on a visit: step / hbar, which gives every row temperature 1; "
            "or, as the paper prints it, step / g for groups of g blocks, which gives row i "
            "temperature hbar_i / g.",
            help="variance of the noise",
            choices=("matched", "paper"),
        ),
    )
    precision_every: int | None = setting(None, PRECISION_EVERY)
    precisions_from: str = setting(
        "start",
        OneOf(
            "Draw the precisions from the start or, as the paper does, after burn-in.",
            help="when precisions are drawn",
            choices=("start", "burn-in"),
        ),
    )
    initial_precision: float = setting(schedules.INITIAL_PRECISION, INITIAL_PRECISION)

    @property
    def row_noise(self) -> bool:
        # The printed model has one tau.
        return self.noise != "paper"

    @property
    def rescales(self) -> bool:
        # Without it columns' precisions mix as slowly as the scale of the rows.
        return self.noise != "paper"

    def resolve(self, shape: DataShape) -> Self:
        rule = super().resolve(shape)
        assert rule.epochs is not None
        burn_in = self.burn_in
        # The paper has its own burn-in; it must end if precisions are drawn after it.
        if burn_in is None and (self.noise == "paper" or self.precisions_from == "burn-in"):
            burn_in = rule.epochs / 3
        rule = replace(
            rule,
            burn_in=burn_in,
            thin=rule.thin or 1.0,
            precision_every=rule.precision_every or max(1, round(rule.rounds_per_epoch(shape))),
        )
        return check_settings(rule)

    def default_minibatch(self) -> str:
        # The printed h is the probability of a visit when ratings are drawn with replacement.
        return "replacement" if self.noise == "paper" else "shuffled"

    def default_batches(self, per_block: int) -> int:
        # As printed, a row's temperature is its h: mini-batches of a block's size keep it near 1.
        return 1 if self.noise == "paper" else super().default_batches(per_block)

    def default_epochs(self, shape: DataShape) -> float:
        # Several chains cover regions between which a single one moves slowly.
        return float(np.clip(1e9 / shape.n_ratings, 60, 3000) / np.sqrt(self.n_chains))

    def default_step(self, shape: DataShape, stiffest: float) -> float:
        # The noise of the mini-batch's gradient is eps tau n / (4 q) of the injected noise. At
        # most half of the largest stable step, 4 / stiffest.
        heat, q = HEAT_DRAWN, self.inclusion(shape)
        if self.minibatch == "shuffled":
            # With few mini-batches this would give long steps.
            heat = max(heat, HEAT * min(1.0, 2 / (q * BATCHES)))
        # Longer steps of the start included.
        most = 2.0 / schedules.FACTOR if self.growing else 2.0
        return min(4 * heat * q / shape.busy, most / stiffest)

    def start_factor(self, epoch: float) -> float:
        # Steps decrease over the quarter of a run that is dropped.
        factor = super().start_factor(epoch)
        if self.step_size is not None or self.minibatch != "shuffled":
            return factor
        left = max(0.0, 1.0 - 4.0 * epoch / self.epochs) if self.growing and self.epochs else 0.0
        return factor * (COOL + (1.0 - COOL) * left)

    def noise_variance(self, hbar: Array) -> Array:
        if self.noise == "paper":
            # The printed step is ours divided by the blocks of a group (docs/deviations.md).
            return np.full_like(hbar, self.n_groups() / len(self.grid))
        return inverse(hbar)

    def for_compiling(self, n_ratings: int) -> Self:
        # Drawing the precisions is compiled too, however rare they are.
        return replace(super().for_compiling(n_ratings), precision_every=1)

    def noise_share(self, epoch: float) -> float:
        return schedules.noise_share(epoch, self.epochs) if self.growing else 1.0

    def row_noise_from(self) -> float:
        rule = None if self.growing else burn_in_rule(self.burn_in or 0)
        return schedules.row_noise_from(self.epochs, rule)

    def burn_in_rule(self, shape: DataShape) -> BurnIn:
        return burn_in_rule(self.burn_in or 0)

    def precisions_drawn(self, burning: bool) -> bool:
        return self.precisions_from == "start" or not burning


DSGLD = SGLD
