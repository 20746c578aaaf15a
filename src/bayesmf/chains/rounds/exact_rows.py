"""Exact draws of rows of one side given the other: half a sweep of Gibbs, or rare rows alone."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np

from bayesmf.chains.state import ChainState
from bayesmf.errors import DivergenceError
from bayesmf.kernels.gather import regressors
from bayesmf.kernels.keys import STREAM_ITEMS, STREAM_USERS
from bayesmf.worker.row_tasks import RowsResult, RowsTask


def draw_exactly(
    state: ChainState,
    t: int,
    side: int,
    stripes: Sequence[tuple[int, Any]],
    relax: float = 0.0,
    joint: int | None = None,
    n_sums: int = 1,
) -> Generator[list[Any], Sequence[Any], Sequence[RowsResult]]:
    """One phase: rows of users (side 0) or items (1) are drawn and put back.

    `stripes` are partitions, each with where its rows stand: a slice or their numbers; `n_sums` as
    `draw_rows` takes it.
    """
    params, now = state.params, state.precisions
    rows, other, prior = (
        (params.users, params.items, now.users),
        (params.items, params.users, now.items),
    )[side]
    # A copy also because a task that is done late must not see the next phase's rows.
    given = regressors(other, params.n_factors, now.weights(1 - side))
    tau = now.of_rows(side, len(rows)).astype(np.float64)
    results = yield [
        RowsTask(
            chain=state.chain,
            partition=partition,
            stream=(STREAM_USERS, STREAM_ITEMS)[side],
            rows=rows[own].copy(),
            relax=relax,
            joint=joint,
            other=given,
            n_factors=params.n_factors,
            prior=prior,
            tau=tau[own],
            n_sums=n_sums,
            round=t,
            key=state.key,
        )
        for partition, own in stripes
    ]
    for (_, own), result in zip(stripes, results, strict=True):
        if not np.isfinite(result.sse):
            raise DivergenceError(
                f"chain {state.chain} met a precision matrix that is not positive in round "
                f"{t + 1}, at tau {now.tau:.3g}: use a smaller tau (--tau), or one noise for all "
                "ratings (noise_by=None, --noise-by none)"
            )
        rows[own] = result.rows
    return results
