"""From mixtures and ratings to a calibration, chunk by chunk."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bayesmf.diagnostics.calibration import Calibration
from bayesmf.diagnostics.coverage import FINE_LEVELS, Group
from bayesmf.diagnostics.metrics import Scorer
from bayesmf.errors import InputError
from bayesmf.kernels.mixture import mixture_cdf, mixture_moments
from bayesmf.model.levels import RatingLevels

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

PIT_BINS = 20
# Ratings with at most so many different values are stars, or some other scale of steps.
FEW_VALUES = 30

_TAILS = (100 - np.array(FINE_LEVELS)[::-1]) / 200  # ascending
# What groups are called, by how many there are.
_COUNTS = (("all",), ("fewest", "most"), ("fewest", "middle", "most"))
_MEASURES = (
    ("all",), ("lowest", "highest"), ("lowest", "middle", "highest"),
    ("lowest", "second", "third", "highest"),
    ("lowest", "second", "middle", "fourth", "highest"),
)  # fmt: skip


class Calibrator:
    """Accumulate a calibration over chunks of pairs, so that no chunk has to stay in memory.

    Parameters
    ----------
    user_counts, item_counts : array-like of int
        For each test rating, in the order of the chunks: how many training ratings its user has,
        and its item; zero where they are not known.
    user_errors : array-like of float, optional
        Root mean squared training error of each test rating's user; NaN where it has none.
    levels : RatingLevels, optional
        Levels of the training ratings, where they have any.
    """

    def __init__(
        self,
        user_counts: ArrayLike,
        item_counts: ArrayLike,
        user_errors: ArrayLike | None = None,
        levels: RatingLevels | None = None,
    ) -> None:
        self._counts = {
            "user": np.asarray(user_counts, np.int64),
            "item": np.asarray(item_counts, np.int64),
        }
        n = len(self._counts["user"])
        self._errors = np.full(n, np.nan) if user_errors is None else np.asarray(user_errors)
        self._scorer = Scorer(levels)
        self._pit = np.zeros(PIT_BINS, np.int64)
        self._values: set[float] = set()
        # By test rating; groups by predicted std are known when all have come.
        self._squared, self._std = np.empty(n, np.float32), np.empty(n, np.float32)
        self._covering = np.empty(n, np.uint8)
        self._at = 0

    def add(
        self,
        y: ArrayLike,
        mean: ArrayLike,
        mu: NDArray[np.floating[Any]],
        var: NDArray[np.floating[Any]],
    ) -> None:
        """Add the next chunk of pairs, with the arguments of `Scorer.add`."""
        rating = np.ascontiguousarray(y, dtype=np.float64)
        self._scorer.add(rating, mean, mu, var)
        pit = mixture_cdf(rating, mu, var)
        self._pit += np.histogram(pit, PIT_BINS, (0.0, 1.0))[0]
        if len(self._values) <= FEW_VALUES:
            self._values.update(np.unique(rating).tolist())
        part = slice(self._at, self._at + len(rating))
        self._squared[part] = (rating - np.asarray(mean, np.float64)) ** 2
        self._std[part] = np.sqrt(mixture_moments(mu, var)[1])
        self._covering[part] = _levels_that_cover(pit)
        self._at = part.stop

    def result(self) -> Calibration:
        """Return the calibration of all pairs, once they have been added."""
        overall, n = self._scorer.result(), len(self._covering)
        if self._at != n:
            raise InputError(f"{self._at} ratings were added and {n} announced")
        groups = [g for side, x in self._counts.items() for g in self._groups(side, x, 3)]
        groups += self._groups("error", self._errors, 5)
        # Float32 holds all digits that there are.
        groups += self._groups("std", self._std.astype(np.float64), 5)
        return Calibration(
            overall=overall,
            groups=tuple(groups),
            pit=tuple(self._pit.tolist()),
            levels=FINE_LEVELS,
            observed=_shares(self._covering),
            # Few ratings are not enough for that: each value must be there twice, on average.
            few_values=len(self._values) <= min(FEW_VALUES, overall.n // 2),
        )

    def _groups(self, side: str, values: NDArray[Any], parts: int) -> list[Group]:
        """Groups of about equally many ratings by what is known of each; NaN is in none."""
        known = values[~np.isnan(values)]
        bounds, out = equal_parts(known, parts), []
        names = (_COUNTS if parts == 3 else _MEASURES)[len(bounds) - 1] if bounds else ()
        for name, (low, high) in zip(names, bounds, strict=True):
            mine = (values >= low) & (values <= high)
            rmse = float(np.sqrt(np.mean(self._squared[mine], dtype=np.float64)))
            shares = _shares(self._covering[mine])
            out.append(Group(side, name, low, high, int(mine.sum()), rmse, shares))
        return out


def equal_parts(values: NDArray[Any], parts: int) -> list[tuple[Any, Any]]:
    """Lowest and highest value of up to `parts` groups of about equally many.

    Equals stay together: each cut is made between values where it is nearest to its share.
    """
    found, n = np.unique(values, return_counts=True)
    before = np.concatenate([[0], np.cumsum(n)])  # ratings before each possible cut
    cuts = [int(np.abs(before - len(values) * k / parts).argmin()) for k in range(parts + 1)]
    return [
        (found[lo].item(), found[hi - 1].item()) for lo, hi in itertools.pairwise(cuts) if lo < hi
    ]


def _levels_that_cover(pit: Floats) -> Counts:
    """Number of fine levels, counted from the widest, whose interval holds the rating."""
    above = np.searchsorted(_TAILS, pit, side="right")
    below = len(_TAILS) - np.searchsorted(np.sort(1.0 - _TAILS), pit, side="left")
    return np.minimum(above, below)


def _shares(covering: NDArray[np.uint8]) -> tuple[float, ...]:
    """Share of ratings inside the interval of each fine level, ascending."""
    counts = np.bincount(covering, minlength=len(FINE_LEVELS) + 1)
    # A rating that the k widest intervals hold counts for each of these levels.
    held = np.cumsum(counts[::-1])[:-1]
    return tuple((held / max(counts.sum(), 1)).tolist())
