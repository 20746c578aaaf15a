"""The grid of blocks that the rating matrix is cut into, and its orthogonal groups.

Figure 1 of the paper: the matrix is cut into rows x cols blocks; blocks that share neither users
nor items form an orthogonal group.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bayesmf.checks import whole
from bayesmf.errors import InputError


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

    def groups(self) -> list[list[int]]:
        """Orthogonal groups, as lists of block numbers: max(rows, cols) diagonals.

        Together they hold every block once. A square grid gives rows groups of rows blocks
        (DSGLD-S); an S x 1 grid gives S groups of one block (DSGLD-C).
        """
        rows, cols = self.rows, self.cols
        if rows <= cols:
            return [[r * cols + (r + k) % cols for r in range(rows)] for k in range(cols)]
        return [[(c + k) % rows * cols + c for c in range(cols)] for k in range(rows)]
