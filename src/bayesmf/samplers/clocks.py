"""Rules in which every row runs by its own clock, and how long a step each row may take.

A step is in units of the row's own relaxation time: the preconditioner P_d = 1 / (tau n m_d +
Lambda_dd) makes every row's curvature about one. What is left to choose is how much of a row's
variance may come from the mini-batches' gradient noise, and that depends on how its visits are
spread; see `survival`. The updates themselves are in kernels/row_clock.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from bayesmf.samplers.base import Array, BatchRule, DataShape, check_settings
from bayesmf.samplers.schedules import BurnIn, FixedBurnIn, burn_in_rule

# A chain sets out with long steps and much gradient noise: it is far away and has to travel.
START_DELTA, START_RHO = 1.0, 0.5
EXACT = 32  # ratings of a row that is drawn exactly: n^2 D multiplications, where a step takes n D
GROWING_BURN_IN = 24.0  # epochs that are surely burn-in where it grows with the run
HALF_LIFE = 2.0  # epochs in which the excess over the settings halves, less where burn-in is short


class Limits(NamedTuple):
    """The longest step, the largest share of variance from mini-batches, and how new the chain
    is, from 1 down to 0."""

    delta_max: float
    rho: float
    warm: float


@dataclass(frozen=True)
class ClockRule(BatchRule):
    """What rules with a clock for each row share.

    Parameters beyond those of `BatchRule`
    ----------
    n_chains : int
        Independent chains.
    burn_in : float or str, optional
        Epochs dropped, or "rmse:0.85" (until the validation RMSE falls to that), or "stationary".
    thin : float, optional
        Epochs between kept draws; more where the cap on draws asks for it.
    precision_every : int, optional
        Rounds between draws of the precisions. The default is once an epoch.
    initial_precision : float
        The precisions before the first draw.
    delta_max : float
        The longest step on a visit, in units of the row's relaxation time.
    rho : float
        The largest share of a row's variance that mini-batches may bring. It is taken away from
        the injected noise, so what remains of it is an error of second order.
    exact_below : int, optional
        Rows with at most this many ratings are drawn exactly, once an epoch, instead. The default
        is the number of factors plus one, at most 32; 0 switches it off.
    """

    shuffle_groups: bool = True
    n_chains: int = 1
    burn_in: float | str | BurnIn | None = None
    thin: float | None = None
    precision_every: int | None = None
    initial_precision: float = 2.0
    delta_max: float = 0.5
    rho: float = 0.02
    exact_below: int | None = None

    keeps_draws = True
    rescales = True
    passes_for_a_sweep = 8  # what server/stopping.py counts as one
    gain = 0.0

    @property
    def adaptive(self) -> bool:
        """Whether the length of the run follows from convergence."""
        return self.epochs is None

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
        elif self.burn_in is None:
            # Whole epochs: what noise brings is known for the end of a pass, and draws that are
            # kept an epoch apart from then on all stand there.
            rule = replace(rule, burn_in=float((rule.epochs or 0) // 5))
        return check_settings(rule)

    def rounds(self, shape: DataShape) -> int:
        epochs = self.default_epochs(shape) if self.epochs is None else self.epochs
        return max(1, round(epochs * self.rounds_per_epoch(shape)))

    def of_width(self, n_factors: int) -> Self:
        """The same with the default that depends on the number of factors."""
        if self.exact_below is not None:
            return self
        return replace(self, exact_below=min(n_factors + 1, EXACT))

    def default_batches(self) -> int:
        # A pass relaxes a row about as far however it is cut, but every cut costs a visit to all
        # rows, and a visit that sees few ratings meets the curvature of those few.
        return 4

    def default_epochs(self, shape: DataShape) -> float:
        return float(round(np.clip(2e8 / shape.n_ratings, 100, 1000) / np.sqrt(self.n_chains)))

    def burn_in_rule(self, shape: DataShape) -> BurnIn:
        return burn_in_rule(self.burn_in or 0)

    def precisions_drawn(self, burning: bool) -> bool:
        return True

    def keep(self, eta: Array) -> Array:
        """The share c of its momentum that a row keeps through a visit with this step."""
        return np.zeros_like(eta)

    def heat(self, eta: Array, visits: Array) -> Array:
        """Share of the variance that gradient noise of variance one brings."""
        return survival(eta, self.keep(eta), visits)

    def known(self, eta: Array, visits: Array) -> Array:
        """What the update is told about gradient noise of variance one."""
        return self.heat(eta, visits)

    def limits(self, epoch: float) -> Limits:
        """What holds in an epoch: limits come down to the settings within burn-in."""
        rule = burn_in_rule(GROWING_BURN_IN if self.burn_in is None else self.burn_in)
        end = rule.epochs if isinstance(rule, FixedBurnIn) else (self.epochs or 100) / 6
        starts = max(START_DELTA / self.delta_max, 1.0), max(START_RHO / self.rho, 1.0)
        # The larger excess is gone half-way through burn-in.
        half_life = min(HALF_LIFE, 0.5 * end / max(np.log2(max(starts)), 1.0))
        fall = 0.0 if half_life <= 0 else 2.0 ** -(np.floor(epoch) / half_life)
        delta, rho = (max(start * fall, 1.0) for start in starts)
        # P may change at any time, so this need not be over when burn-in is.
        warm = 2.0 ** -(np.floor(epoch) / HALF_LIFE)
        return Limits(self.delta_max * delta, self.rho * rho, warm if warm > 0.01 else 0.0)


@dataclass(frozen=True)
class RowClock(ClockRule):
    """Preconditioned Langevin steps, each row by its own clock; rare rows drawn exactly.

    See `ClockRule` for its parameters.
    """


@dataclass(frozen=True)
class SGHMC(ClockRule):
    """Stochastic gradient Hamiltonian Monte Carlo: RowClock with momentum.

    Parameters beyond those of `ClockRule`
    ----------
    friction : float
        Friction over the square root of the step: at 2 sqrt(k) directions of curvature k (in units
        of P) relax fastest.
    """

    rho: float = 0.03
    friction: float = 0.5

    def keep(self, eta: Array) -> Array:
        return np.maximum(1.0 - self.friction * np.sqrt(eta), 0.0)


@dataclass(frozen=True)
class SGNHT(ClockRule):
    """Stochastic gradient Nose-Hoover thermostat: friction finds out how hot mini-batches are.

    The thermostat sees momenta. Mini-batches that are visited without replacement heat momenta more
    than they heat the rows, because their noise sums to zero over a pass: by so much a row's
    momenta are left hotter than one.

    Parameters beyond those of `ClockRule`
    ----------
    friction : float
        As in `SGHMC`, for a row without gradient noise.
    gain : float
        How fast a row's thermostat follows its kinetic energy.
    """

    friction: float = 0.5
    gain: float = 0.5

    def keep(self, eta: Array) -> Array:
        return np.maximum(1.0 - self.friction * np.sqrt(eta), 0.0)

    def known(self, eta: Array, visits: Array) -> Array:
        return kinetic_survival(eta, self.keep(eta), visits) - self.heat(eta, visits)


@dataclass(frozen=True)
class RowFacts:
    """What a row's clock depends on, for the rows of one side.

    `n` are its ratings, `visits` its visits in a pass over all ratings (infinite where ratings
    are drawn with replacement, so that no pass ever ends), `noise` the variance of the mini-batch
    gradient in units of the likelihood's curvature.
    """

    n: Array
    visits: Array
    noise: Array
    per_visit: Array


@dataclass(frozen=True)
class Steps:
    """A row's step, the share of momentum it keeps, and the share of variance already there."""

    eta: NDArray[np.float32]
    keep: NDArray[np.float32]
    share: NDArray[np.float32]


