"""What is followed while chains run: accuracy on the validation set, and probe pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.chains.callbacks import Callback, Event, Plan
from bayesmf.chains.state import ChainState
from bayesmf.data.rated import RatedItems
from bayesmf.data.training import TrainingData
from bayesmf.kernels.gradient import predict_pairs
from bayesmf.kernels.keys import STREAM_PROBE, generator
from bayesmf.system.forks import once

# Of a run whose length follows from convergence, this share is burn-in whenever it ends.
BURN_SHARE = 0.25
# Sums of predictions kept apart, so that the oldest can be left out later.
SEGMENTS = 16


@dataclass(frozen=True)
class Pairs:
    """Pairs of rows, -1 for one nobody has seen. `rated` tells which were learnt from."""

    user: NDArray[np.int32]
    item: NDArray[np.int32]
    rated: NDArray[np.bool_]

    @once
    def unseen(self) -> NDArray[np.int64]:
        """Positions of the pairs with a row nobody has seen."""
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
        """Predictions of the unseen pairs: an unseen row is at its prior's mean."""
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
    """Pairs whose ratings are known, in the chain's units.

    Means are clipped to [low, high], as predictions are.
    """

    pairs: Pairs
    value: NDArray[np.float32]
    low: float = -np.inf
    high: float = np.inf

    def rmse(self, prediction: NDArray[Any]) -> float:
        """In the chain's units."""
        errors = np.clip(prediction, self.low, self.high) - self.value
        return float(np.sqrt(np.mean(errors**2, dtype=np.float64)))


def probe_pairs(data: TrainingData, n: int, seed: int) -> Pairs:
    """Pairs like those that will be asked for: busy users and popular items more often."""
    rng = generator(np.zeros(2, np.uint32), seed, STREAM_PROBE)
    at = rng.integers(0, len(data), n)
    user = (np.searchsorted(data.by_user.starts, at, side="right") - 1).astype(np.int32)
    item = np.asarray(data.by_user.other[rng.integers(0, len(data), n)])
    return Pairs(user, item, among(user, item, data))


def among(
    user: NDArray[np.int32], item: NDArray[np.int32], data: TrainingData
) -> NDArray[np.bool_]:
    """Which pairs are training ratings."""
    return RatedItems.from_training(data).rated(user.astype(np.int64), item.astype(np.int64))


@dataclass
class RunningMean:
    """Average of a chain's predictions without storing them: accuracy without stored draws.

    Sums of consecutive draws are kept apart, in at most SEGMENTS parts, where the first of them
    may later turn out to be burn-in.
    """

    n_segments: int = 1
    totals: list[NDArray[np.float32]] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    room: int = 1

    def add(self, prediction: NDArray[np.float32]) -> None:
        if self.n_segments == 1 and self.totals:
            self.room = self.counts[-1] + 1
        if not self.counts or self.counts[-1] >= self.room:
            if len(self.counts) >= self.n_segments:
                self._merge()
            self.totals.append(np.zeros(len(prediction), np.float32))
            self.counts.append(0)
        self.totals[-1] += prediction
        self.counts[-1] += 1

    def _merge(self) -> None:
        """Join neighbours: half as many parts, twice as long."""
        n = len(self.totals)
        self.totals = [self.totals[k] + self.totals[k + 1] for k in range(0, n, 2)]
        self.counts = [self.counts[k] + self.counts[k + 1] for k in range(0, n, 2)]
        self.room *= 2

    def late(self, share: float) -> tuple[NDArray[np.float64], int]:
        """Sum and number of the predictions after the first `share` of them, or nearly so."""
        begin = np.cumsum([0, *self.counts])
        first = next(k for k, at in enumerate(begin) if at >= share * begin[-1] - self.room / 2)
        first = min(first, len(self.totals) - 1)
        total = np.zeros(len(self.totals[0]))
        for part in self.totals[first:]:
            total += part
        return total, int(begin[-1] - begin[first])


@dataclass
class Monitor:
    """The validation set and those who listen."""

    validation: Validation | None
    callbacks: Sequence[Callback]
    scale: float
    seconds: Callable[[], float]  # since the run began, by the engine's clock
    aside: Callable[[], AbstractContextManager[None]]  # the clock may stand still meanwhile
    growing: bool = False  # whether burn-in is a share of a run whose length is not known
    not_kept: int = 0  # passes before the first kept draw of such a run
    means: dict[int, RunningMean] = field(default_factory=dict)
    ratings_read: int = 0
    failures: dict[int, str] = field(default_factory=dict)  # by the number of the callback

    def state_rmse(self, state: ChainState) -> float | None:
        """RMSE of one state."""
        if self.validation is None:
            return None
        with self.aside():
            return self.scale * self.validation.rmse(self.validation.pairs.predict(state))

    def averaged_rmse(self, state: ChainState) -> float | None:
        """RMSE of the average over a chain's draws, after adding one."""
        if self.validation is None:
            return None
        mean = self.means.setdefault(state.chain, RunningMean(SEGMENTS if self.growing else 1))
        with self.aside():
            mean.add(self.validation.pairs.predict(state))
            return self._rmse([mean])

    def rmse_all_chains(self) -> float | None:
        """RMSE of the average over all draws of all chains so far."""
        with self.aside():
            return self._rmse(list(self.means.values())) if self.means else None

    def _rmse(self, means: Sequence[RunningMean]) -> float:
        assert self.validation is not None
        parts = [mean.late(self._burn_in(mean)) for mean in means]
        total = np.sum([part[0] for part in parts], axis=0)
        return self.scale * self.validation.rmse(total / sum(part[1] for part in parts))

    def _burn_in(self, mean: RunningMean) -> float:
        """The share of a chain's kept draws that is burn-in: of the run, less what was not kept."""
        n = sum(mean.counts)
        if not self.growing:
            return 0.0
        return max(0.0, BURN_SHARE * (n + self.not_kept) - self.not_kept) / n

    def begin(self, plan: Plan) -> None:
        """Tell those who want to know beforehand."""
        for number, callback in enumerate(self.callbacks):
            begin = getattr(callback, "begin", None)
            if callable(begin):
                try:
                    begin(plan)
                except Exception as error:
                    self._failed(number, "before the first epoch", error)

    def tell(self, event: Event) -> bool:
        """Whether anyone who listens wants the chain to end. A listener that fails is left alone.

        What it raised must not cost the draws; `failures` are for a warning at the end.
        """
        wish = False
        with self.aside():
            for number, callback in enumerate(self.callbacks):
                if number in self.failures:
                    continue
                try:
                    wish = bool(callback(event)) or wish  # all are to hear it
                except Exception as error:
                    self._failed(number, f"after epoch {event.epoch}", error)
        return wish

    def _failed(self, number: int, when: str, error: Exception) -> None:
        self.failures[number] = (
            f"the callback {_name(self.callbacks[number])} failed {when} and was not called again; "
            f"the fit went on: {type(error).__name__}: {error}"
        )

    def forgets(self, callback: Callback, error: Exception) -> None:
        """What a listener remembers could not be written down."""
        self.failures.setdefault(
            -1 - list(self.callbacks).index(callback),
            f"what the callback {_name(callback)} remembers could not be written down or taken up "
            f"again, so a resumed run may differ: {type(error).__name__}: {error}",
        )


def _name(callback: Callback) -> str:
    return getattr(callback, "__name__", type(callback).__name__)
