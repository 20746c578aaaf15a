"""What `fit --test`, `evaluate` and `diagnose --test` print of a model on held-out ratings."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from bayesmf.cli.output import print_table, print_text, room
from bayesmf.errors import DataWarning
from bayesmf.wording import count, short

if TYPE_CHECKING:
    from bayesmf.data.ratings import Ratings
    from bayesmf.diagnostics.calibration import Calibration
    from bayesmf.diagnostics.ranking import RankingScores
    from bayesmf.estimator.bayesian_mf import BayesianMF

BAR = 40  # characters of the longest


def score(model: BayesianMF, test: Ratings) -> dict[str, Any]:
    """Scores on test ratings, and the verdict on intervals."""
    return calibrated_scores(model, test, calibrate(model, test))


def calibrate(model: BayesianMF, test: Ratings) -> Calibration:
    """Calibration on test ratings; what it warns of is told among the facts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return model.calibration(test)


def calibrated_scores(model: BayesianMF, test: Ratings, found: Calibration) -> dict[str, Any]:
    """Scores of a calibration, some unseen ids, and the verdict on intervals."""
    from bayesmf.estimator.questions import HeldOut

    told, examples = found.overall.as_dict(), ""
    if told["unseen"]:
        maps = model.user_ids_, model.item_ids_
        examples = HeldOut.from_ratings(test, maps, model.posterior_.seen).unseen_examples()
    judged = {"calibrated": found.calibrated, "intervals": found.verdict}
    return {**told, "unseen_examples": examples, **judged}


def rank(model: BayesianMF, test: Ratings, k: int, relevant: float) -> RankingScores:
    """Scores of recommendations; what they warn of is told among the facts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return model.evaluate_ranking(test, k=k, relevant=relevant)


def score_facts(scores: dict[str, Any]) -> list[tuple[str, str]]:
    """Names and texts of scores, for people."""
    levels = [f"{level}%: {100 * share:.1f}%" for level, share in scores["coverage"].items()]
    return [
        *error_facts(scores),
        ("coverage", "  ".join(levels)),
        *level_facts(scores),
        ("intervals", scores["intervals"]),
    ]


def level_facts(scores: dict[str, Any]) -> list[tuple[str, str]]:
    """What runs of levels hold and promise; nothing where ratings have no levels."""
    if scores["level_coverage"] is None:
        return []
    pairs = zip(scores["level_coverage"].items(), scores["level_promised"].values(), strict=True)
    told = (f"{k}%: {100 * held:.1f}% ({100 * said:.1f}%)" for (k, held), said in pairs)
    return [("levels", "shortest runs of levels hold (and promise) " + ", ".join(told))]


def error_facts(scores: dict[str, Any]) -> list[tuple[str, str]]:
    """Names and texts of scores without those of intervals."""
    error = "" if scores["rmse_se"] is None else f" +/- {short(scores['rmse_se'])}"
    were = "was" if scores["learnt"] == 1 else "were"
    learnt = f"{scores['learnt']:,} of them {were} learnt from, which flatters the scores"
    return [
        ("test", f"{count(scores['n'], 'rating')}, {_unseen(scores)}"),
        *([("learnt", learnt)] if scores["learnt"] else []),
        ("RMSE", short(scores["rmse"]) + error),
        ("MAE", short(scores["mae"])),
        ("NLL", short(scores["nll"])),
        ("CRPS", short(scores["crps"])),
        *(
            (name, short(scores[key]))
            for name, key in (("log loss", "log_loss"), ("RPS", "rps"))
            if scores[key] is not None
        ),
    ]


def _unseen(scores: dict[str, Any]) -> str:
    if not scores["unseen"]:
        return "all of users and items that were learnt from"
    told = f"{scores['unseen']:,} of them with an unseen user or item, predicted from the prior"
    examples = scores.get("unseen_examples")
    return f"{told} ({examples})" if examples else told


def print_calibration(found: Calibration) -> None:
    """Print coverage overall and by group, and the PIT histogram."""
    print_text(
        "Coverage of central intervals: by training ratings of the test rating's user and item, by "
        "the RMSE on the user's training ratings (error), and by predicted standard deviation "
        "(std):"
    )
    head, *rows = found.table()
    print_table(head, rows)
    even = "uneven even where intervals are right, as ratings take few values"
    even = even if found.few_values else "equal bars where all intervals are right"
    print_text(f"\nPIT, the probability given to a smaller rating ({even}):")
    _print_pit(found.pit)


def print_ranking(found: RankingScores) -> None:
    """Print scores of the model's lists and of popularity's."""
    print_text(
        f"Lists of {count(found.k, 'item')}, by held-out ratings of {found.relevant:g} or more, of "
        f"{found.who}:"
    )
    head = ("ranked by", "NDCG", "recall", "precision", "MRR", "MAP", "hit rate", "catalogue")
    lists = (("expected rating", found.model), ("popularity", found.popularity))
    print_table(
        head,
        [
            (name, s.ndcg, s.recall, s.precision, s.mrr, s.map, s.hit_rate, s.coverage)
            for name, s in lists
        ],
    )


def _print_pit(counts: tuple[int, ...]) -> None:
    """Print ten bars, each of two bins."""
    pairs = [a + b for a, b in zip(counts[::2], counts[1::2], strict=True)]
    total, most = sum(pairs), max(pairs)
    width = len(f"{most:,}")
    longest = min(BAR, room() - width - 18)
    for k, n in enumerate(pairs):
        line = f"{k / 10:.1f}-{(k + 1) / 10:.1f}  {n:>{width},}  {100 * n / total:4.1f}%  "
        print((line + "#" * round(longest * n / most)).rstrip())
