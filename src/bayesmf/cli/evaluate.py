"""`bayesmf evaluate`: a model's scores on ratings that were held out."""

from __future__ import annotations

import argparse
from pathlib import Path

from bayesmf.cli import options
from bayesmf.cli.output import during, print_facts, print_json
from bayesmf.cli.scores import score, score_facts


def parser() -> options.Parser:
    """The options of `evaluate`."""
    out = options.command(
        "evaluate",
        "RMSE, MAE, negative log likelihood, CRPS, and how many ratings fall into their intervals.",
        "model test.csv",
    )
    out.add_argument("model", metavar="MODEL", type=Path, help="folder of a fitted model")
    out.add_argument("test", metavar="TEST", help="file of ratings that were held out")
    options.add_file_options(out)
    options.add_json(out)
    return out


def run(args: argparse.Namespace) -> None:
    """Score, and tell."""
    from bayesmf.data.ratings import Ratings
    from bayesmf.estimator.bayesian_mf import BayesianMF

    model = BayesianMF.load(args.model)
    with during(f"reading {args.test}"):
        test = Ratings.read(args.test, format=args.format, columns=args.columns)
    scores = score(model, test)
    if args.json:
        print_json(scores | {"model": args.model})
    else:
        print_facts(score_facts(scores))
