"""Synthetic ratings with a planted truth, at the shape of known data sets or of your own.

Every number is a function of the seed and of its use (see `kernels.keys`), so a user's ratings are
the same bits whether they are made alone, in a chunk or with all others.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from bayesmf.checks import not_negative, whole, yes_or_no
from bayesmf.errors import InputError
from bayesmf.kernels.keys import fill_normals, make_key
from bayesmf.kernels.plant import ACTIVITY, ITEMS, ORDER, USERS, plant
from bayesmf.synthetic.chunks import Arrays, check_paths, empty, make_parts, write_files
from bayesmf.synthetic.truth import Truth

if TYPE_CHECKING:
    from bayesmf.data.ratings import Ratings

_CHUNK = 1_000_000  # ratings made at a time
# Users, items, ratings.
SHAPES = {
    "ml-100k": (943, 1682, 100_000),
    "ml-1m": (6040, 3706, 1_000_209),
    "ml-10m": (69_878, 10_677, 10_000_054),
    "netflix": (480_189, 17_770, 100_480_507),
    "yahoo": (1_823_179, 136_736, 717_872_016),
}

_ACTIVITY_SIGMA = 1.25  # Netflix: the mean number of ratings of a user is 2.2 times the median
_MOST_ITEMS = 0.6  # largest part of the items that a user rates
_MOST_DENSITY = 0.2  # limit for shapes that are scaled down
_INT32_MAX = 2**31 - 1


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and math.isfinite(value)


@dataclass(frozen=True)
class Synthetic:
    """A plan of synthetic ratings, which are made on request.

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
    random_state : int
        The same number gives the same bits.

    Raises
    ------
    InputError
        If a value is invalid, or there are too many ratings for the shape.

    Examples
    --------
    >>> from bayesmf import Synthetic
    >>> plan = Synthetic(n_users=60, n_items=40, n_ratings=900, stars=True, random_state=1)
    >>> plan.ratings()
    Ratings(900 ratings of 40 items by 60 users, 1 to 5, mean 3.424)
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
    random_state: int = 0

    def __post_init__(self) -> None:
        for name in ("n_users", "n_items", "n_ratings", "n_factors", "random_state"):
            value, least = getattr(self, name), 0 if name == "random_state" else 1
            if not isinstance(value, int | np.integer) or value < least:
                raise InputError(f"{name} must be a whole number >= {least}, not {value!r}")
        for name in ("noise", "bias_user", "bias_item", "factor_strength"):
            not_negative(name, getattr(self, name))
        if not _is_finite(self.mean):
            raise InputError(f"mean must be a finite number, not {self.mean!r}")
        yes_or_no("stars", self.stars)
        if max(self.n_users, self.n_items) >= _INT32_MAX:
            raise InputError(f"n_users and n_items must be below {_INT32_MAX}")
        if self.n_ratings < self.n_users:
            raise InputError(
                f"{self.n_ratings} ratings are too few for {self.n_users} users of at least one"
            )
        room = self.n_users * self._most_per_user
        if self.n_ratings > room:
            raise InputError(
                f"{self.n_ratings} ratings are too many for {self.n_users} users and "
                f"{self.n_items} items: at most {room}, {_MOST_ITEMS:.0%} of the cells, fit"
            )

    @classmethod
    def like(cls, shape: str, scale: float = 1.0, **overrides: Any) -> Self:
        """Plan ratings at the shape of a known data set, or of a part of it.

        Parameters
        ----------
        shape : {"ml-100k", "ml-1m", "ml-10m", "netflix", "yahoo"}
            The data set.
        scale : float
            Part of the number of ratings, in (0, 1].
        **overrides : int, float or bool
            Any parameter of `Synthetic`.

        Returns
        -------
        Synthetic
            The plan.

        Raises
        ------
        InputError
            If there is no such shape, or a value is invalid.

        Examples
        --------
        >>> from bayesmf import Synthetic
        >>> plan = Synthetic.like("ml-1m", 0.1, random_state=1)
        >>> plan.n_users, plan.n_items, plan.n_ratings
        (604, 1172, 100021)
        """
        if shape not in SHAPES:
            raise InputError(f"Unknown shape {shape!r}: the known ones are {', '.join(SHAPES)}")
        if not 0 < scale <= 1:
            raise InputError(f"scale must be above 0 and at most 1, not {scale!r}")
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
        """Plant the factors and biases.

        Returns
        -------
        Truth
            The factors and biases, ``float32``; row k belongs to id k + 1.

        Examples
        --------
        >>> from bayesmf import Synthetic
        >>> truth = Synthetic(60, 40, 900).truth()
        >>> truth.U.shape, truth.b.shape, truth.noise_floor
        ((60, 8), (40,), 0.85)
        """
        U, a = self.user_factors(0, self.n_users)
        V, b = self.item_factors(0, self.n_items)
        return Truth(
            U, V, a, b, self.noise_floor, float(self.mean), float(self.noise), self._factor,
            float(self.bias_user), float(self.bias_item), bool(self.stars), int(self.random_state),
        )  # fmt: skip

    def user_factors(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Plant factors and biases of users in a range.

        Parameters
        ----------
        start, stop : int
            The users from row `start` to row `stop` - 1.

        Returns
        -------
        factors : numpy.ndarray
            A row for each user, ``float32``.
        biases : numpy.ndarray
            A number for each user, ``float32``.

        Examples
        --------
        >>> from bayesmf import Synthetic
        >>> factors, biases = Synthetic(60, 40, 900).user_factors(10, 12)
        >>> factors.shape, biases.shape
        ((2, 8), (2,))
        """
        return self._rows(start, stop, USERS, self.bias_user)

    def item_factors(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Plant factors and biases of items in a range.

        Parameters
        ----------
        start, stop : int
            The items from row `start` to row `stop` - 1.

        Returns
        -------
        factors : numpy.ndarray
            A row for each item, ``float32``.
        biases : numpy.ndarray
            A number for each item, ``float32``.

        Examples
        --------
        >>> from bayesmf import Synthetic
        >>> factors, biases = Synthetic(60, 40, 900).item_factors(10, 12)
        >>> factors.shape, biases.shape
        ((2, 8), (2,))
        """
        return self._rows(start, stop, ITEMS, self.bias_item)

    def activity(self) -> np.ndarray:
        """Return the number of ratings of each user: log-normal above a minimum, exact in total.

        Returns
        -------
        numpy.ndarray
            A number (``int64``) for each user.

        Examples
        --------
        >>> from bayesmf import Synthetic
        >>> counts = Synthetic(60, 40, 900).activity()
        >>> len(counts), int(counts.sum())
        (60, 900)
        """
        # As in MovieLens, users have 20 ratings or more, unless the mean is small.
        least = max(1, int(min(20.0, self.n_ratings / self.n_users / 4)))
        most = self._most_per_user - least
        target = self.n_ratings - least * self.n_users
        weight = np.exp(_ACTIVITY_SIGMA * self._normals(self.n_users, ACTIVITY).astype(np.float64))
        # Shares are proportional to weight but at most `most`; the rest goes to the other users,
        # which may exceed the limit then, until none does.
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
        """Return the probability of each item to be drawn, Zipf-like and unrelated to ids.

        Returns
        -------
        numpy.ndarray
            A probability (``float64``) for each item; their sum is 1.

        Examples
        --------
        >>> from bayesmf import Synthetic
        >>> round(float(Synthetic(60, 40, 900).popularity().sum()), 6)
        1.0
        """
        # The shift flattens the head: without it nearly every user would have the same few
        # items. The top item comes out at 70% of the users of ml-100k (the real one: 62%) and
        # at 37% of those of netflix (the real one: 49%).
        shift = min(10.0, self.n_items / 100) + self.n_items / 200
        by_rank = (np.arange(self.n_items) + 1.0 + shift) ** -1.2
        chance: np.ndarray = np.empty(self.n_items)
        chance[np.argsort(self._normals(self.n_items, ORDER), kind="stable")] = by_rank
        chance /= chance.sum()
        return chance

    def chunks(self, max_ratings: int = _CHUNK) -> Iterator[Arrays]:
        """Make the ratings in user order, whole users at a time.

        Parameters
        ----------
        max_ratings : int
            Largest chunk; a user with more ratings makes a larger one.

        Returns
        -------
        iterator of tuple of numpy.ndarray
            Users and items (``int32``, rows of `truth()` from 0 on), and ratings (``float32``).

        Raises
        ------
        InputError
            If `max_ratings` is not at least 1.

        Examples
        --------
        >>> from bayesmf import Synthetic
        >>> plan = Synthetic(60, 40, 900)
        >>> sum(len(rating) for user, item, rating in plan.chunks(200))
        900
        """
        whole("max_ratings", max_ratings)
        return (train for train, _ in make_parts(self, max_ratings))

    def parts(
        self, holdout: float, max_ratings: int = _CHUNK, shuffle: bool = False
    ) -> Iterator[tuple[Arrays, Arrays]]:
        """Make the ratings in two parts, train and test, chunk by chunk.

        Held-out ratings depend on `random_state` and their number alone. Each user keeps one for
        training; of the others the same share is held out of each user's ratings.

        Parameters
        ----------
        holdout : float or int
            Share of the ratings that is held out, below 1, or their number.
        max_ratings : int
            Largest chunk, as for `chunks`.
        shuffle : bool
            Whether chunks have random users in random order; otherwise in user order.

        Returns
        -------
        iterator of tuple
            Train and test of each chunk, each as from `chunks`.

        Raises
        ------
        InputError
            If too many are to be held out.

        Examples
        --------
        >>> from bayesmf import Synthetic
        >>> parts = list(Synthetic(60, 40, 900).parts(0.1, 200))
        >>> sum(len(test[0]) for train, test in parts)
        90
        """
        whole("max_ratings", max_ratings)
        return make_parts(self, max_ratings, self.held_out(holdout), shuffle)

    def held_out(self, holdout: float) -> int:
        """Return the number of ratings that `holdout`, a share or a number, holds out.

        Parameters
        ----------
        holdout : float or int
            Share of the ratings, below 1, or their number.

        Returns
        -------
        int
            Their number.

        Raises
        ------
        InputError
            If too many are to be held out.

        Examples
        --------
        >>> from bayesmf import Synthetic
        >>> Synthetic(60, 40, 900).held_out(0.1)
        90
        """
        most = self.n_ratings - self.n_users
        number = isinstance(holdout, int | np.integer) and not isinstance(holdout, bool)
        if not (number or (isinstance(holdout, float | np.floating) and 0 < holdout < 1)):
            raise InputError(
                f"holdout must be a share between 0 and 1 or a number of ratings, not {holdout!r}"
            )
        count = int(holdout) if number else max(1, round(float(holdout) * self.n_ratings))
        if not 1 <= count <= most:
            raise InputError(
                f"{count} ratings cannot be held out: from 1 to {most}, as every user keeps one"
            )
        return count

    def ratings(self) -> Ratings:
        """Make all ratings in memory.

        Returns
        -------
        Ratings
            Ids are the rows of `truth()` counted from 1, with those that have no rating.

        Examples
        --------
        >>> from bayesmf import Synthetic
        >>> Synthetic(60, 40, 900).ratings().n_items
        40
        """
        return self._ratings(0)[0]

    def split(self, holdout: float = 0.01) -> tuple[Ratings, Ratings]:
        """Make all ratings in memory, in two parts as `parts` makes them.

        Parameters
        ----------
        holdout : float or int
            Share of the ratings that is held out, below 1, or their number.

        Returns
        -------
        tuple of Ratings
            Train and test.

        Raises
        ------
        InputError
            If too many are to be held out.

        Examples
        --------
        >>> from bayesmf import Synthetic
        >>> train, test = Synthetic(60, 40, 900).split(100)
        >>> len(train), len(test)
        (800, 100)
        """
        return self._ratings(self.held_out(holdout))

    def write(
        self,
        path: str | os.PathLike[str],
        progress: Callable[[int], Any] | None = None,
        *,
        test: str | os.PathLike[str] | None = None,
        holdout: float = 0.01,
        shuffle: bool = False,
    ) -> None:
        """Stream the ratings to a .csv, .tsv or .parquet file, with columns user, item, rating.

        Ids are counted from 1. A file appears under its name when it is complete. Memory does not
        grow with the number of ratings.

        Parameters
        ----------
        path : str or path-like
            The file.
        progress : callable, optional
            Called with the number of ratings made since the last call.
        test : str or path-like, optional
            File for held-out ratings; without one there are none.
        holdout : float or int
            Share of the ratings that is held out, or their number, as for `parts`.
        shuffle : bool
            Whether to write them in random order, as for `parts`.

        Raises
        ------
        InputError
            If a file cannot be written, or too many are to be held out.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> from bayesmf import Ratings, Synthetic
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "ratings.csv"
        ...     Synthetic(60, 40, 900).write(path)
        ...     len(Ratings.read(path))
        900
        """
        path, second = Path(path), None if test is None else Path(test)
        check_paths(path, second)
        held = 0 if second is None else self.held_out(holdout)
        parts = make_parts(self, _CHUNK, held, shuffle)
        write_files(parts, path, second, progress or (lambda n: None))

    def _ratings(self, held: int) -> tuple[Ratings, Ratings]:
        from bayesmf.data.ratings import Ratings
        from bayesmf.ids.id_map import IdMap

        sizes = self.n_ratings - held, held
        columns, ends = [empty(n) for n in sizes], [0, 0]
        # By chunks, so that few rows of users are in memory.
        for parts in make_parts(self, _CHUNK, held):
            for k, part in enumerate(parts):
                begin, ends[k] = ends[k], ends[k] + len(part[0])
                for out, column in zip(columns[k], part, strict=True):
                    out[begin : ends[k]] = column
        ids = [IdMap(np.arange(1, n + 1)) for n in (self.n_users, self.n_items)]
        train, test = (Ratings.from_arrays(*made, None, *ids) for made in columns)
        return train, test

    @property
    def _most_per_user(self) -> int:
        return max(1, int(_MOST_ITEMS * self.n_items))

    @property
    def _factor(self) -> float:
        # D products of two normals of deviation s have deviation sqrt(D) s^2.
        return math.sqrt(self.factor_strength / math.sqrt(self.n_factors))

    def _rows(self, start: int, stop: int, use: int, bias: float) -> tuple[np.ndarray, np.ndarray]:
        X = np.empty((stop - start, self.n_factors), dtype=np.float32)
        x = np.empty(stop - start, dtype=np.float32)
        plant(
            X,
            x,
            start,
            np.float32(self._factor),
            np.float32(bias),
            use,
            *make_key(self.random_state),
        )
        return X, x

    def _normals(self, n: int, use: int) -> np.ndarray:
        quads = -(-n // 4)
        out = np.empty(4 * quads, dtype=np.float32)
        fill_normals(out, quads, 0, 0, use, *make_key(self.random_state))
        return out[:n]
