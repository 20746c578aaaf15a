"""Seconds of the tasks of a run on this machine, measured by short runs on synthetic ratings."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bayesmf.blocks.grid import Grid
from bayesmf.blocks.stripes import Stripe
from bayesmf.chains.rounds.blocks import data_shape
from bayesmf.chains.state import RunSettings
from bayesmf.data.training import TrainingData
from bayesmf.kernels.gather import N_SUMS
from bayesmf.kernels.keys import make_key
from bayesmf.model.priors import RowPrior
from bayesmf.model.refs import StripeLayout
from bayesmf.run.driver import compile_kernels, run
from bayesmf.samplers.base import BatchRule
from bayesmf.samplers.gibbs import Gibbs
from bayesmf.worker.row_tasks import RowContext, RowsTask
from bayesmf.worker.tasks import Result, Task
from experiments.links import SHARED_MEMORY
from experiments.plan.sketch import (
    Counts,
    hollow,
    made_up,
    reads_all,
    real_rows,
    side_of,
    stripe_sizes,
)
from experiments.simulated import Phase, Simulated

SAMPLE = 400_000, 1_000_000  # ratings of a sample: of rows that are drawn, and of blocks
EPOCHS = 3  # passes over it


def kind_of(task: Any) -> str:
    """The kind of a task; tasks of one kind have equal costs."""
    name, side = type(task).__name__, side_of(task)
    if side is None or name == "PairsTask":  # at whichever side is larger
        return name
    return f"{name} {('users', 'items')[side]}"


@dataclass
class Spent:
    """Seconds of tasks of one kind, and what these read."""

    seconds: float = 0.0
    calls: int = 0
    ratings: float = 0.0
    rows: float = 0.0

    def add(self, seconds: float, ratings: float, rows: float) -> None:
        self.seconds += seconds
        self.calls += 1
        self.ratings += ratings
        self.rows += rows


@dataclass(frozen=True)
class Cost:
    """Seconds of a call, and of each rating or row that it reads."""

    call: float = 0.0
    rating: float = 0.0
    row: float = 0.0

    def __call__(self, ratings: float, rows: float) -> float:
        return self.call + self.rating * ratings + self.row * rows


@dataclass(frozen=True)
class Costs:
    """Costs of tasks of all kinds, and of preparing a byte for those of a phase."""

    tasks: dict[str, Cost] = field(default_factory=dict)
    prepared: dict[str, float] = field(default_factory=dict)
    kept: float = 0.0  # seconds of the driver for a byte of a draw

    def task(self, task: Task, ratings: float, rows: float) -> float:
        """Seconds of a task that reads this many ratings and rows."""
        kind = kind_of(task)
        # A kind that was not measured is taken to read rows as draws of noise do.
        other = kind.replace("EvidenceTask", "NoiseTask")
        return (self.tasks.get(kind) or self.tasks.get(other) or Cost())(ratings, rows)

    def prepare(self, shared: Any, size: float) -> float:
        """Seconds in which a worker prepares arrays of this size for the tasks of a phase."""
        return self.prepared.get(type(shared).__name__, 0.0) * size

    def keep(self, size: float) -> float:
        """Seconds in which the driver stores this many bytes of a draw."""
        return self.kept * size


class Measured(Simulated):
    """An engine of one worker that notes what tasks of each kind take."""

    def __init__(self) -> None:
        super().__init__(1, SHARED_MEMORY)
        self.spent: dict[str, Spent] = defaultdict(Spent)
        self.preparing: dict[str, Spent] = defaultdict(Spent)

    def _run(self, task: Any) -> tuple[float, Result]:
        held = self._held[task.partition]
        begin = time.thread_time()
        result: Result = task.execute(held)
        seconds = time.thread_time() - begin
        ratings = result.count or reads_all(task) * len(held)
        self.spent[kind_of(task)].add(seconds, ratings, real_rows(task))
        return seconds, result

    def _prepare(self, phase: Phase | None, task: Task) -> float:
        first = phase is not None and phase.seconds is None
        seconds = super()._prepare(phase, task)
        if first and phase is not None and phase.refs:
            size = sum(ref.nbytes for ref in phase.refs)
            self.preparing[type(phase.shared).__name__].add(seconds, 0.0, size)
        return seconds


def short_run(data: TrainingData, settings: RunSettings, n_batches: int | None = None) -> Measured:
    """Some passes over some ratings, measured; compiled before."""
    settings = for_epochs(settings, data, EPOCHS, n_batches)
    compile_kernels(settings, data)
    engine = Measured()
    run(data, settings, engine)
    return engine


def for_epochs(
    settings: RunSettings, data: TrainingData, epochs: float, n_batches: int | None = None
) -> RunSettings:
    """Settings of a run of some passes that keeps every draw, on data of another size."""
    rule: Any = settings.sampler
    rule = replace(rule, epochs=float(epochs), burn_in=0.0)
    if rule.kind_of_rounds != "gibbs":
        # Rounds of as many passes; steps so short that no round goes wrong.
        size = n_batches and max(1, len(data) // len(rule.grid) // n_batches)
        rule = replace(rule, batch_size=size, round_length=None, precision_every=None)
        if hasattr(rule, "step_size"):
            rule = replace(rule, step_size=1e-9)
    n = rule.n_chains
    return replace(settings, sampler=rule.resolve(data_shape(data)), max_draws=400 * n, seed=0)


def calibrate(
    counts: tuple[Counts, Counts], settings: RunSettings, most: tuple[int, int] = SAMPLE
) -> Costs:
    """Measure the costs of a run's tasks on this machine, by runs of at most this many ratings.

    A very small run measures the cost of a call, and one of a part of a block, or of rows of the
    same lengths, that of ratings. Exact draws of rows are measured apart, with a table of the other
    side of its true size: access to memory takes half of their time.
    """
    rule: Any = settings.sampler
    one = replace(rule, n_chains=1)
    grid, n_batches = Grid(1, 1), None
    if isinstance(rule, BatchRule):
        grid, n_batches = rule.grid, rule.n_batches(data_shape(hollow(counts)))
        one = replace(one, grid=Grid(1, 1), group_size=None)
    elif isinstance(one, Gibbs):
        one = replace(one, n_stripes=1)
    alone = replace(settings, sampler=one)
    tiny = short_run(made_up(stripe_sizes((np.ones(64, np.int64),) * 2, 1)), alone)
    rows, block = most
    large = short_run(sample(counts, grid, rows if n_batches is None else block), alone, n_batches)
    tasks, prepared = {}, {}
    for kind, spent in large.spent.items():
        call = tiny.spent[kind].seconds / max(tiny.spent[kind].calls, 1)
        rest = max(spent.seconds - call * spent.calls, 0.0)
        by_rating = spent.ratings > 0
        basis = (spent.ratings if by_rating else spent.rows) or np.inf
        tasks[kind] = Cost(call, *((rest / basis, 0.0) if by_rating else (0.0, rest / basis)))
    for kind, spent in large.preparing.items():
        prepared[kind] = spent.seconds / max(spent.rows, 1.0)
    if isinstance(rule, Gibbs):
        for side in range(2):
            cost, each = time_rows(counts, side, settings, rows)
            kind = f"RowsTask {('users', 'items')[side]}"
            tasks[kind] = Cost(tasks[kind].call, cost)
            prepared[f"RowContext {side}"] = each
        prepared["RowContext"] = max(prepared.pop("RowContext 0"), prepared.pop("RowContext 1"))
    return Costs(tasks, prepared, time_keeping())


def time_keeping(n: int = 40_000, width: int = 32) -> float:
    """Seconds for a byte of rows that are rescaled, joined and stored, as a kept draw is."""
    layout = StripeLayout([slice(k, k + n // 8) for k in range(0, n, n // 8)], n)
    parts = [np.ones((n // 8, width), np.float32) for _ in range(8)]
    out, factors, best = np.empty((n, width), np.float32), np.ones(width, np.float32), np.inf
    for _ in range(3):
        begin = time.thread_time()
        out[:] = layout.join([part * factors for part in parts])
        best = min(best, time.thread_time() - begin)
    return best / out.nbytes


def sample(counts: tuple[Counts, Counts], grid: Grid, most: int) -> TrainingData:
    """Ratings of some users of a block, as many as it has of each, and of all of its items."""
    rng = np.random.default_rng(0)
    n_items = max(len(counts[1]) // grid.cols, 2)
    lengths = np.maximum(rng.choice(counts[0], len(counts[0])) // grid.cols, 1)
    lengths = np.minimum(lengths[: max(len(lengths) // grid.rows, 2)], n_items)
    n = max(int(np.searchsorted(np.cumsum(lengths), most)), 2)
    lengths = lengths[:n]
    user = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    item = _partners(rng.permutation(counts[1])[:n_items], len(user), rng)
    value = np.linspace(-1.5, 1.5, 5, dtype=np.float32)[rng.integers(0, 5, len(user))]
    return TrainingData.from_triples(user, item, value, len(lengths), n_items)


def _partners(popular: Counts, n: int, rng: np.random.Generator) -> Any:
    """Rows of the other side, by their numbers of ratings."""
    ends = np.cumsum(popular)
    return np.searchsorted(ends, rng.integers(0, max(ends[-1], 1), n), side="right").astype(
        np.int32
    )


def time_rows(
    counts: tuple[Counts, Counts], side: int, settings: RunSettings, most: int, passes: int = 2
) -> tuple[float, float]:
    """Seconds for each rating of an exact draw, and for each byte of the other side's rows."""
    rng, rule = np.random.default_rng(1), settings.sampler
    assert isinstance(rule, Gibbs)
    stripe = _stripe(counts, side, most, rng)
    d, width = settings.n_factors, settings.n_factors + settings.prior.bias
    n_other = len(counts[1 - side])
    block = (rng.standard_normal((4096, width)) / np.sqrt(d)).astype(np.float32)
    other = np.resize(block, (n_other, width))
    now = settings.prior.initial(d, rule.initial_precision)
    best, each = np.inf, np.inf
    for t in range(1, passes + 1):
        given = _given(side, other, now, settings, rule, t)
        task = RowsTask(0, 0, np.zeros((len(stripe.rows), width), np.float32), 1.5, given)
        begin = time.thread_time()
        assert given.ready is not None
        middle = time.thread_time()
        task.execute(stripe)
        best, each = min(best, time.thread_time() - middle), min(each, middle - begin)
    return best / len(stripe), each / (4 * n_other * (width + 1))


