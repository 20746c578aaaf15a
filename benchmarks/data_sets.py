"""Data sets in a folder, and variants made from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import numpy as np

from bayesmf import Ratings, Synthetic
from bayesmf.errors import InputError
from benchmarks.options import words

Kind = TypeVar("Kind")
Split = tuple[Ratings, Ratings]  # training and test
Maker = Callable[[], Split]

HELD_OUT = 0.1
# Whole data sets, the longest last.
FILES = {
    "ml-100k": "ml-100k/u.data",
    "ml-latest-small": "ml-latest-small/ratings.csv",
    "movietweetings": "movietweetings/ratings.dat",
    "ml-1m": "ml-1m/ratings.dat",
}
FOLDS = 5  # of ml-100k
# Share of users, or of items, who keep a single training rating.
LONELY = 0.3


def files(
    folder: Path, asked: str | None = None, known: Mapping[str, str] = FILES
) -> dict[str, Path]:
    """Files in a folder by name, those that were asked for by commas; None is all of them."""
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}")
    found = {name: folder / path for name, path in known.items() if (folder / path).exists()}
    return chosen(found, asked, folder)


def chosen(found: Mapping[str, Kind], asked: str | None, folder: Path) -> dict[str, Kind]:
    """Those of the data sets in a folder that were asked for, by commas; None is all of them."""
    if not found:
        raise InputError(f"there is no data set of a known name in {folder}")
    names = list(found) if asked is None else words(asked)
    for name in names:
        if name not in found:
            raise InputError(f"there is no data set {name!r}: choose from {', '.join(found)}")
    return {name: found[name] for name in names}


def find(folder: Path) -> dict[str, Maker]:
    """All available data sets by name; files are read on demand."""
    found: dict[str, Maker] = {}
    all_100k, small, tweets, all_1m = (folder / path for path in FILES.values())
    for k in range(1, FOLDS + 1):
        base, test = (folder / f"ml-100k/u{k}.{part}" for part in ("base", "test"))
        if base.exists() and test.exists():
            found[f"ml-100k u{k}"] = _reads(base, test)
    for name, path in (("ml-latest-small", small), ("movietweetings", tweets)):
        if path.exists():
            found[name] = _reads(path)
    if all_100k.exists():
        found |= {name: _varies(all_100k, change) for name, change in VARIANTS.items()}
    if all_1m.exists():
        found["ml-1m"] = _reads(all_1m)  # the longest comes last
    return found


def given(folder: Path) -> dict[str, list[Maker]]:
    """Data sets as they are, without variants; ml-100k is its five folds, where all are there."""
    found = {name: [make] for name, make in find(folder).items() if name not in VARIANTS}
    folds = [make for name, (make,) in found.items() if name.startswith("ml-100k u")]
    return {"ml-100k": folds, **found} if len(folds) == FOLDS else found


def _reads(path: Path, test: Path | None = None) -> Maker:
    if test is None:
        return lambda: Ratings.read(path).split(HELD_OUT, random_state=0)
    return lambda: (Ratings.read(path), Ratings.read(test))


def _varies(path: Path, change: Callable[[Split], Split]) -> Maker:
    return lambda: change(Ratings.read(path).split(HELD_OUT, random_state=0))


def with_values(ratings: Ratings, values: np.ndarray) -> Ratings:
    """These pairs with other ratings."""
    return Ratings.from_arrays(
        ratings.user_rows, ratings.item_rows, values, None, ratings.user_ids, ratings.item_ids
    )


def scaled(low: float, high: float) -> Callable[[Split], Split]:
    """Stars from one to five, mapped to another range."""

    def change(split: Split) -> Split:
        train, test = (
            with_values(part, low + (part.rating - 1) / 4 * (high - low)) for part in split
        )
        return train, test

    return change


def half_stars(split: Split) -> Split:
    """Noise of half a star, rounded to half stars: a finer scale, and less to learn."""
    rng = np.random.default_rng(0)

    def noisy(part: Ratings) -> Ratings:
        values = part.rating + rng.normal(0, 0.5, len(part))
        return with_values(part, np.clip(np.round(2 * values) / 2, 0.5, 5))

    train, test = (noisy(part) for part in split)
    return train, test


def lonely(side: str) -> Callable[[Split], Split]:
    """Some users, or items, keep one training rating each; their test ratings all stay."""

    def change(split: Split) -> Split:
        train, test = split
        rng = np.random.default_rng(0)
        rows, n = getattr(train, f"{side}_rows"), getattr(train, f"n_{side}s")
        chosen = np.zeros(n, bool)
        chosen[rng.permutation(n)[: round(LONELY * n)]] = True
        order = rng.permutation(len(train))
        first = np.zeros(len(train), bool)
        first[order[np.unique(rows[order], return_index=True)[1]]] = True
        return train.take(first | ~chosen[rows]), test

    return change


def skewed(_: Split | None = None) -> Split:
    """Planted stars, 99% of them on 1% of the items: every user knows the same few."""
    users, items, known, busy = 5000, 2000, 16, 20
    plan = Synthetic(users, items, users * known, random_state=0)
    truth, rng = plan.truth(), np.random.default_rng(0)
    rare = round(users * known / 99)
    # Each user gets `known` of the busy items; users of rare items are random.
    user = np.concatenate([np.repeat(np.arange(users), known), rng.integers(0, users, rare)])
    often = rng.random((users, busy)).argsort(axis=1)[:, :known].ravel()
    item = np.concatenate([often, rng.integers(busy, items, rare)])
    dots = np.einsum("nd,nd->n", truth.U[user], truth.V[item])
    rating = plan.mean + truth.a[user] + truth.b[item] + dots
    stars = np.clip(np.round(rating + rng.normal(0, plan.noise, len(user))), 1, 5)
    return Ratings(user, item, stars).split(HELD_OUT, random_state=0)


VARIANTS: dict[str, Callable[[Split], Split]] = {
    "ratings 0 to 100": scaled(0, 100),
    "ratings -10 to 10": scaled(-10, 10),
    "noisy half stars": half_stars,
    "30% of users with 1 rating": lonely("user"),
    "30% of items with 1 rating": lonely("item"),
}
