"""Kept draws of all chains: rows, their precisions, and the noise, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.types import Rows
from bayesmf.model.mapped import allocate, release_pages
from bayesmf.model.noise import RowNoise
from bayesmf.model.priors import RowPrior

# A rating this close to a level, in distances of levels, is that level: ratings are float32.
CLOSE = 1e-3


class RatingLevels(NamedTuple):
    """Levels of ratings, ascending, and the edges between each and the next, in their units."""

    levels: tuple[float, ...]
    edges: tuple[float, ...]

    @property
    def step(self) -> float:
        """The smallest distance of two levels."""
        return float(np.diff(self.levels).min()) if len(self.levels) > 1 else 0.0

    @property
    def rounding(self) -> float:
        """Variance of rounding to levels, as of a uniform distribution."""
        return self.step**2 / 12

    def numbers(self, rating: NDArray[np.floating]) -> NDArray[np.int64] | None:
        """Level of each rating; None if any rating is not a level."""
        values = np.array(self.levels)
        at = np.searchsorted((values[1:] + values[:-1]) / 2, rating)
        off = np.abs(values[at] - rating)
        close = CLOSE * self.step if len(values) > 1 else CLOSE
        return None if (off > close).any() else np.asarray(at, np.int64)


def spread_evenly(chain: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Numbers of at most `most` draws, spread evenly over each chain; at least one.

    `chain` is that of each draw, ascending. Chains have shares in proportion to their draws; the
    last draw of each is chosen.
    """
    _, first, counts = np.unique(chain, return_index=True, return_counts=True)
    # Number of draws of each chain: difference of cumulative shares.
    shares = np.diff(np.cumsum(counts) * min(most, len(chain)) // len(chain), prepend=0)
    while shares.min() < 1:
        if shares.max() > 1:
            shares[shares.argmax()] -= 1
        shares[shares.argmin()] = 1
    chosen = [
        at + np.arange(1, n + 1) * count // n - 1
        for at, count, n in zip(first, counts, shares, strict=True)
    ]
    return np.concatenate(chosen)


# The arrays of rows: a file has those that were kept.
ROWS = ("users", "items", "user_means", "item_means")
# Those of precisions of single rows, where these have any.
ROW_NOISE = ("user_tau", "item_tau")
# Values of `keep`, and their arrays of rows.
SIDES = {"items": ("items",), "users": ("users",), "both": ("users", "items")}


@dataclass(frozen=True)
class Draws:
    """T kept draws, chain by chain, oldest first.

    Rows have `width` columns: the factors, then the bias if the prior has biases. All numbers are
    in units of the chains; `Posterior` has those of the ratings.

    Attributes
    ----------
    users, items : ndarray of float32, shape (T, n_rows, width), or None
        Rows of users and of items; large ones are memory maps. None on the side that is not kept:
        given the other side its rows follow exactly from their ratings.
    user_mu : ndarray of float64, shape (T, width)
        Means of the prior of user rows.
    user_Lambda : ndarray of float64, shape (T, width) or (T, width, width)
        Precisions of the prior of user rows, as diagonals or matrices.
    item_mu, item_Lambda : ndarray of float64
        Means and precisions of the prior of item rows.
    tau : ndarray of float64, shape (T,)
        Noise precisions; the mean of their distribution where rows have their own.
    chain : ndarray of int64, shape (T,)
        Chain of each draw.
    user_means, item_means : ndarray of float32, shape (T, n_rows, width), or None
        Conditional means of kept rows, if the sampler has them (docs/sampler.md): better for
        expectations, not usable for spreads.
    missed : ndarray of int64, shape (T,), or None
        Ratings that came after each draw was made; None where none came.
    user_tau, item_tau : ndarray of float32, shape (T, n_rows), or None
        Noise precisions of single users and items. The precision of a rating is the product of the
        two, one of them where the other is None, and `tau` where both are.
    user_tau_prior, item_tau_prior : ndarray of float64, shape (T, 2), or None
        Shape and rate of the Gamma distribution that these precisions come from.

    Examples
    --------
    >>> from bayesmf import BayesianMF, Gibbs
    >>> ratings = [1, 1, 2, 2, 3], [7, 8, 7, 9, 8], [4.0, 1.0, 5.0, 3.0, 2.0]
    >>> model = BayesianMF(2, sampler=Gibbs(epochs=4), random_state=0).fit(ratings)
    >>> draws = model.posterior_.draws
    >>> draws.users is None, draws.items.shape == (len(draws), 3, 3)
    (True, True)
    """

    users: Rows | None
    items: Rows | None
    user_mu: NDArray[np.float64]
    user_Lambda: NDArray[np.float64]
    item_mu: NDArray[np.float64]
    item_Lambda: NDArray[np.float64]
    tau: NDArray[np.float64]
    chain: NDArray[np.int64]
    user_means: Rows | None = None
    item_means: Rows | None = None
    missed: NDArray[np.int64] | None = None
    user_tau: Rows | None = None
    item_tau: Rows | None = None
    user_tau_prior: NDArray[np.float64] | None = None
    item_tau_prior: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.tau)

    @property
    def noise_by(self) -> str | None:
        """Which rows have noise of their own: "user", "item", "both" or None."""
        own = self.user_tau_prior is not None, self.item_tau_prior is not None
        return {(True, False): "user", (False, True): "item", (True, True): "both"}.get(own)

    def row_noise(self, t: int, side: int) -> RowNoise | None:
        """Noise precisions of users (0) or items (1) under draw t, None where there are none."""
        value = (self.user_tau, self.item_tau)[side]
        prior = (self.user_tau_prior, self.item_tau_prior)[side]
        if value is None or prior is None:
            return None
        both = side == 1 and self.user_tau_prior is not None
        return RowNoise(np.asarray(value[t]), float(prior[t, 0]), float(prior[t, 1]), both)

    @property
    def kept(self) -> Rows:
        """Rows of the side that is kept, of items where both are."""
        rows = self.users if self.items is None else self.items
        assert rows is not None
        return rows

    @property
    def kept_means(self) -> Rows:
        """Conditional means of `kept`, or these rows themselves where there are none."""
        means = self.user_means if self.items is None else self.item_means
        return self.kept if means is None else means

    def priors(self, t: int) -> tuple[RowPrior, RowPrior]:
        """Priors of user and item rows under draw t."""
        return (
            RowPrior(self.user_mu[t], self.user_Lambda[t]),
            RowPrior(self.item_mu[t], self.item_Lambda[t]),
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """Arrays by name, for storage."""
        all_ = {field.name.lower(): getattr(self, field.name) for field in fields(self)}
        return {name: array for name, array in all_.items() if array is not None}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Draws:
        """Draws from arrays by name; other names are ignored."""
        given: dict[str, Any] = {
            field.name: arrays[field.name.lower()]
            for field in fields(cls)
            if field.name.lower() in arrays
        }
        return cls(**{"users": None, "items": None} | given)

    def select(self, which: NDArray[np.int64]) -> Draws:
        """Copies of some draws, by number, ascending."""
        return Draws.from_arrays(
            {name: _some(array, which) for name, array in self.arrays().items()}
        )


def _some(array: np.ndarray, which: NDArray[np.int64]) -> np.ndarray:
    """A copy of some draws; of rows where there is room for them, one draw after the other."""
    if array.dtype != np.float32:
        return array[which]
    out = allocate(len(which), array.shape[1:])
    for slot, source in enumerate(which):
        out[slot] = array[source]
        release_pages(out)
    return out
