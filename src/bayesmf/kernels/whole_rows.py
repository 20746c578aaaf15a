"""Compiled conditional draws of rows: the inside of Algorithm 1, for both models.

A row with many ratings is drawn from its precision matrix A = Lambda + tau sum w x x^T
(`draw_primal`), a row with few from the smaller matrix between its ratings (`draw_dual`).
"""

from __future__ import annotations

import numpy as np

from bayesmf.kernels.csr import rating_at
from bayesmf.kernels.gather import BB, BT, FB, FF, FT, SSE
from bayesmf.kernels.jit import ENTRY, PART, njit
from bayesmf.kernels.keys import fill_normals
from bayesmf.kernels.row_posterior import (
    add_products,
    cholesky,
    clear,
    round_up,
    row_posterior,
    solve_back,
)

# Up to this many ratings per column the dual form is no slower (widths 31 to 101).
DUAL_SHARE = 0.7


@njit(**PART)
def overrelax(A, inverse, z, old, solution, b, relax):
    """Set z so that row b of A + z gives an over-relaxed draw (Adler 1981).

    In units of the factor L the row deviates from its mean by L^T old - b; the new deviation is
    -relax times that, and fresh noise for the rest of the variance.
    """
    width = old.shape[0]
    for i in range(width):
        row, value = A[i], np.float64(old[i])
        solution[i] = value / inverse[i]
        for k in range(i):
            solution[k] += row[k] * value
    fresh = np.sqrt(1.0 - relax * relax)
    for d in range(width):
        z[d] = fresh * np.float64(z[d]) - relax * (solution[d] - A[b, d])


@njit(**PART)
def overrelax_dual(new, mean, old, relax):
    """Over-relax a plain draw: new = mean - relax (old - mean) + sqrt(1 - relax^2) (new - mean)."""
    fresh = np.sqrt(1.0 - relax * relax)
    for d in range(new.shape[0]):
        new[d] = mean[d] + fresh * (new[d] - mean[d]) - relax * (old[d] - mean[d])


