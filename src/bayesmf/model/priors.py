"""The hyper-priors: Gamma on diagonal precisions (Section 3.1), Gaussian-Wishart (Section 2.1).

Both offer the same things: a start, a draw given the rows, a log density, and how likely rows
would be with a column rescaled. The server knows nothing else about them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.linalg import (
    cholesky,
    multiply,
    outer_square,
    rescale_inverse,
    solve_upper,
)
from bayesmf.kernels.types import Rows
from bayesmf.model.moments import Moments, moments_of
from bayesmf.model.params import RowPrior

Array = NDArray[np.float64]


@dataclass(frozen=True)
class GammaPrior:
    """Each column's precision is Gamma(alpha_0, RATE beta_0); rows have mean zero.

    The bias is the last column, so lambda_a and lambda_b are drawn as the others are.
    """

    alpha_0: float = 1.0
    beta_0: float = 1.0
    bias = True
    full = False  # it takes the squares of columns alone

    def initial(self, n_factors: int, precision: float = 2.0) -> RowPrior:
        """Every precision at one value, 2.0 in the paper."""
        width = n_factors + 1
        return RowPrior(np.zeros(width), np.full(width, float(precision)))

    def draw(self, rows: Rows | Moments, rng: np.random.Generator) -> RowPrior:
        """lambda_d | rows ~ Gamma(alpha_0 + n/2, beta_0 + sum_i rows_id^2 / 2)."""
        known = moments_of(rows)
        rate = self.beta_0 + 0.5 * known.squares()
        shape = self.alpha_0 + 0.5 * known.n
        return RowPrior(np.zeros(len(rate)), rng.gamma(shape, 1.0 / rate))

    def draw_prior(self, n_factors: int, rng: np.random.Generator) -> RowPrior:
        """Precisions from the hyper-prior, before any data."""
        width = n_factors + 1
        return RowPrior(np.zeros(width), rng.gamma(self.alpha_0, 1.0 / self.beta_0, width))

    def columns(self, rows: Rows | Moments) -> GammaColumns:
        """The rows' columns, for rescaling them."""
        known = moments_of(rows)
        return GammaColumns(self.alpha_0 + 0.5 * known.n, 0.5 * known.squares() / self.beta_0)

    def log_density(self, prior: RowPrior) -> float:
        """log p(Lambda), up to a constant."""
        lam = prior.Lambda
        return float(np.sum((self.alpha_0 - 1.0) * np.log(lam) - self.beta_0 * lam))


@dataclass(frozen=True)
class WishartPrior:
    """Lambda ~ Wishart(W_0 = I, nu_0), mu | Lambda ~ N(0, (kappa_0 Lambda)^-1).

    The paper writes beta_0 for kappa_0; here beta_0 is the Gamma rate alone. `nu_0=None` is the
    width of a row, the value of Salakhutdinov and Mnih (2008), as is kappa_0 = 2. With `bias` a row
    is [U_i, a_i], and features and bias have one covariance.
    """

    kappa_0: float = 2.0
    nu_0: float | None = None
    bias: bool = False
    full = True  # it takes all second moments of the rows

    def initial(self, n_factors: int, precision: float = 2.0) -> RowPrior:
        """Mean zero, the same precision in every direction."""
        width = n_factors + self.bias
        return RowPrior(np.zeros(width), precision * np.eye(width))

    def draw(self, rows: Rows | Moments, rng: np.random.Generator) -> RowPrior:
        """(mu, Lambda) | rows, Gaussian-Wishart by conjugacy."""
        known = moments_of(rows)
        n, width = known.n, len(known.total)
        total, M = self._inverse_scale(known)
        kappa = self.kappa_0 + n
        # M = K K^T. For Bartlett's factor B, X = K^-T B makes X X^T a Wishart of scale M^-1, and
        # K B^-T z has the covariance (X X^T)^-1: no inverse is formed.
        K = cholesky(M)
        B = bartlett(self._nu(width) + n, width, rng)
        Lambda = outer_square(solve_upper(K, B))
        z = solve_upper(B, rng.standard_normal((width, 1)))[:, 0]
        return RowPrior(total / kappa + multiply(K, z) / math.sqrt(kappa), Lambda)

    def columns(self, rows: Rows | Moments) -> WishartColumns:
        """The rows' columns, for rescaling them."""
        known = moments_of(rows)
        n, width = known.n, len(known.total)
        M = self._inverse_scale(known)[1]
        K = cholesky(M)
        return WishartColumns(
            0.5 * (self._nu(width) + n), outer_square(solve_upper(K, np.eye(width))), M
        )

    def _inverse_scale(self, known: Moments) -> tuple[Array, Array]:
        """Sum of the rows; W_0^-1 + C, whose inverse is the scale of Lambda's Wishart."""
        n, total, cross = known
        width = len(total)
        mean = total / n
        scatter = cross - n * np.outer(mean, mean)
        C = scatter + (self.kappa_0 * n / (self.kappa_0 + n)) * np.outer(mean, mean)
        return total, np.eye(width) + C

    def draw_prior(self, n_factors: int, rng: np.random.Generator) -> RowPrior:
        """(mu, Lambda) from the hyper-prior, before any data."""
        width = n_factors + self.bias
        Lambda = draw_wishart(self._nu(width), np.eye(width), rng)
        return RowPrior(_draw_mean(np.zeros(width), self.kappa_0 * Lambda, rng), Lambda)

    def log_density(self, prior: RowPrior) -> float:
        """log p(mu, Lambda), up to a constant."""
        width = len(prior.mu)
        log_det = float(np.linalg.slogdet(prior.Lambda)[1])
        wishart = 0.5 * (self._nu(width) - width - 1) * log_det - 0.5 * float(
            np.trace(prior.Lambda)
        )
        mean = 0.5 * log_det - 0.5 * self.kappa_0 * float(prior.mu @ prior.Lambda @ prior.mu)
        return wishart + mean

    def _nu(self, width: int) -> float:
        return float(width) if self.nu_0 is None else self.nu_0


