"""One mini-batch by the compiled kernels and by plain arithmetic on the same random numbers.

In float32 kernels are compared as a fit runs them. `main` compares them in float64, to the last
digit; it is called where kernels are plain Python: in float64 they would be compiled for it alone.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import naive
from bayesmf.kernels import gradient
from bayesmf.kernels.gather import padded
from bayesmf.kernels.gradient import MomentumSide
from bayesmf.kernels.keys import STREAM_ITEMS, STREAM_USERS, make_key, stream_word
from bayesmf.kernels.minibatch import (
    make_columns,
    make_scratch,
    pad,
    sum_squared_errors,
    sum_weights,
)
from bayesmf.worker.block_tasks import pad_precision

N_USERS, N_ITEMS = 7, 9
LEVELS = np.array([-1.5, 0.25, 1.0], np.float32)


class Batch:
    """Ratings of two mini-batches, of which the second is used.

    It has users with one rating, one without any, and an item without. Coded ratings are of three
    levels, others are normal.
    """

    def __init__(self, rng, coded=False):
        counts = [8, 1, 0, 5, 8, 1, 8]
        user = np.concatenate([[0, 2, 2, 4, 5], np.repeat(np.arange(N_USERS), counts)])
        items = [np.sort(rng.permutation(N_ITEMS - 1)[:k]) for k in counts]
        item, n = np.concatenate([[3, 0, 8, 2, 1], *items]), len(user)
        code = rng.integers(0, 3, n).astype(np.uint8)
        value = LEVELS[code] if coded else rng.normal(size=n).astype(np.float32)
        self.arrays = naive.as_batches(
            user, item, code if coded else value, np.array([0, 5, n]), LEVELS
        )
        self.all = list(zip(user, item, value.astype(float), strict=True))
        self.ratings = self.all[5:]


def matrix(rng, width, full):
    """A precision: a matrix, or a diagonal one."""
    root = rng.normal(size=(width, width))
    return root @ root.T + np.eye(width) if full else np.diag(rng.uniform(1, 3, width))


def stored(Lambda, full):
    return Lambda if full else np.diag(Lambda).copy()


# --- SGD and SGLD


def gradient_side(rng, rows, full, step, stream, scale=1.0):
    """One side as kernels see it, in the precision of the rows; and as the plain twin does."""
    (n, width), dtype = rows.shape, rows.dtype.type
    mu, Lambda = rng.normal(size=width), matrix(rng, width, full)
    weight, noise, of_ratings = rng.uniform(1, 4, n), rng.uniform(0, 3, n), rng.gamma(3, 0.5, n)
    numbers, wide = rng.permutation(100)[:n].astype(np.int32), padded(width)
    side = gradient.LangevinSide(
        pad(rows, wide), numbers, of_ratings.astype(dtype), noise.astype(dtype),
        pad(mu, wide, dtype), pad_precision(stored(Lambda, full), wide, dtype),
        stream_word(stream, 4), dtype(step), dtype(scale), weight.astype(dtype),
    )  # fmt: skip
    return side, (step, weight, of_ratings, noise, mu, Lambda)


def run_dealt(batches, order, x, y, first, key, d, width):
    """gradient.run_dealt with all it needs."""
    columns = make_columns(d, width, x.rows.dtype)
    scratch = make_scratch(len(y.rows), columns)
    return gradient.run_dealt(batches, np.array(order), x, y, columns, first, key, scratch)


def compare_gradient(width, bias, full, coded, dtype, tolerance):
    """A step of SGLD, and the sum of squared errors before it."""
    rng, d, key = np.random.default_rng(0), width - bias, make_key(3)
    batch = Batch(rng, coded)
    users, items = (
        (rng.normal(size=(n, width)) / max(1, d / 4) ** 0.5).astype(dtype)
        for n in (N_USERS, N_ITEMS)
    )
    x, x_plain = gradient_side(rng, users, full, 0.02, STREAM_USERS, 2.5)
    y, y_plain = gradient_side(rng, items, full, 0.02, STREAM_ITEMS, 2.5)
    z = []
    for side in (x, y):
        own = naive.normals(side.numbers, width, 6, side.stream, key)
        z.append({k: own[number] for k, number in enumerate(side.numbers.tolist())})
    before = pad(users, padded(width)), pad(items, padded(width))
    wide = users.astype(float), items.astype(float)
    expected = naive.update_batch(*wide, batch.ratings, d, 2.5, (x_plain, y_plain), z)
    sse, count = run_dealt(batch.arrays, [1], x, y, 6, key, d, width)
    assert count == len(batch.ratings)
    assert sse == pytest.approx(expected[2], rel=tolerance)
    for side, rows in zip((x, y), expected[:2], strict=True):
        assert np.allclose(side.rows[:, :width], rows, rtol=0, atol=tolerance * 10)
        assert not side.rows[:, width:].any()
    compare_errors(batch, before, wide, d, (x_plain[2], y_plain[2]), tolerance)


def compare_errors(batch, rows, plain, d, weights, tolerance):
    """Squared errors of all ratings; and of each row, by the weights of the other side's rows."""
    columns = make_columns(d, plain[0].shape[1], rows[0].dtype)
    squares = [
        (i, j, (r - naive.predict(plain[0][i], plain[1][j], d)) ** 2) for i, j, r in batch.all
    ]
    total = sum(square for _, _, square in squares)
    found = sum_squared_errors(batch.arrays, *rows, columns, None, None)
    assert found == pytest.approx(total, rel=tolerance)
    sums = np.zeros(N_USERS), np.zeros(N_ITEMS)
    counts = np.zeros(N_USERS), np.zeros(N_ITEMS)
    given = tuple(weight.astype(rows[0].dtype) for weight in weights)
    assert sum_squared_errors(batch.arrays, *rows, columns, given, sums) == pytest.approx(
        total, rel=tolerance
    )
    sum_weights(batch.arrays, *given, *counts)
    expected = np.zeros((2, N_USERS)), np.zeros((2, N_ITEMS))
    for i, j, square in squares:
        expected[0][:, i] += weights[1][j] * square, weights[1][j]
        expected[1][:, j] += weights[0][i] * square, weights[0][i]
    for k in range(2):
        assert np.allclose(sums[k], expected[k][0], rtol=10 * tolerance)
        assert np.allclose(counts[k], expected[k][1], rtol=10 * tolerance)


