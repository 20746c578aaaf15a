"""Kept draws of all chains: memory-mapped while they grow, capped in number."""

from __future__ import annotations

import logging
import mmap
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.types import Rows
from bayesmf.model.noise import Noise, RowNoise
from bayesmf.model.params import Params, Precisions, RowPrior

log = logging.getLogger("bayesmf")

# Smaller arrays of draws stay in memory; larger ones are mapped, so the system may page them out.
MAP_ABOVE_BYTES = 32 << 20
# The arrays of rows: a folder has those that were kept.
ROWS = ("users", "items", "user_means", "item_means")
# Those of precisions of single rows, where these have any.
ROW_NOISE = ("user_tau", "item_tau")


@dataclass(frozen=True)
class Draws:
    """T kept draws, chain by chain, oldest first: what a posterior is made of.

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
        Conditional means of kept rows, where the sampler has them (docs/sampler.md): better for
        expectations, useless for spreads.
    user_tau, item_tau : ndarray of float32, shape (T, n_rows), or None
        Noise precisions of single users and items. The precision of a rating is the product of the
        two, one of them where the other is None, and `tau` where both are.
    user_tau_prior, item_tau_prior : ndarray of float64, shape (T, 2), or None
        Shape and rate of the Gamma distribution that these precisions come from.
    missed : ndarray of int64, shape (T,), or None
        Ratings that came after each draw was made; None where none came.

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
        """Precisions of users (0) or items (1) under one draw, with their distribution."""
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
        """Return the priors of user and item rows of one draw.

        Parameters
        ----------
        t : int
            Number of the draw.

        Returns
        -------
        users : RowPrior
            Mean and precision of user rows.
        items : RowPrior
            Mean and precision of item rows.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Gibbs
        >>> ratings = [1, 1, 2, 2, 3], [7, 8, 7, 9, 8], [4.0, 1.0, 5.0, 3.0, 2.0]
        >>> model = BayesianMF(2, sampler=Gibbs(epochs=4), random_state=0).fit(ratings)
        >>> users, items = model.posterior_.draws.priors(0)
        >>> users.mu.shape
        (3,)
        """
        return (
            RowPrior(self.user_mu[t], self.user_Lambda[t]),
            RowPrior(self.item_mu[t], self.item_Lambda[t]),
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays by name, for storage.

        Returns
        -------
        dict of str to ndarray
            Names in lower case; means only where there are any.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Gibbs
        >>> ratings = [1, 1, 2, 2, 3], [7, 8, 7, 9, 8], [4.0, 1.0, 5.0, 3.0, 2.0]
        >>> model = BayesianMF(2, sampler=Gibbs(epochs=4), random_state=0).fit(ratings)
        >>> sorted(model.posterior_.draws.arrays())[:3]
        ['chain', 'item_lambda', 'item_means']
        """
        all_ = {field.name.lower(): getattr(self, field.name) for field in fields(self)}
        return {name: array for name, array in all_.items() if array is not None}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Draws:
        """Make draws from arrays by name.

        Parameters
        ----------
        arrays : mapping of str to ndarray
            Arrays as `arrays` names them; others are passed over.

        Returns
        -------
        Draws
            The draws.

        Examples
        --------
        >>> from bayesmf import BayesianMF, Draws, Gibbs
        >>> ratings = [1, 1, 2, 2, 3], [7, 8, 7, 9, 8], [4.0, 1.0, 5.0, 3.0, 2.0]
        >>> model = BayesianMF(2, sampler=Gibbs(epochs=4), random_state=0).fit(ratings)
        >>> draws = model.posterior_.draws
        >>> len(Draws.from_arrays(draws.arrays())) == len(draws)
        True
        """
        given: dict[str, Any] = {
            field.name: arrays[field.name.lower()]
            for field in fields(cls)
            if field.name.lower() in arrays
        }
        return cls(**{"users": None, "items": None} | given)

    def select(self, which: NDArray[np.int64]) -> Draws:
        """Take some of the draws.

        Parameters
        ----------
        which : ndarray of int64
            Numbers of the draws, ascending.

        Returns
        -------
        Draws
            Copies of these alone.

        Examples
        --------
        >>> import numpy as np
        >>> from bayesmf import BayesianMF, Gibbs
        >>> ratings = [1, 1, 2, 2, 3], [7, 8, 7, 9, 8], [4.0, 1.0, 5.0, 3.0, 2.0]
        >>> model = BayesianMF(2, sampler=Gibbs(epochs=8), random_state=0).fit(ratings)
        >>> len(model.posterior_.draws.select(np.array([0, 2])))
        2
        """
        return Draws.from_arrays(
            {name: _some(array, which) for name, array in self.arrays().items()}
        )


