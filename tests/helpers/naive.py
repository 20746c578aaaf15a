"""Slow plain twins of the kernels: what they must equal, written to be read."""

from __future__ import annotations

import numpy as np


def as_batches(user, item, value, starts, levels=(0.0,)):
    """Mini-batches as kernels read them, from ratings that stand by user in each."""
    from bayesmf.kernels.minibatch import Batches

    batch = np.searchsorted(starts, np.arange(len(user)), side="right")
    new = np.flatnonzero(np.diff(user, prepend=-1) + np.diff(batch, prepend=0))
    return Batches(
        np.asarray(user, np.int32)[new], np.append(new, len(user)), np.asarray(item, np.int32),
        value, np.asarray(levels, np.float32), np.searchsorted(new, starts),
    )  # fmt: skip


def normals(numbers, width, iteration, stream, key):
    """Noise of rows as the kernels draw it, {row number: vector}."""
    from bayesmf.kernels.keys import fill_normals

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


def regression(partners, value, n_factors):
    """Regressors [V_j, 1] and targets r - b_j of a row, in float64; without a bias V_j and r."""
    X, target = np.array(partners, np.float64), np.array(value, np.float64)
    if X.shape[1] > n_factors:
        target = target - X[:, n_factors]
        X[:, n_factors] = 1.0
    return X, target


def row_posterior(X, target, mu, Lambda, tau):
    """Mean and precision matrix of a row given what its ratings meet; `Lambda` is a matrix."""
    precision = Lambda + tau * X.T @ X
    # Around mu: with few ratings a solve for the mean itself would lose digits.
    return mu + np.linalg.solve(precision, tau * X.T @ (target - X @ mu)), precision


def draw_by_columns(row, X, target, mu, Lambda, tau, relax, joint, z):
    """A row redrawn in groups of four columns, each given the rest; with joint=1 column by column.

    `Lambda` is a matrix, `z` standard normals. Returns the row and the conditional means met.
    """
    new, means, noise = row.copy(), np.empty_like(row), np.sqrt(1 - relax**2)
    step = 4 if joint == 4 else 1
    for c in range(0, len(row), step):
        own = slice(c, min(c + step, len(row)))
        precision = Lambda[own, own] + tau * X[:, own].T @ X[:, own]
        gradient = tau * X[:, own].T @ (target - X @ new) - Lambda[own] @ (new - mu)
        to_mean = np.linalg.solve(precision, gradient)
        means[own] = new[own] + to_mean
        fresh = np.linalg.solve(np.linalg.cholesky(precision).T, z[own])
        new[own] = means[own] + relax * to_mean + noise * fresh
    return new, means


def policy_scores(posterior, user, policy, pick):
    """What a policy ranks all items of one user by, from the components of all its pairs."""
    items = np.arange(posterior.draws.items.shape[1])
    chunks = list(posterior.chunks(np.full(len(items), user), items))
    mu, var = (
        np.concatenate(part, 1).astype(float) for part in list(zip(*chunks, strict=True))[2:]
    )
    if policy == "mean":
        return mu.mean(0)
    if policy == "ucb":
        spread = mu.var(0) + var.mean(0) - posterior.noise()
        return mu.mean(0) + np.sqrt(np.maximum(spread, 0.0))
    return mu[pick]
