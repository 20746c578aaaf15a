"""`benchmarks scaling --curves`: the splits on more and more workers, up to a thousand.

    default    Gibbs, four chains, on stripes that stay with their workers
    DSGLD-S    S x S grid, S chains, on S^2 workers
    DSGLD-C    S x 1 grid, S chains, on S workers

Ratings have the true numbers of users, items and ratings; nobody has them here. What tasks cost is
measured on this machine, by real tasks on ratings of such rows: exact draws with a table of the
other side of its true size, blocks of the true size up to a limit. The rest is a sketch of the run
(server/sketch.py): its driver is real, and so are its phases, bytes and clocks.

Efficiency is what one worker would take over workers times seconds: all chains together, with the
draws that are kept and the precisions of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from math import isqrt
from typing import Any

from bayesmf.errors import InputError
from bayesmf.samplers.auto import Auto
from bayesmf.samplers.sgld import SGLD
from experiments.links import Network
from experiments.plan.costs import Costs, calibrate
from experiments.plan.plan import Split, count_shape, settle, sketch
from experiments.plan.sketch import Rate

WORKERS = (1, 4, 8, 16, 32, 64, 128, 256, 512, 1000)
SQUARES = (1, 4, 16, 36, 64, 144, 256, 576)
COLUMNS = (1, 4, 9, 16, 36, 64, 100)
CHAINS = 4
MEASURED = 3_000_000, 3_000_000  # ratings of a stripe and of a block, at the most
CASES = (
    ("yahoo", "default", WORKERS),
    ("netflix", "default", WORKERS),
    ("netflix", "dsgld-s", SQUARES),
    ("netflix", "dsgld-c", COLUMNS),
)
# What is wanted: efficiency by shape, split and workers.
TARGETS = {
    ("yahoo", "default", 64): 0.7,
    ("netflix", "default", 32): 0.5,
    ("netflix", "dsgld-s", 36): 0.8,
    ("netflix", "dsgld-c", 16): 0.8,
}
# The engine whose driver held all rows, by its own runs: workers, idle share (docs/cluster.md).
BEFORE = ((1, 0.04), (9, 0.39), (16, 0.68))


def make_split(name: str, workers: int, chains: int = CHAINS) -> Split:
    """A way to share out, by its name."""
    if name == "default":
        return Split(name, Auto(n_chains=chains), workers)
    square = isqrt(workers)
    if name == "dsgld-s":
        return Split(name, SGLD(grid=(square, square), n_chains=square), workers)
    return Split(name, SGLD(grid=(workers, 1), n_chains=workers), workers)


def curves(
    n_factors: int,
    network: Network,
    most: int = 1000,
    rate: float | None = None,
    shapes: Sequence[str] = ("yahoo", "netflix"),
) -> Iterator[dict[str, Any]]:
    """A row for each shape, split and number of workers."""
    for shape, name, workers in CASES:
        if shape not in shapes:
            continue
        counts, known = count_shape(shape), {}
        for n in (n for n in workers if n <= most):
            split = make_split(name, n)
            try:
                settings = settle(counts, split, n_factors)
            except InputError:
                continue
            kind = str(getattr(settings.sampler, "grid", "stripes"))
            if rate is None and kind not in known:
                known[kind] = calibrate(counts, settings, MEASURED)
            costs: Any = known[kind] if rate is None else Rate(rate)
            planned = sketch(counts, split, settings, network, costs)
            row = {"shape": shape, **asdict(planned)}
            row["target"] = TARGETS.get((shape, name, n))
            if isinstance(costs, Costs):
                row["costs"] = {
                    name: {"call": c.call, "rating": c.rating, "row": c.row}
                    for name, c in costs.tasks.items()
                }
            yield row
