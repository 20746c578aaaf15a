"""Predictions from draws of one side beside those from draws of both.

Fits ML-1M (90:10, D = 30) once, keeps the draws of both sides, and predicts the held-out ratings
from some of these draws, evenly spread: with the drawn rows of both sides, and with users' rows
computed from their ratings and the drawn items.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np

from bayesmf import BayesianMF, Gibbs, Posterior, Ratings
from bayesmf.diagnostics.metrics import Scorer, Scores
from bayesmf.errors import DataWarning
from bayesmf.estimator.questions import rows_of_ratings
from benchmarks.data_sets import files
from benchmarks.options import BenchParser, command

DRAWS = (1, 3, 6, 12, 24, 48, 112)


def make_parser() -> BenchParser:
    """The options."""
    parser = BenchParser("kept_side", __doc__)
    add = parser.add_argument
    add("--data", type=Path, required=True, metavar="FOLDER", help="has ml-1m/ratings.dat")
    add("--factors", type=int, default=30, metavar="D", help="latent factors (30)")
    add("--seed", type=int, default=0, metavar="S", help="of split and fit (0)")
    return parser


def scores(posterior: Posterior, user: np.ndarray, item: np.ndarray, rating: np.ndarray) -> Scores:
    """RMSE, NLL and coverage of held-out ratings."""
    scorer = Scorer()
    for chunk in posterior.chunks(user, item):
        scorer.add(rating[chunk.lo : chunk.hi], chunk.mean, chunk.mu, chunk.var)
    return scorer.result()


def table(model: BayesianMF, test: Ratings) -> list[tuple[int, Scores, Scores]]:
    """Scores by the number of draws, of both sides and of items."""
    posterior = model.posterior_
    user, item = rows_of_ratings(test, model.user_ids_, model.item_ids_)
    rows = []
    for n in DRAWS:
        if n > len(posterior.draws):
            break
        which = np.unique(np.linspace(0, len(posterior.draws) - 1, n).round().astype(np.int64))
        both = posterior.with_draws(which)
        items = replace(both, draws=replace(both.draws, users=None, user_means=None))
        rows.append((n, *(scores(p, user, item, test.rating) for p in (both, items))))
    return rows


@command
def main(argv: list[str] | None = None) -> None:
    """Fit, and print the table."""
    args = make_parser().parse_args(argv)
    path = files(args.data, "ml-1m")["ml-1m"]
    warnings.simplefilter("ignore", DataWarning)
    train, test = Ratings.read(path).split(0.1, random_state=args.seed)
    sweeps = max(DRAWS) + 28
    sampler = Gibbs(epochs=sweeps, burn_in=sweeps - max(DRAWS), joint=4)
    model = BayesianMF(args.factors, sampler=sampler, keep="both", random_state=args.seed)
    model.fit(train)
    print("| draws | both sides kept: RMSE / NLL | items kept: RMSE / NLL | 50, 80, 90, 95% hold |")
    print("|---|---|---|---|")
    for n, both, items in table(model, test):
        held = ", ".join(f"{100 * items.coverage[level]:.1f}" for level in ("50", "80", "90", "95"))
        print(
            f"| {n} | {both.rmse:.4f} / {both.nll:.4f} | {items.rmse:.4f} / {items.nll:.4f} "
            f"| {held} |"
        )
