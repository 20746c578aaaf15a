"""Calibration of prediction intervals: coverage overall and by group, PIT, a verdict."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bayesmf.data.tabular import html_table
from bayesmf.diagnostics.metrics import LEVELS, Scorer, Scores
from bayesmf.errors import InputError
from bayesmf.kernels.mixture import mixture_cdf, mixture_moments
from bayesmf.model.draws import RatingLevels
from bayesmf.wording import short

FINE_LEVELS = tuple(range(50, 96))
"""Levels at which coverage is judged, in percent. Narrower intervals are rarely used, and whole
stars make their coverage jump; beyond 95% there are too few ratings outside."""
# A gap counts if it exceeds these tolerances, in points, and this many standard errors. They were
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
# Intervals contain more training ratings than others: above this share of them there is no verdict.
LEARNT_SHARE = 0.01
# The usual level, in percent: if intervals from here on are calibrated, the advice is to use those.
USUAL = 90
Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

PIT_BINS = 20
# Ratings with at most this many distinct values are stars, or another discrete scale.
FEW_VALUES = 30

_TAILS = (100 - np.array(FINE_LEVELS)[::-1]) / 200  # ascending
# Names of groups, by number of groups.
_COUNTS = (("all",), ("fewest", "most"), ("fewest", "middle", "most"))
_MEASURES = (
    ("all",), ("lowest", "highest"), ("lowest", "middle", "highest"),
    ("lowest", "second", "third", "highest"),
    ("lowest", "second", "middle", "fourth", "highest"),
)  # fmt: skip


@dataclass(frozen=True)
class Group:
    """Group of test ratings, formed by a quantity known before they were observed.

    Attributes
    ----------
    side : {"user", "item", "error", "std"}
        Grouping quantity: training ratings of the user or of the item, training RMSE of the user,
        or predicted standard deviation.
    name : str
        Position among the groups of that side: "fewest", "middle", "most" or "all" by training
        ratings; "lowest", "second", "middle", "fourth" or "highest".
    low, high : int or float
        Range of the grouping quantity.
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
        """Share of test ratings inside the interval, by level in percent, as in `Scores`."""
        return {str(level): self.observed[FINE_LEVELS.index(level)] for level in LEVELS}

    @property
    def span(self) -> str:
        """Range of the grouping quantity, as text."""
        low, high = (
            f"{x:,}" if self.side in COUNTED else _digits(x) for x in (self.low, self.high)
        )
        return low if low == high else f"{low}-{high}"

    @property
    def label(self) -> str:
        """Side and position, for tables."""
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
    """A number with three digits, or all digits before the point."""
    return f"{x:,.0f}" if x >= 1000 else f"{x:.3g}"


@dataclass(frozen=True)
class Gap:
    """How far the coverage of an interval is from its level.

    Attributes
    ----------
    group : Group or None
        Group of test ratings; None stands for all ratings.
    level : int
        Nominal coverage of the interval, in percent.
    observed : float
        Share of the ratings inside.
    allowed : float
        Largest allowed deviation, in points: the larger of the tolerance and of chance.

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
        """Observed minus nominal coverage, in percentage points."""
        return 100 * self.observed - self.level

    @property
    def counts(self) -> bool:
        """Whether it exceeds the allowed deviation."""
        return abs(self.points) > self.allowed

    @property
    def where(self) -> str:
        """Description of the group."""
        return "all ratings" if self.group is None else str(self.group)

    def __repr__(self) -> str:
        inside = f"{100 * self.observed:.1f}% in the {self.level}% interval"
        details = f"{self.points:+.1f} points, {self.allowed:.1f} allowed"
        return f"Gap({self.where}: {inside}, {details})"


def allowed_gap(level: float, n: int, tolerance: float) -> float:
    """Largest allowed gap of n ratings, in points: the larger of the tolerance and of chance.

    Standard errors alone would be too strict for few ratings; the second term is Bernstein's, which
    is valid for few ratings and vanishes for many. It is at most the gap with all or no
    ratings inside.
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
    """The largest gap; gaps that count come first."""
    return max(gaps, key=lambda gap: (gap.counts, abs(gap.points)))


