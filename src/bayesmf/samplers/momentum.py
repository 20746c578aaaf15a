"""SGHMC and SGNHT: every row has momenta and a step of its own.

Rows of few ratings are drawn exactly, once an epoch.

A step is in units of the row's relaxation time: the preconditioner P_d = 1 / (tau n m_d +
Lambda_dd) makes every row's curvature about one. The step follows from the share of a row's
variance that may come from the gradient noise of mini-batches, which depends on the spacing of its
visits; see `survival`. The updates are in kernels/gradient.py.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from bayesmf.samplers import schedules
from bayesmf.samplers.base import (
    SHUFFLE_GROUPS,
    SMALLEST_BATCH,
    Array,
    BatchRule,
    DataShape,
    check_settings,
)
from bayesmf.samplers.schedules import BurnIn, FixedBurnIn, burn_in_rule
from bayesmf.samplers.settings import (
    BURN_IN,
    INITIAL_PRECISION,
    N_CHAINS,
    PRECISION_EVERY,
    THIN,
    Positive,
    Whole,
    documented,
    setting,
)

# A chain starts with long steps and much gradient noise, to move quickly towards the mode.
START_DELTA, START_RHO = 1.0, 4.0
EXACT = 32  # ratings of a row that is drawn exactly: n^2 D multiplications, where a step takes n D
GROWING_BURN_IN = 24.0  # epochs that are always burn-in, if it grows with the run
HALF_LIFE = 1.0  # epochs in which the excess over the settings halves, less where burn-in is short

# Share of a row's variance due to visits of unequal curvature, in units of rho; with a twelfth of
# it, a hundred passes over MovieLens 100K end at an RMSE 1% higher. MOST_UNEVEN is the largest
# share for any rule.
UNEVEN, MOST_UNEVEN = 12.5, 0.25
# Candidate steps, one and a half per cent apart.
_LADDER = np.geomspace(1e-9, 2.0, 1440)

RHO = Positive(
    "The largest share of a row's variance that mini-batches may bring. It is subtracted from the "
    "injected noise, so that an error of second order remains.",
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


class StepLimits(NamedTuple):
    """The longest step, the largest share of variance from mini-batches, and the excess of the
    start, from 1 down to 0."""

    delta_max: float
    rho: float
    warm: float


@dataclass(frozen=True)
class MomentumRule(BatchRule):
    """A mini-batch rule with momenta and a step for each row, which draws rare rows exactly."""

    shuffle_groups: bool = setting(True, SHUFFLE_GROUPS)
    n_chains: int = setting(1, N_CHAINS)
    burn_in: float | str | BurnIn | None = setting(None, BURN_IN)
    thin: float | None = setting(None, THIN)
    precision_every: int | None = setting(None, PRECISION_EVERY)
    initial_precision: float = setting(schedules.INITIAL_PRECISION, INITIAL_PRECISION)
    delta_max: float = setting(
        0.5,
        Positive(
            "The longest step on a visit, in units of the row's relaxation time.",
            help="longest step, in relaxation times of the row",
            metavar="D",
            most=2.0,  # limit of stability for a row of curvature one
        ),
    )
    rho: float = setting(0.02, RHO)
    exact_below: int | None = setting(
        None,
        Whole(
            "Rows with at most this many ratings are drawn exactly, once an epoch, instead. The "
            "default is the number of factors plus one, at most 32; 0 switches it off.",
            help="rows with at most N ratings are drawn exactly",
            metavar="N",
            least=0,
        ),
    )

    friction: float = setting(0.5, FRICTION)

    kind_of_rounds = "momentum"
    rescales = True
    passes_for_a_sweep = 8

    @property
    @abstractmethod
    def gain(self) -> float:
        """Gain of the thermostat; 0 for constant friction."""

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
        # The relaxation in a pass hardly depends on the number of mini-batches, but each costs a
        # visit to all rows, and a visit with few ratings has the curvature of those few: with 500
        # ratings in four parts means are up to 8% of a standard deviation off, in one part exact.
        return int(np.clip(per_block // SMALLEST_BATCH, 1, 4))

    def default_epochs(self, shape: DataShape) -> float:
        return float(round(np.clip(2e8 / shape.n_ratings, 100, 1000) / np.sqrt(self.n_chains)))

    def row_noise_from(self) -> float:
        rule = None if self.growing else burn_in_rule(self.burn_in or 0)
        return schedules.row_noise_from(self.epochs, rule)

    def burn_in_rule(self, shape: DataShape) -> BurnIn:
        return burn_in_rule(self.burn_in or 0)

    def noise_share(self, epoch: float) -> float:
        # A thermostat would compensate for reduced noise.
        return schedules.noise_share(epoch, self.epochs) if self.growing and not self.gain else 1.0

    def persistence(self, eta: Array) -> Array:
        """The share c of its momentum that a row retains through a visit with this step."""
        return np.maximum(1.0 - self.friction * np.sqrt(eta), 0.0)

    def heat(self, eta: Array, visits: Array) -> Array:
        """Share of the variance that gradient noise of variance one brings."""
        return survival(eta, self.persistence(eta), visits)

    def known(self, eta: Array, visits: Array) -> Array:
        """Share of that variance for which the update corrects."""
        return self.heat(eta, visits)

    def _growing_burn_in(self) -> float:
        """Epochs that are burn-in at the end of a run whose burn-in grows with it."""
        return GROWING_BURN_IN if self.epochs is None else min(GROWING_BURN_IN, self.epochs / 4)

    def limits(self, epoch: float) -> StepLimits:
        """Limits of an epoch: they decrease to the settings within burn-in."""
        rule = burn_in_rule(self._growing_burn_in() if self.burn_in is None else self.burn_in)
        end = rule.epochs if isinstance(rule, FixedBurnIn) else (self.epochs or 100) / 6
        starts = max(START_DELTA / self.delta_max, 1.0), max(START_RHO / self.rho, 1.0)
        # The larger excess is gone half-way through burn-in.
        half_life = min(HALF_LIFE, 0.5 * end / max(np.log2(max(starts)), 1.0))
        fall = 0.0 if half_life <= 0 else 2.0 ** -(np.floor(epoch) / half_life)
        delta, rho = (max(start * fall, 1.0) for start in starts)
        # P may change at any time, so this need not end with burn-in.
        warm = 2.0 ** -(np.floor(epoch) / HALF_LIFE)
        return StepLimits(self.delta_max * delta, self.rho * rho, warm if warm > 0.01 else 0.0)


@documented
@dataclass(frozen=True)
class SGHMC(MomentumRule):
    """Stochastic gradient Hamiltonian Monte Carlo, with momenta and a step for each row.

    Steps are in units of a row's relaxation time, so rows with few and with many ratings converge
    equally fast; rows with very few are drawn exactly.

    See Also
    --------
    SGLD : One step size for all rows, as the paper has it.
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

    gain = 0.0


