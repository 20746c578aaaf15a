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
from bayesmf.reading.formats import check_format, find_files, recognise_format
from bayesmf.samplers.base import DataShape
from bayesmf.storage.artefact import Kind, read_file, write_file
from bayesmf.storage.paths import as_path
from bayesmf.synthetic.synthetic import SHAPES, Synthetic
from bayesmf.wording import count
from experiments.oracle import lists_by_user, oracle_rmse

# Of synthetic ratings: more features than the fewest that an experiment fits, fewer than the most,
# and so strong that the error of the library's default is about .92 of that of biases alone, as on
# MovieLens 1M.
PLANTED = {"n_factors": 48, "noise": 0.75, "factor_strength": 0.6}
RIDGES = (1.0, 2.0, 5.0, 10.0, 20.0)  # of biases alone
_KIND = Kind("bayesmf-study", "dataset", "remove it")
# Of the paper's two sets: training ratings (80%, and all but the test files), items, and the share
# of test ratings (Table 2, Section 4.2).
PAPER_RATINGS = {"netflix": 80_384_405, "yahoo": 699_640_226}
PAPER_ITEMS = {"netflix": 17_770, "yahoo": 136_736}
TEST_SHARE = {"netflix": 0.2, "yahoo": 18_231_790 / 717_872_016}
NAMES = {"netflix": "Netflix", "yahoo": "Yahoo! Music", "yahoo-r2": "Yahoo! Music"}
VALIDATION = 0.05  # of the training ratings, by which the ridge of biases alone is chosen


@dataclass(frozen=True)
class DataSource:
    """Which ratings: `kind` is a format of files or "synthetic", `what` a path or a shape."""

    kind: str
    what: str
    scale: float = 1.0
    seed: int = 0

    @classmethod
    def parse(cls, text: str, scale: float, seed: int) -> DataSource:
        """From synthetic:SHAPE, or the path of a file or folder of ratings."""
        if not 0 < scale <= 1:
            raise InputError(f"--scale must be above 0 and at most 1, not {scale:g}")
        kind, _, what = text.partition(":")
        if kind == "synthetic" or (text in SHAPES and not as_path(text).exists()):
            if what not in SHAPES:
                raise InputError(
                    f"--data {text!r} is neither a path nor synthetic:SHAPE, where the shapes are "
                    f"{', '.join(SHAPES)}"
                )
            return cls(kind, what, scale, seed)
        check_format(as_path(text), "auto")
        return cls(recognise_format(as_path(text)), text, scale, seed)

    @property
    def title(self) -> str:
        """Title for figures."""
        part = "" if self.scale == 1 else f", {100 * self.scale:g}% of it"
        if self.kind == "synthetic":
            return f"synthetic ratings, {NAMES.get(self.what, self.what)}'s shape{part}"
        path = Path(self.what)
        name = f"MovieLens ({path.name})" if self.kind == "movielens" else path.stem
        return f"{NAMES.get(self.kind, name)}{part}"

    @property
    def model(self) -> str:
        """The data set of the paper whose settings are used."""
        return "yahoo" if self.kind == "yahoo-r2" or self.what == "yahoo" else "netflix"

    @property
    def of_paper(self) -> bool:
        """Whether they are a data set of the paper, whole or in part."""
        return self.kind in ("netflix", "yahoo-r2")

    @property
    def test_share(self) -> float:
        """As in the paper; 90:10 for MovieLens, as in most publications."""
        return 0.1 if self.kind == "movielens" else TEST_SHARE[self.model]

    def share(self, n_ratings: int) -> float:
        """Part of the paper's data that `n_ratings` training ratings are."""
        if self.of_paper or (self.kind == "synthetic" and self.what in PAPER_RATINGS):
            return self.scale
        return min(1.0, n_ratings / PAPER_RATINGS[self.model])


@dataclass(frozen=True)
class Dataset:
    """Ratings with row numbers for ids. `floors` are errors that no model can beat, by name."""

    source: DataSource
    n_users: int
    n_items: int
    parts: dict[str, tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]]]
    floors: dict[str, float]
    biases: float  # error of a model without features
    digest: str

    def __len__(self) -> int:
        return len(self.parts["train"][0])

    @property
    def share(self) -> float:
        """Part of the paper's data."""
        return self.source.share(self.shape().n_ratings)

    @property
    def item_share(self) -> float:
        """Number of items, as a part of those of the paper's data."""
        return min(1.0, self.n_items / PAPER_ITEMS[self.source.model])

    def shape(self) -> DataShape:
        """Sizes of the training ratings."""
        n = sum(len(self.parts[name][0]) for name in ("train", "validation"))
        return DataShape(n, self.n_users, self.n_items, 1.0)

    def train(self) -> Ratings:
        """All training ratings."""
        parts = zip(self.parts["train"], self.parts["validation"], strict=True)
        return Ratings(*(np.concatenate(columns) for columns in parts))

    def test(self) -> Ratings:
        """The ratings that errors are measured on."""
        return Ratings(*(np.array(x) for x in self.parts["test"]))

    def mean_rmse(self) -> float:
        """Test error of the mean training rating."""
        center = float(np.mean(self.train().rating, dtype=np.float64))
        return float(np.sqrt(np.mean((self.test().rating.astype(np.float64) - center) ** 2)))


