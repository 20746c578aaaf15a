"""Kept draws of all chains: memory-mapped while they grow, capped in number."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bayesmf.params import Params, Precisions, RowPrior, Rows

# A draw in memory costs nothing below this; above it the operating system may page it out.
MAP_ABOVE_BYTES = 32 << 20


@dataclass(frozen=True)
class Draws:
    """T kept draws, chain by chain, oldest first: what a posterior is made of.

    `users` (T, n_users, width) and `items` may be memory maps. `user_mu` (T, width) and
    `user_Lambda` (T, width) or (T, width, width) are the priors that the draws had.
    """

    users: Rows
    items: Rows
    user_mu: NDArray[np.float64]
    user_Lambda: NDArray[np.float64]
    item_mu: NDArray[np.float64]
    item_Lambda: NDArray[np.float64]
    tau: NDArray[np.float64]
    chain: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.tau)

    def priors(self, t: int) -> tuple[RowPrior, RowPrior]:
        """Priors of user and item rows of draw t."""
        return (
            RowPrior(self.user_mu[t], self.user_Lambda[t]),
            RowPrior(self.item_mu[t], self.item_Lambda[t]),
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """For storage."""
        return {field.name.lower(): getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Draws:
        """From storage; other arrays are passed over."""
        return cls(**{field.name: arrays[field.name.lower()] for field in fields(cls)})


class DrawStore:
    """Room for `per_chain` draws of each chain, filled while chains run.

    A draw's place depends on its chain and number alone, never on which chain was first.
    """

    def __init__(self, n_chains: int, per_chain: int) -> None:
        self.per_chain = per_chain
        self._n_chains = n_chains
        self._counts = [0] * n_chains
        self._precisions: list[list[Precisions]] = [[] for _ in range(n_chains)]
        self._users: Rows | None = None
        self._items: Rows | None = None

    def add(self, chain: int, params: Params, precisions: Precisions) -> None:
        """Keep a copy of the chain's state."""
        if self._users is None or self._items is None:
            self._users, self._items = self._allocate(params)
        slot = chain * self.per_chain + self._counts[chain]
        self._users[slot] = params.users
        self._items[slot] = params.items
        self._precisions[chain].append(precisions)
        self._counts[chain] += 1

    def _allocate(self, params: Params) -> tuple[Rows, Rows]:
        n = self._n_chains * self.per_chain
        if n * (params.users.nbytes + params.items.nbytes) < MAP_ABOVE_BYTES:
            return (
                np.empty((n, *params.users.shape), np.float32),
                np.empty((n, *params.items.shape), np.float32),
            )
        folder = tempfile.TemporaryDirectory(prefix="bayesmf-draws-")
        users, items = (
            np.lib.format.open_memmap(
                Path(folder.name) / f"{name}.npy", "w+", np.float32, (n, *rows.shape)
            )
            for name, rows in (("users", params.users), ("items", params.items))
        )
        # Files live as long as anyone holds the arrays; on this platform an open map may be unlinked.
        weakref.finalize(users, folder.cleanup)
        return users, items

    def __len__(self) -> int:
        return sum(self._counts)

    def draws(self) -> Draws:
        """All that was kept."""
        assert self._users is not None and self._items is not None
        slots = [c * self.per_chain + k for c, n in enumerate(self._counts) for k in range(n)]
        kept = [p for chain in self._precisions for p in chain]
        full = len(slots) == len(self._users)
        return Draws(
            users=self._users if full else self._users[slots],
            items=self._items if full else self._items[slots],
            user_mu=np.array([p.users.mu for p in kept]),
            user_Lambda=np.array([p.users.Lambda for p in kept]),
            item_mu=np.array([p.items.mu for p in kept]),
            item_Lambda=np.array([p.items.Lambda for p in kept]),
            tau=np.array([p.tau for p in kept]),
            chain=np.repeat(np.arange(self._n_chains), self._counts),
        )
