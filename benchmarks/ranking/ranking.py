"""Ways to rank items, judged by liked items that were held out.

Looks under the folder for ml-latest-small, ml-100k and ml-1m, and prints the table of
docs/ranking.md. A fifth of the ratings is held out at random; open parameters of a way to rank
(number of candidates, weight) are chosen by NDCG on a fifth of the *training* ratings, by a
model that was fitted to the rest of them. The test ratings are looked at once.

The standard deviation is that of the expected rating over draws. EASE is a linear model of who
rated what, whatever the rating (Steck 2019, https://arxiv.org/abs/1905.03375): the measure of what
a method made for ranking finds in the same data.

"Ratings" are those, in training, of the median item of all lists; below a table stands the same of
the held-out items that were liked. The last column is about another question: of two held-out
ratings of a user that differ, how often has the higher one the better place? A coin has half of
them right.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bayesmf import BayesianMF, ConvergenceWarning, DataWarning, Ratings
from bayesmf.diagnostics.ranking import ListScorer
from bayesmf.errors import InputError
from bayesmf.estimator.evaluating import Liked, Popularity
from bayesmf.estimator.questions import HeldOut
from bayesmf.process import parts
from benchmarks.data_sets import FILES, files
from benchmarks.options import BenchParser, command

SETS = ("ml-latest-small", "ml-100k", "ml-1m")
HELD_OUT = 0.2
# What ways to rank leave open, and the values that are tried.
CANDIDATES = (10, 15, 20, 30, 50, 100, 200, 400, 800)
WEIGHTS = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0)
RIDGES = (30.0, 100.0, 300.0, 1000.0)
RIDGE = 300.0  # where candidates come from EASE
# Scores of one block of users.
BLOCK = 1 << 20
SHOWN = ("ndcg", "recall", "precision", "mrr", "map", "hit_rate", "coverage")
HEADS = (
    "ranked by", "NDCG", "recall", "precision", "MRR", "MAP", "hit rate", "catalogue",
    "ratings", "right order",
)  # fmt: skip

Scores = np.ndarray


class UserBatch(NamedTuple):
    """Predictions and ratings of some users for all items, as arrays of users by items.

    `places` are those of the items by ways that candidates come from, once they are asked for.
    """

    mean: Scores
    std: Scores
    users: np.ndarray
    places: dict[str, Scores]


Way = Callable[[UserBatch], Scores]
Ways = dict[str, dict[float, Way]]


def ways(seen: Any, n_items: int) -> Ways:
    """Scores to rank by: name, then what is left open, 0 where nothing is."""
    counts = seen.item_counts(np.arange(n_items))
    place = np.empty(n_items)
    place[Popularity(seen, n_items).order] = np.arange(n_items)
    ease = {ridge: Ease(seen, n_items, ridge) for ridge in RIDGES}

    def popular(block: UserBatch) -> Scores:
        return np.tile(-place, (len(block.mean), 1))

    return {
        "expected rating": {0: lambda block: block.mean},
        "expected rating - std": {0: lambda block: block.mean - block.std},
        "popularity": {0: popular},
        "expected rating, of the {:g} most popular": {
            n: lambda block, n=n: among(block, n, "popular", popular) for n in CANDIDATES
        },
        "expected rating + {:g} x log(number of ratings)": {
            w: lambda block, w=w: block.mean + w * np.log(counts) for w in WEIGHTS
        },
        "EASE, ridge {:g}": ease,
        "expected rating, of EASE's {:g} best": {
            n: lambda block, n=n: among(block, n, "ease", ease[RIDGE]) for n in CANDIDATES
        },
    }


def among(block: UserBatch, n: int, name: str, by: Way) -> Scores:
    """Expected ratings of each user's n best unrated items by another way; all others below."""
    if name not in block.places:
        order = np.argsort(-np.where(np.isnan(block.mean), -np.inf, by(block)), axis=1)
        place = block.places[name] = np.empty(order.shape)
        np.put_along_axis(place, order, np.arange(order.shape[1], dtype=float)[None], 1)
    place = block.places[name]
    return np.where(place < n, block.mean, -1e6 - place)


