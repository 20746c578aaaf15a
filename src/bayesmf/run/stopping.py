"""How long to sample: until more draws would change the answers by less than the target.

Chains run in stages of fixed ends, and are judged together between them: so where a run ends
depends on the draws alone, never on which thread was faster.
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
# Predictions that move by less do not: rescaling rows rounds them (ratings have variance one).
STILL = 1e-5
# Stages grow: looking costs little, and a quarter more is what burn-in grows by as well.
FIRST_STAGE, GROWTH = 12, 1.25


class Target(NamedTuple):
    """A target: chains, fewest and most sweeps, when to stop.

    `loss` is the share by which the RMSE may exceed that of endless sampling, `rhat` the limit for
    all but a few predictions and for the parameters of the noise.
    """

    n_chains: int
    least: int
    most: int
    loss: float
    rhat: float

    def alike(self) -> float:
        """By how much log tau and the relative spreads may differ without any import.

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
    """The judgement of convergence by probe pairs and noise.

    `loss` is the share of the RMSE that is due to sampling no longer than this, by estimate, of the
    average over the draws that are kept; `ess` the median effective number of all draws; `rhat` the
    split R-hat that 95% of the pairs stay below; `passes` how often each chain was looked at after
    burn-in. `rhat_noise` is the largest split R-hat of the noise's parameters,
    where differences that the target would not mind count little (`Target.alike`), NaN where none
    are drawn, and `slowest` the name of the one that has it. `loss_of_all` is the loss if every
    pass after burn-in were kept: a run does not continue for want of room for more draws.
    """

    loss: float
    rhat: float
    ess: float
    passes: int = 0
    rhat_noise: float = np.nan
    slowest: str = ""
    loss_of_all: float = np.nan

    def enough(self, target: Target) -> bool:
        """Whether the target is reached; False while anything is unknown."""
        mixed = self.rhat <= target.rhat and not self.rhat_noise > target.rhat
        return bool(np.fmin(self.loss, self.loss_of_all) <= target.loss) and mixed


def stages(per_epoch: float, n_rounds: int) -> list[int]:
    """Rounds after which the chains are looked at, the last one included."""
    ends, epochs = [], float(FIRST_STAGE)
    while round(epochs * per_epoch) < n_rounds:
        ends.append(round(epochs * per_epoch))
        epochs = max(epochs + 1, np.ceil(epochs * GROWTH))
    return [*ends, n_rounds]


def judge(chains: Sequence[Chain], target: Target = TARGETS[USUAL]) -> Convergence:
    """Judge convergence by the probe pairs of all chains, and by their noise.

    The target says what does not matter; runs whose length was given have the usual one.
    """
    traces = [chain.traces() for chain in chains]
    shortest = min(len(trace.rounds) - trace.late for trace in traces)
    if shortest < LEAST_DRAWS:
        return Convergence(np.nan, np.nan, np.nan, shortest)
    states = np.array([trace.drawn[-shortest:] for trace in traces])
    rhat, ess = split_rhat(states), effective_sample_size(states)
    rhat[states.std(axis=(0, 1), dtype=np.float64) < STILL] = np.nan
    known = rhat[~np.isnan(rhat)]  # infinite are those of chains that do not move, but differ
    if not len(known):  # nothing moves at all, which no sampler that works would do
        return Convergence(np.nan, np.nan, np.nan, shortest)
    noise = np.mean([trace.spread[-shortest:].mean() for trace in traces])
    # Noise and what is not known of the pair make the error that more draws cannot remove.
    rest = noise + float(np.mean(states.var(axis=(0, 1))))
    kept, all_ = (
        float(np.sqrt(1.0 + error_of_averages(own) / rest) - 1.0)
        for own in (
            [ChainTrace(one.expected, one.rounds + 1, one.kept) for one in traces],
            [ChainTrace(one.expected, one.rounds + 1, _late(one)) for one in traces],
        )
    )
    # One of the values, not between two: infinity has no middle.
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