def survival(eta: Array, keep: Array, visits: Array) -> Array:
    """Variance that gradient noise of variance one leaves in x at the end of a pass.

    For curvature one the update is a linear filter of the noise with response h_k after k visits:
    independent noise leaves sum h^2. But mini-batches are visited WITHOUT replacement: over the K
    visits of a pass the noise of a row sums to zero, and a filter slower than a pass hardly
    notices it. For exchangeable noise that sums to zero in blocks of K each block leaves

        K / (K - 1) (sum h^2 - (sum h)^2 / K),        sums over the block's K values of h.

    The response is A1 L1^k + A2 L2^k, with L the roots of the update's matrix of trace
    (1 + c)(1 - eta/2) and determinant c; sums over k and over blocks are geometric.
    """
    eta, keep, visits = (np.asarray(a, dtype=np.float64) for a in (eta, keep, visits))
    one, two = _roots(eta, keep)
    first = 0.5 * eta * (1.0 + keep)
    second = first * (1.0 + keep - first)
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


def kinetic_survival(eta: Array, keep: Array, visits: Array) -> Array:
    """The same for the momenta, before and after friction, averaged over the visits of a pass.

    In the midst of a pass noise has not yet summed to zero. Seen from a visit at random, the noise
    of one l visits earlier is of the same pass with probability 1 - l/K, and then correlated
    -1/(K-1):

        sum h^2 - 2/(K - 1) sum_{l < K} (1 - l/K) sum_k h_k h_{k+l}.
    """
    eta, keep, visits = (np.asarray(a, dtype=np.float64) for a in (eta, keep, visits))
    one, two = _roots(eta, keep)
    # The kick itself, then what is left of it: u - sqrt(eta) x, one visit later.
    first = np.sqrt(eta)
    second = first * (keep - 0.5 * eta * (1.0 + keep))
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
    return np.asarray(0.5 * (1.0 + keep**2) * out)


