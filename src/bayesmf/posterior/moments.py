"""Mean and variance of new ratings for many known pairs: streamed over draws, on all cores.

A chunk of pairs is sorted by user, and every draw then passes over it once. What is held is a few
numbers a pair and the rows of the chunk's items under one draw: never draws x pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.rated import Seen
from bayesmf.kernels.csr import group_rows
from bayesmf.kernels.predict import stream_moments
from bayesmf.kernels.types import Rows, readonly
from bayesmf.model.draws import Draws
from bayesmf.system.threads import Pool, parts

Index = NDArray[np.int64]
Floats = NDArray[np.float64]

# Pairs of all chunks at work together, some 50 bytes each: so 100 MB, however many cores.
PAIRS = 1 << 21
# Fewer pairs than this are not worth a thread.
FEWEST = 1 << 12
# Columns are filled up to whole vector registers, and rows begin with a cache line.
LANES, LINE = 8, 64


class Sorted(NamedTuple):
    """Pairs in the order of their users; `slot` is where an item stands among `items`."""

    order: Index
    user: NDArray[np.int32]
    slot: NDArray[np.int32]
    items: Index
    rated: NDArray[np.bool_]


@dataclass(frozen=True)
class Moments:
    """Predictions of draws, in units of the chains, averaged over draws."""

    draws: Draws
    seen: Seen
    n_factors: int

    def mean_variance(self, user: Index, item: Index, pool: Pool) -> tuple[Floats, Floats]:
        """Expected prediction, and variance of the draws' predictions, of pairs of known rows.

        What a pair is told does not depend on which others are asked for, nor on the threads.
        """
        mean, variance = np.empty(len(user)), np.empty(len(user))
        share = -(-len(user) // pool.threads)
        size = min(max(share, FEWEST), PAIRS // min(pool.threads, PAIRS // FEWEST))

        def run(part: slice) -> None:
            self._chunk(self._sorted(user[part], item[part]), mean[part], variance[part])

        pool.each(run, parts(len(user), size))
        return mean, variance

    def _sorted(self, user: Index, item: Index) -> Sorted:
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
            items, slot = np.unique(item, return_inverse=True)
        else:
            items, slot = np.arange(n_items), item
        return Sorted(order, user.astype(np.int32), slot.astype(np.int32), items, rated)

    def _chunk(self, pairs: Sorted, mean: Floats, variance: Floats) -> None:
        draws, D, n = self.draws, self.n_factors, len(pairs.user)
        Y = _aligned(len(pairs.items), draws.items.shape[2])
        x = np.zeros((2, Y.shape[1]), np.float32)
        first = np.empty(n, np.float32)
        total, squares, expected = np.zeros(n), np.zeros(n), np.zeros(n)
        stream_moments(
            rows_of(draws), (pairs.user, pairs.slot, pairs.rated), pairs.items, D, (Y, x),
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
    """Zeros for n rows of at least `width` columns."""
    columns = -(-width // LANES) * LANES
    spare = LINE // 4
    flat = np.zeros(n * columns + spare, np.float32)
    start = -(flat.ctypes.data // 4) % spare
    return flat[start : start + n * columns].reshape(n, columns)


def rows_of(draws: Draws) -> tuple[Rows, Rows, Rows, Rows]:
    """Rows of users and items of all draws, then those of their means, empty where there are none.

    As kernels want them: so they are compiled once for models with means and without.
    """
    users, items = readonly(draws.users), readonly(draws.items)
    if draws.user_means is None or draws.item_means is None:
        return users, items, users[:0], items[:0]
    return users, items, readonly(draws.user_means), readonly(draws.item_means)
