"""The policies of `python -m benchmarks bandit`: those of the library, and parts of them.

Parts are for finding out why a policy earns what it earns, and are not in the library:
"thompson-person" draws the person alone, "thompson-half" goes half of the way from the mean to what
Thompson sampling has drawn, so draws are half as wide.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import betaln

from bayesmf import BayesianMF
from bayesmf.estimator.questions import sent_table, with_sent_ratings
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

Index = NDArray[np.int64]
# Log odds of a purchase: their mean, and the standard deviations of an item's popularity and of
# taste, with its number of factors. One visit in eight ends with a purchase if items are shown at
# random; of 400 items the best for a person is bought with a probability of .8.
BASE, POPULARITY, TASTE, FACTORS = -2.6, 0.7, 1.3, 4
ROUND = 400  # visits; then the model learns what people did


@dataclass(frozen=True)
class ShopWorld:
    """Parameters of a simulated shop.

    Attributes
    ----------
    known : int
        People who have been there before.
    answers : int
        What each of them has bought or left in the past.
    on_sale : int
        Items on sale at any time.
    arrivals : int
        Items that come in each round, in place of the oldest.
    stays : int
        Visitors are new, and come for this many rounds; 0 where they are the known ones.
    visits : int
        Of a person in a round.
    opening : bool
        Items without past answers count as just come in when the doors open.
    """

    title: str
    known: int
    answers: int
    on_sale: int
    arrivals: int = 0
    stays: int = 0
    visits: int = 4
    opening: bool = False

    @property
    def strangers(self) -> bool:
        """Whether all people come once."""
        return self.stays == 1 and self.visits == 1


WORLDS = {
    "settled": ShopWorld("old goods, known people", known=1000, answers=30, on_sale=400),
    "short lives": ShopWorld(
        "goods come and go, known people", known=1000, answers=20, on_sale=300, arrivals=15
    ),
    "newcomers": ShopWorld("old goods, new people", known=1000, answers=30, on_sale=400, stays=2),
    # These two came later, when the first three were done: is it that items are seen too rarely?
    "few goods": ShopWorld(
        "few goods come and go, known people", known=1000, answers=10, on_sale=40, arrivals=2
    ),
    "front page": ShopWorld(
        "few goods come and go, strangers", known=1000, answers=10, on_sale=40, arrivals=2,
        stays=1, visits=1,
    ),
    # And this one last, by theory alone: the highest mean of ten answers an item is often wrong,
    # and nothing that it does not show can prove it so. 400 people have given one answer each.
    "cold start": ShopWorld(
        "few goods, hardly known, strangers", known=400, answers=1, on_sale=40, stays=1, visits=1,
        opening=True,
    ),
}  # fmt: skip
LATE = ["cold start"]  # of `--more` alone, unless asked for


class Shop:
    """A world by a seed: the planted truth, the past, and who comes when."""

    def __init__(self, world: ShopWorld, n_rounds: int, seed: int) -> None:
        self.world, self.n_rounds = world, n_rounds
        rng = np.random.default_rng([seed, 20_000])
        self.people = ROUND // world.visits  # of a round
        new = self.people // world.stays * (n_rounds + world.stays - 1) if world.stays else 0
        shape = world.known + new, world.on_sale + world.arrivals * n_rounds
        taste = rng.normal(size=(shape[0], FACTORS)) @ rng.normal(size=(FACTORS, shape[1]))
        odds = BASE + POPULARITY * rng.normal(size=shape[1]) + TASTE * taste / FACTORS**0.5
        self.chance = (1 / (1 + np.exp(-odds))).astype(np.float32)
        self.buys = rng.random(shape) < self.chance
        self.past = self._past(rng)
        self.visitors = [self._who(r, rng) for r in range(n_rounds)]
        self.unmet = np.empty(0, np.int64)
        if world.opening:
            self.unmet = np.setdiff1d(np.arange(world.on_sale), self.past[1])
        self.debuts = [  # who is shown what has just come in
            rng.permutation(self.people)[: len(self.on_sale(number)[1])]
            for number in range(n_rounds)
        ]

    def _past(self, rng: np.random.Generator) -> tuple[Index, Index]:
        """People and items of the past: some items were seen much more often than others."""
        n, k = self.world.known, self.world.answers
        seen = rng.normal(size=self.world.on_sale) + rng.gumbel(size=(n, self.world.on_sale))
        return np.repeat(np.arange(n), k), np.argsort(-seen, axis=1)[:, :k].ravel()

    def _who(self, number: int, rng: np.random.Generator) -> Index:
        """The people of a round, each of them once."""
        if self.world.stays:  # an equal share is there for the first time, the second time ...
            first = self.world.known + self.people // self.world.stays * number
            return first + np.arange(self.people)
        turns = self.world.known // self.people
        if number % turns == 0:
            self._order = rng.permutation(self.world.known)
        return np.asarray(self._order[number % turns * self.people :][: self.people])

    def on_sale(self, number: int) -> tuple[Index, Index]:
        """Items of a round: those that were there before, and those that have just come in."""
        first, end = (number * self.world.arrivals + n for n in (0, self.world.on_sale))
        if number == 0 and len(self.unmet):
            return np.setdiff1d(np.arange(first, end), self.unmet), self.unmet
        came = self.world.arrivals if number else 0
        return np.arange(first, end - came), np.arange(end - came, end)

    def unseen(self, people: Index, items: Index, shown: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which items each person may be shown."""
        return ~shown[np.ix_(people, items)]


