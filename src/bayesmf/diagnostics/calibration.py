"""Do intervals hold what they promise? Coverage overall and by group, PIT, a verdict."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from bayesmf.data.tabular import html_table
from bayesmf.diagnostics.coverage import FINE_LEVELS, GROUP_TOLERANCE, Gap, Group, gaps_of, worst_of
from bayesmf.diagnostics.metrics import LEVELS, Scores
from bayesmf.wording import short

# Intervals hold more training ratings than others: beyond this share of them nothing is judged.
LEARNT_SHARE = 0.01
# The level, in percent, that most people ask for: where intervals from here on are sound, they are
# advised to ask for no less.
USUAL = 90


@dataclass(frozen=True)
class Calibration:
    """How well the predictive distribution of new ratings held on a test set.

    One number decides, `worst`: the largest gap between promised and observed coverage, over all
    ratings and every group, over all levels from 50% to 95%.

    Attributes
    ----------
    overall : Scores
        RMSE, MAE, NLL, CRPS and coverage of all test ratings.
    groups : tuple of Group
        Thirds of the test ratings by training ratings of their user, then of their item; fifths by
        how far their user's training ratings are from their predictions, then by the standard
        deviation that was predicted. Equals stay together, so there may be fewer. All of these were
        known before the test ratings came, so intervals that are right hold what they promise in
        each group; groups by errors of the test ratings themselves would show gaps anyway. There
        are none by training errors where the model lacks its training ratings.
    pit : tuple of int
        Histogram of the probability integral transform: test ratings by the probability that was
        given to a smaller rating, in equal bins from 0 to 1.
    levels, observed : tuple
        The reliability curve: levels from 50% to 95%, and the share of ratings inside.
    few_values : bool
        Whether ratings take few values, as stars do. `pit` is then uneven even when intervals are
        right: a star has all of its probability at one value.

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
        """List the gaps between promised and observed coverage.

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
        """The largest gap; one that counts before any that does not."""
        return worst_of(self.gaps())

    @property
    def calibrated(self) -> bool | None:
        """Whether no gap counts; None where too many test ratings are training ratings."""
        return None if self._spoilt() else not self.worst.counts

    def _spoilt(self) -> bool:
        return self.overall.learnt > LEARNT_SHARE * self.overall.n

    @property
    def visible(self) -> float:
        """Smallest gap of all ratings, in points, that would count at every level."""
        return max(gap.allowed for gap in gaps_of(None, self.observed, self.overall.n))

    @property
    def headline(self) -> str:
        """Verdict in few words, for titles."""
        if self._spoilt():
            return "Intervals cannot be judged by ratings that were learnt from"
        worst = self.worst
        told = f"worst gap {worst.points:+.1f} points ({worst.allowed:.1f} allowed)"
        other = self._opposite()
        elsewhere = f", elsewhere too {_way(other)}" if other is not None else ""
        return f"{self._found()}{elsewhere}: {told}"

    @property
    def verdict(self) -> str:
        """Whether intervals hold, which is worst, and what to do, in a sentence."""
        if self._spoilt():
            return (
                f"Intervals cannot be judged by these ratings: {self.overall.learnt:,} of "
                f"{self.overall.n:,} were learnt from; test on ratings that were held out."
            )
        worst = self.worst
        if worst.counts:
            return f"{self._found()}{self._for_whom()}: {self._holds()}; {self._advice()}."
        told = (
            f"the worst of all is the {worst.level}% interval of {worst.where}, which holds "
            f"{100 * worst.observed:.1f}%"
        )
        if self._few():
            ratings = "1 test rating" if self.overall.n == 1 else f"{self.overall.n:,} test ratings"
            return (
                f"{self._found()}: {told}; but with {ratings} only gaps above "
                f"{worst.allowed:.1f} points would be told from chance there, so test on more to "
                "be sure."
            )
        return f"{self._found()}: {told} (up to {worst.allowed:.1f} points off is allowed)."

    def _few(self) -> bool:
        """Whether the test set is too small to show even what would be let pass in a group."""
        return self.visible > GROUP_TOLERANCE

    def _found(self) -> str:
        if self.worst.counts:
            which = "" if self._sound_from() > USUAL else f" below {self._sound_from()}%"
            return f"Intervals{which} are too {_way(self.worst)}"
        if self._few():
            return "Nothing is seen to be wrong with intervals"
        return "Intervals hold what they promise"

    def _sound_from(self) -> int:
        """Lowest level from which on no gap counts, in any group."""
        return 1 + max(gap.level for gap in self.gaps() if gap.counts)

    def _everywhere(self) -> bool:
        """Whether intervals are wrong overall in the way of the worst, not in groups alone."""
        overall = gaps_of(None, self.observed, self.overall.n)
        return any(gap.counts and gap.points * self.worst.points > 0 for gap in overall)

    def _for_whom(self) -> str:
        worst = self.worst.group
        if worst is None:
            return ""
        if self._everywhere():
            return f", most of all for {worst}"
        others = len({gap.group for gap in self.gaps() if gap.counts} - {None, worst})
        more = f"{others} other group{'s' * (others > 1)} off as well" if others else ""
        if (other := self._opposite()) is not None:
            held = f"{100 * other.observed:.1f}% in the {other.level}% interval"
            more += f"; too {_way(other)} for {other.where}: {held}"
        return f" for {worst} ({more})" if more else f" for {worst}"

    def _opposite(self) -> Gap | None:
        """The largest gap that counts and is on the other side of zero than the worst."""
        way = self.worst.points if self.worst.counts else 0.0
        found = [gap for gap in self.gaps() if gap.counts and gap.points * way < 0]
        return worst_of(found) if found else None

    def _holds(self) -> str:
        worst = self.worst
        whose, of = ("their", "") if worst.group else ("the", " of all ratings")
        return f"{whose} {worst.level}% interval holds {100 * worst.observed:.1f}%{of}"

    def _advice(self) -> str:
        """What to do until the model is better: the level that holds what a user needs."""
        worst = self.worst
        if (sound := self._sound_from()) <= USUAL:
            return f"ask for {sound}% or more, where on these ratings all hold what they promise"
        if worst.points > 0:
            if (narrow := self._opposite()) is not None:
                return f"the wide ones are safe, the narrow ones are not: {self._ask(narrow)} there"
            return (
                f"they are safe, but say less than they could: where you need {worst.level}%, the "
                f"{self._enough(worst)}% interval is enough"
            )
        if self._everywhere():
            cut = "if the model was fitted by SGD or cut short, fit with the defaults"
            return f"{self._ask(worst)}; {cut}"
        return f"{self._ask(worst)} there"

    def _ask(self, gap: Gap) -> str:
        """What to ask for where intervals are too narrow."""
        if (enough := self._enough(gap)) is None:
            most = FINE_LEVELS[-1]
            return f"no interval up to {most}% holds {gap.level}%, so do not rely on them"
        return f"where you need {gap.level}%, ask for {enough}%, or trust them less"

    def _enough(self, gap: Gap) -> int | None:
        """The lowest level that holds what the gap's level promises."""
        observed = self.observed if gap.group is None else gap.group.observed
        pairs = zip(FINE_LEVELS, observed, strict=True)
        return next((level for level, share in pairs if 100 * share >= gap.level), None)

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as plain numbers and text, for JSON.

        Returns
        -------
        dict
            The attributes and properties by name; `worst_gap` is in points, below zero where
            intervals are too narrow.

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
        """Return coverage overall and by group as text, for people.

        Returns
        -------
        list of tuple of str
            Rows, the head first: group, range of what it is grouped by, test ratings, RMSE,
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


def _way(gap: Gap) -> str:
    return "narrow" if gap.points < 0 else "wide"