# --- rules with momenta


def momentum_side(rng, n, width, full, gain, stream, dtype):
    """One side as kernels see it."""
    Lambda, wide, diagonal = matrix(rng, width, full), padded(width), np.ones(padded(width))
    eta, keep, share = rng.uniform(0.1, 0.4, n), rng.uniform(0, 0.9, n), rng.uniform(0, 0.5, n)
    eta[2] = 0.0  # a row that is held
    diagonal[:width] = np.diag(Lambda)
    side = MomentumSide(
        pad(rng.normal(size=(n, width)) / max(1, width / 4) ** 0.5, wide),
        rng.permutation(100)[:n].astype(np.int32), rng.gamma(3, 0.5, n), eta,
        pad(rng.normal(size=width), wide), pad_precision(stored(Lambda, full), wide, float),
        stream_word(stream, 4), pad(rng.normal(size=(n, width)), wide).reshape(-1),
        rng.normal(size=n), rng.uniform(1, 50, n), rng.uniform(1, 8, n), keep, share, diagonal,
        pad(rng.uniform(0.2, 1, width), wide), dtype(gain),
    )  # fmt: skip
    return MomentumSide(
        *(a.astype(dtype) if isinstance(a, np.ndarray) and a.dtype == float else a for a in side)
    )


def plain_visit(side, i, gradient, z, width):
    """What a visit to row i makes of it, its momentum and its thermostat, written to be read."""
    s = MomentumSide(*(np.asarray(a, float) for a in side[:-1]))
    x, u, heat = s.rows[i, :width], s.momenta.reshape(s.rows.shape)[i, :width], s.heat[i]
    Lambda = (s.Lambda if s.Lambda.ndim == 2 else np.diag(s.Lambda))[:width, :width]
    data = s.n[i] * s.stiffness[:width]
    P = 1 / (data + s.diagonal[:width])
    r = np.sqrt(s.noise[i] * P)
    u1 = u + r * (s.factor[i] * gradient - Lambda @ (x - s.mu[:width]))
    if s.gain > 0:
        c, noise = s.persistence[i] * np.exp(-np.sqrt(s.noise[i]) * heat), 1.0
        goal = 1 + s.share[i] * np.mean(data * P)
    else:
        c, noise = s.persistence[i], 1 - s.share[i] * data * P
    u2 = c * u1 + np.sqrt((1 - s.persistence[i] ** 2) * noise) * z
    if s.gain > 0:
        excess = np.mean((u1**2 + u2**2) / 2) - goal
        heat = heat + s.gain * np.sqrt(s.noise[i]) * min(excess, 4.0)
    return x + r * (u1 + u2) / 2, u2, heat


