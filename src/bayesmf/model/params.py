"""The state of a chain: the rows of users and items, and the precisions above them.

The paper stores features as columns, U in R^(D x L). Here a user is a ROW,
`users[i] = [U_i1, ..., U_iD, a_i]`, and an item `items[j] = [V_j1, ..., V_jD, b_j]`: what an
update touches is one stretch of memory. The bias column is absent in the Wishart model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.batch_gradient import fill_noise
from bayesmf.kernels.keys import STREAM_INIT, stream_word
from bayesmf.kernels.types import Rows, readonly
from bayesmf.model.noise import Noise
from bayesmf.model.refs import Pieces


@dataclass
class Params:
    """Rows of users and items of one chain: arrays, or `Pieces` of them that lie anywhere."""

    users: Any
    items: Any
    n_factors: int

    @property
    def U(self) -> Rows:
        """Features of users, (n_users, n_factors), a view."""
        return np.asarray(self.users)[:, : self.n_factors]

    @property
    def V(self) -> Rows:
        """Features of items, (n_items, n_factors), a view."""
        return np.asarray(self.items)[:, : self.n_factors]

    @property
    def a(self) -> Rows:
        """User biases, a view; zeros where the model has none."""
        return _bias(np.asarray(self.users), self.n_factors)

    @property
    def b(self) -> Rows:
        """Item biases, a view; zeros where the model has none."""
        return _bias(np.asarray(self.items), self.n_factors)

    @classmethod
    def initial(
        cls,
        n_users: int,
        n_items: int,
        n_factors: int,
        *,
        bias: bool,
        key: NDArray[np.uint32],
    ) -> Params:
        """Draw rows from N(0, 0.1^2), less for many factors; `key` makes chains differ."""
        users, items = (
            initial_rows(np.arange(n, dtype=np.int32), n_factors, bias, side, key)
            for side, n in enumerate((n_users, n_items))
        )
        return cls(users, items, n_factors)


def initial_rows(
    numbers: NDArray[np.int32], n_factors: int, bias: bool, side: int, key: NDArray[np.uint32]
) -> Rows:
    """Rows to start from of users (0) or items (1), by their numbers."""
    spread = np.float32(min(0.1, n_factors**-0.5))  # predictions start below the ratings' spread
    width = n_factors + bias
    rows = np.empty((len(numbers), -(-width // 4) * 4), np.float32)
    fill_noise(rows, numbers, 0, stream_word(STREAM_INIT, side), key)
    return np.asarray(spread * rows[:, :width])


def _as_rows(value: Pieces | Rows | float, n_rows: int) -> Rows:
    if isinstance(value, float):
        return np.full(n_rows, value, np.float32)
    return np.asarray(value, np.float32)


def _bias(rows: Rows, n_factors: int) -> Rows:
    if rows.shape[1] > n_factors:
        return rows[:, n_factors]
    return np.zeros(len(rows), dtype=np.float32)


@dataclass(frozen=True)
class RowPrior:
    """N(mu, Lambda^-1), the prior of the rows of one side.

    `Lambda` is a vector, the diagonal, in the Gamma model and a matrix in the Wishart model. Where
    rows have priors of their own, `mu` is a matrix and `Lambda` an array of matrices, one a row.
    """

    mu: NDArray[np.float64]
    Lambda: NDArray[np.float64]

    def covariance(self) -> NDArray[np.float64]:
        """Lambda^-1 as a full matrix: the spread of a row nobody has seen."""
        if self.Lambda.ndim == 1:
            return np.diag(1.0 / self.Lambda)
        return np.asarray(np.linalg.inv(self.Lambda), dtype=np.float64)

    def natural(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Lambda mu and Lambda as a matrix, one for all rows or one for each: what kernels read."""
        own = self.mu.ndim == 2
        matrix = self.Lambda if own or self.Lambda.ndim == 2 else np.diag(self.Lambda)
        mu, matrix = (self.mu, matrix) if own else (self.mu[None], matrix[None])
        # Not @, which would wake the threads of BLAS.
        return readonly(np.einsum("rde,re->rd", matrix, mu)), readonly(np.ascontiguousarray(matrix))

    def diagonal(self) -> NDArray[np.float64]:
        """The precisions of the columns."""
        return self.Lambda if self.Lambda.ndim == 1 else np.diag(self.Lambda).copy()

    def strongest(self) -> float:
        """A bound on the largest eigenvalue of Lambda, sharp for a diagonal."""
        if self.Lambda.ndim == 1:
            return float(self.Lambda.max())
        return float(np.abs(self.Lambda).sum(axis=1).max())


@dataclass(frozen=True)
class Precisions:
    """All that stands above the rows: the priors of both sides and the noise precision tau.

    Where rows have noise of their own (`noise`), tau is the mean of their precisions' distribution.
    `version` tells the precisions of one chain apart: the rounds done when they were drawn, 0 at
    the start. What is computed from rows whenever precisions are drawn is stored with it.
    """

    users: RowPrior
    items: RowPrior
    tau: float
    version: int = 0
    noise: Noise | None = None

    def noise_parameters(self) -> list[float]:
        """Those of `noise.PARAMETERS`, NaN for what there is none of."""
        found = [math.log(self.tau)]
        for side in (0, 1):
            own = None if self.noise is None else self.noise.side(side)
            found.append(math.nan if own is None else own.shape**-0.5)
        return found

    def of_rows(self, side: int, n_rows: int) -> Rows:
        """Precision of ratings of weight one, for each row of users (0) or items (1)."""
        if self.noise is None:
            return np.full(n_rows, self.tau, np.float32)
        own = self.noise.side(side)
        return np.ones(n_rows, np.float32) if own is None else _as_rows(own.value, n_rows)

    def weights(self, side: int) -> Rows | None:
        """Weights that ratings have by their row of users (0) or items (1), None where all alike.

        The precision of a rating is `of_rows` of one side times `weights` of the other.
        """
        own = None if self.noise is None else self.noise.side(side)
        return None if own is None else _as_rows(own.value, own.known_sums().n)

    def by_row(self, side: int) -> Pieces | Rows | float | None:
        """The same, wherever it lies."""
        own = None if self.noise is None else self.noise.side(side)
        return None if own is None else own.value

    def share_factors(self) -> tuple[float, float]:
        """What weights of users' and items' ratings are multiplied by, so that tau times both
        is the precision of a rating: the same as `of_rows` and `weights`, in units of one tau."""
        if self.noise is None:
            return 1.0, 1.0
        return (1.0 / self.tau, 1.0) if self.noise.users is not None else (1.0, 1.0 / self.tau)
