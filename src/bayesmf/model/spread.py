"""Some of many draws, such that they stand for all."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def spread_evenly(chain: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Numbers of at most so many draws, spread evenly over those of each chain; one in any case.

    `chain` is that of each draw, ascending. Chains have shares as they have draws, and the last
    draw of each is among those chosen.
    """
    _, first, counts = np.unique(chain, return_index=True, return_counts=True)
    # A chain has what is between the share of all chains before it and that with it.
    shares = np.diff(np.cumsum(counts) * min(most, len(chain)) // len(chain), prepend=0)
    while shares.min() < 1:
        if shares.max() > 1:
            shares[shares.argmax()] -= 1
        shares[shares.argmin()] = 1
    chosen = [
        at + np.arange(1, n + 1) * count // n - 1
        for at, count, n in zip(first, counts, shares, strict=True)
    ]
    return np.concatenate(chosen)
