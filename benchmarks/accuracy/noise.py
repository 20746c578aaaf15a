"""Accuracy by the number of factors, with one noise level for all or one for each user and item.

Looks under the folder for ml-100k (its five folds as given), ml-latest-small, movietweetings and
ml-1m (a tenth held out), and fits with several numbers of factors and kinds of noise. All else is
as by default, and nothing is tuned on test ratings. With `--held-out training` no test rating is
looked at: a tenth of the training ratings is held out in their place, to compare ideas.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bayesmf import BayesianMF, Ratings, Synthetic
from bayesmf.errors import ConvergenceWarning, DataWarning, InputError
from benchmarks import data_sets
from benchmarks.data_sets import HELD_OUT, Maker, Split, given
from benchmarks.options import BenchParser, command, markdown, words
from benchmarks.options import factors as numbers

FACTORS = "1,2,4,8,16,32"
KINDS = {"none": None, "user": "user", "item": "item", "both": "both"}
LEVELS = ("50", "90")
SCORES = {
    "rmse": "RMSE", "known_rmse": "RMSE, known", "nll": "NLL", "known_nll": "NLL, known",
    "log_loss": "log loss", "rps": "RPS",
}  # fmt: skip

Row = dict[str, Any]


def make_parser() -> BenchParser:
    """The options."""
    parser = BenchParser("noise", __doc__)
    add = parser.add_argument
    add("--data", type=Path, required=True, metavar="FOLDER", help="folder of the data sets")
    add("--sets", metavar="NAMES", help="only these, by commas; also single folds, 'ml-100k u1'")
    add("--factors", metavar="NUMBERS", default=FACTORS,
        help=f"by commas, auto too ({FACTORS})")  # fmt: skip
    add("--noise-by", default="none,both", metavar="KINDS", help=f"of {', '.join(KINDS)}")
    add("--seeds", type=int, default=1, metavar="N", help="means over N fits, of seeds 0 to N - 1")
    add("--held-out", choices=("test", "training"), default="test", help="what is scored")
    add("--json", type=Path, metavar="FILE", help="write each fit to FILE when it is done")
    return parser


def chosen(args: argparse.Namespace) -> tuple[dict[str, list[Maker]], list[int | None], list[str]]:
    """Data sets by name, numbers of factors, kinds of noise; InputError for invalid options."""
    if not args.data.is_dir():
        raise InputError(f"there is no folder {args.data}")
    if args.seeds < 1:
        raise InputError("--seeds must be a whole number from 1 on")
    kinds = words(args.noise_by)
    for kind in kinds:
        if kind not in KINDS:
            raise InputError(f"--noise-by must be of {', '.join(KINDS)}, by commas, not {kind!r}")
    found = given(args.data)
    if args.sets is None and "ml-100k" in found:  # single folds only where they are asked for
        found = {name: made for name, made in found.items() if not name.startswith("ml-100k u")}
    return data_sets.chosen(found, args.sets, args.data), numbers(args.factors), kinds


def fitted(
    train: Ratings, factors: int | None, seed: int, **options: Any
) -> tuple[BayesianMF, float]:
    """A model by the defaults, or these options, and the seconds of one core that it took."""
    # On one thread, which changes seconds and nothing else; by the clock of this process, so that
    # other processes are not counted.
    options |= {"engine": "serial", "random_state": seed}
    # Compiling for this width, or loading from a cache, is not timed.
    BayesianMF(factors, max_seconds=1e-3, **options).fit(train)
    model = BayesianMF(factors, **options)
    begin = time.process_time()
    model.fit(train)
    return model, time.process_time() - begin


def fits_of(seeds: int) -> str:
    """Description of the numbers in the table."""
    return "one fit each" if seeds == 1 else f"mean of {seeds} fits"


def of_training(split: Split) -> Split:
    """The training part alone, a tenth of it held out."""
    return split[0].split(HELD_OUT, random_state=1)


def scores(model: BayesianMF, test: Ratings) -> Row:
    """Errors of all pairs and of those whose user and item are known, and coverage in fifths."""
    held = model.calibration(test)
    rows = model.user_ids_.lookup(test.users), model.item_ids_.lookup(test.items)
    known = (rows[0] >= 0) & (rows[1] >= 0)
    both = held.overall if known.all() else model.evaluate(test.take(known))
    fifths = [group for group in held.groups if group.side == "error"]
    return {
        "n": len(test), "known": int(known.sum()),
        "rmse": held.overall.rmse, "known_rmse": both.rmse,
        "nll": held.overall.nll, "known_nll": both.nll,
        "log_loss": held.overall.log_loss, "rps": held.overall.rps,
        "coverage": {level: [group.coverage[level] for group in fifths] for level in LEVELS},
    }  # fmt: skip


def fits(data: str, split: Split, factors: int | None, kind: str, seeds: int) -> Iterator[Row]:
    """One split with one number of factors and one kind of noise, seed by seed."""
    train, test = split
    for seed in range(seeds):
        model, seconds = fitted(train, factors, seed, noise_by=KINDS[kind])
        yield {
            "data": data, "factors": factors or "auto", "noise_by": kind, "seed": seed,
            **scores(model, test),
            "seconds": seconds, "sweeps": model.report_["epochs"],
            "converged": model.report_["convergence"]["converged"],
        }  # fmt: skip


def mean(done: list[Row]) -> Row:
    """Several fits of one line as one; the head is that of the first."""
    out = dict(done[0])
    for name in (*SCORES, "sweeps"):
        values = [row[name] for row in done]
        out[name] = None if None in values else float(np.mean(values))
    out["seconds"] = float(np.median([row["seconds"] for row in done]))
    out["coverage"] = {
        level: np.mean([row["coverage"][level] for row in done], axis=0).tolist()
        for level in LEVELS
    }
    out["converged"] = all(row["converged"] for row in done)
    return out


def tables(done: list[Row], seeds: int, held_out: str) -> Iterator[str]:
    """Markdown: scores, coverage in fifths, and RMSE against the number of factors."""
    lines = {}
    for row in done:
        lines.setdefault((row["data"], row["factors"], row["noise_by"]), []).append(row)
    means = [mean(rows) for rows in lines.values()]
    heads = ["data", "D", "noise by", *SCORES.values(), "seconds", "sweeps"]
    yield from markdown(heads, map(score_cells, means))
    yield ""
    yield (
        f"{'Test ratings' if held_out == 'test' else 'Held-out training ratings'}, "
        f"{fits_of(seeds)} of a split; ml-100k: means of its folds. Known: pairs whose user and "
        "item have training ratings. Log loss and RPS are those of levels. Seconds are of one "
        "core; ! stands where not every fit had converged."
    )
    yield ""
    heads = ["data", "D", "noise by", *(f"{k}% intervals hold" for k in LEVELS), "worst gaps"]
    yield from markdown(heads, map(coverage_cells, means))
    yield ""
    yield (
        "Fifths of the ratings by how far their user's training ratings are from their "
        "predictions, nearest first."
    )
    columns = sorted({row["factors"] for row in means} - {"auto"})
    if len(columns) > 1:
        yield ""
        heads = ["RMSE", "noise by", *(f"D = {d}" for d in columns), "largest rise", "of known"]
        yield from markdown(heads, growth(means, columns))
        yield ""
        yield "Rises are from one D to the next; those below zero are falls."


def head_cells(row: Row) -> list[str]:
    """First cells of a line: data, factors and kind of noise."""
    return [row["data"], str(row["factors"]), row["noise_by"]]


def score_cells(row: Row) -> list[str]:
    """Scores, with the mark that the note explains."""
    found = ["" if row[name] is None else f"{row[name]:.4f}" for name in SCORES]
    found[0] += "!" * (not row["converged"])
    return [*head_cells(row), *found, f"{row['seconds']:.1f}", f"{row['sweeps']:.0f}"]


def coverage_cells(row: Row) -> list[str]:
    """What intervals hold, in percent, and the fifth that is furthest off at each level."""
    shares = {level: [100 * x for x in row["coverage"][level]] for level in LEVELS}
    held = [" / ".join(f"{x:.1f}" for x in shares[level]) for level in LEVELS]
    gaps = [max((x - int(k) for x in shares[k]), key=abs, default=0.0) for k in LEVELS]
    return [*head_cells(row), *held, ", ".join(f"{gap:+.1f}" for gap in gaps)]


def growth(means: list[Row], columns: list[int]) -> Iterator[list[str]]:
    """RMSE by number of factors, a line for each data set and kind of noise."""
    for data, kind in dict.fromkeys((row["data"], row["noise_by"]) for row in means):
        mine = [row for row in means if (row["data"], row["noise_by"]) == (data, kind)]
        by = {row["factors"]: row for row in mine}
        rises = [
            max(by[b][name] / by[a][name] - 1 for a, b in itertools.pairwise(columns))
            for name in ("rmse", "known_rmse")
        ]
        yield [
            data,
            kind,
            *(f"{by[d]['rmse']:.4f}" for d in columns),
            *(f"{x:+.2%}" for x in rises),
        ]


@command
def main(argv: list[str] | None = None) -> int:
    """0 when all is done; 2 for bad input."""
    args = make_parser().parse_args(argv)
    done: list[Row] = []
    sets, factors, kinds = chosen(args)
    with warnings.catch_warnings():
        # The table says what has not converged, and the note that unseen ids count.
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", DataWarning)
        # The first fit of a process is not timed.
        BayesianMF(engine="serial", random_state=0).fit(Synthetic(60, 40, 900).ratings())
        for name, makers in sets.items():
            for make, d, kind in itertools.product(makers, factors, kinds):
                split = make() if args.held_out == "test" else of_training(make())
                for one in fits(name, split, d, kind, args.seeds):
                    done.append(one)
                    note(one, args.json, len(done))  # a long run may be ended
    print("\n".join(tables(done, args.seeds, args.held_out)))
    return 0


def note(one: Row, path: Path | None, count: int) -> None:
    """Print the scores of a fit, and append them to the file, one JSON object a line."""
    head = " ".join([*head_cells(one), f"seed {one['seed']}"])
    print(f"{head}: RMSE {one['rmse']:.4f}, NLL {one['nll']:.4f}", file=sys.stderr, flush=True)
    if path is not None:
        with path.open("w" if count == 1 else "a") as file:
            file.write(json.dumps(one) + "\n")
