"""Promised and observed coverage of intervals: groups of test ratings, and gaps that count."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bayesmf.diagnostics.metrics import LEVELS

FINE_LEVELS = tuple(range(50, 96))
"""Levels at which coverage is judged, in percent. Narrower intervals are rarely used, and whole
stars make their coverage jump; beyond 95% there are too few ratings outside."""
# A gap counts if it is larger than these, in points, and than so many standard errors. They were
# chosen on simulations, before any real ratings: with a model that is right, simulated test sets
# (4,000 to 20,000 of each size, 46 levels x 7 curves) raise a false alarm in
#     ratings         200    600   2,000  4,400  8,000  11,000  20,000
#     of the sets    0.1%   0.1%    0.2%   0.3%   0.3%    0.1%   0.03%
# With 3 standard errors it is 13% of sets of 2,000 and 0.03% of those of 20,000. Test ratings are
# taken to be independent: few items (a hundred, say) with an unknown effect each raise it, to 8%
# of sets of 20,000 where that effect has .3 of the variance of the noise.
TOLERANCE, GROUP_TOLERANCE = 1.5, 3.0
STANDARD_ERRORS = 4.0


@dataclass(frozen=True)
class Group:
    """Test ratings whose users (or items) have `low` to `high` training ratings.

    Attributes
    ----------
    side : {"user", "item"}
        Whose training ratings are counted.
    name : {"fewest", "middle", "most", "all"}
        Position among the groups of that side.
    low, high : int
        The fewest and the most training ratings.
    n : int
        Number of test ratings.
    rmse : float
        Root mean squared error of the test ratings.
    observed : tuple of float
        Share of test ratings inside the central interval of each of the levels 50% to 95%.

    Examples
    --------
    >>> from bayesmf import BayesianMF, Gibbs, Synthetic
    >>> train, test = Synthetic(60, 40, 1200).ratings().split(0.2)
    >>> model = BayesianMF(4, sampler=Gibbs(epochs=20), random_state=0).fit(train)
    >>> group = model.calibration(test).groups[0]
    >>> group.side, group.name, sorted(group.coverage)
    ('user', 'fewest', ['50', '80', '90', '95'])
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
        """Share of test ratings inside the interval, by level in percent, like that of `Scores`."""
        return {str(level): self.observed[FINE_LEVELS.index(level)] for level in LEVELS}

    @property
    def span(self) -> str:
        """Range of training ratings, as text."""
        return f"{self.low:,}" if self.low == self.high else f"{self.low:,}-{self.high:,}"

    def __str__(self) -> str:
        ratings = "rating" if self.low == self.high == 1 else "ratings"
        return f"{self.side}s with {self.span} training {ratings}"

    def __repr__(self) -> str:
        inside = f"{100 * self.coverage['90']:.1f}% in the 90% interval"
        return f"Group({self}: {self.n:,} test ratings, RMSE {self.rmse:#.4g}, {inside})"


@dataclass(frozen=True)
class Gap:
    """How far the coverage of an interval is from its level.

    Attributes
    ----------
    group : Group or None
        Group of test ratings; None stands for all ratings.
    level : int
        Coverage that the interval promises, in percent.
    observed : float
        Share of the ratings inside.
    allowed : float
        How far off it may be, in points: the larger of the tolerance and of what chance does.

    Examples
    --------
    >>> from bayesmf import Gap
    >>> gap = Gap(None, 90, 0.841, 1.5)
    >>> gap.counts
    True
    >>> gap
    Gap(all ratings: 84.1% in the 90% interval, -5.9 points, 1.5 allowed)
    """

    group: Group | None
    level: int
    observed: float
    allowed: float

    @property
    def points(self) -> float:
        """Observed less promised, in percentage points."""
        return 100 * self.observed - self.level

    @property
    def counts(self) -> bool:
        """Whether it is larger than what is allowed."""
        return abs(self.points) > self.allowed

    @property
    def where(self) -> str:
        """Whose ratings these are, in words."""
        return "all ratings" if self.group is None else str(self.group)

    def __repr__(self) -> str:
        inside = f"{100 * self.observed:.1f}% in the {self.level}% interval"
        told = f"{self.points:+.1f} points, {self.allowed:.1f} allowed"
        return f"Gap({self.where}: {inside}, {told})"


def allowed_gap(level: float, n: int, tolerance: float) -> float:
    """Largest gap, in points, that n ratings may show: of the tolerance and what chance does.

    Standard errors alone would blame a model for the one rating of three that lies outside. The
    second term is Bernstein's, which holds for few ratings and vanishes for many. No gap can be
    larger than that of all ratings or none inside.
    """
    errors = STANDARD_ERRORS * math.sqrt(level * (100 - level) / n)
    chance = errors + 100 * STANDARD_ERRORS**2 / (6 * n)
    return max(tolerance, min(chance, float(max(level, 100 - level))))


def gaps_of(group: Group | None, observed: Sequence[float], n: int) -> list[Gap]:
    """Gaps of a group, or of all ratings, at each of the fine levels."""
    tolerance = TOLERANCE if group is None else GROUP_TOLERANCE
    return [
        Gap(group, level, share, allowed_gap(level, n, tolerance))
        for level, share in zip(FINE_LEVELS, observed, strict=True)
    ]


def worst_of(gaps: Iterable[Gap]) -> Gap:
    """Largest of gaps; one that counts before any that does not."""
    return max(gaps, key=lambda gap: (gap.counts, abs(gap.points)))
