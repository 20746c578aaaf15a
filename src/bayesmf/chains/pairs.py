"""Pairs predicted while chains run: the validation set, and probe pairs for convergence."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.chains.state import ChainState, Phases, Rounds, RunSettings
from bayesmf.data.training import RatedItems, TrainingData
from bayesmf.kernels.gather import regressors
from bayesmf.kernels.keys import STREAM_PROBE, generator
from bayesmf.kernels.pairs import sum_pair_means
from bayesmf.kernels.row_posterior import PaddedRows, all_known, make_row_scratch, solve_rows
from bayesmf.kernels.types import readonly
from bayesmf.model.noise import N_PARAMETERS
from bayesmf.model.refs import Fetch, Pieces, StripeLayout, fetch_here, whole
from bayesmf.process import Pool, parts
from bayesmf.worker.stripe_tasks import PairContext, PairsTask, StripePairs


class Traces(NamedTuple):
    """Traces of a chain, pass by pass from the first that was recorded.

    `rounds` (passes,) are the rounds of the passes. `expected` and `drawn` (passes, pairs) are
    predictions of the probe pairs, as the fitted model makes them of such a draw and of the state
    itself. `noise` (passes, 3) has the parameters that `model.noise.PARAMETERS` names, `spread` the
    mean variance of the noise of the probe pairs. `kept` are positions of the passes whose states
    would be the draws if the run ended now, `late` is that of the first one after burn-in.
    """

    rounds: NDArray[np.int64]
    expected: NDArray[np.float32]
    drawn: NDArray[np.float32]
    noise: NDArray[np.float64]
    spread: NDArray[np.float64]
    kept: NDArray[np.int64]
    late: int


@dataclass(frozen=True)
class WatchedPairs:
    """Pairs of row numbers, -1 for a user or item without ratings; `rated` marks training pairs."""

    user: NDArray[np.int32]
    item: NDArray[np.int32]
    rated: NDArray[np.bool_]

    @cached_property
    def _cuts(self) -> dict[int, tuple[tuple[StripeLayout, StripeLayout], list[PairCut]]]:
        return {}

    def cut(self, layouts: tuple[StripeLayout, StripeLayout], side: int) -> list[PairCut]:
        """The pairs by stripes of one side, computed once in a run."""
        known = self._cuts.get(side)
        if known is None or known[0] is not layouts:
            known = layouts, cut_pairs(self.user, self.item, self.rated, layouts, side)
            self._cuts[side] = known
        return known[1]

    def score(
        self, state: ChainState, rounds: Rounds, aside: bool = False
    ) -> Generator[list[Any], Sequence[Any], Scored]:
        """One phase: predictions of the pairs at a state, by workers with the larger side."""
        layouts = rounds.layouts
        state.cut(layouts)
        side = int(layouts[1].n_rows > layouts[0].n_rows)
        params, means, now = state.params, state.means, state.precisions
        rows = params.users, params.items
        mean = None if means is None else (means.users, means.items)
        other, noise = 1 - side, (now.by_row(side), now.by_row(1 - side))
        weights: Any = noise[1]
        shared = PairContext(
            side, rows[other].parts, None if mean is None else mean[other].parts,
            weights.parts if isinstance(weights, Pieces) else weights,
            (now.users.mu, now.items.mu), params.n_factors,
            now.tau if now.noise is None else 1.0,
        )  # fmt: skip
        cuts = self.cut(layouts, side)
        results = yield [
            PairsTask(
                state.chain, rounds.at(side, cut.stripe), rows[side][cut.stripe],
                None if mean is None else mean[side][cut.stripe],
                noise[0][cut.stripe] if isinstance(noise[0], Pieces) else noise[0],
                cut.pairs, shared, aside,
            )
            for cut in cuts
        ]  # fmt: skip
        n = len(self.user)
        expected, drawn, spread = np.empty(n, np.float32), np.empty(n, np.float32), np.empty(n)
        for cut, result in zip(cuts, results, strict=True):
            expected[cut.at], drawn[cut.at] = result.expected, result.drawn
            spread[cut.at] = result.spread
        return Scored(expected, drawn, spread)

    def predict(
        self, state: ChainState, rounds: Rounds, fetch: Fetch, kept: bool
    ) -> Generator[list[Any], Sequence[Any], NDArray[np.float32]]:
        """Predictions from a state, made as by the fitted model; not part of the algorithm.

        `kept` is True if the state is a draw, which enters the average, and False during burn-in.
        """
        found = yield from self.score(state, rounds, aside=True)
        return found.expected


class Scored(NamedTuple):
    """Predictions of pairs from conditional means and of the state itself; variances of noise."""

    expected: NDArray[np.float32]
    drawn: NDArray[np.float32]
    spread: NDArray[np.float64]


class PairCut(NamedTuple):
    """Pairs of a stripe, and their positions among all pairs."""

    stripe: int
    at: NDArray[np.int64]
    pairs: StripePairs


def cut_pairs(
    user: NDArray[np.int32],
    item: NDArray[np.int32],
    rated: NDArray[np.bool_],
    layouts: tuple[StripeLayout, StripeLayout],
    side: int,
) -> list[PairCut]:
    """Pairs by stripes of one side, with positions in the stripe and among all of the other side.

    Pairs with an unseen row of that side go to the first stripe.
    """
    own, other = (user, item) if side == 0 else (item, user)
    position = np.where(other < 0, -1, layouts[1 - side].order[np.maximum(other, 0)])
    order = np.where(own < 0, -1, layouts[side].order[np.maximum(own, 0)])
    starts = np.cumsum([0, *layouts[side].sizes()])
    stripe = np.searchsorted(starts, np.maximum(order, 0), side="right") - 1
    cuts = []
    for k in np.unique(stripe).tolist():
        at = np.flatnonzero(stripe == k)
        inside = np.where(order[at] < 0, -1, order[at] - starts[k])
        cuts.append(PairCut(k, at, StripePairs(inside, position[at], rated[at])))
    return cuts


@dataclass(frozen=True)
class Validation:
    """The validation set: pairs and their ratings, in the chain's units."""

    pairs: WatchedPairs
    value: NDArray[np.float32]
    low: float = -np.inf
    high: float = np.inf

    def rmse(self, prediction: NDArray[Any]) -> float:
        """RMSE of predictions, clipped to the range of ratings, in the chain's units."""
        errors = np.clip(prediction, self.low, self.high) - self.value
        return float(np.sqrt(np.mean(errors**2, dtype=np.float64)))


