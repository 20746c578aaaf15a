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
# (3,000 to 8,000 of each size, 46 levels x 17 curves) raise a false alarm in
#     ratings         60    200    600   2,000  4,400  8,000  11,000  20,000
#     of the sets   0.1%   0.2%   0.4%    0.5%   0.7%   0.7%    0.6%    0.3%
# With 3 standard errors and 7 curves it was 13% of sets of 2,000 already. Test ratings are
# taken to be independent: few items (a hundred, say) with an unknown effect each raise it, to 8%
# of sets of 20,000 where that effect has .3 of the variance of the noise.
TOLERANCE, GROUP_TOLERANCE = 1.5, 3.0
STANDARD_ERRORS = 4.0
# Sides whose groups are by numbers of training ratings.
COUNTED = ("user", "item")


@dataclass(frozen=True)
class Group:
    """Test ratings that are alike in something that was known before they came.

    Attributes
    ----------
    side : {"user", "item", "error", "std"}
        What they are grouped by: training ratings of their user, or of their item; how far the
        user's training ratings are from their predictions (root mean square); or the standard
        deviation that was predicted.
    name : str
        Position among the groups of that side: "fewest", "middle", "most" or "all" by training
        ratings; "lowest", "second", "middle", "fourth" or "highest".
    low, high : int or float
        The least and the most of it.
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
    low: float
    high: float
    n: int
    rmse: float
    observed: tuple[float, ...]

    @property
    def coverage(self) -> dict[str, float]:
        """Share of test ratings inside the interval, by level in percent, like that of `Scores`."""
        return {str(level): self.observed[FINE_LEVELS.index(level)] for level in LEVELS}

    @property
    def span(self) -> str:
        """Range of what they are grouped by, as text."""
        low, high = (
            f"{x:,}" if self.side in COUNTED else _digits(x) for x in (self.low, self.high)
        )
        return low if low == high else f"{low}-{high}"

    @property
    def label(self) -> str:
        """Side and position in few words, for tables."""
        return f"{self.side}{'s' * (self.side in COUNTED)}, {self.name}"

    def __str__(self) -> str:
        if self.side == "error":
            return f"users with training errors of {self.span}"
        if self.side == "std":
            return f"ratings with a predicted std of {self.span}"
        ratings = "rating" if self.low == self.high == 1 else "ratings"
        return f"{self.side}s with {self.span} training {ratings}"

    def __repr__(self) -> str:
        inside = f"{100 * self.coverage['90']:.1f}% in the 90% interval"
        return f"Group({self}: {self.n:,} test ratings, RMSE {self.rmse:#.4g}, {inside})"


def _digits(x: float) -> str:
    """A number with three digits, or all that stand before the point."""
    return f"{x:,.0f}" if x >= 1000 else f"{x:.3g}"


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
