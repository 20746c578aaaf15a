"""Datasets of experiments: ratings split once into train, validation and test, and stored."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.data.ratings import Ratings
from bayesmf.errors import InputError
from bayesmf.storage.artefact import Kind, read_file, write_file
from bayesmf.synthetic.synthetic import SHAPES, Synthetic
from experiments.oracle import lists_by_user, oracle_rmse

# Planted features: more than the fewest that an experiment fits, fewer than the most.
PLANTED = 48
_KIND = Kind("bayesmf-study", "dataset", "remove it")
# Training ratings of the paper's two sets, 80% and all but the test part (Table 2, Section 4.2).
PAPER_RATINGS = {"netflix": 80_000_000, "yahoo": 700_000_000}
FORMATS = {"netflix": "netflix", "yahoo": "yahoo-r2", "movielens": "auto"}
VALIDATION = 0.05  # of the training ratings, where settings are searched for


@dataclass(frozen=True)
class DataSource:
    """Which ratings: `kind` is netflix, yahoo, movielens or synthetic, `what` a path or a shape."""

    kind: str
    what: str
    scale: float = 1.0
    seed: int = 0

    @classmethod
    def parse(cls, text: str, scale: float, seed: int) -> DataSource:
        """From KIND:WHAT."""
        kind, _, what = text.partition(":")
        if kind not in (*FORMATS, "synthetic") or not what:
            raise InputError(
                f"--data {text!r} is none of netflix:PATH, yahoo:PATH, movielens:PATH, "
                "synthetic:SHAPE"
            )
        if kind == "synthetic" and what not in SHAPES:
            raise InputError(f"--data {text!r}: the shapes are {', '.join(SHAPES)}")
        if not 0 < scale <= 1:
            raise InputError(f"--scale must be above 0 and at most 1, not {scale:g}")
        return cls(kind, what, scale, seed)

    @property
    def title(self) -> str:
        """Title for figures."""
        part = "" if self.scale == 1 else f", {100 * self.scale:g}% of it"
        names = {"netflix": "Netflix", "yahoo": "Yahoo! Music"}
        if self.kind == "synthetic":
            return f"synthetic ratings, {names.get(self.what, self.what)}'s shape{part}"
        return f"{names.get(self.kind, f'MovieLens ({Path(self.what).name})')}{part}"

    @property
    def model(self) -> str:
        """The data set of the paper whose settings are used."""
        return "yahoo" if "yahoo" in (self.kind, self.what) else "netflix"

    @property
    def test_share(self) -> float:
        """80:20 as in the paper; 90:10 for MovieLens, as in most publications."""
        return 0.1 if self.kind == "movielens" else 0.2


@dataclass(frozen=True)
class Dataset:
    """Ratings with row numbers for ids. `floors` are errors that no model can beat, by name."""

    source: DataSource
    n_users: int
    n_items: int
    parts: dict[str, tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]]]
    floors: dict[str, float]
    digest: str

    def __len__(self) -> int:
        return len(self.parts["train"][0])

    @property
    def share(self) -> float:
        """Share of the paper's number of training ratings."""
        return min(1.0, len(self) / PAPER_RATINGS[self.source.model])

    def train(self, validating: bool) -> Ratings:
        """All training ratings, or without those that settings are searched with."""
        names = ("train",) if validating else ("train", "validation")
        user, item, rating = (
            np.concatenate([self.parts[name][k] for name in names]) for k in range(3)
        )
        return Ratings(user, item, rating)

    def held_out(self, validating: bool) -> Ratings:
        """The ratings that errors are measured on."""
        return Ratings(*(np.array(x) for x in self.parts["validation" if validating else "test"]))


def load_dataset(source: DataSource, folder: Path) -> Dataset:
    """The dataset of a source, made once and stored in a folder."""
    about = json.dumps({**asdict(source), "planted": PLANTED}, sort_keys=True)
    name = hashlib.sha256(about.encode()).hexdigest()[:16]
    path = folder / f"study-{name}"
    if not path.exists():
        arrays, meta = _cut(source)
        write_file(path, _KIND, arrays, {"source": asdict(source), **meta})
    arrays, meta = read_file(path, _KIND)
    parts = {
        part: tuple(np.array(arrays[f"{part}_{x}"]) for x in ("user", "item", "rating"))
        for part in ("train", "validation", "test")
    }
    return Dataset(source, meta["n_users"], meta["n_items"], parts, meta["floors"], name)  # type: ignore[arg-type]


def _cut(source: DataSource) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    floors: dict[str, float] = {}
    plan = None
    if source.kind == "synthetic":
        plan = Synthetic.like(
            source.what, source.scale, random_state=source.seed, n_factors=PLANTED
        )
        ratings = plan.ratings()
    else:
        ratings = Ratings.read(source.what, format=FORMATS[source.kind])
        if source.scale < 1:
            ratings = _some_users(ratings, source)
    train, test = ratings.split(source.test_share, random_state=source.seed)
    if plan is not None:
        floors = _floors(plan, train, test)
    rest, validation = train.split(VALIDATION, random_state=source.seed + 1)
    arrays: dict[str, NDArray[Any]] = {}
    for name, part in (("train", rest), ("validation", validation), ("test", test)):
        arrays |= {f"{name}_user": part.user_rows, f"{name}_item": part.item_rows}
        arrays[f"{name}_rating"] = part.rating
    return arrays, {"n_users": ratings.n_users, "n_items": ratings.n_items, "floors": floors}


def _some_users(ratings: Ratings, source: DataSource) -> Ratings:
    """A part of the users with all their ratings, so that ratings per user stay the same."""
    rng = np.random.default_rng(source.seed)
    chosen = rng.random(ratings.n_users) < source.scale
    own = chosen[ratings.user_rows]
    return Ratings(ratings.user_rows[own], ratings.item_rows[own], ratings.rating[own]).compact()


def _floors(plan: Synthetic, train: Ratings, test: Ratings) -> dict[str, float]:
    """The noise, and the lower bound of a model's error."""
    truth = plan.truth()

    def rows(ratings: Ratings) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        # Id k + 1 is row k of the truth.
        user = np.asarray(ratings.user_ids.ids)[ratings.user_rows] - 1
        item = np.asarray(ratings.item_ids.ids)[ratings.item_rows] - 1
        return user.astype(np.int32), item.astype(np.int32)

    user, item = rows(train)
    lists = lists_by_user(user, item, train.rating, plan.n_users)
    found = oracle_rmse(*lists, None, truth, *rows(test), test.rating)
    return {"noise": found["truth"], "bound": found["bound"]}
