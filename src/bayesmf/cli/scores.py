"""What `fit --test`, `evaluate` and `diagnose --test` tell of a model on held-out ratings."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bayesmf.cli.output import count, print_table, print_text, room, short
from bayesmf.errors import DataWarning

if TYPE_CHECKING:
    from bayesmf.calibration import Calibration
    from bayesmf.estimator import BayesianMF
    from bayesmf.ratings import Ratings

BAR = 40  # characters of the longest


def score(model: BayesianMF, test: Ratings) -> dict[str, Any]:
    """Scores, and how many ratings have an unseen id or were learnt from."""
    with _without_warnings():
        return model.evaluate(test).as_dict()


def calibrate(model: BayesianMF, test: Ratings) -> Calibration:
    """The calibration."""
    with _without_warnings():
        return model.calibration(test)


@contextmanager
def _without_warnings() -> Iterator[None]:
    """What they say is told among the facts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        yield


def score_facts(scores: dict[str, Any]) -> list[tuple[str, str]]:
    """Scores for people."""
    levels = [f"{level}%: {100 * share:.1f}%" for level, share in scores["coverage"].items()]
    return [*error_facts(scores), ("coverage", "  ".join(levels))]


def error_facts(scores: dict[str, Any]) -> list[tuple[str, str]]:
    """The same without coverage."""
    error = "" if scores["rmse_se"] is None else f" +/- {short(scores['rmse_se'])}"
    learnt = f"{scores['learnt']:,} of them were learnt from, which flatters the scores"
    return [
        ("test", f"{count(scores['n'], 'rating')}, {_unseen(scores)}"),
        *([("learnt", learnt)] if scores["learnt"] else []),
        ("RMSE", short(scores["rmse"]) + error),
        ("MAE", short(scores["mae"])),
        ("NLL", short(scores["nll"])),
        ("CRPS", short(scores["crps"])),
    ]


def _unseen(scores: dict[str, Any]) -> str:
    if not scores["unseen"]:
        return "all of users and items that were learnt from"
    return f"{scores['unseen']:,} of them with an unseen user or item (predicted from the prior)"


def print_calibration(found: Calibration) -> None:
    """Coverage overall and by group, and the PIT histogram."""
    print_text(
        "Coverage of central intervals, by training ratings of the test rating's user and item:"
    )
    rows = [("all", "", found.overall.n, found.overall.rmse, found.overall.coverage)]
    for group in found.groups:
        name = f"{group.side}s, {group.name}"
        rows.append((name, group.span, group.n, group.rmse, group.coverage))
    print_table(
        ("", "trained on", "tested on", "RMSE", *(f"{level}%" for level in rows[0][-1])),
        [
            (name, span, f"{n:,}", short(rmse), *(f"{100 * x:.1f}%" for x in coverage.values()))
            for name, span, n, rmse, coverage in rows
        ],
    )
    even = "uneven even where intervals are right, as ratings take few values"
    even = even if found.few_values else "equal bars where all intervals are right"
    print_text(f"\nPIT, the probability given to a smaller rating ({even}):")
    _print_pit(found.pit)


def _print_pit(counts: tuple[int, ...]) -> None:
    """Ten bars, each of two bins."""
    pairs = [a + b for a, b in zip(counts[::2], counts[1::2], strict=True)]
    total, most = sum(pairs), max(pairs)
    width = len(f"{most:,}")
    longest = min(BAR, room() - width - 18)
    for k, n in enumerate(pairs):
        line = f"{k / 10:.1f}-{(k + 1) / 10:.1f}  {n:>{width},}  {100 * n / total:4.1f}%  "
        print((line + "#" * round(longest * n / most)).rstrip())
