"""Synthetic ratings with a planted truth, at the shape of the known data sets or of your own.

Every number is a function of the seed and of the place where it is used (see `bayesmf.keys`),
so a user's ratings are the same bits whether they are made alone, in a chunk or with all others.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bayesmf.errors import InputError
from bayesmf.keys import fill_normals, make_key
from bayesmf.planting import ACTIVITY, ITEMS, ORDER, USERS, alias_table, fill, plant

if TYPE_CHECKING:
    import polars as pl

    from bayesmf.ratings import Ratings

# Users, items, ratings.
SHAPES = {
    "ml-100k": (943, 1682, 100_000),
    "ml-1m": (6040, 3706, 1_000_209),
    "ml-10m": (69_878, 10_677, 10_000_054),
    "netflix": (480_189, 17_770, 100_480_507),
    "yahoo": (1_823_179, 136_736, 717_872_016),
}

_ACTIVITY_SIGMA = 1.25  # Netflix: the mean number of ratings of a user is 2.2 times the median
_MOST_ITEMS = 0.6  # nobody rates more than this part of the items
_MOST_DENSITY = 0.2  # a shape that is scaled down stays sparser than this
_INT32_MAX = 2**31 - 1

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]


class Truth(NamedTuple):
    """What was planted: rating = mean + a[user] + b[item] + U[user] . V[item] + noise.

    `noise_floor` is the error (RMSE) that no model can beat; None where ratings are stars,
    because rounding and clipping change it.
    """

    U: np.ndarray
    V: np.ndarray
    a: np.ndarray
    b: np.ndarray
    noise_floor: float | None


@dataclass(frozen=True)
class Synthetic:
    """A plan of synthetic ratings; nothing is made before it is asked for.

    Parameters
    ----------
    n_users, n_items, n_ratings : int
        The shape. Every user has at least one rating; a rare item may have none.
    n_factors : int
        Length of the planted factors.
    noise : float
        Standard deviation of the noise.
    bias_user, bias_item : float
        Standard deviations of the planted biases.
    factor_strength : float
        Standard deviation of U . V over pairs of a user and an item.
    mean : float
        Centre of the ratings.
    stars : bool
        Round to whole stars and clip to 1..5.
    seed : int
        Same seed, same bits.
    """

    n_users: int
    n_items: int
    n_ratings: int
    n_factors: int = 8
    noise: float = 0.85
    bias_user: float = 0.4
    bias_item: float = 0.45
    factor_strength: float = 0.4
    mean: float = 3.6
    stars: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("n_users", "n_items", "n_ratings", "n_factors", "seed"):
            value, least = getattr(self, name), 0 if name == "seed" else 1
            if not isinstance(value, int | np.integer) or value < least:
                raise InputError(f"{name} must be a whole number from {least} on, not {value!r}.")
        for name in ("noise", "bias_user", "bias_item", "factor_strength"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise InputError(f"{name} must be a finite number from 0 on, not {value!r}.")
        if not math.isfinite(self.mean):
            raise InputError(f"mean must be a finite number, not {self.mean!r}.")
        if max(self.n_users, self.n_items) >= _INT32_MAX:
            raise InputError(f"n_users and n_items must be below {_INT32_MAX}.")
        if self.n_ratings < self.n_users:
            raise InputError(
                f"{self.n_ratings} ratings are too few for {self.n_users} users of at least one."
            )
        room = self.n_users * self._most_per_user
        if self.n_ratings > room:
            raise InputError(
                f"{self.n_ratings} ratings are too many for {self.n_users} users and "
                f"{self.n_items} items: at most {room}, {_MOST_ITEMS:.0%} of the cells, fit."
            )

    @classmethod
    def like(cls, shape: str, scale: float = 1.0, **overrides: Any) -> Synthetic:
        """The plan of a known data set, or of a part of it.

        Parameters
        ----------
        shape : str
            A name in `SHAPES`.
        scale : float
            Part of the number of ratings, in (0, 1].
        **overrides
            Any field of `Synthetic`.
        """
        if shape not in SHAPES:
            raise InputError(f"Unknown shape {shape!r}: the known ones are {', '.join(SHAPES)}.")
        if not 0 < scale <= 1:
            raise InputError(f"scale must be above 0 and at most 1, not {scale!r}.")
        users, items, ratings = SHAPES[shape]
        # Users shrink as the ratings do, so a user keeps the number of ratings, which is what
        # makes the data hard or easy; items shrink by the root only, as a sample of users still
        # meets most items. Density grows by 1 / sqrt(scale), so below some scale both sides are
        # enlarged alike to hold it at the limit.
        density = ratings / (users * items * math.sqrt(scale))
        enlarge = max(1.0, math.sqrt(density / _MOST_DENSITY))
        n_users = math.ceil(users * scale * enlarge)
        n_items = math.ceil(items * math.sqrt(scale) * enlarge)
        n_ratings = max(round(ratings * scale), n_users)
        sizes = {"n_users": n_users, "n_items": n_items, "n_ratings": n_ratings}
        return cls(**{**sizes, **overrides})

    @property
    def noise_floor(self) -> float | None:
        """The error (RMSE) that no model can beat; None where ratings are stars."""
        return None if self.stars else float(self.noise)

    def truth(self) -> Truth:
        """The planted factors and biases, float32; row k belongs to id k + 1."""
        U, a = self.user_rows(0, self.n_users)
        V, b = self.item_rows(0, self.n_items)
        return Truth(U, V, a, b, self.noise_floor)

    def user_rows(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Factors and biases of the users start..stop - 1, without making the others."""
        return self._rows(start, stop, USERS, self.bias_user)

    def item_rows(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Factors and biases of the items start..stop - 1, without making the others."""
        return self._rows(start, stop, ITEMS, self.bias_item)

    def activity(self) -> np.ndarray:
        """Number of ratings of each user, int64: log-normal above a minimum, exact in total."""
        # As in MovieLens, nobody has a handful only, unless the mean itself is small.
        least = max(1, int(min(20.0, self.n_ratings / self.n_users / 4)))
        most = self._most_per_user - least
        target = self.n_ratings - least * self.n_users
        weight = np.exp(_ACTIVITY_SIGMA * self._normals(self.n_users, ACTIVITY).astype(np.float64))
        # Shares proportional to weight but at most `most`: what is cut off goes to the others,
        # who may then be cut too, so until nobody new is. The set of the cut only grows.
        cut, before = np.zeros(self.n_users, dtype=bool), -1
        extra = np.full(self.n_users, float(most))
        while before < (n_cut := int(cut.sum())) < self.n_users:
            before = n_cut
            rate = (target - n_cut * most) / weight[~cut].sum()
            extra = np.where(cut, most, rate * weight)
            cut |= extra >= most
        # Rounding the running total keeps every count within one of its share and the sum exact.
        total = np.minimum(np.floor(np.cumsum(np.minimum(extra, most))), target)
        total[-1] = target
        counts: np.ndarray = least + np.diff(total, prepend=0.0).astype(np.int64)
        return counts

    def popularity(self) -> np.ndarray:
        """Chance of each item to be a draw, float64, Zipf-like in an order that ids do not show."""
        # The shift flattens the head: without it nearly every user would have the same few
        # items. The top item comes out at 70% of the users of ml-100k (the real one: 62%) and
        # at 37% of those of netflix (the real one: 49%).
        shift = min(10.0, self.n_items / 100) + self.n_items / 200
        by_rank = (np.arange(self.n_items) + 1.0 + shift) ** -1.2
        chance: np.ndarray = np.empty(self.n_items)
        chance[np.argsort(self._normals(self.n_items, ORDER), kind="stable")] = by_rank
        chance /= chance.sum()
        return chance

    def chunks(self, max_ratings: int = 1_000_000) -> Iterator[Arrays]:
        """The ratings in user order, whole users at a time, items ascending within a user.

        Parameters
        ----------
        max_ratings : int
            Largest chunk; only a user with more than this comes in a larger one.

        Yields
        ------
        user, item, rating : int32, int32 and float32 arrays
            Users and items are rows of `truth()`, counted from 0.
        """
        if max_ratings < 1:
            raise InputError(f"max_ratings must be at least 1, not {max_ratings!r}.")
        return self._chunks(max_ratings)

    def ratings(self) -> Ratings:
        """All ratings in memory; ids are the rows of `truth()` counted from 1, unrated ones too."""
        from bayesmf.ids import IdMap
        from bayesmf.ratings import Ratings

        user, item, rating = _empty(self.n_ratings)
        maker = _Maker(self)
        # By pieces, because the user rows of a piece are made for it alone.
        for first, last, at in maker.pieces(1_000_000):
            maker.fill(first, last, (user[at], item[at], rating[at]))
        user_ids, item_ids = (IdMap(np.arange(1, n + 1)) for n in (self.n_users, self.n_items))
        return Ratings.from_arrays(user, item, rating, None, user_ids, item_ids)

    def write(
        self, path: str | os.PathLike[str], progress: Callable[[int], Any] | None = None
    ) -> None:
        """Stream the ratings to a .csv, .tsv or .parquet file, with columns user, item, rating.

        Ids are counted from 1. The file appears under its name only when it is complete.
        `progress` is called with the number of ratings made since the last call.
        """
        frames = self._frames(progress or (lambda n: None))
        path = Path(path)
        suffix = path.suffix.lower()
        if suffix not in (".csv", ".tsv", ".parquet"):
            raise InputError(f"{path}: ratings are written to .csv, .tsv or .parquet files.")
        unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            if suffix == ".parquet":
                _write_parquet(frames, unfinished)
            else:
                _write_text(frames, unfinished, "," if suffix == ".csv" else "\t")
            os.replace(unfinished, path)
        except OSError as error:
            raise InputError(f"{path} cannot be written: {error.strerror or error}.") from None
        finally:
            unfinished.unlink(missing_ok=True)

    @property
    def _most_per_user(self) -> int:
        return max(1, int(_MOST_ITEMS * self.n_items))

    def _rows(self, start: int, stop: int, use: int, bias: float) -> tuple[np.ndarray, np.ndarray]:
        # D products of two normals of deviation s have deviation sqrt(D) s^2.
        each = math.sqrt(self.factor_strength / math.sqrt(self.n_factors))
        X = np.empty((stop - start, self.n_factors), dtype=np.float32)
        x = np.empty(stop - start, dtype=np.float32)
        plant(X, x, start, np.float32(each), np.float32(bias), use, *make_key(self.seed))
        return X, x

    def _normals(self, n: int, use: int) -> np.ndarray:
        quads = -(-n // 4)
        out = np.empty(4 * quads, dtype=np.float32)
        fill_normals(out, quads, 0, 0, use, *make_key(self.seed))
        return out[:n]

    def _chunks(self, max_ratings: int) -> Iterator[Arrays]:
        maker = _Maker(self)
        for first, last, at in maker.pieces(max_ratings):
            out = _empty(at.stop - at.start)
            maker.fill(first, last, out)
            yield out

    def _frames(self, progress: Callable[[int], Any]) -> Iterator[pl.DataFrame]:
        import polars as pl

        for user, item, rating in self._chunks(1_000_000):
            # In place: ids are counted from 1.
            np.add(user, 1, out=user)
            np.add(item, 1, out=item)
            yield pl.DataFrame({"user": user, "item": item, "rating": rating})
            progress(len(user))


class _Maker:
    """What all users' ratings need, made once: item tables and each user's place."""

    def __init__(self, plan: Synthetic) -> None:
        self.plan = plan
        self.offsets = np.concatenate(([0], np.cumsum(plan.activity())))
        chance = plan.popularity()
        self.tables = (*alias_table(chance), (1.0 / chance).astype(np.float32))
        self.item_rows = plan.item_rows(0, plan.n_items)

    def pieces(self, max_ratings: int) -> Iterator[tuple[int, int, slice]]:
        """Ranges of users with at most `max_ratings` ratings, or of one user; and their places."""
        first = 0
        while first < self.plan.n_users:
            end = self.offsets[first] + max_ratings
            last = max(first + 1, int(np.searchsorted(self.offsets, end, side="right")) - 1)
            yield first, last, slice(int(self.offsets[first]), int(self.offsets[last]))
            first = last

    def fill(self, first: int, last: int, out: Arrays) -> None:
        """Make the ratings of users first..last - 1 in the arrays `out`."""
        plan = self.plan
        rows = (*plan.user_rows(first, last), *self.item_rows)
        bounds = self.offsets[first : last + 1] - self.offsets[first]
        scalars = np.float32(plan.mean), np.float32(plan.noise), bool(plan.stars)
        fill(out, first, bounds, rows, self.tables, scalars, make_key(plan.seed))


def _empty(n: int) -> Arrays:
    return np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.float32)


def _write_text(frames: Iterator[pl.DataFrame], path: Path, separator: str) -> None:
    with path.open("wb") as file:
        for k, frame in enumerate(frames):
            frame.write_csv(file, include_header=k == 0, separator=separator)


def _write_parquet(frames: Iterator[pl.DataFrame], path: Path) -> None:
    import polars as pl
    from polars.io.plugins import register_io_source

    def source(*_: object) -> Iterator[pl.DataFrame]:
        # The sink asks for all columns and rows, so what polars would push down is not looked at.
        return frames

    schema = {"user": pl.Int32, "item": pl.Int32, "rating": pl.Float32}
    register_io_source(source, schema=schema).sink_parquet(path)