SIDES = {"items": ("items",), "users": ("users",), "both": ("users", "items")}


class DrawStore:
    """Room for at most `per_chain` draws of each chain, filled while chains run.

    `keep` names the side whose rows are stored. Each chain has arrays of its own, so where a draw
    stands never depends on which chain was first.
    """

    def __init__(self, n_chains: int, per_chain: int, keep: str = "both") -> None:
        self.per_chain, self.keep = per_chain, keep
        self._rows: list[dict[str, Rows]] = [{} for _ in range(n_chains)]
        self._precisions: list[list[Precisions]] = [[] for _ in range(n_chains)]
        self._selections = [0] * n_chains

    def _parts(
        self, params: Params, precisions: Precisions, means: Params | None
    ) -> dict[str, Rows]:
        """The arrays of a state that are kept, by the names that `Draws` has for them."""
        parts = {side: getattr(params, side) for side in SIDES[self.keep]}
        if means is not None:
            parts |= {f"{side[:-1]}_means": getattr(means, side) for side in SIDES[self.keep]}
        noise = precisions.weights(0), precisions.weights(1)
        parts |= {n: v for n, v in zip(ROW_NOISE, noise, strict=True) if v is not None}
        return parts

    def reserve(
        self, chain: int, n: int, params: Params, precisions: Precisions,
        means: Params | None = None,
    ) -> None:  # fmt: skip
        """Make room for n draws of a chain."""
        parts = self._parts(params, precisions, means)
        self._rows[chain] = {name: allocate(n, rows.shape) for name, rows in parts.items()}

    def add(
        self, chain: int, params: Params, precisions: Precisions, means: Params | None = None
    ) -> None:
        """Keep a copy of the chain's state."""
        if not self._rows[chain]:
            self.reserve(chain, 1, params, precisions, means)
        slot = len(self._precisions[chain])
        parts = self._parts(params, precisions, means)
        for name, array in self._rows[chain].items():
            array[slot] = parts[name]
            _let_go(array)
        self._precisions[chain].append(_without_rows(precisions))

    def select(self, chain: int, kept: Sequence[int]) -> None:
        """Forget all draws of a chain but some, in ascending order."""
        for array in self._rows[chain].values():
            for slot, source in enumerate(kept):
                array[slot] = array[source]
        self._precisions[chain] = [self._precisions[chain][source] for source in kept]
        self._selections[chain] += 1

    def __len__(self) -> int:
        return sum(map(len, self._precisions))

    def selections(self, chain: int) -> int:
        """How often draws of a chain were forgotten: in between they are only added to."""
        return self._selections[chain]

    def count(self, chain: int) -> int:
        """Draws that a chain has."""
        return len(self._precisions[chain])

    def room(self, chain: int) -> int:
        """Draws that a chain has room for, as was reserved."""
        return max((len(array) for array in self._rows[chain].values()), default=0)

    def since(self, chain: int, first: int) -> Draws:
        """A chain's draws from the `first` on, where they lie."""
        kept = self._precisions[chain]
        rows = {name: array[first : len(kept)] for name, array in self._rows[chain].items()}
        return _draws(rows, kept[first:], np.full(len(kept) - first, chain))

    def restore(self, chain: int, room: int, parts: Sequence[Draws]) -> None:
        """Fill an empty store with a chain's draws from elsewhere."""
        for part in parts:
            rows = {
                name: array for name, array in part.arrays().items() if name in ROWS + ROW_NOISE
            }
            if not self._rows[chain]:
                self._rows[chain] = {n: allocate(room, a.shape[1:]) for n, a in rows.items()}
            first = self.count(chain)
            for name, array in self._rows[chain].items():
                array[first : first + len(part)] = rows[name]
                _let_go(array)
            self._precisions[chain] += [
                Precisions(*part.priors(t), float(part.tau[t]), noise=_noise_of(part, t))
                for t in range(len(part))
            ]

    def draws(self) -> Draws:
        """All draws that were kept, chain by chain."""
        kept = [p for chain in self._precisions for p in chain]
        counts = [len(chain) for chain in self._precisions]
        joined = {name: self._joined(name, counts) for name in self._rows[0]}
        return _draws(joined, kept, np.repeat(np.arange(len(counts)), counts))

    def _joined(self, name: str, counts: list[int]) -> Rows:
        parts = [rows[name][:n] for rows, n in zip(self._rows, counts, strict=True)]
        if len(parts) == 1:
            return parts[0]
        out = allocate(sum(counts), parts[0].shape[1:])
        at = 0
        for one in parts:
            out[at : at + len(one)] = one
            at += len(one)
        return out


