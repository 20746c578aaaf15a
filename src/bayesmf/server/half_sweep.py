"""Half a sweep of one chain on threads of its own, where no engine runs."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.blocks.stripes import Stripe
from bayesmf.chains.rounds.gibbs import draw_exactly, draw_row_noise
from bayesmf.chains.state import ChainState
from bayesmf.data.training import TrainingData
from bayesmf.kernels.gather import N_SUMS, SSE
from bayesmf.model.refs import Layout
from bayesmf.process import Pool, parts

Index = NDArray[np.int64]


def counts_of(data: TrainingData, side: int) -> Index:
    """Ratings of each row of users (side 0) or items (1)."""
    return (data.user_counts, data.item_counts)[side]()


def without(stripes: Sequence[Stripe], unknown: NDArray[np.bool_]) -> Sequence[Stripe]:
    """Stripes without the ratings that meet rows of the other side that are unknown yet."""
    if not unknown.any():
        return stripes
    out = []
    for stripe in stripes:
        left = ~unknown[stripe.other]
        sums = np.append(0, np.cumsum(left))
        starts, other, value = sums[stripe.starts], stripe.other[left], stripe.value[left]
        out.append(replace(stripe, starts=starts, other=other, value=value))
    return out


def layout_of(stripes: Sequence[Stripe], n_rows: int) -> Layout:
    """How stripes of consecutive rows cut a side."""
    return Layout([stripe.span for stripe in stripes], n_rows)


def half_sweep(
    state: ChainState,
    t: int,
    side: int,
    stripes: Sequence[Stripe],
    relax: float,
    joint: int | None,
    pool: Pool,
) -> None:
    """All rows of users (side 0) or items (1), with their conditional means and squared errors."""
    n_sums = N_SUMS if side == 1 else 1
    numbers = range(len(stripes))
    on_threads(draw_exactly(state, t, side, numbers, relax, joint, n_sums), stripes, pool)
    assert state.all_sums is not None
    state.sse = float(state.all_sums[SSE])


def half_noise(state: ChainState, t: int, side: int, stripes: Sequence[Stripe], pool: Pool) -> None:
    """Precisions of the ratings of the rows that `half_sweep` has drawn, where they have any."""
    assert state.row_sums is not None
    told, layout = [(part,) for part in state.row_sums.parts], state.side(side).layout
    on_threads(draw_row_noise(state, t, side, range(len(stripes)), told, layout), stripes, pool)


def on_threads(phases: Generator[list[Any], Any, Any], held: Sequence[Stripe], pool: Pool) -> None:
    """Do the tasks of some phases, one phase after the other."""
    results: Any = None
    while True:
        try:
            tasks = phases.send(results)
        except StopIteration:
            return
        results = [None] * len(tasks)

        def run(part: slice, tasks: Any = tasks, results: Any = results) -> None:
            task = tasks[part.start]
            results[part.start] = task.execute(held[task.partition])

        pool.each(run, parts(len(tasks), 1))
