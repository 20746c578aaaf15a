"""Monitoring of running chains: clock, validation errors, callbacks."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.chains.callbacks import Callback, Event, RunPlan
from bayesmf.chains.pairs import Validation
from bayesmf.chains.state import ChainState, Rounds
from bayesmf.model.refs import Fetch

# Without a given burn-in this share of a run is burn-in whenever it ends.
BURN_SHARE = 0.25
# Number of separate sums of predictions, so that the oldest can be dropped later.
SEGMENTS = 16


@dataclass
class RunClock:
    """Seconds of a run: those before it was resumed, plus those of the engine."""

    engine_seconds: Callable[[], float]
    before: float = 0.0

    def seconds(self) -> float:
        """Seconds since the first round of the run, in any process."""
        return self.before + self.engine_seconds()


@dataclass
class RunningMean:
    """Average of a chain's predictions, from sums.

    Consecutive draws are summed in at most `n_segments` parts, so that the first parts can be
    dropped as burn-in later.
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
        """Sum and number of the predictions after about the first `share` of them."""
        begin = np.cumsum([0, *self.counts])
        first = next(k for k, at in enumerate(begin) if at >= share * begin[-1] - self.room / 2)
        first = min(first, len(self.totals) - 1)
        total = np.zeros(len(self.totals[0]))
        for part in self.totals[first:]:
            total += part
        return total, int(begin[-1] - begin[first])


@dataclass
class Monitor:
    """Validation errors and callbacks of the chains of a run."""

    validation: Validation | None
    callbacks: Sequence[Callback]
    scale: float
    clock: RunClock
    aside: Callable[[], AbstractContextManager[None]]  # in which a virtual clock may stop
    growing: bool = False  # whether burn-in is a share of however long the run has been
    not_kept: float = 0.0  # draws that there could have been before the first of such a run
    means: dict[int, RunningMean] = field(default_factory=dict)
    ratings_read: int = 0
    failures: dict[int, str] = field(default_factory=dict)  # by the number of the callback

    def state_rmse(
        self, state: ChainState, rounds: Rounds, fetch: Fetch
    ) -> Generator[list[Any], Sequence[Any], float | None]:
        """RMSE of one state."""
        if self.validation is None:
            return None
        found = yield from self.validation.pairs.predict(state, rounds, fetch, kept=False)
        with self.aside():
            return self.scale * self.validation.rmse(found)

    def averaged_rmse(
        self, state: ChainState, rounds: Rounds, fetch: Fetch
    ) -> Generator[list[Any], Sequence[Any], float | None]:
        """RMSE of the average over a chain's draws, after adding one."""
        if self.validation is None:
            return None
        found = yield from self.validation.pairs.predict(state, rounds, fetch, kept=True)
        mean = self.means.setdefault(state.chain, RunningMean(SEGMENTS if self.growing else 1))
        with self.aside():
            mean.add(found)
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

    def begin(self, plan: RunPlan) -> None:
        """Call the method `begin` of callbacks that have one."""
        for number, callback in enumerate(self.callbacks):
            begin = getattr(callback, "begin", None)
            if callable(begin):
                try:
                    begin(plan)
                except Exception as error:
                    self._failed(number, "before the first epoch", error)

    def notify(self, event: Event) -> bool:
        """Call the callbacks; True if any of them ends the chain.

        A callback that raises is not called again, so that draws are not lost; `failures` are
        reported in a warning at the end.
        """
        end = False
        with self.aside():
            for number, callback in enumerate(self.callbacks):
                if number in self.failures:
                    continue
                try:
                    end = bool(callback(event)) or end  # call all of them
                except Exception as error:
                    self._failed(number, f"after epoch {event.epoch}", error)
        return end

    def _failed(self, number: int, when: str, error: Exception) -> None:
        self.failures[number] = (
            f"the callback {_name(self.callbacks[number])} failed {when} and was not called again; "
            f"the fit continued: {type(error).__name__}: {error}"
        )

    def note_state_failure(self, callback: Callback, error: Exception) -> None:
        """Record that the state of a callback could not be saved or restored."""
        self.failures.setdefault(
            -1 - list(self.callbacks).index(callback),
            f"the state of the callback {_name(callback)} could not be saved or restored, so a "
            f"resumed run may differ: {type(error).__name__}: {error}",
        )


def _name(callback: Callback) -> str:
    return getattr(callback, "__name__", type(callback).__name__)
