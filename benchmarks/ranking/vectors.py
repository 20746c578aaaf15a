"""Lists found by vectors of some draws beside those of `recommend`.

`python -m benchmarks vectors RATINGS` fits all ratings with the defaults, asks for the ten best
items of a thousand users that they have not rated, and looks how many of these the vectors have
among their best 10 and 100.
"""

from __future__ import annotations

import warnings

import numpy as np

from bayesmf import BayesianMF, Ratings
from bayesmf.errors import ConvergenceWarning
from bayesmf.integrations.vectors import item_vectors, user_vectors
from benchmarks.options import BenchParser, command

USERS, BEST, CANDIDATES = 1000, 10, 100
DRAWS = (1, 2, 4, 8, 16, 32)


def shared(model: BayesianMF, ratings: Ratings, draws: int) -> tuple[int, float, float]:
    """Length of vectors, and the shares of recommended items among their best 10 and 100."""
    users = model.user_ids_.ids
    asked = np.random.default_rng(0).permutation(users)[:USERS]
    wanted = model.item_ids_.lookup(model.recommend_many(asked, n=BEST).items.ravel())
    wanted = wanted.reshape(len(asked), -1)
    vectors = item_vectors(model, draws=draws)
    scores = user_vectors(model, asked, draws=draws) @ vectors.T
    place = np.full(len(users), -1)
    place[model.user_ids_.lookup(asked)] = np.arange(len(asked))
    rows = place[model.user_ids_.lookup(ratings.users)]
    items = model.item_ids_.lookup(ratings.items)
    scores[rows[rows >= 0], items[rows >= 0]] = -np.inf
    order = np.argsort(-scores, axis=1)[:, :CANDIDATES]
    found = (order[:, :, None] == wanted[:, None, :]) & (wanted >= 0)[:, None, :]
    total = (wanted >= 0).sum()
    return vectors.shape[1], found[:, :BEST].sum() / total, found.sum() / total


@command
def main(arguments: list[str] | None = None) -> int:
    """Print the table."""
    parser = BenchParser("vectors", __doc__)
    parser.add_argument("ratings", metavar="RATINGS", help="a file of ratings")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the fit")
    options = parser.parse_args(arguments)
    ratings = Ratings.read(options.ratings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = BayesianMF(random_state=options.seed).fit(ratings)
    kept = len(model.posterior_.draws)
    print(f"{kept} draws, {model.report_['factors']} factors, {len(model.item_ids_):,} items")
    print("draws  numbers  in the best 10  in the best 100")
    for draws in (*(d for d in DRAWS if d < kept), kept):
        length, best, candidates = shared(model, ratings, draws)
        print(f"{draws:5}  {length:7}  {best:14.1%}  {candidates:15.1%}")
    return 0
