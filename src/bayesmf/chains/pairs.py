"""Pairs whose predictions are followed while chains run: the validation set, and probe pairs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.chains.state import ChainState
from bayesmf.data.rated import RatedItems
from bayesmf.data.training import TrainingData
from bayesmf.kernels.gradient import predict_pairs
from bayesmf.kernels.keys import STREAM_PROBE, generator
from bayesmf.model.noise import N_PARAMETERS
from bayesmf.system.forks import once


class Traces(NamedTuple):
    """What was followed of a chain, pass by pass from its first on that was looked at.

    Attributes
    ----------
    rounds
        Rounds of the passes, (passes,).
    expected, drawn
        Predictions of the probe pairs, (passes, pairs): as the fitted model makes them of such a
        draw, and of the state itself.
    noise
        The noise's parameters as `model.noise.PARAMETERS` names them, (passes, 3).
    spread
        Mean variance of the noise of ratings of the probe pairs, (passes,).
    kept
        Positions of the passes whose states would be the draws if the run ended now.
    late
        Position of the first pass that would not be burn-in.
    """

    rounds: NDArray[np.int64]
    expected: NDArray[np.float32]
    drawn: NDArray[np.float32]
    noise: NDArray[np.float64]
    spread: NDArray[np.float64]
    kept: NDArray[np.int64]
    late: int


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

        Given V, precisions and tau the rows of U are independent, so E[m_i(V) . m_j(U)] is
        E[U_i . V_j] for a pair nobody has rated; for a rated one U_i enters m_j, and only
        E[U_i . m_j(U)] is the same.
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

    def noise(self, state: ChainState) -> float:
        """Mean variance of the noise of the pairs' ratings; of pairs with training ratings."""
        now = state.precisions
        if now.noise is None:
            return 1.0 / now.tau
        precision = now.of_rows(0, len(state.params.users))[self.user].astype(np.float64)
        weights = now.weights(1)
        if weights is not None:
            precision *= weights[self.item]
        return float(np.mean(1.0 / precision))

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
    """What convergence is judged by: probe pairs and the noise at some rounds of a chain."""

    def __init__(self, pairs: WatchedPairs) -> None:
        self._pairs = pairs
        self.rounds: list[int] = []
        self._expected: list[NDArray[np.float32]] = []
        self._drawn: list[NDArray[np.float32]] = []
        self._noise: list[NDArray[np.float64]] = []

    def add(self, state: ChainState, t: int) -> None:
        """Predict the pairs at the state after round t."""
        self.rounds.append(t)
        self._expected.append(self._pairs.predict(state))
        self._drawn.append(self._pairs.draw(state))
        now = state.precisions
        self._noise.append(np.array([*now.noise_parameters(), self._pairs.noise(state)]))

    def traces(self, kept: Iterable[int], late: int) -> Traces:
        """All of it, for a chain whose draws are of the rounds `kept`, burn-in ending at `late`."""
        rounds = np.array(self.rounds, np.int64)
        n, pairs = len(rounds), len(self._pairs.user)
        noise = np.array(self._noise).reshape(n, N_PARAMETERS + 1)
        return Traces(
            rounds,
            np.array(self._expected, np.float32).reshape(n, pairs),
            np.array(self._drawn, np.float32).reshape(n, pairs),
            noise[:, :-1],
            noise[:, -1],
            np.flatnonzero(np.isin(rounds, list(kept))),
            late,
        )

    def export(self) -> dict[str, NDArray[Any]]:
        """Arrays for a checkpoint."""
        arrays: dict[str, NDArray[Any]] = {"probed_at": np.array(self.rounds, np.int64)}
        if self.rounds:
            arrays |= {
                "expected": np.array(self._expected),
                "drawn": np.array(self._drawn),
                "noise": np.array(self._noise),
            }
        return arrays

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take up what `export` gave; checkpoints of early versions may have none of it."""
        if "noise" not in arrays:
            return
        self.rounds = [int(t) for t in arrays["probed_at"]]
        self._expected = [np.array(one) for one in arrays["expected"]]
        self._drawn = [np.array(one) for one in arrays["drawn"]]
        self._noise = [np.array(one) for one in arrays["noise"]]
