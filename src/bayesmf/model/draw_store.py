"""Draws of all chains while a fit runs: memory-mapped, limited in number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bayesmf.errors import InputError
from bayesmf.kernels.types import Rows
from bayesmf.model.draws import ROW_NOISE, ROWS, SIDES, Draws
from bayesmf.model.mapped import allocate, release_pages
from bayesmf.model.noise import Noise, RowNoise
from bayesmf.model.priors import Params, Precisions
from bayesmf.model.refs import Fetch, fetch_here, whole

Parts = dict[str, Rows]


class DrawStore:
    """At most `per_chain` draws of each chain.

    `keep` names the side whose rows are stored. Each chain has its own arrays, so the place of a
    draw does not depend on the order in which chains run.
    """

    def __init__(self, n_chains: int, per_chain: int, keep: str = "both") -> None:
        self.per_chain, self.keep = per_chain, keep
        self._rows: list[dict[str, Rows]] = [{} for _ in range(n_chains)]
        self._precisions: list[list[Precisions]] = [[] for _ in range(n_chains)]
        self._selections = [0] * n_chains

    def parts(
        self, params: Params, precisions: Precisions, means: Params | None = None,
        fetch: Fetch = fetch_here,
    ) -> Parts:  # fmt: skip
        """The arrays of a state that are kept, by their names in `Draws`.

        `fetch` returns arrays that are stored on workers.
        """
        parts = {side: whole(getattr(params, side), fetch) for side in SIDES[self.keep]}
        if means is not None:
            parts |= {
                f"{side[:-1]}_means": whole(getattr(means, side), fetch)
                for side in SIDES[self.keep]
            }
        for side, name in enumerate(ROW_NOISE):
            value = precisions.by_row(side)
            if isinstance(value, float):
                assert precisions.noise is not None
                own = precisions.noise.side(side)
                assert own is not None
                value = np.full(own.known_sums().n, value, np.float32)
            if value is not None:
                parts[name] = whole(value, fetch)
        return parts

    def reserve(self, chain: int, n: int, parts: Parts) -> None:
        """Make room for n draws of a chain, each of the shapes of these parts."""
        self._rows[chain] = {name: allocate(n, rows.shape) for name, rows in parts.items()}

    def add(self, chain: int, parts: Parts, precisions: Precisions) -> None:
        """Store a draw: a copy of the parts of a chain's state."""
        if not self._rows[chain]:
            self.reserve(chain, 1, parts)
        slot = len(self._precisions[chain])
        if slot >= self.room(chain):  # of a forged checkpoint
            raise InputError("the checkpoint has too little room for draws: use another folder")
        for name, array in self._rows[chain].items():
            array[slot] = parts[name]
            release_pages(array)
        self._precisions[chain].append(_without_rows(precisions))

    def select(self, chain: int, kept: Sequence[int]) -> None:
        """Keep only some draws of a chain, in ascending order."""
        for array in self._rows[chain].values():
            for slot, source in enumerate(kept):
                array[slot] = array[source]
        self._precisions[chain] = [self._precisions[chain][source] for source in kept]
        self._selections[chain] += 1

    def __len__(self) -> int:
        return sum(map(len, self._precisions))

    def selections(self, chain: int) -> int:
        """Number of calls of `select` for a chain; in between, draws are only added."""
        return self._selections[chain]

    def count(self, chain: int) -> int:
        """Number of draws of a chain."""
        return len(self._precisions[chain])

    def room(self, chain: int) -> int:
        """Number of draws that a chain has room for."""
        return max((len(array) for array in self._rows[chain].values()), default=0)

    def since(self, chain: int, first: int) -> Draws:
        """A chain's draws from the `first` on, not copied."""
        kept = self._precisions[chain]
        rows = {name: array[first : len(kept)] for name, array in self._rows[chain].items()}
        return _draws(rows, kept[first:], np.full(len(kept) - first, chain))

    def restore(self, chain: int, room: int, parts: Sequence[Draws]) -> None:
        """Fill an empty store with a chain's draws, such as those of a checkpoint."""
        for part in parts:
            rows = {
                name: array for name, array in part.arrays().items() if name in ROWS + ROW_NOISE
            }
            if not self._rows[chain]:
                self._rows[chain] = {n: allocate(room, a.shape[1:]) for n, a in rows.items()}
            first = self.count(chain)
            for name, array in self._rows[chain].items():
                array[first : first + len(part)] = rows[name]
                release_pages(array)
            self._precisions[chain] += [
                Precisions(*part.priors(t), float(part.tau[t]), noise=_noise_of(part, t))
                for t in range(len(part))
            ]

    def draws(self) -> Draws:
        """All draws, chain by chain."""
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
    """Stores the newest draw of each chain: for runs of which only the errors are used."""

    def reserve(self, chain: int, n: int, parts: Parts) -> None:
        super().reserve(chain, 1, parts)

    def add(self, chain: int, parts: Parts, precisions: Precisions) -> None:
        self._precisions[chain].clear()
        super().add(chain, parts, precisions)

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
    """Precisions without those of rows, which are stored apart."""
    noise = precisions.noise
    if noise is None:
        return precisions
    nothing = np.empty(0, np.float32)
    sides = (one and replace(one, value=nothing, sums=None) for one in (noise.users, noise.items))
    return replace(precisions, noise=Noise(*sides))


def _noise_of(draws: Draws, t: int) -> Noise | None:
    """Noise of a stored draw, without precisions of rows."""
    nothing, priors = np.empty(0, np.float32), (draws.user_tau_prior, draws.item_tau_prior)
    if all(p is None for p in priors):
        return None
    users, items = (
        p if p is None else RowNoise(nothing, float(p[t, 0]), float(p[t, 1])) for p in priors
    )
    return Noise(users, items and replace(items, mean_one=users is not None))
