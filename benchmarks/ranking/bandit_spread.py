"""Does a model know what it does not know? `python -m benchmarks bandit --spread`.

Before the first visit: the standard deviation that it states for probabilities of a purchase,
beside their true error, by how many answers an item has.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf import BayesianMF
from bayesmf.storage.atomic import replacing
from benchmarks.ranking.bandit_worlds import Shop, World

HEAD = "world,from,to,stated,true"


class Spread(NamedTuple):
    """Of items with so many answers; root mean squares."""

    world: str
    low: int
    high: int
    stated: float
    true: float


def spread(
    name: str, world: World, seeds: range, fit: Callable[[Shop, int], BayesianMF]
) -> list[Spread]:
    """Thirds of a world's pairs, by answers of the item."""
    found = [_pairs(shop := Shop(world, 1, seed), fit(shop, seed)) for seed in seeds]
    counts, variance, error = np.concatenate(found, axis=1)
    edges = np.quantile(counts, np.linspace(0, 1, 4)).astype(int)
    lines = []
    for low, high in zip([0, *edges[1:-1]], edges[1:], strict=True):
        own = (counts > low) & (counts <= high)
        stated, true = (float(np.sqrt(part[own].mean())) for part in (variance, error))
        lines.append(Spread(name, int(low) + 1, int(high), stated, true))
    return lines


def _pairs(shop: Shop, model: BayesianMF) -> NDArray[Any]:
    """Answers of the item, stated variance and squared error, for every fifth of the known."""
    people = np.arange(0, shop.world.known, 5)
    answers = np.bincount(shop.past[1], minlength=shop.world.on_sale)
    items = np.flatnonzero(answers)
    who, what = np.repeat(people, len(items)), np.tile(items, len(people))
    mean, std = model.predict(who, what, return_std=True)
    variance = np.maximum(std**2 - model.posterior_.noise(), 0.0)
    return np.array([answers[what], variance, (mean - shop.chance[who, what]) ** 2])


def spread_table(lines: list[Spread]) -> list[str]:
    """As it stands on the page."""
    return [
        "| shop | answers of an item | stated | true | ratio |",
        "|---|---|--:|--:|--:|",
        *(
            f"| {one.world} | {one.low} to {one.high} | {one.stated:.3f} | {one.true:.3f} "
            f"| {one.stated / one.true:.2f} |"
            for one in lines
        ),
    ]


def write_spread(lines: list[Spread], path: Path) -> None:
    """Store it as text with commas."""
    text = [f"{w},{low},{high},{stated:.5f},{true:.5f}" for w, low, high, stated, true in lines]
    with replacing(path) as file:
        file.write(("\n".join([HEAD, *text]) + "\n").encode())


def read_spread(path: Path) -> list[Spread]:
    """What `write_spread` has stored."""
    rows = [line.split(",") for line in path.read_text("utf-8").splitlines()[1:]]
    return [Spread(w, int(low), int(high), float(s), float(t)) for w, low, high, s, t in rows]
