"""The two estimators of the experiments, followed while chains run, each with its time.

`printed` is the paper's: the mean over all stored draws of U.V + a + b (Algorithm 2, line 9).
`exact` is the library's: users are integrated out given V, Lambda and tau, on one in several draws,
or on all from Gibbs's conditional means. `same` is the printed one of these draws alone. `thinned`
is the printed one of as many draws, over the same time, as one chain has: of C chains every C-th
draw. An optimiser has one draw, its last state. No seconds of these predictions are on the sampling
clock: they are measured, and counted here.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.chains.callbacks import Event
from bayesmf.chains.pairs import IntegratedPairs, Scored, Validation, WatchedPairs
from bayesmf.chains.state import ChainState, Rounds
from bayesmf.engines.base import Engine
from bayesmf.model.refs import Fetch
from experiments.paper.presets import OPTIMISERS
from experiments.simulated import Simulated

EXACT_EVERY = 4  # of so many draws of a chain users are integrated out of one
COLUMNS = (
    "chain", "epoch", "seconds", "burning", "draws", "draws_all", "state", "rmse", "rmse_all",
    "exact_all", "thinned", "thinned_all", "printed_seconds", "exact_seconds", "train_rmse",
)  # fmt: skip


@dataclass
class Estimate:
    """Sum of predictions over the draws of all chains, and processor seconds spent on them."""

    total: NDArray[np.float64] | float = 0.0
    count: int = 0
    seconds: float = 0.0

    def add(self, prediction: NDArray[np.float32], seconds: float) -> None:
        self.total = self.total + prediction.astype(np.float64)
        self.count += 1
        self.seconds += seconds

    def mean(self) -> NDArray[np.float64]:
        return np.asarray(self.total) / self.count


@dataclass(frozen=True)
class Estimates(WatchedPairs):
    """Test pairs of a trial, which collect the rows of its record; a callback at ends of epochs."""

    known: Validation
    exact_pairs: IntegratedPairs | None  # None without the exact estimator
    chains: int
    scale: float
    workers: int
    engine: Engine
    # Rows are for draws and errors in burn-in, of optimisers for their errors alone, of Gibbs for
    # ends of sweeps.
    algorithm: str
    printed: Estimate = field(default_factory=Estimate)
    exact: Estimate = field(default_factory=Estimate)
    same: Estimate = field(default_factory=Estimate)
    thinned: Estimate = field(default_factory=Estimate)
    kept: dict[int, int] = field(default_factory=dict)  # draws by chain
    states: dict[int, float] = field(default_factory=dict)  # error of a chain's last state
    rows: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, known: Validation, exact: IntegratedPairs | None, **more: Any) -> Estimates:
        """Estimates of the pairs of a validation set."""
        pairs = {one.name: getattr(known.pairs, one.name) for one in fields(WatchedPairs)}
        return cls(**pairs, known=known, exact_pairs=exact, **more)

    def predict(
        self, state: ChainState, rounds: Rounds, fetch: Fetch, kept: bool
    ) -> Generator[list[Any], Sequence[Any], NDArray[np.float32]]:
        """U.V + a + b of the state; a kept draw is added to the sums."""
        begin = time.process_time()
        if isinstance(self.engine, Simulated):
            with self.engine.aside():
                found = _run_here(self.score(state, rounds, aside=True))
                return self._add(state, found, kept, fetch, begin)
        found = yield from self.score(state, rounds, aside=True)
        return self._add(state, found, kept, fetch, begin)

    def _add(
        self, state: ChainState, found: Scored, kept: bool, fetch: Fetch, begin: float
    ) -> NDArray[np.float32]:
        # The state has no row of an unknown user or item; theirs is the prior's mean.
        unseen = (self.user < 0) | (self.item < 0)
        drawn = np.where(unseen, found.expected, found.drawn)
        seconds = time.process_time() - begin
        self.states[state.chain] = self.scale * self.known.rmse(drawn)
        if kept:
            self.printed.add(drawn, seconds)
            number = self.kept[state.chain] = self.kept.get(state.chain, 0) + 1
            if number % self.chains == 0:
                self.thinned.add(drawn, 0.0)
            if state.means is not None:  # one task makes both predictions
                self.exact.add(found.expected, seconds)
                self.same.add(drawn, seconds)
            elif self.exact_pairs is not None and number % EXACT_EVERY == 1:
                self.same.add(drawn, seconds)
                if not self.exact.count:  # the kernels may have to be compiled
                    self.exact_pairs.expected(state, fetch)
                begin = time.process_time()
                expected = self.exact_pairs.expected(state, fetch)
                self.exact.add(expected, time.process_time() - begin)
        row = {"seconds": self.engine.seconds(), "rmse": self.states[state.chain]}
        if self.algorithm in OPTIMISERS:
            self._add_row(state.chain, False, **row, rmse_all=row["rmse"])
        elif self.algorithm != "Gibbs":
            self._add_row(state.chain, not kept, **row)
        return drawn

    def rmse(self, estimate: Estimate) -> float | None:
        """Test error of an estimator, None before its first draw."""
        return self.scale * self.known.rmse(estimate.mean()) if estimate.count else None

    def __call__(self, event: Event) -> None:
        """Add a row at the end of an epoch of a chain."""
        given = {name: getattr(event, name) for name in COLUMNS if hasattr(event, name)}
        self._add_row(**given)

    def _add_row(self, chain: int, burning: bool, **more: Any) -> None:
        answers = {} if burning else self._answers()
        own = {"chain": chain, "burning": burning, "state": self.states.get(chain)}
        own["draws"] = self.kept.get(chain, 0)
        self.rows.append({**dict.fromkeys(COLUMNS), **own, **answers, **more})

    def _answers(self) -> dict[str, Any]:
        """Errors of both estimators so far, and what they took."""
        return {
            "draws_all": self.printed.count,
            "rmse_all": self.rmse(self.printed),
            "exact_all": self.rmse(self.exact),
            "thinned": self.thinned.count,
            "thinned_all": self.rmse(self.thinned),
            "printed_seconds": self.printed.seconds / self.workers,
            "exact_seconds": self.exact.seconds / self.workers,
        }

    def trace(self) -> dict[str, list[Any]]:
        """Columns of the record: a row for the end of each epoch, and those between.

        The last state, which an optimiser keeps, belongs to the last row. So does a chain whose
        burn-in has not ended, but there it is no draw.
        """
        rows = sorted(self.rows, key=lambda row: float(row["seconds"]))
        if all(row["burning"] for row in rows if row["epoch"] is not None):
            rows = [row for row in rows if row["burning"]]
        elif rows:
            rows[-1] |= {**self._answers(), "draws": max(rows[-1]["draws"], 1)}
        return {name: [row[name] for row in rows] for name in COLUMNS}


def _run_here(phases: Generator[list[Any], Sequence[Any], Scored]) -> Scored:
    """Run the one phase of `score` in this process."""
    tasks = next(phases)
    try:
        phases.send([task.execute(None) for task in tasks])
    except StopIteration as done:
        found: Scored = done.value
        return found
    raise AssertionError("predictions are one phase")