@njit(**ENTRY)
def draw_primal(out, means, row_stats, chosen, ratings, prior, sweep, scratch):
    """Draw the chosen rows from their precision matrices.

    `prior` is (Lambda mu, Lambda), with Lambda a matrix: one of each for all rows, or one for each
    row. `out` holds the old rows and gets the new ones, `means` gets the conditional means, unless
    it has no rows; `row_stats` gets the sums of each row's ratings (gather.SSE and so on).
    """
    A, inverse, solution, target = scratch.A, scratch.inverse, scratch.solution, scratch.target
    z, number, starts = scratch.z, ratings.number, ratings.starts
    n_factors, taus, relax, (round_, word, key) = sweep
    shifts, Lambdas = prior
    width = out.shape[1]
    size = round_up(width, 4)
    for row in chosen:
        lo, hi, tau = starts[row], starts[row + 1], taus[row]
        own = row if shifts.shape[0] > 1 else 0
        Lambda = Lambdas[own]
        fill_normals(z, size // 4, number[row], round_, word, key[0], key[1])
        squares = row_posterior(scratch, ratings, lo, hi, shifts[own], Lambda, tau, n_factors)
        if relax > 0.0:
            overrelax(A, inverse, z, out[row], solution, size, relax)
        for draw in range(0 if means.shape[0] > 0 else 1, 2):
            rows = out if draw else means
            length = solve_back(A, inverse, solution, z, size, width, float(draw))
            for d in range(width):
                rows[row, d] = solution[d]
        if hi > lo:
            set_stats(
                row_stats[row],
                squares,
                length,
                solution,
                target,
                scratch.bias,
                Lambda,
                tau,
                n_factors,
            )


@njit(**PART)
def set_stats(row_stats, squares, length, x, target, bias, Lambda, tau, n_factors):
    """Sums of a row's ratings at x, where x^T (Lambda + tau P) x = length."""
    width, pull, ft, bt, fb, bb = Lambda.shape[0], 0.0, 0.0, 0.0, 0.0, 0.0
    for d in range(width):
        for e in range(width):
            pull += x[d] * Lambda[d, e] * x[e]
    for d in range(n_factors):
        ft += x[d] * target[d]
    for d in range(n_factors, width):
        bt = x[d] * target[d]
        bb = x[d] * x[d] * bias[d]
        for e in range(n_factors):
            fb += x[d] * x[e] * bias[e]
    form = max((length - pull) / tau, 0.0)
    row_stats[SSE] = max(squares - 2.0 * (ft + bt) + form, 0.0)
    if row_stats.shape[0] > 1:
        row_stats[FT], row_stats[BT], row_stats[FB], row_stats[BB] = ft, bt, fb, bb
        row_stats[FF] = max(form - 2.0 * fb - bb, 0.0)


@njit(**PART)
def whiten(scratch, ratings, lo, n, prior, tau, n_factors):
    """Rows of y: regressors of the ratings from lo on, in units of the prior's deviations.

    Below A: the targets minus their predictions by the prior's draw and by the prior's mean.
    """
    A, y, z, (mu, roots) = scratch.A, scratch.y, scratch.z, prior
    R, bias, index, weight = ratings.features, ratings.bias, ratings.other, ratings.root
    value, levels = ratings.value, ratings.levels
    width, size, spread = mu.shape[0], round_up(n, 4), 1.0 / np.sqrt(tau)
    padded_width = round_up(n_factors, 8)
    clear(y, size)
    for k in range(n):
        at, w = index[lo + k] * padded_width, np.float64(weight[index[lo + k]])
        row = R[at : at + padded_width]
        left, noise = np.float64(rating_at(value, levels, lo + k)), 0.0
        if width > n_factors:
            y[k, n_factors] = w * roots[n_factors]
            left -= bias[index[lo + k]] + mu[n_factors]
            noise = y[k, n_factors] * np.float64(z[n_factors])
        for d in range(n_factors):
            y[k, d] = w * row[d] * roots[d]
            left -= row[d] * mu[d]
            noise += y[k, d] * np.float64(z[d])
        left *= w
        A[size + 1, k] = scratch.left[k] = left
        A[size, k] = left - noise - spread * np.float64(z[width + k])


@njit(**PART)
def correct(out, row, scratch, n, prior, tau, noise):
    """out[row] = mu + roots * (noise * z + tau y[:n].T @ solution[:n])."""
    y, z, solution, total, (mu, roots) = (
        scratch.y, scratch.z, scratch.solution, scratch.target, prior,
    )  # fmt: skip
    for d in range(mu.shape[0]):
        total[d] = noise * np.float64(z[d])
    for k in range(n):
        weight = tau * solution[k]
        for d in range(mu.shape[0]):
            total[d] += weight * y[k, d]
    for d in range(mu.shape[0]):
        out[row, d] = mu[d] + roots[d] * total[d]


@njit(**ENTRY)
def draw_dual(out, means, row_stats, chosen, ratings, prior, sweep, scratch):
    """Draw the chosen rows by correcting draws from their prior.

    x0 from the prior and e from the noise are a draw of row and errors before the ratings are
    seen; x = x0 + Lambda^-1 X^T S^-1 (t - X x0 - e), S = X Lambda^-1 X^T + 1 / tau, is one after,
    X and t times the roots of weights. `prior` is (mu, Lambda^-1/2), Lambda a diagonal; `out`,
    `means` and `row_stats` as for `draw_primal`.
    """
    A, inverse, solution = scratch.A, scratch.inverse, scratch.solution
    y, z, number, starts = scratch.y, scratch.z, ratings.number, ratings.starts
    n_factors, taus, relax, (round_, word, key) = sweep
    width = out.shape[1]
    old = np.zeros(width)
    for row in chosen:
        lo, n, tau = starts[row], starts[row + 1] - starts[row], taus[row]
        size = round_up(n, 4)
        fill_normals(z, (width + n + 3) // 4, number[row], round_, word, key[0], key[1])
        clear(A, size + 4)
        whiten(scratch, ratings, lo, n, prior, tau, n_factors)
        add_products(A, y, np.int64(0), size, size, round_up(width, 8), tau)
        for d in range(size):
            A[d, d] += 1.0
        cholesky(A, inverse, size, 0.0)
        for d in range(width):
            old[d] = out[row, d]
        for draw in range(0 if means.shape[0] > 0 else 1, 2):
            rows = out if draw else means
            solve_back(A, inverse, solution, z, size + 1 - draw, n, 0.0)
            correct(rows, row, scratch, n, prior, tau, float(draw))
        if relax > 0.0:
            overrelax_dual(out[row], means[row], old, relax)
        set_stats_dual(row_stats[row], out[row], y, scratch.left, n, prior, n_factors)


@njit(**PART)
def set_stats_dual(row_stats, x, y, left, n, prior, n_factors):
    """Sums of a row's ratings at x; `left` are ratings minus predictions by the prior's mean."""
    mu, roots = prior
    for k in range(row_stats.shape[0]):
        row_stats[k] = 0.0
    for k in range(n):
        f, b, home = 0.0, 0.0, 0.0
        for d in range(x.shape[0]):
            regressor = y[k, d] / roots[d]
            home += regressor * mu[d]
            if d < n_factors:
                f += regressor * x[d]
            else:
                b = regressor * x[d]
        t = left[k] + home
        row_stats[SSE] += (t - f - b) * (t - f - b)
        if row_stats.shape[0] > 1:
            row_stats[FT] += f * t
            row_stats[BT] += b * t
            row_stats[FF] += f * f
            row_stats[FB] += f * b
            row_stats[BB] += b * b
