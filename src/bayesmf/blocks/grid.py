"""The grid of blocks that the rating matrix is cut into, and the rotation that visits them.

Figures 1 and 2 of the paper: the matrix is cut into rows x cols blocks; blocks that share neither
users nor items form an orthogonal group. In every round each chain works on one group, and a cyclic
shift moves all chains to the next.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import gcd

import numpy as np
from numpy.typing import NDArray

from bayesmf.checks import whole
from bayesmf.errors import InputError
from bayesmf.kernels.keys import STREAM_ROTATION, generator


@dataclass(frozen=True)
class Grid:
    """rows x cols blocks; block (r, c) has number r * cols + c."""

    rows: int = 1
    cols: int = 1

    @classmethod
    def parse(cls, grid: Grid | str | Sequence[int]) -> Grid:
        """From (2, 3), "2x3" or a Grid."""
        if isinstance(grid, Grid):
            return grid
        if isinstance(grid, str):
            found = re.fullmatch(r"\s*(\d+)\s*[xX]\s*(\d+)\s*", grid)
            if not found:
                raise InputError(f"grid {grid!r} is not of the form ROWSxCOLS, such as 2x2 or 4x1")
            grid = (int(found[1]), int(found[2]))
        try:
            rows, cols = grid
            return cls(whole("grid", rows), whole("grid", cols))
        except (TypeError, ValueError):
            raise InputError(
                f"grid {grid!r} must be two whole numbers of at least 1, such as (2, 2)"
            ) from None

    def __len__(self) -> int:
        return self.rows * self.cols

    def __str__(self) -> str:
        return f"{self.rows}x{self.cols}"

    def n_groups(self, size: int | None = None) -> int:
        """Number of `groups`; InputError if a grid has no groups of this size."""
        few, many = sorted((self.rows, self.cols))
        size = few if size is None else size
        if size > few:
            raise InputError(
                f"group_size (--group-size) of a {self} grid must be at most {few}, its number of "
                f"mutually orthogonal blocks, not {size}"
            )
        return many * -(-few // size)

    def groups(self, size: int | None = None) -> list[list[int]]:
        """Orthogonal groups, as lists of block numbers: max(rows, cols) diagonals.

        Together they hold every block once. A square grid gives rows groups of rows blocks
        (DSGLD-S); an S x 1 grid gives S groups of one block (DSGLD-C). With `size` each diagonal is
        divided into as few groups of at most `size` blocks as possible, of nearly equal sizes.
        """
        rows, cols = self.rows, self.cols
        parts = self.n_groups(size) // max(rows, cols)
        if rows <= cols:
            every = [[r * cols + (r + k) % cols for r in range(rows)] for k in range(cols)]
        else:
            every = [[(c + k) % rows * cols + c for c in range(cols)] for k in range(rows)]
        cuts = [k * min(rows, cols) // parts for k in range(parts + 1)]
        return [diagonal[lo:hi] for diagonal in every for lo, hi in pairwise(cuts)]


class Rotation:
    """GET_ORTHO_BLOCK_GROUP(c, t): which group chain c works on in round t.

    The cycle has `turns[g]` turns for group g; chain c is `offset(c)` turns ahead of chain 0, and
    all move by the same stride. So two chains are never on one group while no group has more than
    1 / n_chains of the turns and there are at least as many groups as chains; otherwise they may
    be, because ratings are only read. With `shuffle` a new order of turns is drawn for
    each cycle, one order for all chains, with the same property.
    """

    def __init__(
        self,
        turns: Sequence[int],
        n_chains: int,
        *,
        shuffle: bool = False,
        seed: int = 0,
    ) -> None:
        repeat, self._stride = _stride(sum(turns), max(turns))
        self.turns = repeat * np.asarray(turns, dtype=np.int64)
        self._cycle = np.repeat(np.arange(len(self.turns)), self.turns)
        n = len(self._cycle)
        self._offsets = [c * n // n_chains % n for c in range(n_chains)]
        self._shuffle, self._seed = shuffle, seed

    def __len__(self) -> int:
        """Rounds in a cycle, in which every group has been visited at its rate."""
        return len(self._cycle)

    @property
    def rates(self) -> NDArray[np.float64]:
        """Share of the rounds that each group is active in."""
        return np.asarray(self.turns / self.turns.sum())

    def group(self, chain: int, round_: int) -> int:
        """The group of a chain in a round."""
        n = len(self._cycle)
        cycle, t = divmod(round_, n)
        if self._shuffle:
            key = np.zeros(2, np.uint32)
            t = int(generator(key, cycle, STREAM_ROTATION, self._seed & 0xFFFFFF).permutation(n)[t])
        # The rotation of the SGD before a run is for one chain, but all use it (run/driver.py).
        return int(self._cycle[(t * self._stride + self._offsets[chain % len(self._offsets)]) % n])


def _stride(n: int, longest: int) -> tuple[int, int]:
    """(repeat, stride): a step over repeat * n turns that visits them all and does not stay with
    a group. None exists for 2, 1, 1, 1, 1 turns; repeated twice there is one.
    """
    for repeat in range(1, 9):
        for stride in range(repeat * longest, repeat * (n - longest) + 1):
            if gcd(stride, repeat * n) == 1:
                return repeat, stride
    return 1, 1


TURNS = 8  # of a group in a cycle, on average, where groups are not visited equally


def visit_turns(visits: str | Sequence[float] | None, sizes: NDArray[np.int64]) -> list[int]:
    """Turns of each group in the cycle: one each, or in proportion to sizes or given weights."""
    if visits is None or (isinstance(visits, str) and visits == "equal"):
        return [1] * len(sizes)
    if isinstance(visits, str):
        if visits != "size":
            raise InputError(f"visits {visits!r} is none of 'equal', 'size' or a list of weights")
        weights = np.maximum(sizes, 1).astype(np.float64)
    else:
        try:
            weights = np.asarray(visits, dtype=np.float64).reshape(-1)
        except (TypeError, ValueError):
            weights = np.zeros(0)
    if len(weights) != len(sizes) or not np.all(np.isfinite(weights)) or np.any(weights <= 0):
        raise InputError(
            f"visits must be {len(sizes)} positive weights, one for each orthogonal group, "
            f"not {visits!r}"
        )
    turns = np.maximum(1, np.round(weights / weights.sum() * TURNS * len(sizes)))
    return [int(p) for p in turns.astype(np.int64) // np.gcd.reduce(turns.astype(np.int64))]