def load_dataset(source: DataSource, folder: Path) -> Dataset:
    """The dataset of a source, made once and stored in a folder."""
    about = json.dumps({**asdict(source), "planted": PLANTED, "format": 3}, sort_keys=True)
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
    sizes = meta["n_users"], meta["n_items"]
    return Dataset(source, *sizes, parts, meta["floors"], meta["biases"], name)  # type: ignore[arg-type]


def _cut(source: DataSource) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    plan = None
    if source.kind == "synthetic":
        plan = Synthetic.like(source.what, source.scale, random_state=source.seed, **PLANTED)
    ratings = plan.ratings() if plan else _some_users(Ratings.read(source.what), source)
    few = f"{source.what} at --scale {source.scale:g} has {{}}: give more, or a larger --scale"
    if len(ratings) < 4:
        raise InputError(few.format(count(len(ratings), "rating")))
    if source.kind == "yahoo-r2":
        train, test = ratings, _yahoo_test(Path(source.what), ratings, source.scale == 1)
    else:
        train, test = ratings.split(source.test_share, random_state=source.seed)
    if not len(test):
        raise InputError(few.format("no test ratings"))
    floors = _floors(plan, train, test) if plan else {}
    rest, validation = train.split(VALIDATION, random_state=source.seed + 1)
    arrays: dict[str, NDArray[Any]] = {}
    for name, part in (("train", rest), ("validation", validation), ("test", test)):
        arrays |= {f"{name}_user": part.user_rows, f"{name}_item": part.item_rows}
        arrays[f"{name}_rating"] = part.rating
    meta = {"n_users": train.n_users, "n_items": train.n_items, "floors": floors}
    chosen = min(RIDGES, key=lambda ridge: _biases(rest, validation, ridge))
    return arrays, {**meta, "biases": _biases(train, test, chosen)}


def _biases(train: Ratings, test: Ratings, ridge: float) -> float:
    """Test error of the mean and biases of users and items alone, by alternating least squares."""
    sides = [(one.user_rows, one.item_rows) for one in (train, test)]
    mean = float(np.mean(train.rating, dtype=np.float64))
    size = 1 + max(int(rows.max(initial=0)) for rows in (*sides[0], *sides[1]))
    users, items = np.zeros(size), np.zeros(size)
    counts = [ridge + np.bincount(rows, minlength=size) for rows in sides[0]]
    (user, item), rating = sides[0], train.rating - mean
    for _ in range(10):
        users = np.bincount(user, rating - items[item], size) / counts[0]
        items = np.bincount(item, rating - users[user], size) / counts[1]
    user, item = sides[1]
    found = np.where(user < 0, 0.0, users[user]) + np.where(item < 0, 0.0, items[item])
    return float(np.sqrt(np.mean((test.rating - mean - found) ** 2)))


def _yahoo_test(folder: Path, train: Ratings, unknown_users: bool) -> Ratings:
    """The ratings of Yahoo's test files, by the training ratings' row numbers.

    Unknown users and items have numbers past the last row; without `unknown_users` their ratings
    are left out.
    """
    files = find_files(folder, (("test_*.txt",),))
    if not files:
        raise InputError(f"{folder} has no test_*.txt, the test part of Yahoo! Music R2")
    parts: list[tuple[NDArray[Any], ...]] = []
    new_user, new_item = train.n_users, train.n_items
    for one in (Ratings.read(file) for file in files):
        user = train.user_ids.lookup(one.user_ids)[one.user_rows]
        item = train.item_ids.lookup(one.item_ids)[one.item_rows]
        own = np.flatnonzero((user >= 0) | unknown_users)
        user = np.where(user < 0, new_user + one.user_rows, user)
        item = np.where(item < 0, new_item + one.item_rows, item)
        new_user, new_item = new_user + one.n_users, new_item + one.n_items
        parts.append((user[own], item[own], one.rating[own]))
    user, item, rating = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Ratings.from_arrays(user, item, rating, None, train.user_ids, train.item_ids)


def _some_users(ratings: Ratings, source: DataSource) -> Ratings:
    """A part of the users with all their ratings, so that ratings per user stay the same."""
    if source.scale == 1:
        return ratings
    chosen = np.random.default_rng(source.seed).random(ratings.n_users) < source.scale
    return ratings.take(np.flatnonzero(chosen[ratings.user_rows])).compact()


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