Pair = tuple[float, float]
CONTROLS = {  # law before any answer, and whether it is drawn from
    "flat mean": ("flat", False),
    "flat thompson": ("flat", True),
    "fitted mean": ("fitted", False),
    "fitted thompson": ("fitted", True),
}


def fitted(bought: NDArray[np.float64], shown: NDArray[np.float64]) -> Pair:
    """The Beta distribution under which these purchases and showings are likeliest."""

    def cost(logs: NDArray[np.float64]) -> float:
        a, b = np.exp(logs)
        return -float((betaln(a + bought, b + shown - bought) - betaln(a, b)).sum())

    # Within these bounds, should all items look the same.
    found = minimize(cost, np.log([1.0, 7.0]), bounds=[(-5, 7)] * 2)
    return float(np.exp(found.x[0])), float(np.exp(found.x[1]))


def control(shop: Shop, name: str, seed: int) -> NDArray[np.float64]:
    """As `run` of bandit.py, by an item's own purchases alone: (rounds, 1, people)."""
    law, drawn = CONTROLS[name]
    rng, n_items = np.random.default_rng([seed, 2]), shop.chance.shape[1]
    counts = np.zeros((2, n_items))  # purchases, showings
    _count(shop, counts, *shop.past)
    a, b = (1.0, 1.0) if law == "flat" else fitted(*counts[:, : shop.world.on_sale])
    earned = []
    for number, people in enumerate(shop.visitors):
        old, new = shop.on_sale(number)
        bought, shown = counts[:, old]
        if drawn:
            laws = a + bought, b + shown - bought
            chosen = old[rng.beta(*laws, size=(len(people), len(old))).argmax(1)]
        else:
            chosen = np.full(len(people), old[((a + bought) / (a + b + shown)).argmax()])
        chosen[shop.debuts[number][: len(new)]] = new
        earned.append(shop.chance[people, chosen][None])
        _count(shop, counts, people, chosen)
    return np.array(earned, np.float64)


def _count(
    shop: Shop, counts: NDArray[np.float64], people: NDArray[np.int64], items: NDArray[np.int64]
) -> None:
    n = counts.shape[1]
    counts[0] += np.bincount(items, shop.buys[people, items], n)
    counts[1] += np.bincount(items, minlength=n)


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
            found = with_sent_ratings(found, people, sent_table(sent))
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
    """This share of the way from the mean to Thompson sampling's draw."""

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
