"""Which draws go on when ratings are added, and for how long: it follows from how much is new.

A draw knows of the ratings that there were when it was made; `Draws.missed` counts those that came
later. Chains go on from their newest draws, and each new state takes the place of the draw that has
missed most, so that none has missed more than a share of all ratings.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Index = NDArray[np.int64]

# The share of all ratings that a draw may have missed.
MOST_MISSED = 0.15
# New draws that are worth the start of a chain: below that fewer chains go on, in turn.
PER_CHAIN = 16
# Sweeps before states are draws, for each share of ratings that is new, and the most of them.
SETTLE_SWEEPS, MOST_SETTLING = 40, 24
# From this share on a fit from the beginning is advised.
MUCH_NEW = 0.5


@dataclass(frozen=True)
class UpdatePlan:
    """What becomes of each draw.

    Attributes
    ----------
    source : ndarray of int64
        For each draw of the result, chain by chain, the old one that stays there; -1 for new ones.
    start : dict of int to int
        Chains that go on, and the old draw that each goes on from.
    settling : int
        Sweeps of each before its states are draws.
    missed : ndarray of int64
        Ratings that each draw of the result has missed.
    chain : ndarray of int64
        The chain of each.
    """

    source: Index
    start: dict[int, int]
    settling: int
    missed: Index
    chain: Index

    def fresh(self, chain: int) -> Index:
        """Numbers of the new draws of a chain."""
        return np.flatnonzero((self.source < 0) & (self.chain == chain))

    @property
    def sweeps(self) -> int:
        """Sweeps of all chains."""
        return self.settling * len(self.start) + int((self.source < 0).sum())


def make_plan(chain: Index, missed: Index | None, n_new: int, n_ratings: int) -> UpdatePlan:
    """Plan an update by `n_new` ratings after which there are `n_ratings`.

    Parameters
    ----------
    chain
        The chain of each draw, ascending; a chain's newest draw is its last.
    missed
        Ratings that each draw has missed so far; None for none.
    """
    now = n_new + (np.zeros(len(chain), np.int64) if missed is None else missed)
    share = n_new / n_ratings
    fresh = _fresh(chain, now, share, MOST_MISSED * n_ratings)
    source, start, left = [], {}, []
    for number in np.unique(chain):
        own, n = np.flatnonzero(chain == number), fresh[int(number)]
        gone = own[np.argsort(-now[own], kind="stable")[:n]]
        stays = np.setdiff1d(own, gone)
        source.append(np.append(stays, np.full(n, -1)))
        left.append(np.append(now[stays], np.zeros(n, np.int64)))
        if n:
            start[int(number)] = int(own[-1])
    settling = min(MOST_SETTLING, round(SETTLE_SWEEPS * share))
    return UpdatePlan(np.concatenate(source), start, settling, np.concatenate(left), chain)


def _fresh(chain: Index, now: Index, share: float, limit: float) -> dict[int, int]:
    """New draws of each chain: as many as keep all within the limit in the long run, and now."""
    numbers, sizes = np.unique(chain, return_counts=True)
    total = min(len(chain), math.ceil(len(chain) * share / MOST_MISSED))
    over = [int((now[chain == c] > limit).sum()) for c in numbers]
    # Those that have missed most; of equals the first.
    weights = [-float(now[chain == c].mean()) for c in numbers]
    active = np.argsort(weights, kind="stable")[: max(1, math.ceil(total / PER_CHAIN))]
    room = sizes[active].sum()
    quota = {int(k): math.ceil(total * sizes[k] / room) for k in active}
    return {
        int(c): min(int(sizes[k]), max(quota.get(k, 0), over[k])) for k, c in enumerate(numbers)
    }
