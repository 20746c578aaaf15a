"""`bayesmf predict`: expected ratings of pairs of user and item, with intervals."""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayesmf.cli import options
from bayesmf.cli.output import (
    check_file,
    during,
    note,
    print_csv,
    print_facts,
    print_json,
    write_frame,
)
from bayesmf.errors import DataWarning

if TYPE_CHECKING:
    import polars as pl

    from bayesmf.estimator.bayesian_mf import BayesianMF
    from bayesmf.estimator.results import Predictions
    from bayesmf.reading.table import Table


def parser() -> options.Parser:
    """Options of `predict`."""
    out = options.command(
        "predict",
        "Predict ratings: the expected rating, and standard deviation and interval of a new one, "
        "for each pair of user and item in a file. Ids that the model was not fitted on, and "
        "that send no ratings, are predicted from the prior; the column `known` is false for their "
        "pairs. With --proba there is a column for each level of the ratings, such as p_1 to p_5, "
        "with its probability. --columns names columns of both files.",
        "films.bayesmf pairs.csv --level 0.8 --out predicted.csv",
        "films.bayesmf pairs.csv --proba",
        "films.bayesmf pairs.csv --ratings new-users.csv",
    )
    options.add_model(out)
    add = out.add_argument
    add("pairs", metavar="PAIRS", type=Path, help="file with users and items")
    options.add_sent(out)
    add("--out", metavar="FILE", type=Path, help=".csv or .parquet file (stdout)")
    options.add_level(out)
    add("--proba", action="store_true", help="also the probability of each level, such as stars")
    options.add_file_options(out, formats=False)
    options.add_json(out)
    return out


def run(args: argparse.Namespace) -> None:
    """Predict, and write or print it."""
    if args.out is not None:
        sent = [] if args.ratings is None else [args.ratings]
        check_file(args.out, (".csv", ".parquet"), inputs=[args.pairs, *sent])
    from bayesmf.estimator.bayesian_mf import BayesianMF
    from bayesmf.estimator.questions import Query
    from bayesmf.reading.formats import read_pairs

    model = BayesianMF.load(args.model)
    with during(f"reading {args.pairs}"):
        pairs = read_pairs(args.pairs, args.columns)
    ratings = None if args.ratings is None else options.read_ratings(args.ratings, args)
    found = model.predict_table(pairs.user, pairs.item, args.level, ratings=ratings)
    if ratings is not None and not found.known.all():
        unknown = int((~found.known).sum())
        note(
            f"warning: {unknown:,} of {len(found.known):,} pairs have an unknown item, or an "
            "unknown user without ratings: see the column known"
        )
    elif not found.known.all():
        asked = Query.from_ids(pairs.user, pairs.item, model.user_ids_, model.item_ids_)
        note(f"warning: {asked.unknown()}: see the column known")
    frame = _frame(pairs, found)
    if args.proba:
        frame = frame.hstack(_proba(model, pairs, ratings))
    about = {
        "model": args.model,
        "level": args.level,
        "pairs": frame.height,
        "unseen": int((~found.known).sum()),
        "out": args.out,
    }
    if args.out is not None:
        write_frame(frame, args.out)
    if args.json:
        rows = {} if args.out is not None else {"predictions": frame.to_dicts()}
        print_json(about | rows)
    elif args.out is None:
        print_csv(frame)
    else:
        print_facts([("pairs", f"{frame.height:,}"), ("saved", str(args.out))])


def _proba(model: BayesianMF, pairs: Table, ratings: Any) -> list[pl.Series]:
    """A column for each level, named by it."""
    import polars as pl

    with warnings.catch_warnings():  # about unknown ids, which are noted above
        warnings.simplefilter("ignore", DataWarning)
        found = model.predict_proba(pairs.user, pairs.item, ratings=ratings)
    names = (f"p_{level:.15g}" for level in model.rating_levels_)
    return [pl.Series(n, p, dtype=pl.Float32) for n, p in zip(names, found.T, strict=True)]


def _frame(pairs: Table, found: Predictions) -> pl.DataFrame:
    import polars as pl

    # Draws are single precision: more digits would be noise.
    names = ("mean", "std", "low", "high")
    single = {name: pl.Series(getattr(found, name), dtype=pl.Float32) for name in names}
    ids = {side: pl.Series(list(getattr(pairs, side))) for side in ("user", "item")}
    return pl.DataFrame({**ids, **single, "known": found.known})
