"""Precisions of single users and items, drawn where a round has left their squared errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bayesmf.chains.state import ChainState, Floats, Phases
from bayesmf.kernels.exact import total
from bayesmf.kernels.keys import STREAM_NOISE, generator
from bayesmf.model.noise import LawSlice, NoiseSums
from bayesmf.model.refs import Layout, Pieces
from bayesmf.worker.noise_tasks import EvidenceTask, Law, NoiseTask


def make_slice(state: ChainState, t: int, side: int) -> LawSlice | None:
    """The slice of the law of users' (0) or items' (1) precisions in round t, if they have one."""
    noise = state.precisions.noise
    own = None if noise is None else noise.side(side)
    if own is None:
        state.slices.pop(side, None)
        return None
    rng = generator(state.key, 2 * t + side, STREAM_NOISE)
    found = LawSlice(own.shape, own.rate, own.mean_one, own.known_sums().n, rng)
    state.slices[side] = found
    return found


def draw_row_noise(
    state: ChainState,
    t: int,
    side: int,
    partitions: Sequence[int],
    told: Sequence[tuple[Any, ...]],
    layout: Layout,
) -> Phases:
    """Draw the precisions of all users (0) or items (1), where these have their own.

    `told` are, for each stripe, sums of its rows' ratings or parts of such sums. The law comes
    first, with the precisions integrated out: given these it would move in steps as small as the
    rows are many. Mostly its likelihoods have come with the errors.
    """
    noise = state.precisions.noise
    own = None if noise is None else noise.side(side)
    if noise is None or own is None:
        return
    if side not in state.slices:
        make_slice(state, t, side)
    slice_ = state.slices.pop(side)
    evidence: Floats | None = state.evidence.pop(side, None)
    while evidence is None or not slice_.choose(evidence):
        results: Sequence[Any] = yield [
            EvidenceTask(state.chain, partition, parts, side, slice_.laws, own.mean_one)
            for partition, parts in zip(partitions, told, strict=True)
        ]
        evidence = total(result.evidence for result in results)
    shape, rate = slice_.found
    law = Law(side, shape, rate, own.mean_one, t, state.key)
    drawn: Sequence[Any] = yield [
        NoiseTask(state.chain, partition, parts, law)
        for partition, parts in zip(partitions, told, strict=True)
    ]
    sums = NoiseSums(layout.n_rows, *total(result.sums for result in drawn).tolist())
    value = Pieces(tuple(result.value for result in drawn), layout)
    found = replace(own, value=value, shape=shape, rate=rate, sums=sums)
    state.precisions = replace(state.precisions, noise=noise.with_side(side, found))
    state.all_sums = total(result.weighted for result in drawn)


def mean_weighted(state: ChainState, side: int, n_ratings: int, errors: float) -> float:
    """Sum of squared errors from those weighted by the precisions of one `side`.

    The weights' mean is taken off: where all weigh the same it is the plain sum.
    """
    noise = state.precisions.noise
    own = None if noise is None else noise.side(side)
    if own is None:
        return errors
    if isinstance(own.value, float):
        return errors / own.value
    return errors * n_ratings / own.known_sums().by_rating
