"""The ratings of one side, cut into stripes of rows for half-sweeps of Gibbs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.csr import RowLists
from bayesmf.kernels.exact import LEAF


@dataclass(frozen=True)
class Stripe:
    """The ratings of some rows of one side, row by row, for a half-sweep of Gibbs.

    `rows` are row numbers of this side; ratings of rows[k] are at [starts[k], starts[k + 1]),
    `other` are row numbers of the other side, `value` ratings or their codes.
    """

    rows: NDArray[np.int32]
    starts: NDArray[np.int64]
    other: NDArray[np.int32]
    value: NDArray[Any]
    levels: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.value)

    @property
    def counts(self) -> NDArray[np.int64]:
        """Ratings of each row."""
        return np.diff(self.starts)

    def numbers(self, side: int) -> NDArray[np.int32]:
        """Numbers of the rows; a stripe has one side, so `side` is ignored."""
        return self.rows

    def row_counts(self, side: int) -> NDArray[np.int64]:
        """Ratings of each row; `side` is ignored."""
        return self.counts

    @property
    def span(self) -> slice:
        """The rows as a slice, where they stand together."""
        return slice(int(self.rows[0]), int(self.rows[-1]) + 1)


def make_stripes(lists: RowLists, levels: NDArray[np.float32], n_stripes: int) -> list[Stripe]:
    """Cut one side into stripes of consecutive rows with near-equal numbers of ratings.

    Nothing is copied: a stripe is a view of the lists. Stripes begin at multiples of LEAF rows, so
    that sums over rows do not depend on the number of stripes (kernels/exact.py).
    """
    starts, n_rows = lists.starts, len(lists.starts) - 1
    goals = (np.arange(1, n_stripes) * len(lists)) // n_stripes
    near = np.rint(np.searchsorted(starts, goals) / LEAF).astype(np.int64) * LEAF
    cuts = np.unique(np.concatenate([[0], np.minimum(near, n_rows), [n_rows]]))
    return [
        Stripe(
            np.arange(lo, hi, dtype=np.int32),
            starts[lo : hi + 1] - starts[lo],
            lists.other[starts[lo] : starts[hi]],
            lists.value[starts[lo] : starts[hi]],
            levels,
        )
        for lo, hi in pairwise(cuts)
    ]


def some_stripes(
    lists: RowLists, levels: NDArray[np.float32], chosen: NDArray[np.bool_], n_stripes: int
) -> list[Stripe]:
    """The ratings of the chosen rows of one side, in a few stripes; none where there are none."""
    rows = np.flatnonzero(chosen).astype(np.int32)
    if not len(rows):
        return []
    counts = lists.counts()
    starts = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(counts[rows], out=starts[1:])
    own = np.repeat(chosen, counts)
    part = RowLists(starts, lists.other[own], lists.value[own])
    return [replace(s, rows=rows[s.rows]) for s in make_stripes(part, levels, n_stripes)]
