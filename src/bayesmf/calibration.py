"""Do intervals hold what they promise? Coverage overall and by what was known, PIT, a verdict."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bayesmf.diagnostics import LEVELS, Scorer, Scores
from bayesmf.errors import InputError
from bayesmf.mixture import mixture_cdf

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

FINE_LEVELS = tuple(range(1, 100))
"""Levels of the reliability curve, in percent."""
PIT_BINS = 20
# A gap from the nominal level counts beyond these, in points, and beyond so many standard errors.
TOLERANCE, GROUP_TOLERANCE = 1.5, 3.0
STANDARD_ERRORS = 3.0

_TAILS = (100 - np.array(FINE_LEVELS)[::-1]) / 200  # ascending
_NAMES = {1: ("all",), 2: ("fewest", "most"), 3: ("fewest", "middle", "most")}


@dataclass(frozen=True)
class Group:
    """Test ratings whose users (or items) have `low` to `high` training ratings.

    `observed` is the share of ratings inside the central interval of each of the fine levels.
    """

    side: str
    name: str
    low: int
    high: int
    n: int
    rmse: float
    observed: tuple[float, ...]

    @property
    def coverage(self) -> dict[str, float]:
        """As of `Scores`."""
        return {str(level): self.observed[FINE_LEVELS.index(level)] for level in LEVELS}

    @property
    def span(self) -> str:
        """Its training ratings."""
        return f"{self.low:,}" if self.low == self.high else f"{self.low:,}-{self.high:,}"

    def __str__(self) -> str:
        ratings = "rating" if self.low == self.high == 1 else "ratings"
        return f"{self.side}s with {self.span} training {ratings}"


@dataclass(frozen=True)
class Gap:
    """How far the coverage of an interval is from its level.

    `level` is in percent, `observed` a share; `allowed` is the larger of the tolerance and three
    binomial standard errors, in points; `group` is None for all ratings.
    """

    group: Group | None
    level: int
    observed: float
    allowed: float

    @property
    def points(self) -> float:
        """Observed less nominal, in percentage points."""
        return 100 * self.observed - self.level

    @property
    def counts(self) -> bool:
        """Whether it is larger than tolerance and chance together explain."""
        return abs(self.points) > self.allowed


@dataclass(frozen=True)
class Calibration:
    """How well the predictive distribution of new ratings held on a test set.

    Attributes
    ----------
    overall : Scores
        RMSE, MAE, NLL, CRPS and coverage of all test ratings.
    groups : tuple of Group
        Terciles of the test ratings by training ratings of their user, then of their item. Equal
        counts stay together, so there may be fewer than three.
    pit : tuple of int
        Test ratings by the probability that was given to a smaller one, in equal bins from 0 to 1.
    levels, observed : tuple
        The reliability curve: nominal levels in percent, share of ratings inside.
    """

    overall: Scores
    groups: tuple[Group, ...]
    pit: tuple[int, ...]
    levels: tuple[int, ...]
    observed: tuple[float, ...]

    def gaps(self) -> list[Gap]:
        """Of all ratings, then of each group, by level."""
        out = _gaps(None, self.overall.coverage, self.overall.n)
        for group in self.groups:
            out += _gaps(group, group.coverage, group.n)
        return out

    @property
    def calibrated(self) -> bool:
        """Whether no gap counts."""
        return not any(gap.counts for gap in self.gaps())

    @property
    def verdict(self) -> str:
        """In a sentence: the largest gap overall and in a group, and whether they matter."""
        gaps = self.gaps()
        overall = _largest([gap for gap in gaps if gap.group is None])
        group = _largest([gap for gap in gaps if gap.group is not None])
        if self.calibrated:
            clear = max(gap.allowed for gap in gaps if gap.group is None) <= TOLERANCE
            # Few ratings cannot show that all is well, only that nothing is seen to be wrong.
            first = (
                "Intervals are calibrated"
                if clear
                else "Nothing is seen to be wrong with intervals"
            )
        else:
            worst = max((overall, group), key=_rank)
            first = f"Intervals are too {'narrow' if worst.points < 0 else 'wide'}"
        return f"{first}: the largest gaps are {_told(overall)}, and {_told(group)}."

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        return {
            "overall": self.overall.as_dict(),
            "groups": [asdict(group) | {"coverage": group.coverage} for group in self.groups],
            "pit": list(self.pit),
            "levels": list(self.levels),
            "observed": list(self.observed),
            "calibrated": self.calibrated,
            "verdict": self.verdict,
        }


def _gaps(group: Group | None, coverage: Mapping[str, float], n: int) -> list[Gap]:
    tolerance = TOLERANCE if group is None else GROUP_TOLERANCE
    return [
        Gap(group, level, coverage[str(level)], allowed_gap(level, n, tolerance))
        for level in LEVELS
    ]


def allowed_gap(level: float, n: int, tolerance: float) -> float:
    """The larger of the tolerance and what chance explains in n ratings, in points."""
    return max(tolerance, STANDARD_ERRORS * math.sqrt(level * (100 - level) / n))


def _rank(gap: Gap) -> tuple[bool, float]:
    return gap.counts, abs(gap.points)


def _largest(gaps: list[Gap]) -> Gap:
    """One that counts before any that does not."""
    return max(gaps, key=_rank)


def _told(gap: Gap) -> str:
    where = "overall" if gap.group is None else f"in {gap.group}"
    inside = f"{100 * gap.observed:.1f}% in the {gap.level}% interval"
    return f"{gap.points:+.1f} points {where} ({inside}; up to {gap.allowed:.1f} allowed)"


class Calibrator:
    """Accumulate a calibration over chunks of pairs, so that no chunk needs to be kept.

    Parameters
    ----------
    user_counts, item_counts : array-like of int
        For each test rating, in the order of the chunks: how many training ratings its user has,
        and its item. An unseen one has none.
    """

    def __init__(self, user_counts: ArrayLike, item_counts: ArrayLike) -> None:
        self._sides = [
            _Side("user", np.asarray(user_counts, np.int64)),
            _Side("item", np.asarray(item_counts, np.int64)),
        ]
        self._scorer = Scorer()
        self._pit = np.zeros(PIT_BINS, np.int64)
        self._at = 0

    def add(
        self,
        y: ArrayLike,
        mean: ArrayLike,
        mu: NDArray[np.floating[Any]],
        var: NDArray[np.floating[Any]],
    ) -> None:
        """Add the next pairs, as to a `Scorer`."""
        rating = np.ascontiguousarray(y, dtype=np.float64)
        self._scorer.add(rating, mean, mu, var)
        pit = mixture_cdf(rating, mu, var)
        self._pit += np.histogram(pit, PIT_BINS, (0.0, 1.0))[0]
        squared = (rating - np.asarray(mean, np.float64)) ** 2
        part = slice(self._at, self._at + len(rating))
        covering = _levels_that_cover(pit)
        for side in self._sides:
            side.add(part, squared, covering)
        self._at = part.stop

    def result(self) -> Calibration:
        """The calibration of all pairs, once they have been added."""
        overall, side = self._scorer.result(), self._sides[0]
        if self._at != len(side.label):
            raise InputError(f"{self._at} ratings were added and {len(side.label)} announced.")
        return Calibration(
            overall=overall,
            groups=tuple(group for side in self._sides for group in side.groups()),
            pit=tuple(self._pit.tolist()),
            levels=FINE_LEVELS,
            observed=_shares(side.covering.sum(axis=0)),
        )


class _Side:
    """The groups of one side: users or items."""

    def __init__(self, name: str, counts: Counts) -> None:
        self.name = name
        bounds = terciles(counts)
        self.low = [int(low) for low, _ in bounds]
        self.high = [int(high) for _, high in bounds]
        self.label = np.searchsorted(self.high, counts).astype(np.int8)
        self.squared = np.zeros(len(bounds))
        self.covering = np.zeros((len(bounds), len(FINE_LEVELS) + 1), np.int64)

    def add(self, part: slice, squared: Floats, covering: Counts) -> None:
        label = self.label[part]
        for k in range(len(self.low)):
            mine = label == k
            self.squared[k] += squared[mine].sum()
            self.covering[k] += np.bincount(covering[mine], minlength=self.covering.shape[1])

    def groups(self) -> list[Group]:
        names = _NAMES[len(self.low)]
        out = []
        for k, covering in enumerate(self.covering):
            n = int(covering.sum())
            rmse = math.sqrt(self.squared[k] / n)
            shares = _shares(covering)
            out.append(Group(self.name, names[k], self.low[k], self.high[k], n, rmse, shares))
        return out


def terciles(counts: Counts) -> list[tuple[int, int]]:
    """Lowest and highest count of up to three groups of about equally many ratings.

    Equal counts stay together: each cut is made between counts where it is nearest to a third.
    """
    values, n = np.unique(counts, return_counts=True)
    before = np.concatenate([[0], np.cumsum(n)])  # ratings before each possible cut
    cuts = [int(np.abs(before - len(counts) * k / 3).argmin()) for k in range(4)]
    return [
        (int(values[lo]), int(values[hi - 1])) for lo, hi in itertools.pairwise(cuts) if lo < hi
    ]


def _levels_that_cover(pit: Floats) -> Counts:
    """How many of the fine levels, from the widest on, have an interval that holds the rating."""
    above = np.searchsorted(_TAILS, pit, side="right")
    below = len(_TAILS) - np.searchsorted(np.sort(1.0 - _TAILS), pit, side="left")
    return np.minimum(above, below)


def _shares(covering: Counts) -> tuple[float, ...]:
    """Share of ratings inside the interval of each fine level, ascending."""
    # Held by the k widest: so by the narrowest of those and all that are wider.
    held = np.cumsum(covering[::-1])[:-1]
    return tuple((held / max(covering.sum(), 1)).tolist())
