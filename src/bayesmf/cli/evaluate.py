"""`bayesmf evaluate`: a model's scores on ratings that were held out."""

from __future__ import annotations

import argparse

from bayesmf.cli import options
from bayesmf.cli.output import print_facts, print_json
from bayesmf.cli.scores import score, score_facts


def parser() -> options.Parser:
    """The options of `evaluate`."""
    out = options.command(
        "evaluate",
        "Score a model on ratings that were held out: RMSE, MAE, negative log likelihood, CRPS, "
        "and how many ratings fall into their intervals.",
        "model test.csv",
    )
    options.add_model(out)
    out.add_argument("test", metavar="TEST", help="file of ratings that were held out")
    options.add_file_options(out)
    options.add_json(out)
    return out


def run(args: argparse.Namespace) -> None:
    """Score, and print it."""
    from bayesmf.estimator.bayesian_mf import BayesianMF

    model = BayesianMF.load(args.model)
    scores = score(model, options.read_ratings(args.test, args))
    if args.json:
        print_json(scores | {"model": args.model})
    else:
        print_facts(score_facts(scores))