@documented
@dataclass(frozen=True)
class SGNHT(MomentumRule):
    """Stochastic gradient Nose-Hoover thermostat: friction adapts to the mini-batches' noise.

    The thermostat measures momenta. Mini-batches visited without replacement heat momenta more than
    rows, because their noise sums to zero over a pass; the target temperature of the momenta is
    raised accordingly.

    See Also
    --------
    SGHMC : The rule with constant friction.

    Examples
    --------
    >>> from bayesmf import SGNHT, BayesianMF, Synthetic
    >>> ratings = Synthetic(60, 40, 1200).ratings()
    >>> sampler = SGNHT(epochs=30, burn_in=10)
    >>> model = BayesianMF(2, sampler=sampler, random_state=0).fit(ratings)
    >>> model.report_["draws"]
    20
    """

    gain: float = setting(
        0.5,
        Positive(
            "How fast a row's thermostat follows its kinetic energy.",
            help="how fast the thermostat reacts",
            metavar="G",
        ),
    )

    def known(self, eta: Array, visits: Array) -> Array:
        return kinetic_survival(eta, self.persistence(eta), visits) - self.heat(eta, visits)


@dataclass(frozen=True)
class RowFacts:
    """Visits and noise of the rows of one side, which their steps depend on.

    `n` are its ratings, `visits` its visits in a pass over all ratings (infinite where ratings
    are drawn with replacement, so that no pass ever ends), `noise` the variance of the mini-batch
    gradient in units of the likelihood's curvature.
    """

    n: Array
    visits: Array
    noise: Array
    per_visit: Array


