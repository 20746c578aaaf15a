"""Compiling the kernels of a run before its clock starts, by a few rounds on made-up ratings."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from bayesmf.chains.pairs import Validation, WatchedPairs
from bayesmf.chains.rounds.blocks import data_shape
from bayesmf.chains.settings import RunSettings
from bayesmf.data.training import TrainingData
from bayesmf.engines.base import Workload
from bayesmf.engines.local import Rehearsal
from bayesmf.kernels.csr import MOST_LEVELS
from bayesmf.kernels.whole_rows import DUAL_SHARE
from bayesmf.model.priors import GammaPrior
from bayesmf.server.run import drive, make_chains, make_context
from bayesmf.worker.tasks import Held, Task

# Ratings of the busiest user that kernels are compiled with.
MOST_RATINGS = 200


class Compiled(NamedTuple):
    """Seconds that it took, and tasks by which workers elsewhere compile the same kernels."""

    seconds: float
    rehearsal: Sequence[tuple[Held, Task]]


def compile_kernels(settings: RunSettings, data: TrainingData) -> Compiled:
    """Compile, or load from numba's cache, the kernels that a run on these data will need."""
    begin, engine = time.monotonic(), Rehearsal()
    few = _few_ratings(settings, coded=data.by_user.value.dtype == np.uint8)
    sampler = settings.sampler.for_compiling(len(few)).resolve(data_shape(few))
    tiny = replace(settings, sampler=sampler, max_draws=1, max_seconds=None)
    pair, value = np.arange(2, dtype=np.int32), np.array([-1.0, 1.0], np.float32)
    validation = Validation(WatchedPairs(pair, pair, np.array([True, False])), value)
    run = make_context(few, tiny, engine, validation)
    engine.start(Workload(run.rounds.held, run.rounds.together))
    drive([chain.advance(run.length.n_rounds) for chain in make_chains(run)], engine)
    return Compiled(time.monotonic() - begin, engine.tasks)


def _few_ratings(settings: RunSettings, coded: bool) -> TrainingData:
    """Make up a rating of each of a few users and items, and one user with many.

    Rows with few ratings and rows with many are drawn by different code, and so are ratings that
    are codes of few values and others.
    """
    n = 2 if coded else 2 * MOST_LEVELS
    few = int(DUAL_SHARE * (settings.n_factors + 1))
    if isinstance(settings.prior, GammaPrior) and few <= MOST_RATINGS:
        n = max(n, few + 2)
    same, others = np.arange(n, dtype=np.int32), np.arange(1, n, dtype=np.int32)
    user, item = np.concatenate([same, 0 * others]), np.concatenate([same, others])
    value = np.linspace(-1.0, 1.0, len(user))
    value = np.sign(value + 1e-3) if coded else value
    return TrainingData.from_triples(user, item, value.astype(np.float32), n, n)
