"""Exact draws of all rows of one side given the other: half a sweep of Gibbs."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from typing import Any

from bayesmf.chains.rounds.row_noise import make_slice
from bayesmf.chains.state import ChainState
from bayesmf.errors import DivergenceError
from bayesmf.kernels.exact import total, unpacked_moments
from bayesmf.kernels.gather import SSE
from bayesmf.model.priors import Moments, Params
from bayesmf.model.refs import Pieces
from bayesmf.worker.row_tasks import Given, RowsResult, RowsTask


def row_precisions(state: ChainState, side: int) -> Any:
    """Precisions of ratings of weight one by their row of users (0) or items (1), or of all."""
    now = state.precisions
    if now.noise is None:
        return now.tau
    own = now.by_row(side)
    return 1.0 if own is None else own


def given(
    state: ChainState, t: int, side: int, relax: float, joint: int | None, n_sums: int,
    laws: bool = True,
) -> Given:  # fmt: skip
    """What the rows of one side are drawn from besides their ratings."""
    now, other = state.precisions, state.side(1 - side)
    weights = now.by_row(1 - side)
    parts = weights.parts if isinstance(weights, Pieces) else (weights,) * len(other.parts)
    slice_ = make_slice(state, t, side) if laws else None
    return Given(
        side=side,
        other=other.parts,
        weights=parts,
        prior=(now.users, now.items)[side],
        n_factors=state.params.n_factors,
        relax=relax,
        joint=joint,
        n_sums=n_sums,
        laws=None if slice_ is None else slice_.laws,
        mean_one=side == 1 and now.noise is not None and now.noise.users is not None,
        full=now.users.Lambda.ndim == 2,
        round=t,
        key=state.key,
    )


def one_of(value: Any, stripe: int) -> Any:
    """What a stripe has of numbers of rows, which may be one for all."""
    return value[stripe] if isinstance(value, Pieces) else value


def draw_exactly(
    state: ChainState,
    t: int,
    side: int,
    partitions: Sequence[int],
    relax: float,
    joint: int | None,
    n_sums: int,
) -> Generator[list[Any], Sequence[Any], Sequence[RowsResult]]:
    """One phase: all rows of users (side 0) or items (1) are drawn.

    Stripe k is partition partitions[k]; `n_sums` as `draw_rows` takes it. The state gets the new
    rows and their means, and what their draws have left: `told`, `sums` and moments.
    """
    rows, tau = state.side(side), row_precisions(state, side)
    shared = given(state, t, side, relax, joint, n_sums)
    results = yield [
        RowsTask(state.chain, partition, rows[k], one_of(tau, k), shared)
        for k, partition in enumerate(partitions)
    ]
    sums = total(result.sums for result in results)
    if not math.isfinite(sums[SSE]):
        raise DivergenceError(
            f"chain {state.chain} met a precision matrix that is not positive in round "
            f"{t + 1}, at tau {state.precisions.tau:.3g}: use a smaller tau (--tau), or one noise "
            "for all ratings (noise_by=None, --noise-by none)"
        )
    layout = rows.layout
    state.put(side, Pieces(tuple(result.rows for result in results), layout))
    means = Pieces(tuple(result.means for result in results), layout)
    before = state.means or state.params
    users, items = (before.users, means) if side else (means, before.items)
    state.means = Params(users, items, state.params.n_factors)
    state.row_sums = Pieces(tuple(result.told for result in results), layout)
    state.all_sums, state.count = sums, sum(result.count for result in results)
    if state.slices.get(side) is not None:
        state.evidence[side] = total(result.evidence for result in results)
    width = len(state.precisions.users.mu)
    told = (result.moments for result in results)
    found = unpacked_moments(told, width, shared.full)
    put_moments(state, side, Moments(layout.n_rows, *found))
    return results


def put_moments(state: ChainState, side: int, found: Moments) -> None:
    """Note the moments of one side's rows; those of the other are as they were."""
    old = state.row_moments or (None, None)
    state.row_moments = (old[0], found) if side else (found, old[1])
