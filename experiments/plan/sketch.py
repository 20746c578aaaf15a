"""A sketch of a run: rounds, messages and clocks as in a fit, but no arithmetic.

The chains, the driver and the clocks of `Simulated` are those of a fit, with as many stripes,
blocks and chains. But every stripe has a few rows of a small synthetic matrix, and tasks are not
run: their results are those of the first of their kind. Sizes of their arrays, and their seconds,
are computed from the sizes of the real stripes. So the costs of ratings of any size are found in
seconds, in little memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bayesmf.blocks.blocks import stripes
from bayesmf.blocks.grid import Grid
from bayesmf.blocks.stripes import make_stripes
from bayesmf.data.training import TrainingData
from bayesmf.engines.base import Workload
from bayesmf.engines.placement import Homes
from bayesmf.kernels.csr import RowLists
from bayesmf.kernels.exact import LEAF
from bayesmf.model.refs import Array, Ref
from bayesmf.worker.stripe_tasks import EvidenceTask, PairsTask
from bayesmf.worker.tasks import Held, Result, Task
from experiments.links import LinkJob, Network
from experiments.simulated import Phase, Placed, Simulated, own_refs

Counts = NDArray[np.int64]
CELLS = 4  # rows of a block's stripe in a sketch, of either side
LEVELS = np.linspace(-1.0, 1.0, 5, dtype=np.float32)


@dataclass(frozen=True)
class Sizes:
    """Sizes of a run's partitions: ratings, rows of users and of items, bytes.

    `stripes` are the numbers of stripes of users and of items, `counts` the ratings of each user
    and of each item.
    """

    counts: tuple[Counts, Counts]
    stripes: tuple[int, int]
    ratings: Sequence[int]
    rows: Sequence[tuple[int, int]]
    nbytes: Sequence[int]
    grid: Grid | None = None

    @property
    def n_rows(self) -> tuple[int, int]:
        """All users and all items."""
        return len(self.counts[0]), len(self.counts[1])


def stripe_sizes(counts: tuple[Counts, Counts], n_stripes: int) -> Sizes:
    """The stripes of users and then those of items, as Gibbs cuts them."""
    data, ratings, rows, number = hollow(counts), [], [], []
    for side, lists in enumerate((data.by_user, data.by_item)):
        found = make_stripes(lists, LEVELS, n_stripes)
        number.append(len(found))
        ratings += [len(stripe) for stripe in found]
        rows += [(0, len(s.rows)) if side else (len(s.rows), 0) for s in found]
    held = [5 * n + 12 * sum(own) for n, own in zip(ratings, rows, strict=True)]
    return Sizes(counts, (number[0], number[1]), ratings, rows, held)


def block_sizes(counts: tuple[Counts, Counts], grid: Grid, n_batches: int, seed: int = 0) -> Sizes:
    """The blocks of a grid, if users and items were independent."""
    of = [
        stripes(own, n, 2 * seed + side)
        for side, (own, n) in enumerate(zip(counts, (grid.rows, grid.cols), strict=True))
    ]
    rows = [np.bincount(s, minlength=n) for s, n in zip(of, (grid.rows, grid.cols), strict=True)]
    shares = [
        np.bincount(s, own, minlength=n) / max(own.sum(), 1)
        for s, own, n in zip(of, counts, (grid.rows, grid.cols), strict=True)
    ]
    total, ratings, sides, held = int(counts[0].sum()), [], [], []
    for r in range(grid.rows):
        for c in range(grid.cols):
            n, own = round(total * shares[0][r] * shares[1][c]), (int(rows[0][r]), int(rows[1][c]))
            # Segments: ratings of one user in one mini-batch, if they fall there by chance.
            cells = max(own[0] * n_batches, 1)
            segments = cells * -np.expm1(-n / cells)
            ratings.append(n)
            sides.append(own)
            held.append(int(5 * n + 12 * segments + 20 * sum(own)))
    return Sizes(counts, (grid.rows, grid.cols), ratings, sides, held, grid)


def hollow(counts: tuple[Counts, Counts]) -> TrainingData:
    """Ratings of which only the number of each row is known; their values cannot be read."""
    lists = []
    for own in counts:
        n, starts = int(own.sum()), np.concatenate([[0], np.cumsum(own)])
        nothing = np.broadcast_to(np.int32(0), n), np.broadcast_to(np.uint8(0), n)
        lists.append(RowLists(starts, *nothing))
    return TrainingData(lists[0], len(counts[1]), LEVELS, turned=lists[1])


def made_up(sizes: Sizes) -> TrainingData:
    """A matrix that is cut into the same stripes, with a few ratings of each row."""
    n_users, n_items = sizes.n_rows
    if sizes.grid is not None:
        grid = sizes.grid
        users, items = CELLS * grid.rows, CELLS * grid.cols
        # Of equally many stripes the larger side stays with its workers: it must be larger here.
        if n_items <= n_users:
            users = grid.rows * max(CELLS, -(-items // grid.rows))
        else:
            items = grid.cols * max(CELLS, users // grid.cols + 1)
        user, item = np.divmod(np.arange(users * items), items)
    else:
        users, items = (LEAF * n for n in sizes.stripes)
        items += n_items > n_users and items <= users
        n = 2 * max(users, items)
        turned = (np.arange(n) * _coprime(n)) % n
        user, item = np.arange(n) * users // n, turned * items // n
    value = LEVELS[(np.arange(len(user)) * 7 + item * 3) % len(LEVELS)]
    return TrainingData.from_triples(
        user.astype(np.int32), item.astype(np.int32), value, int(users), int(items)
    )


def _coprime(n: int) -> int:
    """A number near the golden section of n that has no divisor in common with it."""
    k = max(1, round(0.618 * n))
    while np.gcd(k, n) != 1:
        k += 1
    return k


class TaskCosts(Protocol):
    """Seconds of tasks."""

    def task(self, task: Task, ratings: float, rows: float) -> float:
        """Seconds of a task that reads this many ratings and rows."""

    def prepare(self, shared: Any, size: float) -> float:
        """Seconds in which a worker prepares arrays of this size for the tasks of a phase."""

    def keep(self, size: float) -> float:
        """Seconds in which the driver stores this many bytes of a draw."""


@dataclass(frozen=True)
class Rate:
    """A fixed number of ratings a second; nothing else takes time, as in `Simulated(rate=)`."""

    rate: float

    def task(self, task: Task, ratings: float, rows: float) -> float:
        return 0.0 if reads_all(task) else ratings / self.rate  # of those that results count

    def prepare(self, shared: Any, size: float) -> float:
        return 0.0

    def keep(self, size: float) -> float:
        return 0.0


class Sketch(Simulated):
    """A simulated engine that runs one task of each kind, with the sizes of real stripes."""

    def __init__(self, n_workers: int, network: Network, sizes: Sizes, costs: TaskCosts) -> None:
        super().__init__(n_workers, network, rate=costs.rate if isinstance(costs, Rate) else None)
        self.sizes, self.costs = sizes, costs

    def start(self, load: Workload) -> None:
        self._known: dict[Any, Any] = {}
        # Seconds that one worker would need, seconds of workers, bytes of the driver.
        self.by_chain = np.zeros((load.n_chains, 3))
        self._real = [range(n) for n in self.sizes.ratings]
        super().start(replace(load, recipes=()))

    def submit(self, task: Task) -> LinkJob:
        """Also note whose task it was: chains do not begin and end at the same time."""
        before = self._totals()
        job = super().submit(task)
        self.by_chain[task.chain] += self._totals() - before
        return job

    def fetch(self, refs: Sequence[Ref]) -> list[Array]:
        """Also count the driver's work on arrays of the true size."""
        found = super().fetch(refs)
        if not self._standing:
            seconds = self.costs.keep(sum(ref.nbytes for ref in refs))
            self._server += seconds
            self._clocks.now += seconds
        return found

    def _totals(self) -> Any:
        ledger = self._ledger
        return np.array([self._alone, ledger.seconds, ledger.bytes_sent + ledger.bytes_received])

    def _placed(self, load: Workload) -> Homes:
        return Homes(replace(load, held=self._real), self.n_workers)

    def _sizes_held(self, held: Sequence[Held]) -> list[int]:
        return list(self.sizes.nbytes)

    def _keep(self, task: Any, result: Any, array: Array, node: int) -> Ref:
        rows = self.sizes.rows[task.partition][_whose(task, result, array)]
        return Placed(array, node, round(array.nbytes / max(len(array), 1) * rows))

    def _run(self, task: Any) -> tuple[float, Result]:
        held = self._held[task.partition]
        found = self._result(held, task)
        passes = found.count / max(len(held), 1) if found.count else reads_all(task)
        ratings = self.sizes.ratings[task.partition] * passes
        return self.costs.task(task, ratings, real_rows(task)), found

    def _result(self, held: Any, task: Any) -> Any:
        """The result of such a task: only of the first is it the task's own."""
        if type(task) in (EvidenceTask, PairsTask):
            # Laws must be judged by themselves, or no step ends; pairs are as many as they are.
            return task.execute(held)
        side, given = side_of(task), getattr(task, "shared", None)
        kind = type(task), side, len(held), len(held.numbers(0)), len(held.numbers(1))
        if kind not in self._known:
            self._known[kind] = task.execute(held)
        found = self._known[kind]
        laws = getattr(given, "laws", None)
        if given is not None and laws is not None:
            asked = EvidenceTask(0, 0, (found.row_stats,), given.side, laws, given.mean_one)
            found = replace(found, evidence=asked.execute(held).evidence)
        return found

    def _prepare(self, phase: Phase | None, task: Task) -> float:
        if phase is None:
            return 0.0
        if phase.seconds is None:
            phase.table = sum(ref.nbytes for ref in phase.refs)
            phase.seconds = self.costs.prepare(phase.shared, phase.table)
        return phase.seconds


# Tasks that read all ratings of their partition, though they count none.
READS_ALL = ("WeightsTask",)


def reads_all(task: Task) -> float:
    """Passes over its ratings of a task whose result counts none."""
    return float(type(task).__name__ in READS_ALL)


def side_of(task: Any) -> int | None:
    """The side whose rows a task is about, where it is one."""
    side = getattr(task, "side", getattr(getattr(task, "shared", None), "side", None))
    return int(side) if isinstance(side, int | np.integer) else None


def _whose(task: Any, result: Any, array: Array) -> int:
    """Whose rows an array of a result is about."""
    for name in (*result.local_fields, *result.shared_fields):
        if getattr(result, name) is array and name.endswith(("users", "items")):
            return int(name.endswith("items"))
    side = side_of(task)
    assert side is not None, type(task).__name__
    return side


def _rows(ref: Ref) -> float:
    """Rows that a reference stands for; in a sketch these are more than it has."""
    assert ref.value is not None
    return len(ref.value) * ref.nbytes / max(ref.value.nbytes, 1)


def real_rows(task: Task) -> float:
    """Rows that a task reads: the most that one of its arrays has."""
    return max(map(_rows, own_refs(task)), default=0.0)
