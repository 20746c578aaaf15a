"""What the priors of rows are drawn from: first and second moments of all rows of a side."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.exact import packed_moments, unpacked_moments
from bayesmf.kernels.types import Rows

Array = NDArray[np.float64]


class Moments(NamedTuple):
    """Number of rows, their sum, and the sum of their outer products, or its diagonal."""

    n: int
    total: Array
    cross: Array

    def squares(self) -> Array:
        """Sums of the squares of columns."""
        return self.cross if self.cross.ndim == 1 else np.diagonal(self.cross).copy()

    def scaled(self, factors: Array) -> Moments:
        """Those of the rows with columns times factors."""
        form = factors * factors if self.cross.ndim == 1 else np.outer(factors, factors)
        return Moments(self.n, self.total * factors, self.cross * form)


def moments_of(rows: Rows | Moments) -> Moments:
    """The moments of rows that are at hand, as they would be added up from stripes."""
    if isinstance(rows, Moments):
        return rows
    n, width = rows.shape
    parts = packed_moments(np.ascontiguousarray(rows, np.float32), full=True)
    return Moments(n, *unpacked_moments([parts], width, full=True))
