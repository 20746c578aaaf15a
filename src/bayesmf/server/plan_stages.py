"""What posterior propagation would take on a cluster: three stages, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isqrt

import numpy as np

from bayesmf.blocks.grid import Grid
from bayesmf.blocks.two_way import cut_two_ways
from bayesmf.chains.settings import RunSettings
from bayesmf.data.training import TrainingData
from bayesmf.engines.links import Cluster, Job, Network, Transfer, in_turn
from bayesmf.samplers.propagation import FIRST_WARM_UP, STAGES, Propagation
from bayesmf.server.costs import SAMPLE, Cost, Measured, sample
from bayesmf.server.run import run
from bayesmf.server.sketch import Counts, Rate, hollow

SWEEPS = 4, 12  # of two short chains: what they differ in is what sweeps cost


@dataclass(frozen=True)
class Stages:
    """Seconds of a whole run, those of one worker, and what was moved and held."""

    seconds: float
    alone: float
    node_bytes: int
    memory: int
    nodes: int


def grid_for(workers: int) -> tuple[int, int]:
    """A grid whose third stage has a block for each worker."""
    side = isqrt(workers) + 1
    return side, side


def sweep_cost(counts: tuple[Counts, Counts], settings: RunSettings) -> Cost:
    """Seconds of a sweep in a block for each rating and row, from short runs in two.

    One has users with all their ratings, one with a few of each.
    """
    read, seconds = [], []
    for grid in (Grid(1, 4), Grid(40, 64)):
        data = sample(counts, grid, SAMPLE[0])
        _chain_seconds(data, settings, 2)  # it may have to be compiled
        few, many = (_chain_seconds(data, settings, n) for n in SWEEPS)
        read.append((len(data), data.n_users + data.n_items))
        seconds.append(max(many - few, 0.0) / (SWEEPS[1] - SWEEPS[0]))
    (rating, row), *_ = np.linalg.lstsq(np.array(read, float), np.array(seconds), rcond=None)
    if min(rating, row) < 0:  # they cannot be told apart: ratings alone
        return Cost(rating=seconds[0] / read[0][0])
    return Cost(rating=float(rating), row=float(row))


def _chain_seconds(data: TrainingData, settings: RunSettings, sweeps: int) -> float:
    """Seconds of the chain of one block of all these ratings."""
    rule = Propagation(grid=Grid(1, 1), warm_up=1, sweeps=sweeps, draws=1)
    engine = Measured()
    run(data, replace(settings, sampler=rule, max_draws=1, seed=0), engine)
    return engine.spent["ChainTask"].seconds


def stages(
    counts: tuple[Counts, Counts],
    settings: RunSettings,
    workers: int,
    network: Network,
    costs: Rate | Cost,
) -> Stages:
    """Follow the clocks through the stages; draws in the end take next to nothing."""
    rule, width = settings.sampler, settings.n_factors + settings.prior.bias
    assert isinstance(rule, Propagation)
    grid: Grid = rule.grid
    cut = cut_two_ways(hollow(counts), grid, rule.first, settings.seed)
    rows = [[len(own) for own in side] for side in cut]
    share = [[counts[s][own].sum() / counts[s].sum() for own in cut[s]] for s in range(2)]
    n = np.outer(share[0], share[1]) * counts[0].sum()
    # A row's Gaussian: mean, precisions below the diagonal, and the two numbers of its noise.
    each = 4 * (width + width * (width + 1) // 2 + 2)
    cost = Cost(rating=1 / costs.rate) if isinstance(costs, Rate) else costs
    clocks = Cluster(workers, network)
    home = {(0, 0): 0}
    held, alone = [0.0] * clocks.nodes, 0.0
    for stage in range(STAGES):
        blocks = [
            (r, c) for r in range(grid.rows) for c in range(grid.cols) if (r > 0) + (c > 0) == stage
        ]
        sweeps = rule.sweeps + rule.warm_up * (1 if stage else FIRST_WARM_UP)
        jobs: list[Job] = []
        for k, (r, c) in enumerate(sorted(blocks, key=lambda at: -n[at])):
            home[r, c] = k % workers
            node = clocks.node(k % workers)
            seconds = sweeps * cost(float(n[r, c]), rows[0][r] + rows[1][c])
            sources = [(r, 0, 0)] * (c > 0) + [(0, c, 1)] * (r > 0)
            brings = [
                Transfer(clocks.node(home[a, b]), node, each * rows[side][r if side == 0 else c])
                for a, b, side in sources
                if clocks.node(home[a, b]) != node
            ]
            jobs.append(Job(k % workers, 0, seconds, 0, in_turn(brings, clocks.nodes), brings))
            held[node] += 10 * float(n[r, c]) + each * (rows[0][r] + rows[1][c])
            alone += seconds
        _all_back(clocks, jobs)
    moved = max(link.moved for link in (*clocks.out, *clocks.into))
    return Stages(clocks.now, alone, moved, int(max(held)), clocks.nodes)


def _all_back(clocks: Cluster, jobs: Sequence[Job]) -> None:
    """Send all, and wait for the last."""
    for job in jobs:
        clocks.submit(job)
    left = set(jobs)
    while left:
        left -= clocks.wait(left)
