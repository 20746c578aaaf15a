"""The loss that a run reports at its end, compared with its actual loss.

Looks under the folder for the first training set of ml-100k (u1.base), ml-latest-small,
movietweetings and ml-1m, of the last three without the tenth that other benchmarks test on. A
tenth of the rest is held out, and the loss that a fit claims to have for its end is compared with
the one that it has: how far its predictions are from those of two runs of many sweeps.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf import BayesianMF, Gibbs, Ratings
from bayesmf.errors import ConvergenceWarning, DataWarning, InputError
from bayesmf.run.stopping import TARGETS
from benchmarks import data_sets
from benchmarks.options import BenchParser, command, words

FILES = {**data_sets.FILES, "ml-100k": "ml-100k/u1.base"}
HELD_OUT = 0.1
# Of the long runs: their seeds, which no fit has, chains of each, and draws that are averaged.
LONG_SEEDS, LONG_CHAINS, LONG_DRAWS = (1001, 1002), 4, 400

Floats = NDArray[np.float64]


class Reference(NamedTuple):
    """Predictions of long runs: their own mean squared error, and that of ratings.

    `noise` is found from how far the two long runs lie apart.
    """

    predictions: Floats
    noise: float
    mse: float

    def loss_of(self, predictions: Floats) -> float:
        """The share by which the RMSE exceeds that of infinitely long sampling."""
        apart = float(np.mean((predictions - self.predictions) ** 2)) - self.noise
        return float(np.sqrt(1.0 + max(apart, 0.0) / self.mse) - 1.0)


class Row(NamedTuple):
    """A fit: reported and actual loss, length, and whether it reports convergence."""

    data: str
    factors: int
    target: str
    seed: int
    claimed: float
    actual: float
    sweeps: float
    seconds: float
    rmse: float
    rhat: float
    rhat_noise: float
    slowest: str
    ended_by: str


def make_parser() -> BenchParser:
    """The options."""
    parser = BenchParser("stopping", __doc__)
    add = parser.add_argument
    add("--data", type=Path, required=True, metavar="FOLDER", help="folder of the data sets")
    add("--sets", metavar="NAMES", help="only these, by commas")
    add("--targets", metavar="NAMES", help=f"by commas; {','.join(TARGETS)} if not")
    add("--factors", type=int, metavar="D", help="factors of all fits; the automatic number if not")
    add("--seeds", type=int, default=3, metavar="N", help="fits of each, of seeds 0 to N - 1")
    add("--sweeps", type=int, default=600, metavar="N", help="of the chains to compare with")
    return parser


def chosen(args: argparse.Namespace) -> tuple[dict[str, Path], list[str]]:
    """Files by name, and targets; InputError for invalid options."""
    for option in ("seeds", "sweeps"):
        if getattr(args, option) < 1:
            raise InputError(f"--{option} must be a whole number from 1 on")
    targets = list(TARGETS) if args.targets is None else words(args.targets)
    for name in targets:
        if name not in TARGETS:
            raise InputError(f"there is no target {name!r}: choose from {', '.join(TARGETS)}")
    return data_sets.files(args.data, args.sets, FILES), targets


def parts(name: str, path: Path) -> tuple[Ratings, Ratings]:
    """Ratings to fit and ratings to compare at, whose users and items are among the former."""
    rest = Ratings.read(path)
    if name != "ml-100k":  # which has a test set of its own
        rest, _ = rest.split(HELD_OUT, random_state=0)
    train, held = rest.split(HELD_OUT, random_state=1)
    known = np.isin(held.users, np.unique(train.users))
    return train, held.take(known & np.isin(held.items, np.unique(train.items)))


def predictions(model: BayesianMF, held: Ratings) -> Floats:
    """Predictions of the held-out ratings."""
    return np.asarray(model.predict(held.users, held.items), np.float64)


def reference(train: Ratings, held: Ratings, factors: int | None, sweeps: int) -> Reference:
    """The mean of two long runs."""
    sampler = Gibbs(n_chains=LONG_CHAINS, epochs=sweeps)
    one, other = (
        predictions(
            BayesianMF(factors, sampler=sampler, max_draws=LONG_DRAWS, random_state=seed).fit(
                train
            ),
            held,
        )
        for seed in LONG_SEEDS
    )
    mean = (one + other) / 2
    return Reference(mean, float(np.mean((one - other) ** 2)) / 4, mse(mean, held))


def mse(found: Floats, held: Ratings) -> float:
    """Mean squared error of predictions."""
    return float(np.mean((found - held.rating) ** 2))


def rows(
    data: str, path: Path, targets: list[str], factors: int | None, seeds: int, sweeps: int
) -> Iterator[Row]:
    """All fits of a data set."""
    train, held = parts(data, path)
    ideal = reference(train, held, factors, sweeps)
    for target in targets:
        for seed in range(seeds):
            begin = time.process_time()
            model = BayesianMF(factors, target=target, random_state=seed).fit(train)
            seconds = time.process_time() - begin
            found, said = predictions(model, held), model.report_["convergence"]
            yield Row(
                data, model.report_["factors"], target, seed, said["loss"], ideal.loss_of(found),
                model.report_["epochs"], seconds, float(np.sqrt(mse(found, held))),
                said["rhat"], said["rhat_noise"], said["slowest"], said["ended_by"],
            )  # fmt: skip


def table(done: list[Row], seeds: int, sweeps: int) -> Iterator[str]:
    """Markdown: a line for each data set and target, and the note."""
    heads = ["data, D", "target", "claimed", "actual", "ratio", "sweeps", "s", "reached"]
    yield "| " + " | ".join(heads) + " |"
    yield "|---" * len(heads) + "|"
    for key in dict.fromkeys((one.data, one.factors, one.target) for one in done):
        mine = [one for one in done if (one.data, one.factors, one.target) == key]
        claimed, actual = (
            float(np.mean([getattr(one, name) for one in mine])) for name in ("claimed", "actual")
        )
        lengths = sorted(round(one.sweeps) for one in mine)
        reached = sum(one.ended_by == "target" for one in mine)
        cells = [
            f"{key[0]}, {key[1]}", key[2], f"{100 * claimed:.3f}", f"{100 * actual:.3f}",
            f"{claimed / actual:.2f}" if actual else "", "-".join(map(str, ends(lengths))),
            f"{np.median([one.seconds for one in mine]):.1f}", f"{reached} of {len(mine)}",
        ]  # fmt: skip
        yield "| " + " | ".join(cells) + " |"
    yield ""
    yield (
        f"Loss in % of the RMSE, means over seeds 0 to {seeds - 1}; the actual one by the mean "
        f"squared distance from two runs of {LONG_CHAINS} chains and {sweeps} sweeps, at a tenth "
        "of the training ratings that was held out. Sweeps from the shortest run to the longest, "
        "median seconds of processor time, and how many fits their target ended."
    )


def ends(lengths: list[int]) -> list[int]:
    """The first and the last of sorted numbers, or the only one."""
    return lengths[:1] if lengths[0] == lengths[-1] else [lengths[0], lengths[-1]]


@command
def main(argv: list[str] | None = None) -> int:
    """0 when all is done; 2 for bad input."""
    args = make_parser().parse_args(argv)
    done: list[Row] = []
    sets, targets = chosen(args)
    with warnings.catch_warnings():
        # The table says what has not converged.
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", DataWarning)
        for name, path in sets.items():
            for one in rows(name, path, targets, args.factors, args.seeds, args.sweeps):
                done.append(one)
                print(one, file=sys.stderr, flush=True)  # a long run may be ended
    print("\n".join(table(done, args.seeds, args.sweeps)))
    return 0
