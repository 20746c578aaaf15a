"""New users: accuracy and speed of predictions from ratings sent with a request.

A tenth of ML-1M's users is removed from training altogether; half of their ratings are sent with
the request, the other half is predicted, and compared with a fit that has seen the sent halves in
training. Then the time: of one user with 100 ratings under 64 draws, on one thread, and of many.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from bayesmf import BayesianMF, Gibbs, Ratings
from bayesmf.errors import DataWarning
from bayesmf.posterior.posterior import NewRatings, fold_in
from bayesmf.posterior.rows import rows_at_once
from bayesmf.process import Pool, parts
from benchmarks.data_sets import files
from benchmarks.options import BenchParser, command

LEVELS = ("50", "80", "90", "95")


def make_parser() -> BenchParser:
    """The options."""
    parser = BenchParser("fold_in", __doc__)
    add = parser.add_argument
    add("--data", type=Path, required=True, metavar="FOLDER", help="has ml-1m/ratings.dat")
    add("--factors", type=int, default=30, metavar="D", help="latent factors (30)")
    add("--seeds", type=int, default=1, metavar="N", help="splits and fits (1)")
    add("--many", type=int, default=600_000, metavar="N", help="users of the bulk (600000)")
    return parser


def split(ratings: Ratings, seed: int) -> tuple[Ratings, Ratings, Ratings]:
    """Ratings of nine tenths of the users; of the others the half that is sent, and the rest."""
    rng = np.random.default_rng(seed)
    away = rng.permutation(ratings.n_users) < ratings.n_users // 10
    new = away[ratings.user_rows]
    sent = new & (rng.random(len(ratings)) < 0.5)
    old, sent, asked = (ratings.take(np.flatnonzero(x)) for x in (~new, sent, new & ~sent))
    return old, sent, asked


def joined(a: Ratings, b: Ratings) -> Ratings:
    """Two sets of ratings as one."""
    columns = ((a.users, b.users), (a.items, b.items), (a.rating, b.rating))
    return Ratings(*(np.concatenate(pair) for pair in columns))


def errors(model: BayesianMF, asked: Ratings, sent: Ratings | None) -> dict[str, Any]:
    """RMSE and coverage of the ratings that were not sent."""
    predicted = model.predict(asked.users, asked.items, ratings=sent)
    found: dict[str, Any] = {"rmse": float(np.sqrt(np.mean((predicted - asked.rating) ** 2)))}
    for level in LEVELS:
        pairs = asked.users, asked.items, int(level) / 100
        low, high = model.predict_interval(*pairs, ratings=sent)
        found[level] = 100 * float(np.mean((low <= asked.rating) & (asked.rating <= high)))
    return found


def one_user(model: BayesianMF, n: int = 100, times: int = 200) -> dict[str, float]:
    """Milliseconds of a new user with n ratings under 64 draws: rows alone, and whole answers."""
    posterior = model.posterior_
    which = np.linspace(0, len(posterior.draws) - 1, min(64, len(posterior.draws))).astype(int)
    posterior = posterior.with_draws(np.unique(which))
    rng = np.random.default_rng(0)
    questions = [
        NewRatings(
            np.zeros(n, np.int64),
            rng.choice(posterior.n_items, n, replace=False),
            rng.integers(1, 6, n).astype(np.float32),
        )
        for _ in range(times)
    ]
    item = np.arange(10)

    def rows(new: NewRatings) -> None:
        made = fold_in(posterior, np.array([-1]), new)
        made.sides.source.solve(np.array([0]))

    def ten(new: NewRatings) -> None:
        made = fold_in(posterior, np.array([-1]), new)
        made.mean_std(np.zeros(10, np.int64), item, threads=1)

    out = {"draws": float(len(posterior.draws))}
    for name, ask in (("row posteriors", rows), ("mean and std of ten items", ten)):
        ask(questions[0])
        took = []
        for new in questions:
            begin = time.perf_counter()
            ask(new)
            took.append(1e3 * (time.perf_counter() - begin))
        out[name], out[f"{name}, 99 of 100 within"] = np.median(took), np.quantile(took, 0.99)
    return out


def many_users(model: BayesianMF, n_users: int) -> dict[str, float]:
    """Seconds to compute the rows of many users: those of the model, repeated."""
    posterior = model.posterior_.with_users
    source, rng = posterior.sides.source, np.random.default_rng(0)
    rows = rng.integers(0, posterior.n_users, n_users)
    _ = source.everything  # made before the clock starts

    def run(part: slice) -> None:
        source.solve(rows[part])

    begin = time.perf_counter()
    with Pool() as pool:
        pool.each(run, parts(n_users, rows_at_once(len(posterior.draws))))
        threads = pool.threads
    seconds = time.perf_counter() - begin
    counts = np.diff(posterior.ratings.by_user.starts)[rows]
    return {
        "users": n_users, "ratings": int(counts.sum()), "draws": len(posterior.draws),
        "threads": threads, "seconds": seconds,
    }  # fmt: skip


@command
def main(argv: list[str] | None = None) -> None:
    """Measure, and print what was found."""
    args = make_parser().parse_args(argv)
    path = files(args.data, "ml-1m")["ml-1m"]
    warnings.simplefilter("ignore", DataWarning)
    ratings = Ratings.read(path)
    print("| seed | | RMSE | 50, 80, 90, 95% hold |\n|---|---|---|---|")
    model = None
    for seed in range(args.seeds):
        old, sent, asked = split(ratings, seed)
        sampler = Gibbs(epochs=112, joint=4)
        both = [BayesianMF(args.factors, sampler=sampler, random_state=seed) for _ in range(2)]
        model = both[0].fit(old)
        found = [errors(model, asked, sent), errors(both[1].fit(joined(old, sent)), asked, None)]
        for name, one in zip(("sent with the request", "seen in training"), found, strict=True):
            held = ", ".join(f"{one[level]:.1f}" for level in LEVELS)
            print(f"| {seed} | {name} | {one['rmse']:.4f} | {held} |")
        print(f"| {seed} | ratio | {found[0]['rmse'] / found[1]['rmse']:.4f} | |", flush=True)
    assert model is not None
    print("\none user, milliseconds:", {k: round(v, 3) for k, v in one_user(model).items()})
    print("many users:", many_users(model, args.many))
