"""`benchmarks.scaling --curves`: the paper's ways to split, on more and more virtual workers.

    DSGD's split  S x S grid, one chain        bytes each way in a round of all chains:  (L + M) w
    DSGLD-S       sqrt(S) x sqrt(S), sqrt(S) chains                              sqrt(S) (L + M) w
    DSGLD-C       S x 1 grid, S chains                                               (L + S M) w

with S workers, L users, M items and rows of w = 4 (D + 1) bytes. In a round every worker has one
block and makes one or more passes over it. tau is fixed and no precisions are drawn, so that a
round is lines 4 to 7 of Algorithm 2 and nothing else: where tau is drawn, a pass over R x C blocks
sends (C L + R M) w more, once an epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import isqrt
from typing import Any

import numpy as np

from bayesmf.chains.rounds.blocks import data_shape
from bayesmf.chains.settings import RunSettings
from bayesmf.data.training import TrainingData
from bayesmf.engines.simulated import Flight, Network, Simulated
from bayesmf.model.priors import GammaPrior
from bayesmf.samplers.sgld import SGLD
from bayesmf.server.compile import compile_kernels
from bayesmf.server.run import run
from bayesmf.worker.gradient_tasks import GradientTask
from bayesmf.worker.tasks import Task

WORKERS = (1, 4, 16, 36, 100)
PASSES = (1, 10)  # over a block, in a round
ROUNDS = 4  # of each chain; the first is not counted


@dataclass(frozen=True)
class Split:
    """A way to cut the ratings for S workers."""

    grid: Callable[[int], tuple[int, int]]
    chains: Callable[[int], int]
    rows_sent: Callable[[int, int, int], int]  # by S, L and M, each way, in a round of all chains


SPLITS = {
    "DSGD": Split(lambda s: (s, s), lambda s: 1, lambda s, L, M: L + M),
    "DSGLD-S": Split(lambda s: (isqrt(s), isqrt(s)), isqrt, lambda s, L, M: isqrt(s) * (L + M)),
    "DSGLD-C": Split(lambda s: (s, 1), lambda s: s, lambda s, L, M: L + s * M),
}


class Watched(Simulated):
    """Notes when each chain sends the first task of a round."""

    def start(self, work: Any) -> None:
        super().start(work)
        self.begins: dict[int, dict[int, float]] = {}

    def submit(self, task: Task) -> Flight:
        assert isinstance(task, GradientTask)
        self.begins.setdefault(task.chain, {}).setdefault(task.first_iteration, self.seconds())
        return super().submit(task)


def curves(
    data: TrainingData,
    n_factors: int,
    network: Network,
    workers: Sequence[int] = WORKERS,
    rate: float | None = None,
) -> Iterator[dict[str, Any]]:
    """A row for each length of rounds, split and number of workers."""
    for passes in PASSES:
        for name, split in SPLITS.items():
            for s in workers:
                settings = _settings(data, n_factors, split, s, passes)
                compile_kernels(settings, data)
                point = _point(data, settings, Watched(s, network, rate=rate))
                rows = split.rows_sent(s, data.n_users, data.n_items)
                formula = rows * 4 * (n_factors + 1)
                yield {"split": name, "passes": passes, **point, "bytes_by_formula": formula}


def _settings(data: TrainingData, d: int, split: Split, s: int, passes: int) -> RunSettings:
    shape, n_chains, grid = data_shape(data), split.chains(s), split.grid(s)
    # Steps so small that no round goes wrong: it is the time that is of interest.
    rule = SGLD(
        grid=grid, n_chains=n_chains, burn_in=0, step_size=1e-9, precision_every=10**9,
        epochs=ROUNDS * passes / max(grid),
    )  # fmt: skip
    length = passes * rule.resolve(shape).n_batches(shape)
    rule = replace(rule, round_length=length).resolve(shape)
    return RunSettings(rule, GammaPrior(), d, 1.0, 0, n_chains)


def _point(data: TrainingData, settings: RunSettings, engine: Watched) -> dict[str, Any]:
    rule = settings.sampler
    assert isinstance(rule, SGLD)
    told = run(data, settings, engine).engine
    begins = [list(times.values()) for times in engine.begins.values()]
    # Until the last result is in; starting the chains is no part of a round.
    before = min(times[0] for times in begins)
    span = told["seconds"] - before
    second = float(np.median([np.diff(times[1:]).mean() for times in begins]))
    epoch = second * rule.rounds_per_epoch(data_shape(data))
    return {
        "workers": engine.n_workers,
        "grid": str(rule.grid),
        "chains": rule.n_chains,
        "seconds_per_round": second,
        "seconds_per_epoch": epoch,
        "epochs_per_second": rule.n_chains / epoch,
        "bytes_per_round": told["bytes_sent"] / ROUNDS,
        "idle": 1.0 - sum(told["busy_seconds"]) / engine.n_workers / span,
        "link_busy": max(told["link_seconds"].values()) / span,
        "server_busy": max(0.0, told["server_seconds"] - before) / span,
    }