Prior = GammaPrior | WishartPrior


@dataclass
class GammaColumns:
    """p(rows with column d times k), precisions integrated out, is (1 + k^2 q_d)^-power in k."""

    power: float
    q: Array

    def weight(self, d: int) -> float:
        """q_d: half the column's sum of squares over beta_0."""
        return float(self.q[d])

    def rescale(self, d: int, k: float) -> None:
        """Column d is k times as large now."""
        self.q[d] *= k * k

    def log_scaled(self, factors: Array) -> float:
        """log p(rows with columns times factors), up to a constant and without the Jacobian."""
        return -self.power * float(np.log1p(factors * factors * self.q).sum())


@dataclass
class WishartColumns:
    """p(rows with column d times k), mu and Lambda integrated out, is (1 + k^2 q)^-power in k.

    The determinant of M = I + C is linear in k^2, column by column: with row and column d of C
    times k it is proportional to 1 + k^2 q, q = 1 / (M^-1)_dd - 1.
    """

    power: float
    inverse: Array
    M: Array

    def weight(self, d: int) -> float:
        """q_d; above zero, whatever rounding says."""
        return max(1.0 / float(self.inverse[d, d]) - 1.0, 1e-12)

    def rescale(self, d: int, k: float) -> None:
        """Column d is k times as large now."""
        rescale_inverse(self.inverse, d, k)

    def log_scaled(self, factors: Array) -> float:
        """log p(rows with columns times factors), up to a constant and without the Jacobian.

        Of the rows as they were first: M is not kept up to date.
        """
        scaled = self.M * np.outer(factors, factors)
        np.fill_diagonal(scaled, 1.0 + (np.diag(self.M) - 1.0) * factors * factors)
        return -2.0 * self.power * float(np.log(np.diag(cholesky(scaled))).sum())


def draw_wishart(nu: float, scale: Array, rng: np.random.Generator) -> Array:
    """Wishart(scale, nu) by Bartlett's decomposition; the mean is nu * scale."""
    factor = np.linalg.cholesky(scale) @ bartlett(nu, len(scale), rng)
    return np.asarray(factor @ factor.T)


def bartlett(nu: float, width: int, rng: np.random.Generator) -> Array:
    """Lower B for which B B^T is Wishart(I, nu)."""
    out = np.tril(rng.standard_normal((width, width)), -1)
    np.fill_diagonal(out, np.sqrt(rng.chisquare(nu - np.arange(width))))
    return out


def _draw_mean(mean: Array, precision: Array, rng: np.random.Generator) -> Array:
    chol = np.linalg.cholesky(precision)
    return mean + np.linalg.solve(chol.T, rng.standard_normal(len(mean)))


# Shape and rate of tau's own Gamma prior, for ratings of variance one. It weighs as two ratings do.
TAU_SHAPE, TAU_RATE = 1.0, 1.0


def draw_tau(sse: float, n: int, rng: np.random.Generator) -> float:
    """tau | errors ~ Gamma(TAU_SHAPE + n/2, TAU_RATE + sse/2)."""
    return float(rng.gamma(TAU_SHAPE + 0.5 * n, 1.0 / (TAU_RATE + 0.5 * sse)))


def log_rows(rows: Rows, prior: RowPrior) -> float:
    """log p(rows | mu, Lambda), up to a constant."""
    centred = rows.astype(np.float64) - prior.mu
    if prior.Lambda.ndim == 1:
        log_det = float(np.sum(np.log(prior.Lambda)))
        quadratic = float(np.sum(centred**2 @ prior.Lambda))
    else:
        log_det = float(np.linalg.slogdet(prior.Lambda)[1])
        quadratic = float(np.einsum("nd,de,ne->", centred, prior.Lambda, centred))
    return 0.5 * (len(rows) * log_det - quadratic)


def log_likelihood(errors: Array, tau: float) -> float:
    """log p(R | U, V, a, b, tau) of given errors."""
    return 0.5 * len(errors) * math.log(tau / (2.0 * math.pi)) - 0.5 * tau * float(errors @ errors)
