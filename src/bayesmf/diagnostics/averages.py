"""How far averages over draws are from those of endless sampling: by chance, and for their start.

Both are measured by many quantities at once, which are alike: what one quantity tells of its own
error is mostly noise, what hundreds tell of the mean of their errors is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# A chain's distance from where it ends falls about as t^-p exp(-t / u) does, t in passes: measured
# by 8 to 12 chains at a time on four data sets (docs/sampler.md). Here are pairs of p and 1 / u,
# also powers alone, of 1 and more: lower ones hardly fall. Each counts by how well it fits.
POWERS, TIMES = np.arange(0.0, 3.01, 0.25), (3.0, 4.0, 6.0, 8.0, 11.0, 16.0, 22.0, 32.0)
LAWS = [(p, 1.0 / u) for p in POWERS for u in TIMES] + [(p, 0.0) for p in POWERS if p >= 1.0]
# Quantities hang together: hundreds tell as much of the law as so many that do not.
TELLING = 30
# A law has a level and a factor, and its misfit is to be a number too.
LEAST_PASSES = 4

Floats = NDArray[np.float64]


class ChainTrace(NamedTuple):
    """Quantities of a chain, (passes, quantities); the round of each pass, from 1; draws kept."""

    values: NDArray[Any]
    rounds: NDArray[Any]
    kept: NDArray[np.int64]


def error_of_averages(chains: Sequence[ChainTrace]) -> float:
    """Mean squared error of the averages over the kept draws of all chains.

    It is the sum of two parts. What the start has left is found by its trend, which all chains
    have in common: passes as a law around the level that they come to. Chance is how far the
    chains' averages lie apart, or those of the halves of a single chain, without that trend.

    The law is fitted to all passes, which tell more, and to those from the first that is kept,
    where it need not hold for as long; the mean of both errors is off less than either.

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
    fewest = min(len(chain.kept) for chain in chains)
    if n < LEAST_PASSES or fewest < (2 if len(chains) == 1 else 1):
        return float("nan")
    late = min(min(int(chain.kept[0]) for chain in chains), n - LEAST_PASSES)
    return (_error(chains, 0, n) + _error(chains, late, n)) / 2


def _error(chains: Sequence[ChainTrace], begin: int, end: int) -> float:
    """The error by laws that are fitted to the passes from `begin` to `end`."""
    rounds = np.asarray(chains[0].rounds[begin:end], np.float64)
    values = np.array([chain.values[begin:end] for chain in chains], np.float64)
    values -= values.mean(axis=1, keepdims=True)
    moved = float((values.mean(axis=0) ** 2).sum(axis=0).mean())
    # A pass of a rule that takes its ratings in parts is many rounds.
    length = float(np.median(np.diff(rounds)))
    parts = _averaged(chains)
    errors, misfits = np.empty(len(LAWS)), np.empty(len(LAWS))
    for k, (power, rate) in enumerate(LAWS):

        def law(t: NDArray[Any], power: float = power, rate: float = rate) -> Floats:
            past = np.asarray(t, np.float64)
            found: Floats = np.exp(-rate * (past - rounds[0]) / length)
            found *= (past / rounds[0]) ** -power
            return found

        x = law(rounds)
        last = float(x[0] - x[-1])
        x -= x.mean()
        trends = np.einsum("t,ctq->cq", x, values) / (x @ x)
        misfits[k] = max(moved - float(x @ x) * _square(trends.mean(axis=0)), 0.0) / len(x)
        noise = misfits[k] * len(x) / (len(x) - 2) / float(x @ x)
        left = [law(part.rounds) for part in parts]
        # No more than was seen to go: of a trace that begins late the law tells little.
        still = min(float(np.mean([own.mean() for own in left])), last)
        errors[k] = _start(trends, noise) * still**2 + _chance(parts, left, trends.mean(axis=0))
    # Nothing is left of the start where all passes are the same.
    fit = -0.5 * TELLING * len(rounds) * np.log(np.maximum(misfits, 1e-300))
    weights = np.exp(fit - fit.max())
    return float(weights @ errors / weights.sum())


class _Part(NamedTuple):
    """Draws whose average stands for itself: their mean, and their rounds."""

    mean: Floats
    rounds: NDArray[Any]


def _averaged(chains: Sequence[ChainTrace]) -> list[_Part]:
    """The kept draws of each chain, or the halves of a single one's."""
    kept = [chain.kept for chain in chains]
    if len(chains) == 1:
        half = len(kept[0]) // 2
        chains, kept = [chains[0]] * 2, [kept[0][:half], kept[0][-half:]]
    return [
        _Part(np.asarray(chain.values[own], np.float64).mean(axis=0), chain.rounds[own])
        for chain, own in zip(chains, kept, strict=True)
    ]


def _start(trends: Floats, noise: float) -> float:
    """Mean square of the trend that chains have in common; `noise` is what chance adds to one.

    What different chains have found is multiplied: their chances have nothing in common.
    """
    n, mean = len(trends), _square(trends.mean(axis=0))
    if n == 1:
        return max(mean - noise, 0.0)
    return max((n * mean - _square(trends)) / (n - 1), 0.0)


def _chance(parts: Sequence[_Part], left: Sequence[Floats], trend: Floats) -> float:
    """Mean variance of the average over all parts, without the trend."""
    means = np.array(
        [part.mean - own.mean() * trend for part, own in zip(parts, left, strict=True)]
    )
    return float(means.var(axis=0, ddof=1).mean()) / len(means)


def _square(x: Floats) -> float:
    return float((x**2).mean())
