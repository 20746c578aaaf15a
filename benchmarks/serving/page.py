"""The figures of docs/answers.md.

Looks under the folder for ml-100k and ml-1m, holds out a tenth of each, and fits with 10 factors
and the defaults otherwise. The table of factors is that of `benchmarks noise`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf import BayesianMF, Ratings
from bayesmf.errors import ConvergenceWarning, DataWarning
from benchmarks.data_sets import FILES, files
from benchmarks.options import BenchParser, command

SETS = ("ml-100k", "ml-1m")
FACTORS, HELD_OUT, LEVEL = 10, 0.1, 0.9
# Users with at least this many held-out ratings have a coverage of their own; below this it is low.
MANY, LOW = 30, 0.8
Floats = NDArray[np.float64]


def rmse(predicted: Any, ratings: Ratings) -> float:
    """Root mean squared error."""
    return float(np.sqrt(np.mean((predicted - ratings.rating) ** 2)))


def known(model: BayesianMF, ratings: Ratings) -> Ratings:
    """Those of users and items that are in the training data: factors of others do not exist."""
    user, item = model.user_ids_.lookup(ratings.users), model.item_ids_.lookup(ratings.items)
    return ratings.take((user >= 0) & (item >= 0))


def by_factors(model: BayesianMF, ratings: Ratings) -> Callable[[Any, Any], Floats]:
    """Predictions of pairs from rows of users and items: factors, then a bias."""
    posterior = model.posterior_
    u, i = model.user_ids_.lookup(ratings.users), model.item_ids_.lookup(ratings.items)

    def predicted(users: Any, items: Any) -> Floats:
        x, y = users[u], items[i]
        points = (x[:, :-1] * y[:, :-1]).sum(1) + x[:, -1] + y[:, -1]
        return np.asarray(posterior.center + posterior.scale * points)

    return predicted


def figures(train: Ratings, test: Ratings) -> dict[str, float]:
    """All of one data set, by what the page calls them."""
    model = BayesianMF(FACTORS, keep="both", random_state=0, progress=False).fit(train)
    draws, last = model.posterior_.draws, {e["chain"]: e for e in model.history_}
    held_out = known(model, test)
    at_test, at_train = by_factors(model, held_out), by_factors(model, train)
    points = [at_test(u, i) for u, i in zip(draws.users, draws.items, strict=True)]
    first = np.flatnonzero(draws.chain == 0)
    one = at_test(draws.users[first].mean(0), draws.items[first].mean(0))
    singles = zip(draws.users, draws.items, strict=True)
    return {
        "train RMSE": float(np.mean([e["train_rmse"] for e in last.values()])),
        "noise": model.report_["noise_std"],
        "single draws, training": float(np.mean([rmse(at_train(*one), train) for one in singles])),
        "single draws, held out": float(np.mean([rmse(one, held_out) for one in points])),
        "averaged prediction, training": rmse(model.predict(train.users, train.items), train),
        "averaged prediction, held out": rmse(model.predict(test.users, test.items), test),
        "averaged draws' predictions": rmse(np.mean(points, 0), held_out),
        "averaged factors": rmse(at_test(draws.users.mean(0), draws.items.mean(0)), held_out),
        "one chain, predictions": rmse(np.mean([points[k] for k in first], 0), held_out),
        "one chain, factors": rmse(one, held_out),
        **by_user(model, test),
        "new user against the item's average": new_user(model, train),
    }


def by_user(model: BayesianMF, test: Ratings) -> dict[str, float]:
    """Coverage of 90% intervals, of all and user by user."""
    low, high = model.predict_interval(test.users, test.items, LEVEL)
    inside = (low <= test.rating) & (test.rating <= high)
    n = np.bincount(test.user_rows, minlength=test.n_users)
    held = np.bincount(test.user_rows, inside, minlength=test.n_users)
    many = n >= MANY
    share = float(inside.mean())
    # Below LOW by chance alone, were every interval as good as the average.
    chance = [
        sum(comb(k, j) * share**j * (1 - share) ** (k - j) for j in range(k) if j < LOW * k)
        for k in n[many].tolist()
    ]
    return {
        "coverage": share,
        "users with many": float(many.sum()),
        "users below 80%": float(np.mean(held[many] < LOW * n[many])) if many.any() else np.nan,
        "by chance": float(np.mean(chance)) if chance else np.nan,
    }


def new_user(model: BayesianMF, train: Ratings) -> float:
    """Root mean squared difference of what an unknown user gets from the items' averages."""
    sums = np.bincount(train.item_rows, train.rating, minlength=train.n_items)
    counts = np.bincount(train.item_rows, minlength=train.n_items)
    there = counts > 0
    items = train.item_ids.ids[there]
    predicted = model.predict("nobody", items)
    means = (sums / np.maximum(counts, 1))[there]
    return float(np.sqrt(np.average((predicted - means) ** 2, weights=counts[there])))


@command
def main(argv: list[str] | None = None) -> int:
    """Print the figures of each data set."""
    parser = BenchParser("page", __doc__)
    add = parser.add_argument
    add("--data", type=Path, required=True, metavar="FOLDER", help="where the data sets lie")
    args = parser.parse_args(argv)
    there = files(args.data, None, {name: FILES[name] for name in SETS})
    for category in (ConvergenceWarning, DataWarning):
        warnings.simplefilter("ignore", category)
    for name, file in there.items():
        print(f"{name}, D = {FACTORS}")
        for what, value in figures(*Ratings.read(file).split(HELD_OUT, random_state=0)).items():
            print(f"  {what:<38} {value:.4f}".replace(".0000", ""), flush=True)
    return 0