def compare_momentum(width, bias, full, coded, gain, dtype, tolerance):
    """A step of SGHMC, and of SGNHT where there is a gain."""
    rng, d, key = np.random.default_rng(0), width - bias, make_key(3)
    batch = Batch(rng, coded)
    x = momentum_side(rng, N_USERS, width, full, gain, STREAM_USERS, dtype)
    y = momentum_side(rng, N_ITEMS, width, full, gain, STREAM_ITEMS, dtype)
    before = [MomentumSide(*(np.copy(a) for a in side[:-1])) for side in (x, y)]
    columns = make_columns(d, width, dtype)
    sse, count = gradient.run_dealt(
        batch.arrays, np.array([1]), x, y, columns, 6, key, make_scratch(N_ITEMS, columns)
    )
    gx, gy, errors = naive.gradients(
        *(side.rows[:, :width].astype(float) for side in before), batch.ratings, d,
        (x.weight, y.weight),
    )  # fmt: skip
    assert count == len(batch.ratings)
    assert sse == pytest.approx(errors, rel=tolerance)
    for side, old, gradients, hit in (
        (x, before[0], gx, {r[0] for r in batch.ratings}),
        (y, before[1], gy, {r[1] for r in batch.ratings}),
    ):
        for i in range(len(old.rows)):
            momenta, begun = (one.momenta.reshape(one.rows.shape) for one in (side, old))
            expected = old.rows[i, :width], begun[i, :width], old.heat[i]
            if i in hit and old.noise[i] > 0:
                z = naive.normals([side.numbers[i]], width, 6, side.stream, key)
                expected = plain_visit(old, i, gradients[i], z[int(side.numbers[i])], width)
            found = side.rows[i, :width], momenta[i, :width], side.heat[i]
            for got, right in zip(found, expected, strict=True):
                assert np.allclose(got, right, rtol=0, atol=10 * tolerance)
        assert not side.rows[:, width:].any()
        assert not side.momenta.reshape(side.rows.shape)[:, width:].any()


def main() -> None:
    """All cases in float64, of one vector in a row and of several."""
    narrow = [(1, False), (2, True), (3, False), (4, True), (7, False), (8, True)]
    wide = [(9, True), (33, False), (34, True), (39, False), (40, True)]
    for (width, bias), full in itertools.product(narrow + wide, (True, False)):
        compare_gradient(width, bias, full, not full, np.float64, 1e-12)
        for gain in (0.0, 0.3):
            compare_momentum(width, bias, full, full, gain, np.float64, 1e-12)
    # The last: noise is drawn for fewer rows at once than the counters would be enough for.
    for width in (101, 601):
        compare_gradient(width, True, False, True, np.float64, 1e-12)
        compare_momentum(width, True, False, True, 0.3, np.float64, 1e-12)
