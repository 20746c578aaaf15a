"""Slow plain twins of the kernels: what they must equal, written to be read."""

from __future__ import annotations

import numpy as np


def normals(numbers, width, iteration, stream, key):
    """Noise of rows as the kernels draw it, {row number: vector}."""
    from bayesmf.keys import fill_normals

    out = {}
    for number in numbers:
        z = np.zeros(width + 3, np.float32)
        fill_normals(z, (width + 3) // 4, number, iteration, stream, key[0], key[1])
        out[int(number)] = z[:width]
    return out


def predict(x, y, n_factors):
    """U_i . V_j + a_i + b_j."""
    total = x[:n_factors] @ y[:n_factors]
    return total + x[n_factors] + y[n_factors] if len(x) > n_factors else total


def gradients(users, items, ratings, n_factors):
    """Sum of the ratings' gradients (tau = 1) for every row, at one state; and the sum of e^2."""
    gx, gy, sse = np.zeros_like(users), np.zeros_like(items), 0.0
    for i, j, r in ratings:
        error = r - predict(users[i], items[j], n_factors)
        gx[i, :n_factors] += error * items[j, :n_factors]
        gy[j, :n_factors] += error * users[i, :n_factors]
        if users.shape[1] > n_factors:
            gx[i, n_factors] += error
            gy[j, n_factors] += error
        sse += error**2
    return gx, gy, sse


def update_batch(users, items, ratings, n_factors, scale, sides, noise):
    """The updates of Section 3.3.1 for one mini-batch: rows it touches, all from the old state.

    `sides` is ((step, 1/hbar, noise variance, mu, Lambda as a matrix), the same for items), `noise`
    a pair of {row: vector}.
    """
    gx, gy, sse = gradients(users, items, ratings, n_factors)
    new = users.copy(), items.copy()
    touched = {i for i, _, _ in ratings}, {j for _, j, _ in ratings}
    for rows, old, gradient, hit, side, z in zip(
        new, (users, items), (gx, gy), touched, sides, noise, strict=True
    ):
        step, weight, variance, mu, Lambda = side
        for k in hit:
            drift = scale * gradient[k] - weight[k] * (Lambda @ (old[k] - mu))
            rows[k] = old[k] + step / 2 * drift + np.sqrt(step * variance[k]) * z[k]
    return new[0], new[1], sse


def row_posterior(other, ratings, mu, Lambda, tau, n_factors, width):
    """Mean and precision matrix of a row given the other side; `ratings` are (partner, r)."""
    precision, rhs = Lambda.copy(), Lambda @ mu
    for j, r in ratings:
        x = np.ones(width)
        x[:n_factors] = other[j, :n_factors]
        target = r - other[j, n_factors] if width > n_factors else r
        precision += tau * np.outer(x, x)
        rhs = rhs + tau * target * x
    return np.linalg.solve(precision, rhs), precision
