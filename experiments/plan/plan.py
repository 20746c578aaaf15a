"""Estimated time, bytes and memory of a fit on a cluster."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bayesmf.blocks.grid import Grid
from bayesmf.chains.rounds.blocks import data_shape
from bayesmf.chains.state import RunSettings
from bayesmf.errors import InputError
from bayesmf.run.driver import compile_kernels, run
from bayesmf.run.settings import FitSettings
from bayesmf.samplers.base import BatchRule, Sampler
from bayesmf.samplers.gibbs import Auto, Gibbs
from bayesmf.samplers.sgld import SGLD
from bayesmf.synthetic.synthetic import Synthetic
from experiments.links import Network
from experiments.plan.costs import calibrate, for_epochs
from experiments.plan.sketch import (
    Counts,
    Sizes,
    Sketch,
    TaskCosts,
    block_sizes,
    hollow,
    made_up,
    stripe_sizes,
)

# Chains that a split is planned with at most: each has rows of its own on every node.
MOST_CHAINS = 64
EPOCHS = 3  # of a sketch; the first is not counted
# A split is worth its workers while they are at work for half of the time.
WORTH = 0.5


@dataclass(frozen=True)
class Split:
    """A way to distribute a fit, and the sampler for it."""

    name: str
    sampler: Sampler | Auto
    workers: int


SPLITS = ("default", "dsgld-s", "dsgld-c", "hybrid")


def splits(workers: int, chains: int, wanted: Sequence[str] = SPLITS) -> Iterator[Split]:
    """The splits that are useful for a number of workers."""
    square, seen = math.isqrt(workers), set()
    grids = {
        "dsgld-s": ((square, square), square),
        "dsgld-c": ((workers, 1), workers),
        "hybrid": ((max(1, workers // chains),) * 2, chains),
    }
    for name in wanted:
        if name == "default":
            yield Split(name, Auto(n_chains=chains), workers)
            continue
        grid, n_chains = grids[name]
        if n_chains > MOST_CHAINS or (grid, n_chains) in seen or (workers > 1 and grid == (1, 1)):
            continue
        seen.add((grid, n_chains))
        yield Split(name, SGLD(grid=grid, n_chains=n_chains), workers)


@dataclass(frozen=True)
class Planned:
    """Estimated costs of a split.

    Seconds of a round are those of one chain, of an epoch those in which all chains have read all
    ratings. `alone` is the time of one worker for such an epoch, `efficiency` that over workers
    times seconds. Bytes are those of a round of one chain, on the driver's link and on that of the
    busiest node, one way; `memory` is that of the largest node.
    """

    split: str
    sampler: str
    grid: str
    workers: int
    nodes: int
    chains: int
    stripes: int
    seconds_per_round: float
    seconds_per_epoch: float
    alone: float
    efficiency: float
    idle: float
    driver_bytes: float
    fetched_bytes: float
    node_bytes: float
    memory: int
    driver_seconds: float


def count_ratings(ratings: Any) -> tuple[Counts, Counts]:
    """Ratings of each user and each item: those of packed ratings are differences of starts."""
    if hasattr(ratings, "by_user"):
        users, items = ratings.by_user.counts(), ratings.by_item.counts()
    else:
        known = ratings.compact()
        users = np.bincount(known.user_rows, minlength=known.n_users)
        items = np.bincount(known.item_rows, minlength=known.n_items)
    return users.astype(np.int64), items.astype(np.int64)


def count_shape(shape: str) -> tuple[Counts, Counts]:
    """The same for synthetic ratings of a known data set's shape."""
    plan = Synthetic.like(shape)
    users, chance = plan.activity(), plan.popularity()
    ends = np.rint(np.cumsum(chance) * int(users.sum())).astype(np.int64)
    return users, np.diff(ends, prepend=0)


def settle(
    counts: tuple[Counts, Counts], split: Split, n_factors: int | None = None, **more: Any
) -> RunSettings:
    """The settings of a fit by a split: with stripes enough for its workers."""
    data = hollow(counts)
    wanted = FitSettings(n_factors=n_factors, sampler=split.sampler, random_state=0, **more)
    settings = wanted.resolve(data)
    rule: Any = settings.sampler
    if isinstance(rule, Gibbs):
        rule = rule.shared_out(split.workers)
    return replace(settings, sampler=rule)


def sizes_of(counts: tuple[Counts, Counts], rule: Sampler) -> Sizes:
    """Sizes of the partitions of a run."""
    if isinstance(rule, BatchRule):
        batches = rule.n_batches(data_shape(hollow(counts)))
        return block_sizes(counts, Grid.parse(rule.grid), batches)
    assert isinstance(rule, Gibbs) and rule.n_stripes is not None
    return stripe_sizes(counts, rule.n_stripes)


class _Marks:
    """Notes the clock and what a chain has taken so far, whenever it has ended an epoch."""

    def __init__(self, engine: Sketch) -> None:
        self._engine = engine
        self._by_chain: dict[int, list[Any]] = {}

    def __call__(self, event: Any) -> None:
        now = [self._engine.seconds(), *self._engine.by_chain[event.chain]]
        self._by_chain.setdefault(event.chain, []).append(np.array(now))

    def per_epoch(self) -> Any:
        """Means over chains and epochs but the first: of the clock, and of what tasks took."""
        return np.mean([(own[-1] - own[0]) / (len(own) - 1) for own in self._by_chain.values()], 0)