def _roots(eta: Array, keep: Array) -> tuple[Any, Any]:
    """Of the update's matrix, complex."""
    half = 0.5 * (1.0 + keep) * (1.0 - 0.5 * np.minimum(eta, 2.0 - 1e-6))
    # Kept from zero: two equal roots would need another formula, and nearly equal ones do not.
    gap = np.sqrt(half**2 - keep + 1e-12 + 0j)
    return half + gap, half - gap


def _products(a: Any, b: Any, one: Any, two: Any) -> Array:
    """Sum over k of (a one^k + b two^k)^2."""
    total = a * a / (1 - one * one) + 2 * a * b / (1 - one * two) + b * b / (1 - two * two)
    return np.asarray(total.real)


def _power(base: Any, k: Array) -> Any:
    """base^k, zero for a base of zero (numpy's complex power of zero is not a number)."""
    return np.exp(k * np.log(np.where(np.abs(base) < 1e-30, 1e-30, base)))


# Steps that are tried, one and a half per cent apart.
_LADDER = np.geomspace(1e-9, 2.0, 1440)


def longest(rule: ClockRule, visits: Array, noise: Array, rho: float) -> Array:
    """The longest step up to which `noise` of gradients brings at most `rho` of the variance.

    Up to which, not at which: with momentum, longer steps may be quiet again, but only where the
    curvature is just one.
    """
    out = np.empty(len(visits))
    for k in np.unique(visits):
        heat = np.maximum.accumulate(rule.heat(_LADDER, np.full_like(_LADDER, k)))
        own = visits == k
        most = rho / np.maximum(noise[own], 1e-12)
        out[own] = _LADDER[np.maximum(np.searchsorted(heat, most, side="right") - 1, 0)]
    return out


def stable_steps(rule: ClockRule, facts: RowFacts, width: int) -> Array:
    """The longest step that is stable for rows seen through few ratings at a time.

    Seen through c ratings, the curvature of a visit in units of P is up to (1 + sqrt(width / c))^2,
    at most 2 (width + c) / c; a step times that has to stay below 4. And where visits differ, it is
    random, with a relative variance of about width / c: as gradient noise of that size, drawn anew
    on each visit, it may bring a quarter of the variance. (Some rows meet partners far longer than
    the mean, so that theirs is several times as large.)
    """
    c = facts.per_visit
    differ = 1.0 - c / facts.n
    forever = np.full(len(c), np.inf)
    return np.minimum(2.0 * c / (width + c), longest(rule, forever, differ * (width + c) / c, 0.25))


def clock_steps(
    rule: ClockRule, facts: RowFacts, stable: Array, delta_max: float, rho: float
) -> Steps:
    """Every row's step under the limits of the time; `stable` is 0 for rows that do not move."""
    pairs = np.stack([facts.visits, facts.noise], axis=1)
    kinds, where = np.unique(np.round(pairs, 9), axis=0, return_inverse=True)
    limit = longest(rule, kinds[:, 0], kinds[:, 1], rho)[where.reshape(-1)]
    eta = np.minimum(np.minimum(limit, stable), delta_max)
    moving = np.maximum(eta, 1e-12)
    share = facts.noise * rule.known(moving, facts.visits)
    return Steps(*(a.astype(np.float32) for a in (eta, rule.keep(moving), share)))