@dataclass(frozen=True)
class Calibration:
    """Calibration of the predictive distribution on a test set.

    The verdict depends on `worst`: the largest gap between nominal and observed coverage over all
    ratings and all groups, at levels from 50% to 95%.

    Attributes
    ----------
    overall : Scores
        RMSE, MAE, NLL, CRPS and coverage of all test ratings.
    groups : tuple of Group
        Thirds of the test ratings by training ratings of their user, then of their item; fifths by
        training error of their user (if the model has its training ratings), then by predicted
        standard deviation. Ties stay together, so there may be fewer groups. These quantities do
        not depend on the test ratings, so correct intervals have their nominal coverage in each
        group.
    pit : tuple of int
        Histogram of the probability integral transform: test ratings by predicted probability of a
        smaller rating, in equal bins from 0 to 1.
    levels, observed : tuple
        The reliability curve: levels from 50% to 95%, and the share of ratings inside.
    few_values : bool
        Whether ratings take few values, such as stars. `pit` is then uneven even for correct
        intervals.

    Examples
    --------
    >>> from bayesmf import BayesianMF, Gibbs, Synthetic
    >>> train, test = Synthetic(200, 100, 8_000).ratings().split(0.25)
    >>> model = BayesianMF(4, sampler=Gibbs(epochs=60), random_state=0).fit(train)
    >>> found = model.calibration(test)
    >>> found.calibrated
    True
    >>> found.overall.n, len(found.groups), len(found.gaps())
    (2000, 16, 782)
    """

    overall: Scores
    groups: tuple[Group, ...]
    pit: tuple[int, ...]
    levels: tuple[int, ...]
    observed: tuple[float, ...]
    few_values: bool = False

    def gaps(self) -> list[Gap]:
        """List the gaps between nominal and observed coverage.

        Returns
        -------
        list of Gap
            Those of all ratings, then those of each group, by level.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Gibbs, Synthetic
        >>> train, test = Synthetic(60, 40, 1200).ratings().split(0.2)
        >>> model = BayesianMF(4, sampler=Gibbs(epochs=20), random_state=0).fit(train)
        >>> gaps = model.calibration(test).gaps()
        >>> gaps[0].where, gaps[0].level
        ('all ratings', 50)
        """
        out = gaps_of(None, self.observed, self.overall.n)
        for group in self.groups:
            out += gaps_of(group, group.observed, group.n)
        return out

    @property
    def worst(self) -> Gap:
        """The largest gap; gaps that count come first."""
        return worst_of(self.gaps())

    @property
    def calibrated(self) -> bool | None:
        """Whether no gap counts; None if too many test ratings are training ratings."""
        return None if self._overlaps_training() else not self.worst.counts

    def _overlaps_training(self) -> bool:
        return self.overall.learnt > LEARNT_SHARE * self.overall.n

    @property
    def visible(self) -> float:
        """Smallest gap of all ratings, in points, that would count at every level."""
        return max(gap.allowed for gap in gaps_of(None, self.observed, self.overall.n))

    @property
    def headline(self) -> str:
        """Short verdict, for titles."""
        if self._overlaps_training():
            return "Intervals cannot be judged by training ratings"
        worst = self.worst
        details = f"worst gap {worst.points:+.1f} points ({worst.allowed:.1f} allowed)"
        other = self._opposite()
        elsewhere = f", elsewhere too {_direction(other)}" if other is not None else ""
        return f"{self._finding()}{elsewhere}: {details}"

    @property
    def verdict(self) -> str:
        """Verdict, worst gap and advice, in a sentence."""
        if self._overlaps_training():
            return (
                f"Intervals cannot be judged by these ratings: {self.overall.learnt:,} of "
                f"{self.overall.n:,} are in the training data; test on ratings that were held out."
            )
        worst = self.worst
        if worst.counts:
            where, coverage = self._groups_text(), self._coverage_text()
            return f"{self._finding()}{where}: {coverage}; {self._advice()}."
        details = (
            f"the worst of all is the {worst.level}% interval of {worst.where}, which holds "
            f"{100 * worst.observed:.1f}%"
        )
        if self._few():
            ratings = "1 test rating" if self.overall.n == 1 else f"{self.overall.n:,} test ratings"
            return (
                f"{self._finding()}: {details}; but with {ratings} only gaps above "
                f"{worst.allowed:.1f} points would exceed chance there; use more test ratings."
            )
        return f"{self._finding()}: {details} (up to {worst.allowed:.1f} points off is allowed)."

    def _few(self) -> bool:
        """Whether the test set is too small to show gaps of the size of the tolerance."""
        return self.visible > GROUP_TOLERANCE

    def _finding(self) -> str:
        if self.worst.counts:
            which = "" if self._sound_from() > USUAL else f" below {self._sound_from()}%"
            return f"Intervals{which} are too {_direction(self.worst)}"
        if self._few():
            return "Nothing is seen to be wrong with intervals"
        return "Intervals hold what they promise"

    def _sound_from(self) -> int:
        """Lowest level from which on no gap counts, in any group."""
        return 1 + max(gap.level for gap in self.gaps() if gap.counts)

    def _everywhere(self) -> bool:
        """Whether coverage over all ratings is off in the direction of the worst gap."""
        overall = gaps_of(None, self.observed, self.overall.n)
        return any(gap.counts and gap.points * self.worst.points > 0 for gap in overall)

    def _groups_text(self) -> str:
        worst = self.worst.group
        if worst is None:
            return ""
        if self._everywhere():
            return f", most of all for {worst}"
        others = len({gap.group for gap in self.gaps() if gap.counts} - {None, worst})
        more = f"{others} other group{'s' * (others > 1)} off as well" if others else ""
        if (other := self._opposite()) is not None:
            held = f"{100 * other.observed:.1f}% in the {other.level}% interval"
            more += f"; too {_direction(other)} for {other.where}: {held}"
        return f" for {worst} ({more})" if more else f" for {worst}"

    def _opposite(self) -> Gap | None:
        """The largest gap that counts and has the opposite sign of the worst."""
        way = self.worst.points if self.worst.counts else 0.0
        found = [gap for gap in self.gaps() if gap.counts and gap.points * way < 0]
        return worst_of(found) if found else None

    def _coverage_text(self) -> str:
        worst = self.worst
        whose, of = ("their", "") if worst.group else ("the", " of all ratings")
        return f"{whose} {worst.level}% interval holds {100 * worst.observed:.1f}%{of}"

    def _advice(self) -> str:
        """Advice: the level whose interval has the coverage a user needs."""
        worst = self.worst
        if (sound := self._sound_from()) <= USUAL:
            return f"ask for {sound}% or more, where on these ratings all hold what they promise"
        if worst.points > 0:
            if (narrow := self._opposite()) is not None:
                return f"the wide ones are safe, the narrow ones are not: {self._ask(narrow)} there"
            return (
                f"they are safe, but say less than they could: where you need {worst.level}%, the "
                f"{self._sufficient_level(worst)}% interval is enough"
            )
        if self._everywhere():
            cut = "if the model was fitted by SGD or cut short, fit with the defaults"
            return f"{self._ask(worst)}; {cut}"
        return f"{self._ask(worst)} there"

    def _ask(self, gap: Gap) -> str:
        """Advice for intervals that are too narrow."""
        if (enough := self._sufficient_level(gap)) is None:
            most = FINE_LEVELS[-1]
            return f"no interval up to {most}% holds {gap.level}%, so do not rely on them"
        return f"where you need {gap.level}%, ask for {enough}%, or trust them less"

    def _sufficient_level(self, gap: Gap) -> int | None:
        """The lowest level whose interval has the nominal coverage of the gap."""
        observed = self.observed if gap.group is None else gap.group.observed
        pairs = zip(FINE_LEVELS, observed, strict=True)
        return next((level for level, share in pairs if 100 * share >= gap.level), None)

    def as_dict(self) -> dict[str, Any]:
        """Return attributes and properties as plain numbers and text, for JSON.

        Returns
        -------
        dict
            By name; `worst_gap` is in points, below zero where intervals are too narrow.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Gibbs, Synthetic
        >>> train, test = Synthetic(60, 40, 1200).ratings().split(0.2)
        >>> model = BayesianMF(4, sampler=Gibbs(epochs=20), random_state=0).fit(train)
        >>> model.calibration(test).as_dict()["overall"]["n"]
        240
        """
        worst = self.worst
        return {
            "overall": self.overall.as_dict(),
            "groups": [asdict(group) | {"coverage": group.coverage} for group in self.groups],
            "pit": list(self.pit),
            "levels": list(self.levels),
            "observed": list(self.observed),
            "few_values": self.few_values,
            "worst_gap": worst.points,
            "worst": {
                "where": worst.where,
                "level": worst.level,
                "observed": worst.observed,
                "allowed": worst.allowed,
            },
            "calibrated": self.calibrated,
            "verdict": self.verdict,
        }

    def table(self) -> list[tuple[str, ...]]:
        """Return coverage overall and by group as text.

        Returns
        -------
        list of tuple of str
            Rows, the header first: group, range of the grouping quantity, test ratings, RMSE,
            coverage of levels.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Gibbs, Synthetic
        >>> train, test = Synthetic(60, 40, 1200).ratings().split(0.2)
        >>> model = BayesianMF(4, sampler=Gibbs(epochs=20), random_state=0).fit(train)
        >>> model.calibration(test).table()[0][:4]
        ('', 'range', 'tested on', 'RMSE')
        """
        heads = ("", "range", "tested on", "RMSE", *(f"{level}%" for level in LEVELS))
        every = [("all", "", self.overall.n, self.overall.rmse, self.overall.coverage)]
        every += [(g.label, g.span, g.n, g.rmse, g.coverage) for g in self.groups]
        return [heads] + [
            (name, span, f"{n:,}", short(rmse), *(f"{100 * x:.1f}%" for x in shares.values()))
            for name, span, n, rmse, shares in every
        ]

    def __repr__(self) -> str:
        n, rmse = self.overall.n, self.overall.rmse
        shares = ", ".join(f"{k}%: {100 * x:.1f}%" for k, x in self.overall.coverage.items())
        return f"Calibration({n:,} test ratings, RMSE {rmse:#.4g}, {shares}; {self.headline})"

    def _repr_html_(self) -> str:
        """Table with the verdict above, for notebooks."""
        head, *rows = self.table()
        return html_table(head, rows, self.verdict)


def _direction(gap: Gap) -> str:
    return "narrow" if gap.points < 0 else "wide"


class Calibrator:
    """Accumulate a calibration over chunks of pairs.

    `user_counts` and `item_counts` are the numbers of training ratings of each test rating's user
    and item, `user_errors` the user's root mean squared training error, NaN where it has none.
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
        # By test rating; groups by predicted std are formed at the end.
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
        # Float32 is exact for these values.
        groups += self._groups("std", self._std.astype(np.float64), 5)
        return Calibration(
            overall=overall,
            groups=tuple(groups),
            pit=tuple(self._pit.tolist()),
            levels=FINE_LEVELS,
            observed=_shares(self._covering),
            # Requires enough ratings: two for each value, on average.
            few_values=len(self._values) <= min(FEW_VALUES, overall.n // 2),
        )

    def _groups(self, side: str, values: NDArray[Any], parts: int) -> list[Group]:
        """Groups of about equally many ratings by `values`; NaN is in no group."""
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

    Ties stay together: each cut is between values, nearest to its share.
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
