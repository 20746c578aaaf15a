"""Who decides what is shown, in `python -m benchmarks bandit`: the library's policies, and parts.

Parts are for finding out why a policy earns what it earns, and are not in the library:
"thompson-person" draws the person alone, "thompson-half" goes half of the way from the mean to what
Thompson sampling has drawn, so draws are half as wide.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bayesmf import BayesianMF
from bayesmf.estimator.questions import sent_table, with_senders
from bayesmf.posterior.ranking import (
    Catalogue,
    OwnRows,
    Pick,
    UserScores,
    own_rows,
    thompson_pick,
    thompson_row,
)
from bayesmf.process import Pool
from benchmarks.ranking.bandit_worlds import Index

Asked = Callable[[BayesianMF, Index, Any, Index, int], Index]
# Scores beside the mean: of the catalogue, for a user by row number, given the mean and a draw.
Beside = Callable[[Catalogue, int, OwnRows, Pick, Any], Any]


def by_policy(policy: Any) -> Asked:
    """The library's own policies."""

    def ask(model: BayesianMF, people: Index, sent: Any, items: Index, seed: int) -> Index:
        found = model.recommend_many(
            people, 1, ratings=sent, items=items, policy=policy, random_state=seed
        )
        return np.asarray(found.items[:, 0], np.int64)

    return ask


def by_mean_and(beside: Beside) -> Asked:
    """Mean of all draws, and something drawn beside it, by the seed as in Thompson sampling."""

    def ask(model: BayesianMF, people: Index, sent: Any, items: Index, seed: int) -> Index:
        found = model._fitted()
        if sent is not None:
            found = with_senders(found, people, sent_table(sent))
        ids, n_draws = found.item_ids, len(found.posterior.draws)
        catalogue = Catalogue.of(found.posterior, np.sort(ids.lookup(items)))
        rows, everything = found.user_ids.lookup(people), np.arange(len(items))
        solved, expected = catalogue.users(rows), UserScores(catalogue, "mean", True, Pool(1))
        best = np.empty(len(people), np.int64)
        for k, row in enumerate(map(int, rows)):
            own = own_rows(solved, k)
            pick = thompson_pick(seed, k, n_draws, own.means.shape[1])
            scores = expected.for_user(row, own, None, everything)
            scores = scores + beside(catalogue, row, own, pick, scores)
            if row >= 0:
                scores[catalogue.seen(row)] = -np.inf
            best[k] = catalogue.items[np.argmax(scores)]
        return np.asarray(ids.ids[best], np.int64)

    return ask


def beside_guess(catalogue: Catalogue, _row: int, own: OwnRows, pick: Pick, _mean: Any) -> Any:
    """What Thompson sampling adds to the scores of items by the guess beside a draw.

    A draw of items has a best guess of the person beside it, and a spread around that guess.
    "thompson-person" takes the mean of all draws, and the spread; "thompson-items" takes the draw
    and the guess.
    """
    n_factors = catalogue.posterior.n_factors
    beside = (thompson_row(own, pick) - np.array(own.means[pick.draw]))[:n_factors]
    return catalogue.rows[pick.draw][:, :n_factors] @ beside


def part_of_the_way(share: float) -> Beside:
    """So much of the way from the mean to what Thompson sampling has drawn."""

    def beside(catalogue: Catalogue, row: int, own: OwnRows, pick: Pick, mean: Any) -> Any:
        drawn = UserScores(catalogue, "thompson", True, Pool(1))
        return share * (drawn.for_user(row, own, pick, np.arange(len(mean))) - mean)

    return beside


# None: asks no model (see `run` of bandit.py).
POLICIES: dict[str, Asked | None] = {
    "random": None,
    "mean": by_policy("mean"),
    "mean+random": by_policy("mean"),
    "ucb": by_policy("ucb"),
    "thompson": by_policy("thompson"),
    "thompson-half": by_mean_and(part_of_the_way(0.5)),
    "thompson-items": by_policy("thompson-items"),
    "thompson-person": by_mean_and(beside_guess),
    "best item": None,
    "oracle": None,
}
