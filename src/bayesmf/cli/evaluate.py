"""`bayesmf evaluate`: a model's scores on ratings that were held out."""

from __future__ import annotations

import argparse

from bayesmf.cli import options
from bayesmf.cli.output import print_facts, print_json
from bayesmf.cli.scores import print_ranking, rank, score, score_facts
from bayesmf.errors import InputError

K, RELEVANT = 10, 4.0


def parser() -> options.Parser:
    """The options of `evaluate`."""
    out = options.command(
        "evaluate",
        "Score a model on ratings that were held out: RMSE, MAE, negative log likelihood, CRPS, "
        "and how many ratings fall into their intervals; for stars also log loss and ranked "
        "probability score. With --ranking also the best items of "
        "each user: NDCG, recall, precision, MRR, MAP, hit rate and share of the catalogue, beside "
        "those of popularity.",
        "model test.csv",
        "model test.csv --ranking --k 5 --relevant 4.5",
    )
    options.add_model(out)
    out.add_argument("test", metavar="TEST", help="file of ratings that were held out")
    out.add_argument("--ranking", action="store_true", help="score recommendations, too")
    out.add_argument(
        "--k", type=options.whole(1), metavar="K", help=f"items of a user's list ({K})"
    )
    out.add_argument(
        "--relevant",
        type=options.any_number,
        metavar="R",
        help=f"the least rating that counts as liked ({RELEVANT:g})",
    )
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
        ranking = rank(model, test, k, relevant)
        scores["ranking"] = ranking.as_dict()
    if args.json:
        print_json(scores | {"model": args.model})
        return
    print_facts(score_facts(scores))
    if args.ranking:
        print()
        print_ranking(ranking)
