"""Mean and variance of predictions of many known pairs: streamed over draws, on all cores.

A chunk of pairs is sorted by user, and every draw then passes over it once. Memory holds a few
numbers a pair and the rows of the chunk's items under one draw: never draws x pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.rated import RatedItems
from bayesmf.kernels.csr import group_rows
from bayesmf.kernels.predict import stream_moments
from bayesmf.kernels.types import Rows, readonly
from bayesmf.model.draws import Draws
from bayesmf.system.threads import Pool, parts

Index = NDArray[np.int64]
Floats = NDArray[np.float64]

# Pairs of all chunks that are in memory together, some 50 bytes each: so 100 MB on any number of
# cores.
PAIRS = 1 << 21
# Fewest pairs that are worth starting a thread for.
FEWEST = 1 << 12
# Columns fill whole vector registers (8 numbers), and rows begin with a cache line (64 bytes).
LANES, LINE = 8, 64


class SortedPairs(NamedTuple):
    """Pairs in the order of their users; `position` is that of an item in `items`."""

    order: Index
    user: NDArray[np.int32]
    position: NDArray[np.int32]
    items: Index
    rated: NDArray[np.bool_]


@dataclass(frozen=True)
class PairMoments:
    """Mean and variance of predictions of pairs over draws, in units of the chains."""

    draws: Draws
    seen: RatedItems
    n_factors: int

    def mean_variance(self, user: Index, item: Index, pool: Pool) -> tuple[Floats, Floats]:
        """Expected prediction, and variance over draws, of pairs of known rows.

        The answer for a pair depends neither on which others are asked for, nor on the threads.
        """
        mean, variance = np.empty(len(user)), np.empty(len(user))
        share = -(-len(user) // pool.threads)
        size = min(max(share, FEWEST), PAIRS // min(pool.threads, PAIRS // FEWEST))

        def fill(part: slice) -> None:
            self._fill(self._sorted(user[part], item[part]), mean[part], variance[part])

        pool.each(fill, parts(len(user), size))
        return mean, variance

    def _sorted(self, user: Index, item: Index) -> SortedPairs:
        n_users, n_items = self.draws.users.shape[1], self.draws.items.shape[1]
        if len(user) < n_users:
            order = np.argsort(user, kind="stable")
        else:
            position = np.arange(len(user))
            order = group_rows(readonly(user), readonly(item), position, n_users).value
        user, item = user[order], item[order]
        if self.draws.user_means is None:
            rated = np.empty(0, np.bool_)
        else:
            rated = self.seen.rated(user, item)
        if len(user) < n_items:
            items, position = np.unique(item, return_inverse=True)
        else:
            items, position = np.arange(n_items), item
        return SortedPairs(order, user.astype(np.int32), position.astype(np.int32), items, rated)

    def _fill(self, pairs: SortedPairs, mean: Floats, variance: Floats) -> None:
        """Write mean and variance of the pairs of one chunk, in the order they were given in."""
        draws, D, n = self.draws, self.n_factors, len(pairs.user)
        Y = _aligned(len(pairs.items), draws.items.shape[2])
        x = np.zeros((2, Y.shape[1]), np.float32)
        first = np.empty(n, np.float32)
        total, squares, expected = np.zeros(n), np.zeros(n), np.zeros(n)
        stream_moments(
            rows_of(draws), (pairs.user, pairs.position, pairs.rated), pairs.items, D, (Y, x),
            (first, total, squares, expected),
        )  # fmt: skip
        total /= len(draws)
        squares /= len(draws)
        variance[pairs.order] = np.maximum(squares - total * total, 0.0)
        if draws.user_means is None:
            mean[pairs.order] = first + total
        else:
            mean[pairs.order] = expected / len(draws)


def _aligned(n: int, width: int) -> NDArray[np.float32]:
    """Zeros for n rows of at least `width` columns, each row on cache lines of its own."""
    columns = -(-width // LANES) * LANES
    spare = LINE // 4
    flat = np.zeros(n * columns + spare, np.float32)
    start = -(flat.ctypes.data // 4) % spare
    return flat[start : start + n * columns].reshape(n, columns)


def rows_of(draws: Draws) -> tuple[Rows, Rows, Rows, Rows]:
    """Rows of users and items of all draws, then of their conditional means.

    Where there are no means these are empty, not None: so kernels are compiled once for both.
    """
    users, items = readonly(draws.users), readonly(draws.items)
    if draws.user_means is None or draws.item_means is None:
        return users, items, users[:0], items[:0]
    return users, items, readonly(draws.user_means), readonly(draws.item_means)
