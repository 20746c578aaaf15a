"""Stopping rule: sample until more draws would change predictions by less than the target.

Chains run in stages with fixed ends and are checked together after each, so the end of a run
depends on the draws alone, not on the speed of threads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.chains.chain import Chain
from bayesmf.chains.pairs import Traces
from bayesmf.checks import one_of
from bayesmf.diagnostics.convergence import LEAST_DRAWS, ChainTrace, error_of_averages
from bayesmf.diagnostics.mixing import effective_sample_size, split_rhat
from bayesmf.model.noise import PARAMETERS

# Pairs whose predictions are watched, and the share of them that must agree.
N_PROBE, AGREEING = 400, 0.95
# Smaller changes of predictions are rounding errors of rescaled rows (ratings have variance one).
STILL = 1e-5
# Growth of stages: checks are cheap, and burn-in grows by a quarter too.
FIRST_STAGE, GROWTH = 12, 1.25


class Target(NamedTuple):
    """A target: chains, fewest and most sweeps, when to stop.

    `loss` is the share by which the RMSE may exceed its limit for infinite sampling, `rhat` the
    limit for all but a few predictions and for the parameters of the noise.
    """

    n_chains: int
    least: int
    most: int
    loss: float
    rhat: float

    def alike(self) -> float:
        """Differences of log tau and the relative spreads that are negligible.

        A precision off by x in its logarithm costs x^2 / 4 nats a rating, an RMSE larger by the
        share y costs y, and the noise may cost no more than the mean.
        """
        return 2.0 * math.sqrt(max(self.loss, 0.0))


TARGETS = {
    "fast": Target(1, 24, 48, 3e-3, 1.2),
    "balanced": Target(2, 30, 120, 1e-3, 1.1),
    "accurate": Target(4, 60, 500, 3e-4, 1.05),
}
USUAL = "balanced"


def target_named(name: str) -> Target:
    """A target by its name."""
    return TARGETS[one_of("target", name, TARGETS)]


class Convergence(NamedTuple):
    """Convergence by probe pairs and noise.

    `loss` is the estimated share of the RMSE that infinite sampling would remove, for the average
    over the kept draws; `ess` the median effective sample size of all draws; `rhat` the 95%
    quantile of split R-hat over the pairs; `passes` the recorded passes of each chain after
    burn-in. `rhat_noise` is the largest split R-hat of the noise's parameters, in which negligible
    differences count little (`Target.alike`), NaN if none are drawn; `slowest` is its parameter.
    `loss_of_all` is the loss if every pass after burn-in were kept, so that a run does not continue
    because the number of draws is limited.
    """

    loss: float
    rhat: float
    ess: float
    passes: int = 0
    rhat_noise: float = np.nan
    slowest: str = ""
    loss_of_all: float = np.nan

    def enough(self, target: Target) -> bool:
        """Whether the target is reached; False if unknown."""
        mixed = self.rhat <= target.rhat and not self.rhat_noise > target.rhat
        return bool(np.fmin(self.loss, self.loss_of_all) <= target.loss) and mixed


def stages(per_epoch: float, n_rounds: int) -> list[int]:
    """Rounds after which convergence is checked, including the last."""
    ends, epochs = [], float(FIRST_STAGE)
    while round(epochs * per_epoch) < n_rounds:
        ends.append(round(epochs * per_epoch))
        epochs = max(epochs + 1, np.ceil(epochs * GROWTH))
    return [*ends, n_rounds]


def judge(chains: Sequence[Chain], target: Target = TARGETS[USUAL]) -> Convergence:
    """Compute convergence from the probe pairs and the noise of all chains.

    The target defines negligible differences; runs of given length use the default target.
    """
    traces = [chain.traces() for chain in chains]
    shortest = min(len(trace.rounds) - trace.late for trace in traces)
    if shortest < LEAST_DRAWS:
        return Convergence(np.nan, np.nan, np.nan, shortest)
    states = np.array([trace.drawn[-shortest:] for trace in traces])
    rhat, ess = split_rhat(states), effective_sample_size(states)
    rhat[states.std(axis=(0, 1), dtype=np.float64) < STILL] = np.nan
    known = rhat[~np.isnan(rhat)]  # infinite for constant chains that differ
    if not len(known):  # all constant: the sampler does not move
        return Convergence(np.nan, np.nan, np.nan, shortest)
    noise = np.mean([trace.spread[-shortest:].mean() for trace in traces])
    # Noise and posterior variance are the error that more draws cannot reduce.
    rest = noise + float(np.mean(states.var(axis=(0, 1))))
    kept, all_ = (
        float(np.sqrt(1.0 + error_of_averages(own) / rest) - 1.0)
        for own in (
            [ChainTrace(one.expected, one.rounds + 1, one.kept) for one in traces],
            [ChainTrace(one.expected, one.rounds + 1, _late(one)) for one in traces],
        )
    )
    # One of the values, without interpolation, because of infinity.
    worst = float(np.quantile(known, AGREEING, method="higher"))
    drawn = np.array([trace.noise[-shortest:] for trace in traces])
    slowest, mixed = _slowest(drawn, target.alike())
    return Convergence(kept, worst, float(np.nanmedian(ess)), shortest, mixed, slowest, all_)


def _late(trace: Traces) -> NDArray[np.int64]:
    return np.arange(trace.late, len(trace.rounds))


def _slowest(noise: NDArray[np.float64], alike: float) -> tuple[str, float]:
    """The parameter of the noise that has mixed least, and its split R-hat."""
    found = dict(zip(PARAMETERS, split_rhat(noise, alike), strict=True))
    known = {name: float(rhat) for name, rhat in found.items() if not np.isnan(rhat)}
    return max(known.items(), key=lambda item: item[1]) if known else ("", np.nan)