class Ease:
    """Weights from item to item by ridge regression, none of an item to itself.

    With X of users by items, P = (X'X + ridge)^-1 and x a row of X, an unrated item j has the score
    -(x P)_j / P_jj. Here P is had from M = (X X' + ridge)^-1, of users by users: x P is the user's
    row of M X, and P = (1 - X' M X) / ridge.
    """

    def __init__(self, seen: Any, n_items: int, ridge: float) -> None:
        self._seen, self._n, self._ridge = seen, n_items, ridge

    @cached_property
    def _scores(self) -> Scores:
        rated = np.zeros((len(self._seen.starts) - 1, self._n))
        for user, row in enumerate(rated):
            row[self._seen.for_user(user)] = 1
        products = rated @ rated.T
        products[np.diag_indices(len(rated))] += self._ridge
        projected = np.linalg.solve(products, rated)
        return -projected * self._ridge / (1 - (rated * projected).sum(0))

    def __call__(self, block: UserBatch) -> Scores:
        return self._scores[block.users]


class Judged:
    """Scores of one way to rank, added block by block."""

    def __init__(self, k: int, counts: np.ndarray) -> None:
        self._k, self._counts = k, counts
        self._scorer = ListScorer(k, len(counts))
        self._shown: list[np.ndarray] = []
        self._right, self._pairs = 0.0, 0.0

    def add(self, scores: Scores, block: UserBatch, liked: tuple[Any, Any], rated: Any) -> None:
        """Add users; `rated` are their held-out ratings, None where order is not asked for."""
        ranked = top(np.where(np.isnan(block.mean), -np.inf, scores), self._k)
        self._scorer.add(ranked, *liked)
        self._shown.append(self._counts[ranked[ranked >= 0]])
        if rated is not None:
            right, pairs = in_order(scores, block, rated)
            self._right, self._pairs = self._right + right, self._pairs + pairs

    def result(self) -> dict[str, float]:
        """Scores by name."""
        found = self._scorer.result()
        shown = {name: getattr(found, name) for name in SHOWN}
        ratings = float(np.median(np.concatenate(self._shown)))
        return shown | {"ratings": ratings, "order": self._right / max(self._pairs, 1.0)}


