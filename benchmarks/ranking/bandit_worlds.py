"""Shops that are made up, for `python -m benchmarks bandit`: who comes, what is on sale, who buys.

One item is shown at a visit, and bought or not. Whether a person would buy an item is fixed by the
seed, so all policies meet the same people, in the same order, with the same answers. Nobody is
shown an item twice. An item that has just come in is shown once, to a visitor chosen at random,
whatever the policy: before that the model cannot know that it is there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Index = NDArray[np.int64]
# Log odds of a purchase: their mean, and the standard deviations of an item's popularity and of
# taste, which has so many factors. One visit in eight ends with a purchase if items are shown at
# random; of 400 items the best for a person is bought with a probability of .8.
BASE, POPULARITY, TASTE, FACTORS = -2.6, 0.7, 1.3, 4
ROUND = 400  # visits; then the model learns what people did


@dataclass(frozen=True)
class World:
    """What a shop is like.

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
        Visitors are new, and come for so many rounds; 0 where they are the known ones.
    visits : int
        Of a person in a round.
    opening : bool
        Items that nobody has met in the past count as just come in when the doors open.
    """

    told: str
    known: int
    answers: int
    on_sale: int
    arrivals: int = 0
    stays: int = 0
    visits: int = 4
    opening: bool = False

    @property
    def strangers(self) -> bool:
        """Whether everybody comes once."""
        return self.stays == 1 and self.visits == 1


WORLDS = {
    "settled": World("old goods, known people", known=1000, answers=30, on_sale=400),
    "short lives": World(
        "goods come and go, known people", known=1000, answers=20, on_sale=300, arrivals=15
    ),
    "newcomers": World("old goods, new people", known=1000, answers=30, on_sale=400, stays=2),
    # These two came later, when the first three were done: is it that items are seen too rarely?
    "few goods": World(
        "few goods come and go, known people", known=1000, answers=10, on_sale=40, arrivals=2
    ),
    "front page": World(
        "few goods come and go, strangers", known=1000, answers=10, on_sale=40, arrivals=2,
        stays=1, visits=1,
    ),
    # And this one last, by theory alone: the highest mean of ten answers an item is often wrong,
    # and nothing that it does not show can prove it so. 400 people have given one answer each.
    "cold start": World(
        "few goods, hardly known, strangers", known=400, answers=1, on_sale=40, stays=1, visits=1,
        opening=True,
    ),
}  # fmt: skip
LATE = ["cold start"]  # of `--more` alone, unless asked for


class Shop:
    """A world by a seed: the planted truth, the past, and who comes when."""

    def __init__(self, world: World, n_rounds: int, seed: int) -> None:
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
