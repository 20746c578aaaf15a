"""Pairs whose predictions are followed while chains run: the validation set, and probe pairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.chains.state import ChainState
from bayesmf.data.rated import RatedItems
from bayesmf.data.training import TrainingData
from bayesmf.kernels.gradient import predict_pairs
from bayesmf.kernels.keys import STREAM_PROBE, generator
from bayesmf.system.forks import once

Traces = tuple[NDArray[np.float32], NDArray[np.float32]]


@dataclass(frozen=True)
class WatchedPairs:
    """Pairs of row numbers, -1 for a user or item without ratings; `rated` marks training pairs."""

    user: NDArray[np.int32]
    item: NDArray[np.int32]
    rated: NDArray[np.bool_]

    @once
    def unseen(self) -> NDArray[np.int64]:
        """Positions of the pairs with a user or item that has no training ratings."""
        return np.flatnonzero((self.user < 0) | (self.item < 0))

    def predict(self, state: ChainState) -> NDArray[np.float32]:
        """Predictions at a state, from conditional means where there are any.

        Given V the rows of U are independent, so E[m_i(V) . m_j(U)] = E[U_i . V_j] for a pair
        nobody has rated; for a rated one U_i enters m_j, and only E[U_i . m_j(U)] is the same.
        """
        params, means = state.params, state.means
        if means is None:
            out = self._from(params.users, params.items, params.n_factors)
        else:
            out = self._from(means.users, means.items, params.n_factors)
            if self.rated.any():
                own = self._from(params.users, means.items, params.n_factors)
                out[self.rated] = own[self.rated]
        if len(self.unseen):
            out[self.unseen] = self._from_priors(state)
        return out

    def draw(self, state: ChainState) -> NDArray[np.float32]:
        """Predictions of the state itself, with all its spread."""
        return self._from(state.params.users, state.params.items, state.params.n_factors)

    def _from(
        self, users: NDArray[np.float32], items: NDArray[np.float32], n_factors: int
    ) -> NDArray[np.float32]:
        out = np.empty(len(self.user), np.float32)
        user, item = self.user, self.item
        if len(self.unseen):  # any row will do: what comes of it is replaced
            user, item = np.maximum(user, 0), np.maximum(item, 0)
        predict_pairs(users, items, user, item, n_factors, out)
        return out

    def _from_priors(self, state: ChainState) -> NDArray[np.float32]:
        """Predictions of the unseen pairs: a row without ratings is at its prior's mean."""
        params, D = state.params, state.params.n_factors
        sides = (
            (params.users, state.precisions.users.mu, self.user[self.unseen]),
            (params.items, state.precisions.items.mu, self.item[self.unseen]),
        )
        x, y = (
            np.where(row[:, None] < 0, mu.astype(np.float32), rows[np.maximum(row, 0)])
            for rows, mu, row in sides
        )
        out: NDArray[np.float32] = (x[:, :D] * y[:, :D]).sum(1)
        out += x[:, D:].sum(1) + y[:, D:].sum(1)  # biases, where there are any
        return out


@dataclass(frozen=True)
class Validation:
    """The validation set: pairs and their ratings, in the chain's units."""

    pairs: WatchedPairs
    value: NDArray[np.float32]
    low: float = -np.inf
    high: float = np.inf

    def rmse(self, prediction: NDArray[Any]) -> float:
        """RMSE of predictions, clipped to the range of ratings, in the chain's units."""
        errors = np.clip(prediction, self.low, self.high) - self.value
        return float(np.sqrt(np.mean(errors**2, dtype=np.float64)))


def probe_pairs(data: TrainingData, n: int, seed: int) -> WatchedPairs:
    """Pairs like those that will be asked for: busy users and popular items more often."""
    rng = generator(np.zeros(2, np.uint32), seed, STREAM_PROBE)
    at = rng.integers(0, len(data), n)
    user = (np.searchsorted(data.by_user.starts, at, side="right") - 1).astype(np.int32)
    item = np.asarray(data.by_user.other[rng.integers(0, len(data), n)])
    return WatchedPairs(user, item, rated_pairs(user, item, data))


def rated_pairs(
    user: NDArray[np.int32], item: NDArray[np.int32], data: TrainingData
) -> NDArray[np.bool_]:
    """Which pairs are training ratings."""
    return RatedItems.from_training(data).rated(user.astype(np.int64), item.astype(np.int64))


class ProbeTrace:
    """Predictions of the probe pairs at some rounds of a chain: what convergence is judged by."""

    def __init__(self, pairs: WatchedPairs) -> None:
        self._pairs = pairs
        self.rounds: list[int] = []
        self._expected: list[NDArray[np.float32]] = []
        self._drawn: list[NDArray[np.float32]] = []

    def add(self, state: ChainState, t: int) -> None:
        """Predict the pairs at the state after round t."""
        self.rounds.append(t)
        self._expected.append(self._pairs.predict(state))
        self._drawn.append(self._pairs.draw(state))

    def since(self, first: int) -> Traces:
        """Expected and drawn predictions, (rounds, pairs), from the `first` of the rounds on."""
        return np.array(self._expected[first:]), np.array(self._drawn[first:])

    def export(self) -> dict[str, NDArray[Any]]:
        """Arrays for a checkpoint."""
        arrays: dict[str, NDArray[Any]] = {"probed_at": np.array(self.rounds, np.int64)}
        if self.rounds:
            arrays |= {"expected": np.array(self._expected), "drawn": np.array(self._drawn)}
        return arrays

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take up what `export` gave; checkpoints of early versions may have none of it."""
        self.rounds = [int(t) for t in arrays.get("probed_at", ())]
        self._expected = [np.array(one) for one in arrays.get("expected", ())]
        self._drawn = [np.array(one) for one in arrays.get("drawn", ())]
