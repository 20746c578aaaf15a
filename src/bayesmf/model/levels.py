"""The values that ratings take where these are few, and the edges between them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# A rating this close to a level, in distances of levels, is that level: ratings are float32.
CLOSE = 1e-3


class RatingLevels(NamedTuple):
    """Levels of ratings, ascending, and the edges between each and the next, in their units."""

    levels: tuple[float, ...]
    edges: tuple[float, ...]

    @property
    def step(self) -> float:
        """The smallest distance of two levels."""
        return float(np.diff(self.levels).min()) if len(self.levels) > 1 else 0.0

    @property
    def rounding(self) -> float:
        """Variance that ratings have because they are levels, as of numbers spread evenly."""
        return self.step**2 / 12

    def numbers(self, rating: NDArray[np.floating]) -> NDArray[np.int64] | None:
        """Which level each rating is; None where one of them is none."""
        values = np.array(self.levels)
        at = np.searchsorted((values[1:] + values[:-1]) / 2, rating)
        off = np.abs(values[at] - rating)
        close = CLOSE * self.step if len(values) > 1 else CLOSE
        return None if (off > close).any() else np.asarray(at, np.int64)
