"""`bayesmf evaluate`: scores of a model on held-out ratings, which other commands print too."""

from __future__ import annotations

import argparse
import warnings
from typing import TYPE_CHECKING, Any

from bayesmf.cli import options
from bayesmf.cli.output import print_facts, print_json, print_table, print_text, room
from bayesmf.errors import DataWarning, InputError
from bayesmf.wording import count, short

if TYPE_CHECKING:
    from bayesmf.data.ratings import Ratings
    from bayesmf.diagnostics.calibration import Calibration
    from bayesmf.diagnostics.ranking import RankingScores
    from bayesmf.estimator.bayesian_mf import BayesianMF

K, RELEVANT = 10, 4.0
BAR = 40  # characters of the longest bar


def parser() -> options.Parser:
    """Options of `evaluate`."""
    out = options.command(
        "evaluate",
        "Score a model on held-out ratings: RMSE, MAE, negative log likelihood, CRPS, and the "
        "share of ratings inside their intervals; for stars also log loss and ranked "
        "probability score. With --ranking also the best items of "
        "each user: NDCG, recall, precision, MRR, MAP, hit rate and share of the catalogue, and "
        "the same for the most popular items.",
        "films.bayesmf test.csv",
        "films.bayesmf test.csv --ranking --k 5 --relevant 4.5",
    )
    options.add_model(out)
    add = out.add_argument
    add("test", metavar="TEST", help="file of held-out ratings")
    add("--ranking", action="store_true", help="score recommendations, too")
    add("--k", type=options.whole(1), metavar="K", help=f"items of a user's list ({K})")
    add("--relevant", type=options.any_number, metavar="R",
        help=f"the least rating that counts as liked ({RELEVANT:g})")  # fmt: skip
    options.add_file_options(out)
    options.add_json(out)
    return out


def run(args: argparse.Namespace) -> None:
    """Score, and print it."""
    for name in ("k", "relevant"):
        if getattr(args, name) is not None and not args.ranking:
            raise InputError(f"--{name} does nothing without --ranking: give both")
    from bayesmf.estimator.bayesian_mf import BayesianMF

    model = BayesianMF.load(args.model)
    test = options.read_ratings(args.test, args)
    scores = score(model, test)
    if args.ranking:
        k, relevant = args.k or K, RELEVANT if args.relevant is None else args.relevant
        with warnings.catch_warnings():  # what it warns of is printed
            warnings.simplefilter("ignore", DataWarning)
            ranking = model.evaluate_ranking(test, k=k, relevant=relevant)
        scores["ranking"] = ranking.as_dict()
    if args.json:
        print_json(scores | {"model": args.model})
        return
    print_facts(score_facts(scores))
    if args.ranking:
        print()
        _print_ranking(ranking)


def score(model: BayesianMF, test: Ratings) -> dict[str, Any]:
    """Scores on test ratings, and the verdict on intervals."""
    return calibrated_scores(model, test, calibrate(model, test))


def calibrate(model: BayesianMF, test: Ratings) -> Calibration:
    """Calibration on test ratings; what it warns of is printed among the facts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return model.calibration(test)


def calibrated_scores(model: BayesianMF, test: Ratings, found: Calibration) -> dict[str, Any]:
    """Scores of a calibration, examples of unseen ids, and the verdict on intervals."""
    from bayesmf.estimator.questions import HeldOut

    scores, examples = found.overall.as_dict(), ""
    if scores["unseen"]:
        maps = model.user_ids_, model.item_ids_
        examples = HeldOut.from_ratings(test, maps, model.posterior_.seen).unseen_examples()
    verdict = {"calibrated": found.calibrated, "intervals": found.verdict}
    return {**scores, "unseen_examples": examples, **verdict}


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
    """Coverage of runs of levels; nothing where ratings have no levels."""
    if scores["level_coverage"] is None:
        return []
    pairs = zip(scores["level_coverage"].items(), scores["level_promised"].values(), strict=True)
    shares = (f"{k}%: {100 * held:.1f}% ({100 * said:.1f}%)" for (k, held), said in pairs)
    return [("levels", "ratings within the likeliest levels (and promised): " + ", ".join(shares))]


def error_facts(scores: dict[str, Any]) -> list[tuple[str, str]]:
    """Names and texts of scores without those of intervals."""
    error = "" if scores["rmse_se"] is None else f" +/- {short(scores['rmse_se'])}"
    trained = f"{scores['learnt']:,} of them in the training data, which flatters the scores"
    return [
        ("test", f"{count(scores['n'], 'rating')}, {_unseen(scores)}"),
        *([("trained on", trained)] if scores["learnt"] else []),
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
        return "all of known users and items"
    unseen = f"{scores['unseen']:,} of them with an unseen user or item, predicted from the prior"
    examples = scores.get("unseen_examples")
    return f"{unseen} ({examples})" if examples else unseen


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


def _print_ranking(found: RankingScores) -> None:
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
