"""Predictions of pairs at a state, made where the rows of one side lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.gradient import predict_pairs
from bayesmf.kernels.types import Rows
from bayesmf.model.refs import Part, value_of
from bayesmf.worker.tasks import Shared

Floats = NDArray[np.float64]


class PairsOf(NamedTuple):
    """Pairs: positions in the stripe and among all rows of the other side, -1 for unseen ones.

    `rated` marks training pairs.
    """

    own: NDArray[np.int64]
    other: NDArray[np.int64]
    rated: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class GivenPairs(Shared):
    """The side that comes to the pairs: its rows, conditional means where there are any, weights.

    `side` is where pairs are scored. `mu` are the prior means of users and items; `tau` the
    precision of ratings where rows have none of their own.
    """

    side: int
    other: tuple[Part, ...]
    means: tuple[Part, ...] | None
    weights: tuple[Part, ...] | float | None
    mu: tuple[Floats, Floats]
    n_factors: int
    tau: float

    def prepare(self) -> tuple[Rows, Rows | None, Rows | None]:
        """All rows, means and weights of the other side in one array each."""
        weights = self.weights if isinstance(self.weights, tuple) else None
        rows, means, found = (
            None if parts is None else np.concatenate([value_of(part) for part in parts])
            for parts in (self.other, self.means, weights)
        )
        assert rows is not None
        return rows, means, found


@dataclass(frozen=True)
class PairsResult:
    """Predictions from conditional means, of the state itself, and variances of the noise."""

    expected: NDArray[np.float32]
    drawn: NDArray[np.float32]
    spread: Floats
    count: int = 0


@dataclass(frozen=True)
class PairsTask:
    """Predict the pairs of a stripe.

    Given V, precisions and tau the rows of U are independent, so E[m_i(V) . m_j(U)] is
    E[U_i . V_j] for a pair nobody has rated; for a rated one U_i enters m_j, and only
    E[U_i . m_j(U)] is the same. With `aside` it is no part of the algorithm.
    """

    short = True
    chain: int
    partition: int
    rows: Part
    means: Part | None
    tau: Part | float | None
    pairs: PairsOf
    shared: GivenPairs
    aside: bool = False

    def execute(self, held: Any) -> PairsResult:
        """Predict; a row that nobody has seen is at its prior's mean."""
        other, other_means, _ = self.shared.ready
        rows = value_of(self.rows)
        drawn = self._predict(rows, other)
        expected = drawn
        if self.means is not None:
            means = value_of(self.means)
            expected = self._predict(means, other_means)
            users_own = self.shared.side == 0
            rated = self._predict(rows, other_means) if users_own else self._predict(means, other)
            expected = np.where(self.pairs.rated, rated, expected)
        unseen = (self.pairs.own < 0) | (self.pairs.other < 0)
        if unseen.any():
            expected = np.array(expected)
            expected[unseen] = self._from_priors(rows, other, unseen)
        return PairsResult(expected, drawn, self._spread())

    def _predict(self, own: Rows, other: Rows) -> NDArray[np.float32]:
        out = np.empty(len(self.pairs.own), np.float32)
        own, other = np.ascontiguousarray(own), np.ascontiguousarray(other)
        # Of unseen rows any will do: what comes of it is replaced.
        at = (np.maximum(x, 0).astype(np.int32) for x in self.pairs[:2])
        predict_pairs(own, other, *at, self.shared.n_factors, out)
        return out

    def _from_priors(self, own: Rows, other: Rows, unseen: NDArray[np.bool_]) -> Rows:
        D, side = self.shared.n_factors, self.shared.side
        x, y = (
            np.where(
                at[unseen][:, None] < 0, mu.astype(np.float32), rows[np.maximum(at[unseen], 0)]
            )
            for rows, mu, at in (
                (own, self.shared.mu[side], self.pairs.own),
                (other, self.shared.mu[1 - side], self.pairs.other),
            )
        )
        out: Rows = (x[:, :D] * y[:, :D]).sum(1)
        out += x[:, D:].sum(1) + y[:, D:].sum(1)  # biases, where there are any
        return out

    def _spread(self) -> Floats:
        """Variances of the noise of the pairs' ratings."""
        n = len(self.pairs.own)
        precision = np.full(n, self.shared.tau)
        weights = self.shared.ready[2]
        own = None if self.tau is None else np.asarray(value_of(self.tau), np.float64)
        for value, at in ((own, self.pairs.own), (weights, self.pairs.other)):
            if value is not None:
                precision *= value if value.ndim == 0 else value[np.maximum(at, 0)]
        if isinstance(self.shared.weights, float):
            precision *= self.shared.weights
        return 1.0 / precision