def _stripe(counts: tuple[Counts, Counts], side: int, most: int, rng: Any) -> Stripe:
    """Rows of the lengths that a side has, some ratings in all."""
    own = rng.permutation(counts[side])
    own = own[: max(int(np.searchsorted(np.cumsum(own), most)), 1)]
    own = np.minimum(own, 4 * most)
    n = int(own.sum())
    other = _partners(counts[1 - side], n, rng)
    starts = np.concatenate([[0], np.cumsum(own)]).astype(np.int64)
    row = np.repeat(np.arange(len(own)), own)
    other = other[np.lexsort((other, row))]
    levels = np.linspace(-1.5, 1.5, 5, dtype=np.float32)
    value = rng.integers(0, 5, n).astype(np.uint8)
    return Stripe(np.arange(len(own), dtype=np.int32), starts, other, value, levels)


def _given(
    side: int, other: Any, prior: RowPrior, settings: RunSettings, rule: Gibbs, t: int
) -> RowContext:
    return RowContext(
        side=side, other=(other,), weights=(np.ones(len(other), np.float32),), prior=prior,
        n_factors=settings.n_factors, relax=rule.overrelax, joint=rule.joint,
        n_sums=N_SUMS if side else 1, laws=None, mean_one=False,
        full=prior.Lambda.ndim == 2, round=t, key=make_key(0, 0),
    )  # fmt: skip
