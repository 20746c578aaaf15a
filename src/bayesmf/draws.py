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

# Smaller arrays of draws stay in memory; larger ones are mapped, so the system may page them out.
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
    """Room for at most `per_chain` draws of each chain, filled while chains run.

    Each chain has arrays of its own, so where a draw stands never depends on which chain was first.
    """

    def __init__(self, n_chains: int, per_chain: int) -> None:
        self.per_chain = per_chain
        self._rows: list[tuple[Rows, Rows] | None] = [None] * n_chains
        self._precisions: list[list[Precisions]] = [[] for _ in range(n_chains)]

    def reserve(self, chain: int, n: int, params: Params) -> None:
        """Make room for n draws of a chain."""
        self._rows[chain] = (_allocate(n, params.users.shape), _allocate(n, params.items.shape))

    def add(self, chain: int, params: Params, precisions: Precisions) -> None:
        """Keep a copy of the chain's state."""
        if self._rows[chain] is None:
            self.reserve(chain, 1, params)
        rows = self._rows[chain]
        assert rows is not None
        slot = len(self._precisions[chain])
        rows[0][slot], rows[1][slot] = params.users, params.items
        self._precisions[chain].append(precisions)

    def __len__(self) -> int:
        return sum(map(len, self._precisions))

    def draws(self) -> Draws:
        """All that was kept."""
        kept = [p for chain in self._precisions for p in chain]
        counts = [len(chain) for chain in self._precisions]
        return Draws(
            users=self._joined(0, counts),
            items=self._joined(1, counts),
            user_mu=np.array([p.users.mu for p in kept]),
            user_Lambda=np.array([p.users.Lambda for p in kept]),
            item_mu=np.array([p.items.mu for p in kept]),
            item_Lambda=np.array([p.items.Lambda for p in kept]),
            tau=np.array([p.tau for p in kept]),
            chain=np.repeat(np.arange(len(counts)), counts),
        )

    def _joined(self, side: int, counts: list[int]) -> Rows:
        parts = [
            rows[side][:n] for rows, n in zip(self._rows, counts, strict=True) if rows is not None
        ]
        if len(parts) == 1:
            return parts[0]
        out = _allocate(sum(counts), parts[0].shape[1:])
        at = 0
        for part in parts:
            out[at : at + len(part)] = part
            at += len(part)
        return out


def _allocate(n: int, shape: tuple[int, ...]) -> Rows:
    """An array for n draws: in memory where it is small, else in a temporary file."""
    if 4 * n * int(np.prod(shape)) < MAP_ABOVE_BYTES:
        return np.empty((n, *shape), np.float32)
    folder = tempfile.TemporaryDirectory(prefix="bayesmf-draws-")
    array = np.lib.format.open_memmap(
        Path(folder.name) / "draws.npy", "w+", np.float32, (n, *shape)
    )
    weakref.finalize(array, folder.cleanup)  # views keep the array, the array keeps the file
    return array