def probe_pairs(data: TrainingData, n: int, seed: int) -> WatchedPairs:
    """Pairs as users ask for them: busy users and popular items more often."""
    rng = generator(np.zeros(2, np.uint32), seed, STREAM_PROBE)
    at = rng.integers(0, len(data), n)
    user = (np.searchsorted(data.by_user.starts, at, side="right") - 1).astype(np.int32)
    item = np.asarray(data.by_user.other[rng.integers(0, len(data), n)])
    return WatchedPairs(user, item, rated_pairs(user, item, data))


def rated_pairs(
    user: NDArray[np.int32], item: NDArray[np.int32], data: TrainingData
) -> NDArray[np.bool_]:
    """Mask of pairs that are training ratings."""
    return RatedItems.from_training(data).rated(user.astype(np.int64), item.astype(np.int64))


class ProbeTrace:
    """Traces of probe pairs and noise of a chain, for the convergence check."""

    def __init__(self, pairs: WatchedPairs) -> None:
        self._pairs = pairs
        self.rounds: list[int] = []
        self._expected: list[NDArray[np.float32]] = []
        self._drawn: list[NDArray[np.float32]] = []
        self._noise: list[NDArray[np.float64]] = []

    def add(self, state: ChainState, t: int, rounds: Rounds) -> Phases:
        """Predict the pairs at the state after round t."""
        found = yield from self._pairs.score(state, rounds)
        self.rounds.append(t)
        self._expected.append(found.expected)
        self._drawn.append(found.drawn)
        noise = [*state.precisions.noise_parameters(), float(np.mean(found.spread))]
        self._noise.append(np.array(noise))

    def traces(self, kept: Iterable[int], late: int) -> Traces:
        """Traces of a chain whose draws are of the rounds `kept`, burn-in ending at `late`."""
        rounds = np.array(self.rounds, np.int64)
        n, pairs = len(rounds), len(self._pairs.user)
        noise = np.array(self._noise).reshape(n, N_PARAMETERS + 1)
        return Traces(
            rounds,
            np.array(self._expected, np.float32).reshape(n, pairs),
            np.array(self._drawn, np.float32).reshape(n, pairs),
            noise[:, :-1],
            noise[:, -1],
            np.flatnonzero(np.isin(rounds, list(kept))),
            late,
        )

    def export(self) -> dict[str, NDArray[Any]]:
        """Arrays for a checkpoint."""
        arrays: dict[str, NDArray[Any]] = {"probed_at": np.array(self.rounds, np.int64)}
        if self.rounds:
            arrays |= {
                "expected": np.array(self._expected),
                "drawn": np.array(self._drawn),
                "noise": np.array(self._noise),
            }
        return arrays

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore the arrays of `export`."""
        if "noise" not in arrays:
            return
        self.rounds = [int(t) for t in arrays["probed_at"]]
        self._expected = [np.array(one) for one in arrays["expected"]]
        self._drawn = [np.array(one) for one in arrays["drawn"]]
        self._noise = [np.array(one) for one in arrays["noise"]]


# Rows computed together: few enough to spread over threads, and some 100 KB of means.
ROW_BLOCK = 256
NO_FACTORS = np.empty((0, 0, 0), np.float32)


class PairOrder(NamedTuple):
    """Pairs in the order of the rows that are integrated out."""

    at: NDArray[np.int64]  # positions of the pairs
    rows: NDArray[np.int64]  # the rows, once each, ascending; -1 has no ratings
    starts: NDArray[np.int64]  # pairs of rows[k] stand from starts[k] to starts[k + 1]
    slot: NDArray[np.int64]  # the pairs' rows of the other side; past the last for an unseen one


@dataclass(frozen=True)
class IntegratedPairs(WatchedPairs):
    """Pairs whose users are integrated out given the items; with keep="users" items given users.

    With small steps both sides move slowly, and single states predict badly for a long time. But
    given one side, rows of the other are Gaussian and follow exactly from their own ratings
    (kernels/row_posterior.py): with m_i = E[U_i | V, Lambda, tau] the prediction m_i . V_j has the
    expectation of U_i . V_j and less spread, for rated pairs too.
    Ratings are not copied: only an order of the pairs is computed, once in a run.
    """

    data: TrainingData
    keep: str

    @cached_property
    def order(self) -> PairOrder:
        """The pairs row by row."""
        sizes = self.data.n_users, self.data.n_items
        own, other, n = (
            (self.user, self.item, sizes[1])
            if self.keep == "items"
            else (self.item, self.user, sizes[0])
        )
        at = np.argsort(own, kind="stable")
        rows, first = np.unique(own[at], return_index=True)
        starts = np.append(first, len(at)).astype(np.int64)
        slot = other[at].astype(np.int64)
        return PairOrder(at, rows.astype(np.int64), starts, np.where(slot < 0, n, slot))

    def predict(
        self, state: ChainState, rounds: Rounds, fetch: Fetch, kept: bool
    ) -> Generator[list[Any], Sequence[Any], NDArray[np.float32]]:
        """Expected ratings given the kept side of a state, its precisions and the ratings.

        The result has the same bits on any number of threads.
        """
        yield from ()
        return self.expected(state, fetch)

    def expected(self, state: ChainState, fetch: Fetch = fetch_here) -> NDArray[np.float32]:
        """Like `predict`, without tasks, in this process."""
        now, D = state.precisions, state.params.n_factors
        items = self.keep == "items"
        kept, prior = whole(state.side(int(items)), fetch), now.items if items else now.users
        own = (now.users if items else now.items).natural()
        lists = self.data.by_user if items else self.data.by_item
        # The last row stands for unseen ones: the prior's mean.
        weights = _fetched(now.by_row(int(items)), len(kept), fetch)
        if weights is not None:
            weights = np.append(weights, np.float32(1.0))
        known = regressors(np.concatenate([kept, prior.mu[None].astype(np.float32)]), D, weights)
        given = PaddedRows(known.features[None], known.bias[None], known.root[None])
        ratings = (readonly(lists.starts), readonly(lists.other), readonly(lists.value))
        order, width = self.order, kept.shape[1]
        alone = now.tau if now.noise is None else 1.0
        own_tau = _fetched(now.by_row(int(not items)), len(lists.starts) - 1, fetch, alone)
        assert own_tau is not None
        tau = own_tau.astype(np.float64)[:, None]
        total = np.zeros(len(order.at))

        def work(part: slice) -> None:
            rows = order.rows[part]
            means = np.empty((len(rows), 1, width), np.float32)
            place = np.arange(len(rows))
            solve_rows(
                means, NO_FACTORS, tau[rows], place, readonly(rows),
                (*ratings, self.data.levels), given, own, all_known(1), D,
                make_row_scratch(width, D),
            )  # fmt: skip
            starts = order.starts[part.start : part.stop + 1]
            sum_pair_means(means, place, starts, order.slot, given, D, total)

        with Pool() as pool:
            pool.each(work, parts(len(order.rows), ROW_BLOCK))
        out = np.empty(len(total), np.float32)
        out[order.at] = total
        return out


def _fetched(
    value: Any, n: int, fetch: Fetch, alone: float | None = None
) -> NDArray[np.float32] | None:
    """Precisions of rows, fetched; `alone` for all rows without separate precisions."""
    value = alone if value is None else value
    if value is None:
        return None
    if isinstance(value, float):
        return np.full(n, value, np.float32)
    return whole(value, fetch)


def followed(
    validation: Validation | None, data: TrainingData, settings: RunSettings
) -> Validation | None:
    """The validation set as a run predicts it.

    If one side is kept, the other is integrated out, as in the fitted model; except for rules with
    conditional means of both sides, which are as accurate, and for optimisers.
    """
    sampler = settings.sampler
    if validation is None or settings.keep == "both" or sampler.stores_means:
        return validation
    pairs = validation.pairs
    exact = IntegratedPairs(pairs.user, pairs.item, pairs.rated, data, settings.keep)
    return replace(validation, pairs=exact)