@dataclass(frozen=True)
class RowSteps:
    """A row's step, the share of momentum it keeps, and the known share of variance."""

    eta: NDArray[np.float32]
    persistence: NDArray[np.float32]
    share: NDArray[np.float32]


def longest(rule: MomentumRule, visits: Array, noise: Array, rho: float) -> Array:
    """The longest step for which gradient noise of variance `noise` adds at most `rho`.

    With momentum, longer steps may add less again, but only for a curvature of exactly one.
    """
    out = np.empty(len(visits))
    for k in np.unique(visits):
        heat = np.maximum.accumulate(rule.heat(_LADDER, np.full_like(_LADDER, k)))
        own = visits == k
        most = rho / np.maximum(noise[own], 1e-12)
        out[own] = _LADDER[np.maximum(np.searchsorted(heat, most, side="right") - 1, 0)]
    return out


def stable_steps(facts: RowFacts, width: int) -> Array:
    """The longest step that is stable for rows seen through few ratings at a time.

    Seen through c ratings, the curvature of a visit in units of P is up to (1 + sqrt(width / c))^2,
    at most 2 (width + c) / c; a step times that has to stay below 4.
    """
    c = facts.per_visit
    return 2.0 * c / (width + c)


def uneven(facts: RowFacts, width: int) -> Array:
    """Variance of the curvature that visits meet, in units of its mean squared.

    About width / c for visits of c ratings that are not all of the row's. (Some rows meet partners
    far longer than the mean, so that theirs is several times as large.)
    """
    c = facts.per_visit
    return (1.0 - c / facts.n) * (width + c) / c


def row_steps(
    rule: MomentumRule,
    facts: RowFacts,
    stable: Array,
    delta_max: float,
    rho: float,
    unequal: Array | None = None,
) -> RowSteps:
    """Every row's step under the limits of an epoch; `stable` is 0 for rows that do not move.

    Where visits meet curvatures that differ (`uneven`), steps of length eta act as infinitely short
    ones would on another posterior, narrower by eta/4 times that variance and with another mean.
    The noise cannot correct this; short steps keep it small (UNEVEN, rho).
    """
    pairs = np.stack([facts.visits, facts.noise], axis=1)
    kinds, where = np.unique(np.round(pairs, 9), axis=0, return_inverse=True)
    limit = longest(rule, kinds[:, 0], kinds[:, 1], rho)[where.reshape(-1)]
    if unequal is not None:
        forever = np.full(len(unequal), np.inf)
        most = min(UNEVEN * rho, MOST_UNEVEN)
        limit = np.minimum(limit, longest(rule, forever, unequal, most))
    eta = np.minimum(np.minimum(limit, stable), delta_max)
    moving = np.maximum(eta, 1e-12)
    share = facts.noise * rule.known(moving, facts.visits)
    return RowSteps(*(a.astype(np.float32) for a in (eta, rule.persistence(moving), share)))


