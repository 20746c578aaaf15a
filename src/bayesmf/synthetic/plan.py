"""What is planted in synthetic ratings: who rates how much, which items, factors and biases.

Every number is a function of the seed and of what it is used for (see `kernels.keys`),
so a user's ratings are the same bits whether they are made alone, in a chunk or with all others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from bayesmf.checks import not_negative, yes_or_no
from bayesmf.errors import InputError
from bayesmf.kernels.keys import fill_normals, make_key
from bayesmf.kernels.plant import ACTIVITY, ITEMS, ORDER, USERS, plant
from bayesmf.synthetic.truth import Truth as Truth

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


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and math.isfinite(value)


@dataclass(frozen=True)
class SyntheticPlan:
    """Sizes, strengths and seed of planted ratings, and the rows that follow; see `Synthetic`."""

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
                raise InputError(f"{name} must be a whole number from {least} on, not {value!r}")
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
            If there is no such shape, or a value is not what it must be.

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
        """Plant factors and biases of some users, without making the others.

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
        """Plant factors and biases of some items, without making the others.

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
        """Give the number of ratings of each user: log-normal above a minimum, exact in total.

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
        """Give the chance of each item to be drawn, Zipf-like in an order that ids do not show.

        Returns
        -------
        numpy.ndarray
            A chance (``float64``) for each item, all together 1.

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
