"""Verdicts on claims: judged for each seed, and combined over seeds.

claims.csv has the claims: the data set that one is about, its place in the paper, and the rule by
which it holds or holds in part.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.paper.tables import Row, Span

HOLDS, PART, NOT, UNTESTED = "holds", "holds in part", "does not hold", "not tested"
Figures = dict[str, float | None]
Finding = tuple[str, str, Figures]  # verdict, why (names of figures are in braces), figures
Judge = Callable[[str, Any], Finding]  # of a data set's name and the Results of a seed


class NotTestedError(Exception):
    """A claim has no verdict for want of a trial or a result."""


@dataclass(frozen=True)
class Verdict:
    """A claim, the verdict on it and why; `figures` are the numbers that decide it."""

    name: str
    place: str
    claim: str
    rule: str
    verdict: str
    because: str
    figures: Mapping[str, Span]
    earlier: tuple[str, ...] = ()  # verdicts of a quarter and of half of the time

    def rows(self) -> list[Row]:
        about = {"claim": self.name, "place": self.place, "text": self.claim, "rule": self.rule}
        about |= {"quarter": self.earlier[0], "half": self.earlier[1], "verdict": self.verdict}
        figures: Row = {**self.figures} or {"": None}
        return [{**about, "figure": name, "value": value} for name, value in figures.items()]


def tally(verdicts: Sequence[Verdict]) -> str:
    """How many claims have each verdict, in a sentence."""
    names = {HOLDS: "hold", PART: "hold in part", NOT: "do not hold", UNTESTED: "are not tested"}
    counts = [(sum(one.verdict == name for one in verdicts), said) for name, said in names.items()]
    return f"{len(verdicts)} claims: {', '.join(f'{n} {said}' for n, said in counts if n)}."


class _Never:
    """A figure that is missing, as of an error that was not reached."""

    def __format__(self, form: str) -> str:
        return "never"


class _Figures(dict[str, Any]):
    def __missing__(self, name: str) -> _Never:
        return _Never()


def of_size(value: float | None, holds: float, part: float) -> str:
    """The verdict on a value that is to be large."""
    return NOT if value is None else HOLDS if value >= holds else PART if value > part else NOT


def of_all(*parts: bool) -> str:
    """The verdict on a claim of several parts."""
    return HOLDS if all(parts) else PART if any(parts) else NOT


def claims_about(model: str) -> list[dict[str, str]]:
    """The rows of claims.csv about a data set of the paper."""
    with Path(__file__).with_name("claims.csv").open(newline="") as file:
        return [row for row in csv.DictReader(file) if row["only"] in ("", model)]


def verdict_on(claim: Mapping[str, str], judge: Judge, model: str, seeds: Sequence[Any]) -> Verdict:
    """Holds if it does for every seed that was tested, does not hold if for none even in part."""
    findings: list[Finding] = []
    for found in seeds:
        try:
            findings.append(judge(model, found))
        except NotTestedError as error:
            findings.append((UNTESTED, str(error), {}))
    tested = [one for one in findings if one[0] != UNTESTED]
    verdicts = {one[0] for one in tested}
    verdict = min(verdicts) if len(verdicts) == 1 else PART if tested else UNTESTED
    names = dict.fromkeys(name for one in tested for name in one[2])
    known = {n: tuple(v for one in tested if (v := one[2].get(n)) is not None) for n in names}
    figures = {name: Span(values, len(seeds)) for name, values in known.items() if values}
    because = (tested or findings)[0][1].format_map(_Figures(figures))
    if len({one[0] for one in findings}) > 1:
        because += f". By seeds: {', '.join(one[0] for one in findings)}"
    return Verdict(
        claim["name"], claim["place"], claim["text"], claim["rule"], verdict, because, figures
    )
