"""How long to sample: until more draws would not change the answers by more than was asked for.

Chains run in stages of fixed ends, and are judged together between them: so where a run ends
depends on the draws alone, never on which thread was faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bayesmf.chains.chain import Chain
from bayesmf.checks import one_of
from bayesmf.diagnostics.convergence import LEAST_DRAWS
from bayesmf.diagnostics.mixing import effective_sample_size, split_rhat

# Pairs whose predictions are watched, and the share of them that must agree.
N_PROBE, AGREEING = 400, 0.95
# Stages grow: looking costs little, and a quarter more is what burn-in grows by as well.
FIRST_STAGE, GROWTH = 12, 1.25


class Target(NamedTuple):
    """What a target's name stands for: chains, sweeps at the least and the most, when to stop.

    `loss` is the share by which the RMSE may exceed that of endless sampling, `rhat` what all but
    a few predictions must reach.
    """

    n_chains: int
    least: int
    most: int
    loss: float
    rhat: float


TARGETS = {
    "fast": Target(1, 15, 48, 3e-3, 1.2),
    "balanced": Target(2, 30, 120, 1e-3, 1.1),
    "accurate": Target(4, 60, 500, 3e-4, 1.05),
}


def target_named(name: str) -> Target:
    """A target by its name."""
    return TARGETS[one_of("target", name, TARGETS)]


class Convergence(NamedTuple):
    """What the probe pairs say.

    `loss` is the share of the RMSE that is due to sampling no longer than this, by estimate; `ess`
    the median effective number of draws; `rhat` the split R-hat that 95% of the pairs stay below;
    `passes` how often each chain was looked at after burn-in.
    """

    loss: float
    rhat: float
    ess: float
    passes: int = 0

    def enough(self, target: Target) -> bool:
        """Whether the target is reached; False while anything is unknown."""
        return self.loss <= target.loss and self.rhat <= target.rhat


def stages(per_epoch: float, n_rounds: int) -> list[int]:
    """Rounds after which the chains are looked at, the last one included."""
    ends, epochs = [], float(FIRST_STAGE)
    while round(epochs * per_epoch) < n_rounds:
        ends.append(round(epochs * per_epoch))
        epochs = max(epochs + 1, np.ceil(epochs * GROWTH))
    return [*ends, n_rounds]


def judge(chains: Sequence[Chain]) -> Convergence:
    """Judge convergence by the probe pairs of all chains."""
    expected, drawn = zip(*(chain.traces() for chain in chains), strict=True)
    shortest = min(len(trace) for trace in expected)
    if shortest < LEAST_DRAWS:
        return Convergence(np.nan, np.nan, np.nan, shortest)
    means = np.array([trace[-shortest:] for trace in expected])
    states = np.array([trace[-shortest:] for trace in drawn])
    rhat, ess = split_rhat(states), effective_sample_size(states)
    known = rhat[~np.isnan(rhat)]  # infinite are those of chains that do not move, but differ
    if not len(known):  # nothing moves at all, which no sampler that works would do
        return Convergence(np.nan, np.nan, np.nan, shortest)
    noise = float(np.mean([1.0 / chain.state.precisions.tau for chain in chains]))
    with np.errstate(all="ignore"):
        error = np.nanmean(means.var(axis=(0, 1), ddof=1) / effective_sample_size(means))
    # Noise and what is not known of the pair make the error that more draws cannot remove.
    rest = noise + float(np.mean(states.var(axis=(0, 1))))
    loss = float(np.sqrt(1.0 + error / rest) - 1.0)
    # One of the values, not between two: infinity has no middle.
    worst = float(np.quantile(known, AGREEING, method="higher"))
    return Convergence(loss, worst, float(np.nanmedian(ess)), shortest)