class LastDraw(DrawStore):
    """Keeps the newest draw of each chain: for runs whose errors alone are wanted."""

    def reserve(
        self, chain: int, n: int, params: Params, precisions: Precisions,
        means: Params | None = None,
    ) -> None:  # fmt: skip
        super().reserve(chain, 1, params, precisions, means)

    def add(
        self, chain: int, params: Params, precisions: Precisions, means: Params | None = None
    ) -> None:
        self._precisions[chain].clear()
        super().add(chain, params, precisions, means)

    def select(self, chain: int, kept: Sequence[int]) -> None:
        pass


def _draws(rows: Mapping[str, Rows], kept: Sequence[Precisions], chain: NDArray[np.int64]) -> Draws:
    """Join kept rows, by name, with precisions."""
    return Draws(
        users=rows.get("users"),
        items=rows.get("items"),
        user_mu=np.array([p.users.mu for p in kept]),
        user_Lambda=np.array([p.users.Lambda for p in kept]),
        item_mu=np.array([p.items.mu for p in kept]),
        item_Lambda=np.array([p.items.Lambda for p in kept]),
        tau=np.array([p.tau for p in kept]),
        chain=chain,
        user_means=rows.get("user_means"),
        item_means=rows.get("item_means"),
        user_tau=rows.get("user_tau"),
        item_tau=rows.get("item_tau"),
        user_tau_prior=_noise_priors(kept, 0),
        item_tau_prior=_noise_priors(kept, 1),
    )


def _noise_priors(kept: Sequence[Precisions], side: int) -> NDArray[np.float64] | None:
    own = [None if p.noise is None else p.noise.side(side) for p in kept]
    found = [(one.shape, one.rate) for one in own if one is not None]
    return np.array(found) if found else None


def _without_rows(precisions: Precisions) -> Precisions:
    """Those above the rows alone: rows are stored apart."""
    noise = precisions.noise
    if noise is None:
        return precisions
    nothing = np.empty(0, np.float32)
    sides = (one and replace(one, value=nothing) for one in (noise.users, noise.items))
    return replace(precisions, noise=Noise(*sides))


def _noise_of(draws: Draws, t: int) -> Noise | None:
    """What `_without_rows` leaves of a stored draw."""
    nothing, priors = np.empty(0, np.float32), (draws.user_tau_prior, draws.item_tau_prior)
    if all(p is None for p in priors):
        return None
    return Noise(
        *(p if p is None else RowNoise(nothing, float(p[t, 0]), float(p[t, 1])) for p in priors)
    )


def _some(array: np.ndarray, which: NDArray[np.int64]) -> np.ndarray:
    """A copy of some draws; of rows where there is room for them, one draw after the other."""
    if array.dtype != np.float32:
        return array[which]
    out = allocate(len(which), array.shape[1:])
    for slot, source in enumerate(which):
        out[slot] = array[source]
        _let_go(out)
    return out


def _let_go(array: Rows) -> None:
    """Leave what was written to a mapped array to the system: it is not read until the end."""
    advice = getattr(mmap, "MADV_DONTNEED", None)  # not everywhere
    if isinstance(array, np.memmap) and advice is not None:
        array._mmap.madvise(advice)  # type: ignore[attr-defined]


def allocate(n: int, shape: tuple[int, ...]) -> Rows:
    """An array for n draws: in memory where it is small, else in a temporary file.

    The file has no name, so that nothing is left of it however the process ends, and all of its
    room is taken now: a page for which a disk has no room is a signal that ends the process. Where
    there is not enough, memory is taken after all.
    """
    size = 4 * n * int(np.prod(shape))
    if size >= MAP_ABOVE_BYTES:
        try:
            with tempfile.TemporaryFile(prefix="bayesmf-draws-") as file:
                _take_room(file.fileno(), size)
                return np.memmap(file, np.float32, "r+", 0, (n, *shape))  # keeps it open
        except OSError as error:
            _warn_once(error.strerror or str(error))
    return np.empty((n, *shape), np.float32)


def _take_room(handle: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle, 0, size)
        return
    piece, left = bytes(1 << 20), size
    while left:
        left -= os.write(handle, piece[:left])


@cache
def _warn_once(reason: str) -> None:
    log.warning(
        "the temporary folder has no room for draws (%s): they stay in memory; TMPDIR can name "
        "another folder", reason,
    )  # fmt: skip
