"""How far averages over draws are from those of endless sampling: by chance, and for their start.

Both are measured by many quantities at once, which are alike: what one quantity tells of its own
error is mostly noise, what hundreds tell of the mean of their errors is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# A chain's distance from where it ends falls as a power of its passes, about this one: measured by
# 24 chains at a time on MovieLens 100K and ml-latest-small (1.4 and 1.0; docs/sampler.md). Where
# ratings are many it falls faster. Each power counts by how well it fits, and by how far its
# logarithm is from the usual one's.
DECAY = 1.2
DECAYS = (1.1, 1.2, 1.4, 1.7, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0)
USUAL = 0.25
# Quantities hang together: hundreds tell as much of the power as so many that do not.
TELLING = 30

Floats = NDArray[np.float64]


class ChainTrace(NamedTuple):
    """Quantities of a chain, (passes, quantities); the round of each pass, from 1; draws kept."""

    values: NDArray[Any]
    rounds: NDArray[Any]
    kept: NDArray[np.int64]


def error_of_averages(chains: Sequence[ChainTrace]) -> float:
    """Mean squared error of the averages over the kept draws of all chains.

    It is the sum of two parts. What the start has left is found by its trend, which all chains
    have in common: passes as a power law around the level that they come to. Chance is how far the
    chains' averages lie apart, or those of the halves of a single chain, without that trend.

    Parameters
    ----------
    chains : sequence of ChainTrace
        All chains; they have the same quantities, and rounds in common.

    Returns
    -------
    float
        NaN where there are fewer than 2 draws of a single chain, or fewer than 4 passes.
    """
    n = min(len(chain.rounds) for chain in chains)
    if n < 4 or min(len(chain.kept) for chain in chains) < (2 if len(chains) == 1 else 1):
        return float("nan")
    mean = np.asarray(np.mean([chain.values[:n] for chain in chains], axis=0), np.float64)
    tried = [_with_decay(chains, mean, decay) for decay in DECAYS]
    errors, misfits = np.array(tried).T
    # Nothing is left of the start where all passes are the same.
    fit = -0.5 * TELLING * n * np.log(np.maximum(misfits, 1e-300))
    fit -= 0.5 * (np.log(np.array(DECAYS) / DECAY) / USUAL) ** 2
    weights = np.exp(fit - fit.max())
    return float(weights @ errors / weights.sum())


def _with_decay(chains: Sequence[ChainTrace], mean: Floats, decay: float) -> tuple[float, float]:
    """The error where the start goes by a power of the passes, and how badly that fits."""
    law = np.asarray(chains[0].rounds[: len(mean)], np.float64) ** -decay
    trend, square, misfit = _trend(mean, law)
    left = [np.asarray(chain.rounds, np.float64)[chain.kept] ** -decay for chain in chains]
    draws = [
        np.asarray(chain.values[chain.kept], np.float64) - np.outer(own, trend)
        for chain, own in zip(chains, left, strict=True)
    ]
    # No more than was seen to go: of a trace that begins late the law tells little.
    still = min(float(np.mean([own.mean() for own in left])), float(law[0] - law[-1]))
    return square * still**2 + _chance(draws), misfit


def _trend(mean: Floats, law: Floats) -> tuple[Floats, float, float]:
    """Factors of a law in the quantities' means over chains, and the mean square of the true ones.

    Some of the square is noise, which the residuals tell; their own mean square comes last.
    """
    x = law - law.mean()
    values = mean - mean.mean(axis=0)
    power = float(x @ x)
    trend: Floats = np.einsum("t,tq->q", x, values) / power
    rest = values - np.outer(x, trend)
    misfit = float((rest**2).mean())
    noise = misfit * len(law) / (len(law) - 2) / power
    return trend, max(float((trend**2).mean()) - noise, 0.0), misfit


def _chance(draws: Sequence[Floats]) -> float:
    """Mean variance of averages over the draws of all chains."""
    if len(draws) == 1:
        half = len(draws[0]) // 2
        draws = [draws[0][:half], draws[0][-half:]]
    means = np.array([own.mean(axis=0) for own in draws])
    return float(means.var(axis=0, ddof=1).mean()) / len(means)
