"""Half a sweep of one chain on threads of its own, where no engine runs."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.blocks.stripes import Stripe
from bayesmf.chains.rounds.exact_rows import draw_exactly
from bayesmf.chains.state import ChainState
from bayesmf.data.training import TrainingData
from bayesmf.kernels.gather import N_SUMS
from bayesmf.system.threads import Pool, parts
from bayesmf.worker.row_tasks import RowsResult

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


def half_sweep(
    state: ChainState,
    t: int,
    side: int,
    stripes: Sequence[Stripe],
    relax: float,
    joint: int | None,
    pool: Pool,
) -> NDArray[np.float64]:
    """All rows of users (side 0) or items (1), with their conditional means and squared errors.

    Returns the sums of each row's ratings, stripe by stripe.
    """
    spans = [(k, stripe.span) for k, stripe in enumerate(stripes)]
    n_sums = N_SUMS if side == 1 else 1
    results = on_threads(draw_exactly(state, t, side, spans, relax, joint, n_sums), stripes, pool)
    assert state.means is not None
    means = (state.means.users, state.means.items)[side]
    for (_, span), result in zip(spans, results, strict=True):
        means[span] = result.means
    state.sse = sum(result.sse for result in results)
    state.count = sum(result.count for result in results)
    return np.concatenate([result.told for result in results])


def on_threads(
    phase: Generator[list[Any], Sequence[Any], Sequence[RowsResult]],
    held: Sequence[Stripe],
    pool: Pool,
) -> Sequence[RowsResult]:
    """Do the tasks of a phase."""
    tasks = next(phase)
    results: list[Any] = [None] * len(tasks)

    def run(part: slice) -> None:
        task = tasks[part.start]
        results[part.start] = task.execute(held[task.partition])

    pool.each(run, parts(len(tasks), 1))
    try:
        phase.send(results)
    except StopIteration as end:
        return list(end.value)
    raise AssertionError("a half-sweep is one phase")