@contextmanager
def _no_garbage() -> Iterator[None]:
    """Context without garbage collection: it would scan a million virtual transfers
    repeatedly, and count as work of the driver."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()
        gc.collect()


def sketch(
    counts: tuple[Counts, Counts],
    split: Split,
    settings: RunSettings,
    network: Network,
    costs: TaskCosts,
    epochs: int = EPOCHS,
) -> Planned:
    """Simulate some epochs of a split; return the costs of one."""
    sizes = sizes_of(counts, settings.sampler)
    data = made_up(sizes)
    small = for_epochs(settings, data, epochs)
    compile_kernels(small, data)
    engine = Sketch(split.workers, network, sizes, costs)
    marks = _Marks(engine)
    with _no_garbage():
        report = run(data, small, engine, callbacks=(marks,)).engine
    rule = small.sampler
    seconds, alone, busy, driver = marks.per_epoch()
    per_epoch, n = report["rounds"] / epochs / rule.n_chains, split.workers
    alone = rule.n_chains * alone + report["server_seconds"] / epochs
    time = max(n * seconds, 1e-12)
    return Planned(
        split=split.name,
        sampler=type(rule).__name__,
        grid=str(rule.grid) if isinstance(rule, BatchRule) else "",
        workers=n,
        nodes=report["nodes"],
        chains=rule.n_chains,
        stripes=max(sizes.stripes),
        seconds_per_round=seconds / per_epoch,
        seconds_per_epoch=seconds,
        alone=alone,
        efficiency=alone / time,
        idle=1.0 - rule.n_chains * busy / time,
        driver_bytes=driver / per_epoch,
        fetched_bytes=report["fetched_bytes"] / report["rounds"],
        node_bytes=max(report["node_bytes"]) / report["rounds"],
        memory=max(sum(node.values()) for node in report["memory_by_node"]),
        driver_seconds=report["server_seconds"] / epochs,
    )


def plan(
    counts: tuple[Counts, Counts],
    workers: Sequence[int],
    chains: int,
    network: Network,
    n_factors: int | None = None,
    wanted: Sequence[str] = SPLITS,
    costs: TaskCosts | None = None,
    progress: Callable[[str], None] = lambda what: None,
) -> list[Planned]:
    """Plan every split on every number of workers.

    Costs are measured on this machine where they are not given: once for stripes, once for
    square grids, once for blocks of all items.
    """
    if len(counts[0]) < 2 or len(counts[1]) < 2:
        raise InputError("a plan needs ratings of at least two users and two items")
    found, known, refused = [], {}, None
    for n in workers:
        for split in splits(n, chains, wanted):
            progress(f"{split.name} on {n}")
            try:
                settings = settle(counts, split, n_factors)
            except InputError as error:
                refused = error  # such as more blocks than there are rows
                continue
            kind = _alike(settings.sampler)
            if costs is None and kind not in known:
                known[kind] = calibrate(counts, settings)
            own: Any = known[kind] if costs is None else costs
            found.append(sketch(counts, split, settings, network, own))
    if not found:
        raise refused or InputError("none of these splits makes sense for this number of workers")
    return found


def _alike(rule: Sampler) -> str:
    """Key of samplers whose tasks have equal costs."""
    if not isinstance(rule, BatchRule):
        return rule.kind_of_rounds
    return "columns" if rule.grid.cols == 1 else "grid"


def advice(found: Sequence[Planned]) -> tuple[Planned, str]:
    """Recommend one of these, with one sentence of explanation.

    Exact draws need no step size and mix faster, so the default is recommended if its workers are
    busy; otherwise the split with most epochs a second.
    """
    exact = [one for one in found if one.split == "default"]
    worth = [one for one in exact if one.efficiency >= WORTH]
    if worth:
        best = min(worth, key=lambda one: one.seconds_per_epoch)
        why = (
            f"take the default sampler on {best.workers} workers: a sweep of all chains takes "
            f"{best.seconds_per_epoch:.3g} s, and the workers' time is used to "
            f"{min(best.efficiency, 1.0):.0%}"
        )
        more = [one for one in exact if one.workers > best.workers]
        if more:
            then = min(more, key=lambda one: one.workers)
            why += (
                f" ({then.workers} would take {then.seconds_per_epoch:.3g} s, used to "
                f"{min(then.efficiency, 1.0):.0%})"
            )
        return best, why + "."
    enough = [one for one in found if one.efficiency >= WORTH] or list(found)
    best = max(enough, key=lambda one: one.chains / one.seconds_per_epoch)
    return best, (
        f"take {best.split} on {best.workers} workers, {best.chains} chains: it completes most "
        f"epochs ({best.chains / best.seconds_per_epoch:.3g} a second), with the workers' time "
        f"used to {min(best.efficiency, 1.0):.0%}."
    )
