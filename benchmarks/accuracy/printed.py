"""Predictions of SGLD with the printed noise: averaged over both sides, or exact given one.

The same draws predict ratings held out of the training part, and training ratings: as the mean of
U.V + a + b, with users solved exactly given V, Lambda and tau, and from the biases alone. The runs
are DSGLD-S with four workers and the printed settings, mini-batches in proportion to the ratings,
on synthetic ratings of Netflix's shape; with --data they have the library's other defaults.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from bayesmf import SGLD, BayesianMF, Ratings, Synthetic
from bayesmf.errors import ConvergenceWarning
from bayesmf.estimator.questions import rows_of_ratings
from benchmarks.accuracy.kept_side import scores
from benchmarks.options import BenchParser, command, markdown, words
from experiments.paper.datasets import PLANTED

HEADS = (
    "noise", "beta_0", "epochs", "Lambda of U, V", "averaged", "exact", "biases alone",
    "in 90%: averaged", "exact", "training: averaged", "exact",
)  # fmt: skip
# A run: cells of the table, the model, training and held-out ratings.
Run = tuple[tuple[str, ...], BayesianMF, Ratings, Ratings]


def make_parser() -> BenchParser:
    """The options."""
    parser = BenchParser("printed", __doc__)
    add = parser.add_argument
    add("--data", metavar="FILES", help="ratings by commas; a tenth of each is held out")
    add("--scale", type=float, default=0.005, help="share of Netflix's ratings (0.005)")
    add("--noise", default="paper,matched", help="of the updates, by commas (paper,matched)")
    add("--beta-0", default="300,21,1.5", metavar="B", help="by commas (300,21,1.5)")
    add("--epochs", default="60", metavar="E", help="by commas (60); a fifth is burn-in")
    add("--factors", type=int, default=30, metavar="D", help="latent factors (30)")
    add("--seed", type=int, default=0, metavar="S", help="of ratings, splits and runs (0)")
    return parser


def printed(epochs: float, n_ratings: int, noise: str) -> SGLD:
    """DSGLD-S as in Section 4.2 and Appendix A, with at most 160 draws of both chains."""
    batch = max(1, round(50_000 * n_ratings / 80e6))
    return SGLD(
        grid=(2, 2), n_chains=2, epochs=epochs, burn_in=epochs / 5, thin=epochs / 100, noise=noise,
        batch_size=batch, minibatch="replacement", round_length=50, step_size=2 * 3e-6, kappa=500,
        decay=0.51, precision_every=50, precisions_from="burn-in", initial_precision=2.0,
    )  # fmt: skip


def cells(model: BayesianMF, train: Ratings, held_out: Ratings) -> Iterator[str]:
    """Precisions of the columns, and scores of the estimators."""
    both = model.posterior_
    draws, D = both.draws, both.n_factors
    assert draws.items is not None
    exact = replace(both, draws=replace(draws, users=None))
    biases = np.where(np.arange(D + 1) < D, np.float32(0), draws.items)
    alone = replace(both, draws=replace(draws, users=None, items=biases))
    yield ", ".join(f"{x[:, :D].mean():.3g}" for x in (draws.user_Lambda, draws.item_Lambda))
    rows = rows_of_ratings(held_out, model.user_ids_, model.item_ids_)
    found = [scores(one, *rows, held_out.rating) for one in (both, exact, alone)]
    yield from (f"{one.rmse:.4f}" for one in found)
    yield from (f"{one.coverage['90']:.1%}" for one in found[:2])
    some = train.take(np.arange(0, len(train), 19))  # about as many as are held out
    rows = rows_of_ratings(some, model.user_ids_, model.item_ids_)
    yield from (f"{scores(one, *rows, some.rating).rmse:.4f}" for one in (both, exact))


def planted_runs(args: argparse.Namespace) -> Iterator[Run]:
    """Printed runs on synthetic ratings; their test part is not used."""
    made = Synthetic.like("netflix", args.scale, random_state=args.seed, **PLANTED).ratings()
    train, held_out = made.split(0.2, random_state=args.seed)[0].split(0.05, args.seed + 1)
    choices = words(args.epochs), words(args.noise), words(args.beta_0)
    for epochs, noise, beta_0 in product(*choices):
        model = BayesianMF(
            args.factors, sampler=printed(float(epochs), len(train), noise), tau=2.0, keep="both",
            beta_0=float(beta_0), standardize=False, random_state=args.seed,
        )  # fmt: skip
        yield (noise, beta_0, epochs), model, train, held_out


def library_runs(args: argparse.Namespace) -> Iterator[Run]:
    """Runs with the printed noise and the library's other defaults."""
    for path in words(args.data):
        train, held_out = Ratings.read(path).split(0.1, random_state=args.seed)
        rule = SGLD(noise="paper")
        model = BayesianMF(args.factors, sampler=rule, keep="both", random_state=args.seed)
        yield ("paper", "1", "default"), model, train, held_out


@command
def main(argv: list[str] | None = None) -> None:
    """Fit each model, and print its row as it is done."""
    args = make_parser().parse_args(argv)
    warnings.simplefilter("ignore", ConvergenceWarning)
    print(*markdown(HEADS, []), sep="\n")
    for names, model, train, held_out in (library_runs if args.data else planted_runs)(args):
        row = *names, *cells(model.fit(train), train, held_out)
        print("| " + " | ".join(row) + " |", flush=True)
