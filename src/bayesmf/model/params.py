"""The state of a chain: the rows of users and items, and the precisions above them.

The paper stores features as columns, U in R^(D x L). Here a user is a ROW,
`users[i] = [U_i1, ..., U_iD, a_i]`, and an item `items[j] = [V_j1, ..., V_jD, b_j]`: what an
update touches is one stretch of memory. The bias column is absent in the Wishart model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.keys import STREAM_INIT, generator
from bayesmf.kernels.types import Rows, readonly
from bayesmf.model.noise import Noise


@dataclass
class Params:
    """Rows of users and items of one chain."""

    users: Rows
    items: Rows
    n_factors: int

    @property
    def U(self) -> Rows:
        """Features of users, (n_users, n_factors), a view."""
        return self.users[:, : self.n_factors]

    @property
    def V(self) -> Rows:
        """Features of items, (n_items, n_factors), a view."""
        return self.items[:, : self.n_factors]

    @property
    def a(self) -> Rows:
        """User biases, a view; zeros where the model has none."""
        return _bias(self.users, self.n_factors)

    @property
    def b(self) -> Rows:
        """Item biases, a view; zeros where the model has none."""
        return _bias(self.items, self.n_factors)

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
        spread = min(0.1, n_factors**-0.5)  # predictions start below the ratings' spread
        rng = generator(key, 0, STREAM_INIT)
        width = n_factors + bias
        draw = [
            (spread * rng.standard_normal((n, width), dtype=np.float32)).astype(np.float32)
            for n in (n_users, n_items)
        ]
        return cls(draw[0], draw[1], n_factors)


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
        return np.ones(n_rows, np.float32) if own is None else own.value

    def weights(self, side: int) -> Rows | None:
        """Weights that ratings have by their row of users (0) or items (1), None where all alike.

        The precision of a rating is `of_rows` of one side times `weights` of the other.
        """
        own = None if self.noise is None else self.noise.side(side)
        return None if own is None else own.value

    def shares(self) -> tuple[Rows | None, Rows | None]:
        """Weights of users' and items' ratings, None where all alike; tau times both is precision.

        The same as `of_rows` and `weights`, in the units of one tau for all.
        """
        if self.noise is None:
            return None, None
        users, items, tau = self.weights(0), self.weights(1), np.float32(self.tau)
        if users is None:
            return None, None if items is None else items / tau
        return users / tau, items
