"""RMSE and intervals by the number of factors.

Looks under the folder for ml-100k, ml-latest-small, movietweetings and ml-1m, holds out a tenth of
each, and fits with several numbers of factors and with the automatic one. All else is as by
default; nothing is tuned on what is held out.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bayesmf import BayesianMF, Ratings, Synthetic
from bayesmf.errors import ConvergenceWarning, DataWarning, InputError
from benchmarks import data_sets
from benchmarks.options import Parser, command
from benchmarks.options import factors as numbers

FACTORS = (2, 4, 8, 16, 32, 64)
HELD_OUT = 0.1


class Row(NamedTuple):
    """A data set and a number of factors: mean RMSE and median seconds over the seeds."""

    data: str
    factors: int
    automatic: bool
    rmse: float
    seconds: float
    converged: bool


def make_parser() -> Parser:
    """The options."""
    parser = Parser("factors", __doc__)
    add = parser.add_argument
    add("--data", type=Path, required=True, metavar="FOLDER", help="where the data sets lie")
    add("--sets", metavar="NAMES", help="only these, by commas")
    add("--factors", metavar="NUMBERS", help=f"by commas; {','.join(map(str, FACTORS))} if not")
    add("--seeds", type=int, default=1, metavar="N", help="means over N fits, of seeds 0 to N - 1")
    return parser


def chosen(args: argparse.Namespace) -> tuple[dict[str, Path], list[int]]:
    """Files by name, and numbers of factors; one sentence about what cannot be meant."""
    if args.seeds < 1:
        raise InputError("--seeds must be a whole number from 1 on")
    return data_sets.files(args.data, args.sets), numbers(args.factors, FACTORS)


def fitted(
    train: Ratings, factors: int | None, seed: int, **options: Any
) -> tuple[BayesianMF, float]:
    """A model by the defaults, or these options, and the seconds of one core that it took."""
    # On one thread, which changes seconds and nothing else; by the clock of this process, so that
    # others who use the machine are not counted either.
    options |= {"engine": "serial", "random_state": seed}
    # Whatever this width must compile, or bring from a cache, is not to be counted.
    BayesianMF(factors, max_seconds=1e-3, **options).fit(train)
    model = BayesianMF(factors, **options)
    begin = time.process_time()
    model.fit(train)
    return model, time.process_time() - begin


def row(data: str, factors: int | None, train: Ratings, test: Ratings, seeds: int) -> Row:
    """One data set with one number of factors."""
    rmse, seconds, converged = [], [], []
    for seed in range(seeds):
        model, took = fitted(train, factors, seed)
        rmse.append(model.evaluate(test).rmse)
        seconds.append(took)
        converged.append(model.report_["convergence"]["converged"])
    d = model.report_["factors"]
    mean, usual = float(np.mean(rmse)), float(np.median(seconds))
    return Row(data, d, factors is None, mean, usual, all(converged))


def rows(data: str, path: Path, factors: list[int], seeds: int) -> Iterator[Row]:
    """The automatic choice first, then the others; what was chosen is not fitted twice."""
    train, test = Ratings.read(path).split(HELD_OUT, random_state=0)
    automatic = row(data, None, train, test, seeds)
    yield automatic
    for d in factors:
        if d != automatic.factors:
            yield row(data, d, train, test, seeds)


def table(done: list[Row], columns: list[int], seeds: int) -> Iterator[str]:
    """Markdown: a line for each data set, a column for each number of factors, and the notes."""
    automatic = {one.data: one for one in done if one.automatic}
    heads = ["data", *(f"D = {d}" for d in columns), "automatic", "above the best"]
    yield "| " + " | ".join(heads) + " |"
    yield "|---" * len(heads) + "|"
    for name, auto in automatic.items():
        mine = {one.factors: one for one in done if one.data == name}
        best = min(one.rmse for one in mine.values())
        cells = [("auto: " * (d == auto.factors)) + cell(mine[d], best) for d in columns]
        last = f"D = {auto.factors}: {cell(auto, best)}", f"{auto.rmse / best - 1:.2%}"
        yield "| " + " | ".join([name, *cells, *last]) + " |"
    yield ""
    yield (
        f"RMSE of the {HELD_OUT:.0%} of the ratings that were held out (one random split, seed 0; "
        f"unseen users and items included), {told(seeds)}, with seconds of one core in brackets. "
        "Bold is the lowest of its line; ! stands where not every fit had converged. The last "
        "column is by how much the automatic choice is above the lowest."
    )


def told(seeds: int) -> str:
    """What a number in the table is."""
    return "one fit each" if seeds == 1 else f"mean of {seeds} fits"


def cell(one: Row, best: float) -> str:
    """RMSE and seconds, with the marks that the note explains."""
    rmse = f"**{one.rmse:.4f}**" if one.rmse == best else f"{one.rmse:.4f}"
    return f"{rmse}{'!' * (not one.converged)} ({one.seconds:.1f})"


@command
def main(argv: list[str] | None = None) -> int:
    """0 when all is done; 2 for bad input."""
    args = make_parser().parse_args(argv)
    done: list[Row] = []
    sets, factors = chosen(args)
    with warnings.catch_warnings():
        # The table says what has not converged, and the note that unseen ids count.
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", DataWarning)
        # What the first fit of a process does besides is not to be counted.
        BayesianMF(engine="serial", random_state=0).fit(Synthetic(60, 40, 900).ratings())
        for name, path in sets.items():
            for one in rows(name, path, factors, args.seeds):
                done.append(one)
                print(one, file=sys.stderr, flush=True)  # a long run may be ended
    print("\n".join(table(done, factors, args.seeds)))
    return 0
