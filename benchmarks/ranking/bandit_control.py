"""A control for `python -m benchmarks bandit`: no people, no factors, a Beta law for each item.

Where all visitors are strangers, the shop is the bandit of textbooks but for the people: each item
is bought with a probability of its own. Its posterior is exact, a Beta law, so here nothing can be
put down to `bayesmf`: what Thompson sampling gains over the mean of the same posterior is what
there is to gain. Shops, seeds and rules are those of the study, and each of the two laws before
any answer is tried: "flat" is Beta(1, 1); "fitted" is the one under which the past is likeliest.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import betaln

from benchmarks.ranking.bandit_worlds import Shop

Pair = tuple[float, float]
CONTROLS = {  # law before any answer, and whether it is drawn from
    "flat mean": ("flat", False),
    "flat thompson": ("flat", True),
    "fitted mean": ("fitted", False),
    "fitted thompson": ("fitted", True),
}


def fitted(bought: NDArray[np.float64], shown: NDArray[np.float64]) -> Pair:
    """The Beta law under which so many purchases of so many showings are likeliest."""

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
