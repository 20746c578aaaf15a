"""What rules share in which every row has its own clock."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

import numpy as np

from bayesmf.samplers import start
from bayesmf.samplers.base import (
    SHUFFLE_GROUPS,
    SMALLEST_BATCH,
    Array,
    BatchRule,
    DataShape,
    check_settings,
)
from bayesmf.samplers.burn_in import BurnIn, FixedBurnIn, burn_in_rule
from bayesmf.samplers.settings import (
    BURN_IN,
    INITIAL_PRECISION,
    N_CHAINS,
    PRECISION_EVERY,
    THIN,
    Positive,
    Whole,
    setting,
)
from bayesmf.samplers.survival import survival

# A chain sets out with long steps and much gradient noise: it is far away and has to travel.
START_DELTA, START_RHO = 1.0, 4.0
EXACT = 32  # ratings of a row that is drawn exactly: n^2 D multiplications, where a step takes n D
GROWING_BURN_IN = 24.0  # epochs that are surely burn-in where it grows with the run
HALF_LIFE = 1.0  # epochs in which the excess over the settings halves, less where burn-in is short

RHO = Positive(
    "The largest share of a row's variance that mini-batches may bring. It is taken away from the "
    "injected noise, so what remains of it is an error of second order.",
    help="largest share of a row's variance from mini-batches",
    metavar="R",
    most=1.0,
)
FRICTION = Positive(
    "Friction over the square root of the step: at 2 sqrt(k) directions of curvature k (in units "
    "of the row's preconditioner) relax fastest.",
    help="loss of momentum",
    metavar="F",
)


class Limits(NamedTuple):
    """The longest step, the largest share of variance from mini-batches, and how new the chain
    is, from 1 down to 0."""

    delta_max: float
    rho: float
    warm: float


@dataclass(frozen=True)
class ClockRule(BatchRule):
    """A mini-batch rule with a step for each row, which draws rare rows exactly."""

    shuffle_groups: bool = setting(True, SHUFFLE_GROUPS)
    n_chains: int = setting(1, N_CHAINS)
    burn_in: float | str | BurnIn | None = setting(None, BURN_IN)
    thin: float | None = setting(None, THIN)
    precision_every: int | None = setting(None, PRECISION_EVERY)
    initial_precision: float = setting(start.INITIAL_PRECISION, INITIAL_PRECISION)
    delta_max: float = setting(
        0.5,
        Positive(
            "The longest step on a visit, in units of the row's relaxation time.",
            help="longest step, in relaxation times of the row",
            metavar="D",
            most=2.0,  # where the update of a row of curvature one is no longer stable
        ),
    )
    rho: float = setting(0.02, RHO)
    exact_below: int | None = setting(
        None,
        Whole(
            "Rows with at most this many ratings are drawn exactly, once an epoch, instead. The "
            "default is the number of factors plus one, at most 32; 0 switches it off.",
            help="rows with at most so many ratings are drawn exactly",
            metavar="N",
            least=0,
        ),
    )

    kind_of_rounds = "clock"
    rescales = True
    passes_for_a_sweep = 8
    # Share of a row's variance that visits of unequal curvature may bring, in units of rho. So much
    # leaves RowClock's means up to a tenth of a standard deviation off, and its spread 3% too small
    # (docs/sampler.md); with a twelfth of it a hundred passes over MovieLens 100K end at an RMSE 1%
    # higher.
    uneven: ClassVar[float] = 12.5
    gain = 0.0  # of a thermostat; a setting of rules that have one

    @property
    def adaptive(self) -> bool:
        return self.epochs is None

    def choose(self, shape: DataShape, n_factors: int, n_chains: int) -> Self:
        """The rule with the default that depends on the number of factors."""
        if self.exact_below is not None:
            return self
        return replace(self, exact_below=min(n_factors + 1, EXACT))

    def resolve(self, shape: DataShape) -> Self:
        rule = super().resolve(shape)
        assert rule.epochs is not None
        rule = replace(
            rule,
            thin=rule.thin or 1.0,
            precision_every=rule.precision_every or max(1, round(rule.rounds_per_epoch(shape))),
        )
        if self.epochs is None and self.burn_in is None:
            rule = replace(rule, epochs=None)
        return check_settings(rule)

    def default_batches(self, per_block: int) -> int:
        # A pass relaxes a row about as far however it is cut, but every cut costs a visit to all
        # rows, and a visit that sees few ratings meets the curvature of those few: with 500 ratings
        # in four parts means are up to 8% of a standard deviation off, in one part they are right.
        return int(np.clip(per_block // SMALLEST_BATCH, 1, 4))

    def default_epochs(self, shape: DataShape) -> float:
        return float(round(np.clip(2e8 / shape.n_ratings, 100, 1000) / np.sqrt(self.n_chains)))

    def row_noise_from(self) -> float:
        rule = None if self.growing else burn_in_rule(self.burn_in or 0)
        return start.row_noise_from(self.epochs, rule)

    def burn_in_rule(self, shape: DataShape) -> BurnIn:
        return burn_in_rule(self.burn_in or 0)

    def noise_share(self, epoch: float) -> float:
        # A thermostat would bring back what is missing.
        return start.noise_share(epoch, self.epochs) if self.growing and not self.gain else 1.0

    def persistence(self, eta: Array) -> Array:
        """The share c of its momentum that a row retains through a visit with this step."""
        return np.zeros_like(eta)

    def heat(self, eta: Array, visits: Array) -> Array:
        """Share of the variance that gradient noise of variance one brings."""
        return survival(eta, self.persistence(eta), visits)

    def known(self, eta: Array, visits: Array) -> Array:
        """What the update is told about gradient noise of variance one."""
        return self.heat(eta, visits)

    def _growing_burn_in(self) -> float:
        """Epochs that are burn-in at the end of a run whose burn-in grows with it."""
        return GROWING_BURN_IN if self.epochs is None else min(GROWING_BURN_IN, self.epochs / 4)

    def limits(self, epoch: float) -> Limits:
        """What holds in an epoch: limits come down to the settings within burn-in."""
        rule = burn_in_rule(self._growing_burn_in() if self.burn_in is None else self.burn_in)
        end = rule.epochs if isinstance(rule, FixedBurnIn) else (self.epochs or 100) / 6
        starts = max(START_DELTA / self.delta_max, 1.0), max(START_RHO / self.rho, 1.0)
        # The larger excess is gone half-way through burn-in.
        half_life = min(HALF_LIFE, 0.5 * end / max(np.log2(max(starts)), 1.0))
        fall = 0.0 if half_life <= 0 else 2.0 ** -(np.floor(epoch) / half_life)
        delta, rho = (max(start * fall, 1.0) for start in starts)
        # P may change at any time, so this need not be over when burn-in is.
        warm = 2.0 ** -(np.floor(epoch) / HALF_LIFE)
        return Limits(self.delta_max * delta, self.rho * rho, warm if warm > 0.01 else 0.0)
