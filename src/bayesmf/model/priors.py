"""The hyper-priors: Gamma on diagonal precisions (Section 3.1), Gaussian-Wishart (Section 2.1).

Both have the same interface: initial values, a draw given the rows, and the density of rows with a
column rescaled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.exact import packed_moments, unpacked_moments
from bayesmf.kernels.keys import STREAM_INIT, fill_rows, stream_word
from bayesmf.kernels.linalg import (
    cholesky,
    multiply,
    outer_square,
    rescale_inverse,
    solve_upper,
)
from bayesmf.kernels.types import Rows, readonly
from bayesmf.model.noise import Noise
from bayesmf.model.refs import Pieces

Array = NDArray[np.float64]


class Moments(NamedTuple):
    """Number of rows, their sum, and the sum of their outer products, or its diagonal."""

    n: int
    total: Array
    cross: Array

    def squares(self) -> Array:
        """Sums of the squares of columns."""
        return self.cross if self.cross.ndim == 1 else np.diagonal(self.cross).copy()

    def scaled(self, factors: Array) -> Moments:
        """Moments of the rows with columns times factors."""
        form = factors * factors if self.cross.ndim == 1 else np.outer(factors, factors)
        return Moments(self.n, self.total * factors, self.cross * form)


def moments_of(rows: Rows | Moments) -> Moments:
    """The moments of rows in this process, summed as over stripes."""
    if isinstance(rows, Moments):
        return rows
    n, width = rows.shape
    parts = packed_moments(np.ascontiguousarray(rows, np.float32), full=True)
    return Moments(n, *unpacked_moments([parts], width, full=True))


@dataclass
class Params:
    """Rows of users and items of one chain: arrays, or `Pieces` stored anywhere."""

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
    fill_rows(rows, numbers, 0, stream_word(STREAM_INIT, side), key)
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
    each draw, or each row, has its own, `mu` is a matrix and `Lambda` an array of matrices.
    """

    mu: NDArray[np.float64]
    Lambda: NDArray[np.float64]

    def natural(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Lambda mu and Lambda as a matrix, with an axis of draws or rows: what kernels read."""
        own = self.mu.ndim == 2
        matrix = self.Lambda if own or self.Lambda.ndim == 2 else np.diag(self.Lambda)
        mu, matrix = (self.mu, matrix) if own else (self.mu[None], matrix[None])
        # Not @, which would start BLAS threads.
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
    """The priors of both sides and the noise precision tau.

    Where rows have noise of their own (`noise`), tau is the mean of their precisions' distribution.
    `version` is the number of rounds done when they were drawn, 0 at the start; statistics computed
    for these precisions are stored with it.
    """

    users: RowPrior
    items: RowPrior
    tau: float
    version: int = 0
    noise: Noise | None = None

    def noise_parameters(self) -> list[float]:
        """Values of `noise.PARAMETERS`, NaN if absent."""
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
        """`of_rows` without fetching."""
        own = None if self.noise is None else self.noise.side(side)
        return None if own is None else own.value

    def share_factors(self) -> tuple[float, float]:
        """What weights of users' and items' ratings are multiplied by, so that tau times both
        is the precision of a rating: the same as `of_rows` and `weights`, in units of one tau."""
        if self.noise is None:
            return 1.0, 1.0
        return (1.0 / self.tau, 1.0) if self.noise.users is not None else (1.0, 1.0 / self.tau)


@dataclass(frozen=True)
class GammaPrior:
    """Each column's precision is Gamma(alpha_0, RATE beta_0); rows have mean zero.

    The bias is the last column, so lambda_a and lambda_b are drawn as the others are.
    """

    alpha_0: float = 1.0
    beta_0: float = 1.0
    bias = True
    full = False  # needs the squares of columns only

    def initial(self, n_factors: int, precision: float = 2.0) -> RowPrior:
        """All precisions equal, 2.0 in the paper."""
        width = n_factors + 1
        return RowPrior(np.zeros(width), np.full(width, float(precision)))

    def draw(self, rows: Rows | Moments, rng: np.random.Generator) -> RowPrior:
        """lambda_d | rows ~ Gamma(alpha_0 + n/2, beta_0 + sum_i rows_id^2 / 2)."""
        known = moments_of(rows)
        rate = self.beta_0 + 0.5 * known.squares()
        shape = self.alpha_0 + 0.5 * known.n
        return RowPrior(np.zeros(len(rate)), rng.gamma(shape, 1.0 / rate))

    def columns(self, rows: Rows | Moments) -> GammaColumns:
        """The rows' columns, for rescaling them."""
        known = moments_of(rows)
        return GammaColumns(self.alpha_0 + 0.5 * known.n, 0.5 * known.squares() / self.beta_0)


@dataclass(frozen=True)
class WishartPrior:
    """Lambda ~ Wishart(W_0 I, nu_0), mu | Lambda ~ N(mu_0, (kappa_0 Lambda)^-1).

    `mu_0` is the same for all columns. The paper writes beta_0 for kappa_0; here beta_0 is the
    Gamma rate alone. `nu_0=None` is the width of a row, the value of Salakhutdinov and Mnih (2008),
    as are kappa_0 = 2, mu_0 = 0 and W_0 = 1. With `bias` a row is [U_i, a_i], and features and bias
    have one covariance.
    """

    kappa_0: float = 2.0
    nu_0: float | None = None
    bias: bool = False
    mu_0: float = 0.0
    W_0: float = 1.0
    full = True  # needs all second moments of the rows

    def initial(self, n_factors: int, precision: float = 2.0) -> RowPrior:
        """Mean mu_0, the same precision in every direction."""
        width = n_factors + self.bias
        return RowPrior(np.full(width, self.mu_0), precision * np.eye(width))

    def draw(self, rows: Rows | Moments, rng: np.random.Generator) -> RowPrior:
        """(mu, Lambda) | rows, Gaussian-Wishart by conjugacy."""
        known = moments_of(rows)
        n, width = known.n, len(known.total)
        scatter, away, weight = self._statistics(known)
        M = np.eye(width) / self.W_0 + (scatter + weight * np.outer(away, away))
        kappa = self.kappa_0 + n
        # M = K K^T. For Bartlett's factor B, X = K^-T B makes X X^T a Wishart of scale M^-1, and
        # K B^-T z has the covariance (X X^T)^-1: no inverse is formed.
        K = cholesky(M)
        B = bartlett(self._nu(width) + n, width, rng)
        Lambda = outer_square(solve_upper(K, B))
        z = solve_upper(B, rng.standard_normal((width, 1)))[:, 0]
        center = (known.total + self.kappa_0 * self.mu_0) / kappa
        return RowPrior(center + multiply(K, z) / math.sqrt(kappa), Lambda)

    def columns(self, rows: Rows | Moments) -> WishartColumns:
        """The rows' columns, for rescaling them; only with a mu_0 of 0, which is not rescaled."""
        known = moments_of(rows)
        scatter, mean, weight = self._statistics(known)
        M = np.eye(len(mean)) + self.W_0 * (scatter + weight * np.outer(mean, mean))
        K = cholesky(M)
        inverse = outer_square(solve_upper(K, np.eye(len(mean))))
        return WishartColumns(0.5 * (self._nu(len(mean)) + known.n), inverse, M)

    def _statistics(self, known: Moments) -> tuple[Array, Array, float]:
        """Scatter of the rows, their mean less mu_0, and its weight: given the rows, Lambda's scale
        is the inverse of W_0^-1 + scatter + weight (mean - mu_0)(mean - mu_0)^T."""
        n, total, cross = known
        mean = total / n
        scatter = cross - n * np.outer(mean, mean)
        return scatter, mean - self.mu_0, self.kappa_0 * n / (self.kappa_0 + n)

    def _nu(self, width: int) -> float:
        return float(width) if self.nu_0 is None else self.nu_0


Prior = GammaPrior | WishartPrior


@dataclass
class GammaColumns:
    """p(rows with column d times k), precisions integrated out, is (1 + k^2 q_d)^-power in k."""

    power: float
    q: Array

    def log_scale(self, d: int, x: float) -> float:
        """log p with k = e^x; q_d is half the column's sum of squares over beta_0."""
        return -self.power * math.log1p(self.q[d] * math.exp(2 * x))

    def rescale(self, d: int, k: float) -> None:
        """Column d is k times as large now."""
        self.q[d] *= k * k

    def log_scaled(self, factors: Array) -> float:
        """log p(rows with columns times factors), up to a constant and without the Jacobian."""
        return -self.power * float(np.log1p(factors * factors * self.q).sum())


@dataclass
class WishartColumns:
    """p(rows with column d times k), mu and Lambda integrated out, is (1 + k^2 q)^-power in k.

    The determinant of M = I + W_0 C is linear in k^2, column by column: with row and column d of C
    times k it is proportional to 1 + k^2 q, q = 1 / (M^-1)_dd - 1.
    """

    power: float
    inverse: Array
    M: Array

    def log_scale(self, d: int, x: float) -> float:
        """log p with k = e^x; q is kept above zero despite rounding."""
        q = max(1.0 / float(self.inverse[d, d]) - 1.0, 1e-12)
        return -self.power * math.log1p(q * math.exp(2 * x))

    def rescale(self, d: int, k: float) -> None:
        """Column d is k times as large now."""
        rescale_inverse(self.inverse, d, k)

    def log_scaled(self, factors: Array) -> float:
        """log p(rows with columns times factors), up to a constant and without the Jacobian.

        Relative to the initial rows: M is not updated.
        """
        scaled = self.M * np.outer(factors, factors)
        np.fill_diagonal(scaled, 1.0 + (np.diag(self.M) - 1.0) * factors * factors)
        return -2.0 * self.power * float(np.log(np.diag(cholesky(scaled))).sum())


Columns = GammaColumns | WishartColumns


def bartlett(nu: float, width: int, rng: np.random.Generator) -> Array:
    """Lower B for which B B^T is Wishart(I, nu)."""
    out = np.tril(rng.standard_normal((width, width)), -1)
    np.fill_diagonal(out, np.sqrt(rng.chisquare(nu - np.arange(width))))
    return out


# Shape and rate of tau's own Gamma prior, for ratings of variance one. It weighs as two ratings do.
TAU_SHAPE, TAU_RATE = 1.0, 1.0


def draw_tau(sse: float, n: int, rng: np.random.Generator) -> float:
    """tau | errors ~ Gamma(TAU_SHAPE + n/2, TAU_RATE + sse/2)."""
    return float(rng.gamma(TAU_SHAPE + 0.5 * n, 1.0 / (TAU_RATE + 0.5 * sse)))