def survival(eta: Array, persistence: Array, visits: Array) -> Array:
    """Variance that gradient noise of variance one leaves in x at the end of a pass.

    For curvature one the update is a linear filter of the noise with response h_k after k visits:
    independent noise leaves sum h^2. But mini-batches are visited WITHOUT replacement: over the K
    visits of a pass the noise of a row sums to zero, and a filter slower than a pass averages it
    out. For exchangeable noise that sums to zero in blocks of K each block leaves

        K / (K - 1) (sum h^2 - (sum h)^2 / K),        sums over the block's K values of h.

    The response is A1 L1^k + A2 L2^k, with L the roots of the update's matrix of trace
    (1 + c)(1 - eta/2) and determinant c; sums over k and over blocks are geometric.
    """
    eta, persistence, visits = (np.asarray(a, dtype=np.float64) for a in (eta, persistence, visits))
    one, two = _roots(eta, persistence)
    first = 0.5 * eta * (1.0 + persistence)
    second = first * (1.0 + persistence - first)
    a_one = (second - two * first) / (one - two)
    a_two = first - a_one
    every = _products(a_one, a_two, one, two)
    forever = np.isinf(visits)
    k = np.where(forever, 2.0, np.maximum(visits, 1.0 + 1e-9))
    ones, twos = _power(one, k), _power(two, k)
    b_one, b_two = a_one * (1.0 - ones) / (1.0 - one), a_two * (1.0 - twos) / (1.0 - two)
    sums = _products(b_one, b_two, ones, twos)
    dealt = k / (k - 1.0) * np.maximum(every - sums / k, 0.0)
    return np.where(forever, every, np.where(visits <= 1.0, 0.0, dealt))


def kinetic_survival(eta: Array, persistence: Array, visits: Array) -> Array:
    """Variance that such noise leaves in the momenta, averaged over the visits of a pass.

    Averaged also over before and after friction.

    In the midst of a pass noise has not yet summed to zero. Seen from a visit at random, the noise
    of one l visits earlier is of the same pass with probability 1 - l/K, and then correlated
    -1/(K-1):

        sum h^2 - 2/(K - 1) sum_{l < K} (1 - l/K) sum_k h_k h_{k+l}.
    """
    eta, persistence, visits = (np.asarray(a, dtype=np.float64) for a in (eta, persistence, visits))
    one, two = _roots(eta, persistence)
    # The kick, then its remainder u - sqrt(eta) x, one visit later.
    first = np.sqrt(eta)
    second = first * (persistence - 0.5 * eta * (1.0 + persistence))
    a_one = (second - two * first) / (one - two)
    a_two = first - a_one
    every = _products(a_one, a_two, one, two)
    forever = np.isinf(visits)
    k = np.where(forever, 2.0, np.maximum(visits, 1.0 + 1e-9))
    lagged = 0.0
    for root, a in ((one, a_one), (two, a_two)):
        lag = root / (1 - root) - root * (1 - _power(root, k)) / (k * (1 - root) ** 2)
        lagged = lagged + a * lag * (a_one / (1 - one * root) + a_two / (1 - two * root))
    dealt = np.maximum(every - 2.0 / (k - 1.0) * np.asarray(lagged).real, 0.0)
    out = np.where(forever, every, np.where(visits <= 1.0, 0.0, dealt))
    return np.asarray(0.5 * (1.0 + persistence**2) * out)


def _roots(eta: Array, persistence: Array) -> tuple[Any, Any]:
    """Roots of the update's matrix, complex."""
    half = 0.5 * (1.0 + persistence) * (1.0 - 0.5 * np.minimum(eta, 2.0 - 1e-6))
    # Bounded away from zero: two equal roots would need another formula.
    gap = np.sqrt(half**2 - persistence + 1e-12 + 0j)
    return half + gap, half - gap


def _products(a: Any, b: Any, one: Any, two: Any) -> Array:
    """Sum over k of (a one^k + b two^k)^2."""
    total = a * a / (1 - one * one) + 2 * a * b / (1 - one * two) + b * b / (1 - two * two)
    return np.asarray(total.real)


def _power(base: Any, k: Array) -> Any:
    """base^k, zero for a base of zero (numpy's complex power of zero is not a number)."""
    return np.exp(k * np.log(np.where(np.abs(base) < 1e-30, 1e-30, base)))