def score(
    model: BayesianMF, test: Ratings, k: int, relevant: float, only: dict[str, float] | None = None
) -> dict[tuple[str, float], dict[str, float]]:
    """Scores by way and what it leaves open; `only` some, with one value each."""
    found = model._fitted()
    n_items = len(found.item_ids)
    held = HeldOut.from_ratings(test, (found.user_ids, found.item_ids), found.seen)
    liked = Liked.from_held_out(held, relevant)
    listed = {
        (name, value): way
        for name, values in ways(found.seen, n_items).items()
        for value, way in values.items()
        if only is None or only[name] == value
    }
    counts = found.seen.item_counts(np.arange(n_items))
    judged = {key: Judged(k, counts) for key in listed}
    rated = None if only is None else by_user(held)
    for part in parts(int((liked.user >= 0).sum()), max(1, BLOCK // n_items)):
        block = everything(model, liked.user[part])
        for key, way in listed.items():
            judged[key].add(way(block), block, liked.of(part), rated)
    median = float(np.median(counts[liked.item]))
    return {key: one.result() | {"liked_ratings": median} for key, one in judged.items()}


def by_user(held: HeldOut) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Held-out items and ratings of known users, of items that are known."""
    known = np.flatnonzero((held.user >= 0) & (held.item >= 0))
    known = known[np.argsort(held.user[known], kind="stable")]
    users, first = np.unique(held.user[known], return_index=True)
    groups = np.split(known, first[1:])
    return {
        user: (held.item[group], held.ratings.rating[group])
        for user, group in zip(users.tolist(), groups, strict=True)
    }


def in_order(scores: Scores, block: UserBatch, rated: Any) -> tuple[float, float]:
    """Pairs of a user's held-out ratings that differ: in the right order (ties half), and all."""
    right = pairs = 0.0
    for row, user in zip(scores, block.users.tolist(), strict=True):
        item, rating = rated[user]
        higher = rating[:, None] > rating
        ahead = np.sign(row[item][:, None] - row[item])
        right += float((ahead[higher] + 1).sum()) / 2
        pairs += int(higher.sum())
    return right, pairs


def everything(model: BayesianMF, users: np.ndarray) -> UserBatch:
    """Expected ratings of all items, and their spread over draws; NaN for rated ones."""
    n_items = len(model.item_ids_)
    best = model.recommend_many(model.user_ids_.ids[users], n_items)
    row, place = np.nonzero(best.filled)
    item = model.item_ids_.lookup(best.items[best.filled])
    mean, std = np.full((2, len(users), n_items), np.nan)
    # Values above the best rating are reported as that; places in the list order such ties.
    mean[row, item] = best.mean[best.filled] - 1e-9 * place
    noise = model.posterior_.noise()
    std[row, item] = np.sqrt(np.maximum(best.std[best.filled] ** 2 - noise, 0))
    return UserBatch(mean, std, users, {})


def top(scores: Scores, k: int) -> np.ndarray:
    """The k best items of each user, -1 where none is left."""
    best = np.argpartition(-scores, min(k, scores.shape[1]) - 1, axis=1)[:, :k]
    order = np.argsort(-np.take_along_axis(scores, best, 1), axis=1)
    best = np.take_along_axis(best, order, 1)
    return np.where(np.take_along_axis(scores, best, 1) > -np.inf, best, -1)


def run(ratings: Ratings, k: int, relevant: float, seed: int) -> Iterator[dict[str, Any]]:
    """A row for each way to rank, with what was chosen for it on the inner split."""
    train, test = ratings.split(HELD_OUT, random_state=seed)
    inner, judge = train.split(HELD_OUT, random_state=seed)
    tried = score(BayesianMF(random_state=seed).fit(inner), judge, k, relevant)
    chosen: dict[str, float] = {}
    for name, value in sorted(tried, key=lambda key: -tried[key]["ndcg"]):
        chosen.setdefault(name, value)
    model = BayesianMF(random_state=seed).fit(train)
    for (name, value), found in score(model, test, k, relevant, chosen).items():
        curve = {v: one["ndcg"] for (n, v), one in tried.items() if n == name}
        yield {"way": name, "chosen": value, **found, "tried": curve}


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Markdown: means over seeds, and what was chosen for each."""
    yield "| " + " | ".join(HEADS) + " |"
    yield "|---" * len(HEADS) + "|"
    for way in dict.fromkeys(row["way"] for row in rows):
        same = [row for row in rows if row["way"] == way]
        values = ", ".join(f"{value:g}" for value in dict.fromkeys(row["chosen"] for row in same))
        means = {
            name: np.mean([row[name] for row in same]) for name in (*SHOWN, "ratings", "order")
        }
        texts = (f"{x:.0f}" if name == "ratings" else f"{x:.3f}" for name, x in means.items())
        yield f"| {way.replace('{:g}', values)} | " + " | ".join(texts) + " |"
    yield ""
    liked = np.mean([row["liked_ratings"] for row in rows])
    yield f"A held-out item that was liked has {liked:.0f} training ratings (median)."


def make_parser() -> BenchParser:
    """The options."""
    parser = BenchParser("ranking", __doc__)
    add = parser.add_argument
    add("--data", type=Path, required=True, metavar="FOLDER", help="folder of the data sets")
    add("--sets", nargs="+", choices=SETS, metavar="NAME", help="only these")
    add("--seeds", type=int, default=3, metavar="N", help="splits of each, and fits (3)")
    add("--k", type=int, default=10, help="items of a list (10)")
    add("--relevant", type=float, default=4.0, help="the least rating that is liked (4)")
    add("--json", action="store_true", help="print one JSON object for each data set")
    return parser


@command
def main(argv: list[str] | None = None) -> int:
    """0 when all is done; 2 for bad input."""
    args: argparse.Namespace = make_parser().parse_args(argv)
    wanted = {name: FILES[name] for name in args.sets or SETS}
    found = files(args.data, None, wanted)
    if args.seeds < 1:
        raise InputError("--seeds must be a whole number from 1 on")
    warnings.simplefilter("ignore", DataWarning)
    warnings.simplefilter("ignore", ConvergenceWarning)
    for name, path in found.items():
        ratings = Ratings.read(path)
        seeds = range(args.seeds)
        rows = [row for seed in seeds for row in run(ratings, args.k, args.relevant, seed)]
        if args.json:
            print(json.dumps({"data": name, "rows": rows}), flush=True)
        else:
            print(f"\n{name}\n", *table(rows), sep="\n", flush=True)
    return 0
