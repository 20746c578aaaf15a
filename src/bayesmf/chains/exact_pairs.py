"""Pairs that are followed with one side integrated out: as the fitted model will predict them.

A rule that takes small steps moves both sides slowly, and a state of it predicts badly long before
it has converged. But given one side, the rows of the other are Gaussian and known exactly from
their own ratings (kernels/row_posterior.py): with m_i = E[U_i | V, Lambda, tau] the prediction
m_i . V_j is E[U_i . V_j | V, Lambda, tau, ratings], for pairs that were rated as well. It has the
expectation of U_i . V_j and less spread, and needs no more of a chain than that one side be good.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.chains.pairs import Validation, WatchedPairs
from bayesmf.chains.settings import RunSettings
from bayesmf.chains.state import ChainState, Rounds
from bayesmf.data.training import TrainingData
from bayesmf.kernels.gather import regressors
from bayesmf.kernels.pairs import sum_pair_means
from bayesmf.kernels.row_posterior import Given, all_known, make_row_scratch, solve_rows
from bayesmf.kernels.types import readonly
from bayesmf.model.refs import Fetch, fetch_here, whole
from bayesmf.process import Pool, parts

# Rows that are worked out together: few enough to spread over threads, and some 100 KB of means.
ROW_BLOCK = 256
NO_FACTORS = np.empty((0, 0, 0), np.float32)


class Order(NamedTuple):
    """Pairs in the order of the rows that are integrated out."""

    at: NDArray[np.int64]  # positions of the pairs
    rows: NDArray[np.int64]  # the rows, once each, ascending; -1 has no ratings
    starts: NDArray[np.int64]  # pairs of rows[k] stand from starts[k] to starts[k + 1]
    slot: NDArray[np.int64]  # the pairs' rows of the other side; past the last for an unseen one


@dataclass(frozen=True)
class IntegratedPairs(WatchedPairs):
    """Pairs whose users are integrated out given the items; with keep="users" the other way round.

    Ratings are read where they lie: nothing is built but an order of the pairs, once in a run.
    """

    data: TrainingData
    keep: str

    @cached_property
    def order(self) -> Order:
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
        return Order(at, rows.astype(np.int64), starts, np.where(slot < 0, n, slot))

    def predict(
        self, state: ChainState, rounds: Rounds, fetch: Fetch
    ) -> Generator[list[Any], Sequence[Any], NDArray[np.float32]]:
        """Expected ratings given the kept side of a state, its precisions and the ratings.

        Every row is worked out by itself, so the result has the same bits on any number of
        threads.
        """
        yield from ()
        return self.expected(state, fetch)

    def expected(self, state: ChainState, fetch: Fetch = fetch_here) -> NDArray[np.float32]:
        """The same at once, in this process."""
        now, D = state.precisions, state.params.n_factors
        items = self.keep == "items"
        kept, prior = whole(state.side(int(items)), fetch), now.items if items else now.users
        own = (now.users if items else now.items).natural()
        lists = self.data.by_user if items else self.data.by_item
        # The last row is one that nobody has seen: at its prior's mean.
        weights = _fetched(now.by_row(int(items)), len(kept), fetch)
        if weights is not None:
            weights = np.append(weights, np.float32(1.0))
        known = regressors(np.concatenate([kept, prior.mu[None].astype(np.float32)]), D, weights)
        given = Given(known.features[None], known.bias[None], known.root[None])
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
    """Precisions of rows, wherever they lie; `alone` for all where rows have none of their own."""
    value = alone if value is None else value
    if value is None:
        return None
    if isinstance(value, float):
        return np.full(n, value, np.float32)
    return whole(value, fetch)


def followed(
    validation: Validation | None, data: TrainingData, settings: RunSettings
) -> Validation | None:
    """The validation set as a run follows it.

    Where one side is kept the other is integrated out, as in the fitted model. Not for rules that
    find conditional means of both sides on their way: these are as good, and cost nothing. Nor for
    a point, which is what it is.
    """
    sampler = settings.sampler
    if validation is None or settings.keep == "both" or sampler.stores_means:
        return validation
    pairs = validation.pairs
    exact = IntegratedPairs(pairs.user, pairs.item, pairs.rated, data, settings.keep)
    return replace(validation, pairs=exact)
