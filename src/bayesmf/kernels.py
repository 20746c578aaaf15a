"""Compiled loops over ratings: the mini-batch update, pair predictions, column moments.

float32, no allocation inside a loop, the interpreter's lock released. (Given float64 rows they
compute in float64: so are they checked to the last digit.) Plain twins are in tests/naive.py.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bayesmf.keys import FAST, STREAM_BATCH, fill_normals, philox, stream_word

_JIT: Any = {"nogil": True, "cache": True, "fastmath": FAST, "error_model": "numpy"}


class Side(NamedTuple):
    """One side (users or items) of a block, as an update sees it."""

    rows: NDArray[np.float32]  # updated in place
    numbers: NDArray[np.int32]  # row numbers in the whole matrix: the random numbers' keys
    prior_weight: NDArray[np.float32]  # 1 / hbar
    noise: NDArray[np.float32]  # noise variance in units of the step: 0, 1 or 1 / hbar
    mu: NDArray[np.float32]
    Lambda: NDArray[np.float32]  # diagonal or matrix
    step: np.float32  # epsilon; 0 holds this side fixed
    stream: np.uint32


class Batches(NamedTuple):
    """Mini-batches of a block: ratings sorted by user inside each."""

    user: NDArray[np.int32]
    item: NDArray[np.int32]
    value: NDArray[np.float32]
    starts: NDArray[np.int64]


@njit(**_JIT)
def step_row(X, i, gradient, scale, half_step, weight, spread, mu, Lambda, z, pull):
    """X_i += eps/2 (scale * gradient - weight * Lambda (X_i - mu)) + spread * z."""
    width = X.shape[1]
    if Lambda.ndim == 1:
        for d in range(width):
            pull[d] = Lambda[d] * (X[i, d] - mu[d])
    else:
        for d in range(width):
            pull[d] = np.float32(0.0)
            for e in range(width):
                pull[d] += Lambda[d, e] * (X[i, e] - mu[e])
    for d in range(width):
        X[i, d] += half_step * (scale * gradient[d] - weight * pull[d]) + spread * z[d]


@njit(**_JIT)
def update_batch(data, lo, hi, users, items, n_factors, scale, iteration, key, work):
    """One mini-batch: gradients of all its rows at the old state, then their updates.

    A user's ratings are one run, so a user is updated when its run ends and its old row is
    needed no more; items gather their gradients until the end. Returns the sum of squared errors.
    """
    gradient, item_gradient, touched, seen, z, pull = work
    # Local names: a tuple's array costs a reference count each time it is named in a loop.
    user, item, value = data.user, data.item, data.value
    X, x_weight, x_noise, x_mu, x_Lambda = side_arrays(users)
    Y, y_weight, y_noise, y_mu, y_Lambda = side_arrays(items)
    half = np.float32(0.5)
    n_quads = (X.shape[1] + 3) // 4
    sse = 0.0
    n_touched = 0
    n = lo
    while n < hi:
        i = user[n]
        gradient[:] = np.float32(0.0)
        n, n_touched, run_sse = gather_run(
            user, item, value, n, hi, X, Y, n_factors, gradient, item_gradient, touched, n_touched,
            seen,
        )  # fmt: skip
        sse += run_sse
        spread = np.sqrt(users.step * x_noise[i])
        if spread > 0:
            fill_normals(z, n_quads, users.numbers[i], iteration, users.stream, key[0], key[1])
        step_row(
            X, i, gradient, scale, half * users.step, x_weight[i], spread, x_mu, x_Lambda, z, pull
        )
    for t in range(n_touched):
        j = touched[t]
        seen[j] = False
        spread = np.sqrt(items.step * y_noise[j])
        if spread > 0:
            fill_normals(z, n_quads, items.numbers[j], iteration, items.stream, key[0], key[1])
        sums = item_gradient[j]
        step_row(Y, j, sums, scale, half * items.step, y_weight[j], spread, y_mu, y_Lambda, z, pull)
        sums[:] = np.float32(0.0)
    return sse


@njit(inline="always")
def gather_run(
    user, item, value, n, hi, X, Y, n_factors, gradient, item_gradient, touched, n_touched, seen
):
    """Gradients of the run of one user's ratings that begins at n, and of their items.

    Returns where the next run begins, how many items are touched now, the sum of squared errors.
    """
    i, sse, biased = user[n], 0.0, X.shape[1] > n_factors
    while n < hi and user[n] == i:
        j = item[n]
        if not seen[j]:
            seen[j] = True
            touched[n_touched] = j
            n_touched += 1
        error = value[n] - predict(X, i, Y, j, n_factors)
        for d in range(n_factors):
            gradient[d] += error * Y[j, d]
        for d in range(n_factors):
            item_gradient[j, d] += error * X[i, d]
        if biased:
            gradient[n_factors] += error
            item_gradient[j, n_factors] += error
        sse += np.float64(error) * np.float64(error)
        n += 1
    return n, n_touched, sse


@njit(inline="always")
def side_arrays(side):
    return side.rows, side.prior_weight, side.noise, side.mu, side.Lambda


@njit(**_JIT)
def make_work(items):
    """Scratch space of a round, allocated once, in the precision of the rows."""
    n_items, width = items.rows.shape
    return (
        np.zeros(width, items.rows.dtype),
        np.zeros((n_items, width), items.rows.dtype),
        np.empty(n_items, np.int32),
        np.zeros(n_items, np.bool_),
        np.zeros(width + 3, items.rows.dtype),
        np.zeros(width, items.rows.dtype),
    )


@njit(**_JIT)
def run_dealt(data, order, users, items, n_factors, scale, first, key):
    """A round over dealt mini-batches, in the given order. Returns (sse, ratings read)."""
    work = make_work(items)
    sse, count = 0.0, 0
    for k in range(order.shape[0]):
        lo, hi = data.starts[order[k]], data.starts[order[k] + 1]
        sse += update_batch(data, lo, hi, users, items, n_factors, scale, first + k, key, work)
        count += hi - lo
    return sse, count


@njit(**_JIT)
def run_replacement(data, m, length, block, users, items, n_factors, scale, first, key):
    """A round of mini-batches of m ratings drawn with replacement, as the paper samples them."""
    n = data.value.shape[0]
    work = make_work(items)
    index = np.empty(m, np.int64)
    drawn = Batches(
        np.empty(m, np.int32), np.empty(m, np.int32), np.empty(m, np.float32), data.starts
    )
    sse = 0.0
    for k in range(length):
        draw_sorted(index, n, first + k, block, key)
        for t in range(m):
            drawn.user[t] = data.user[index[t]]
            drawn.item[t] = data.item[index[t]]
            drawn.value[t] = data.value[index[t]]
        sse += update_batch(drawn, 0, m, users, items, n_factors, scale, first + k, key, work)
    return sse, length * m


@njit(**_JIT)
def draw_sorted(index, n, iteration, block, key):
    """len(index) uniform draws from range(n), with replacement, in ascending order.

    Ordered uniforms are running sums of exponentials over their total, so no sort is needed and
    the gather that follows goes through memory in order.
    """
    m = index.shape[0]
    word = stream_word(STREAM_BATCH, block)
    scale = 1.0 / 18446744073709551616.0
    total = 0.0
    for lap in range(2):
        running = 0.0
        for q in range(m // 2 + 1):
            w0, w1, w2, w3 = philox(
                np.uint32(q), np.uint32(0), np.uint32(iteration), word, key[0], key[1]
            )
            for half in range(2):
                t = 2 * q + half
                high, low = (w0, w1) if half == 0 else (w2, w3)
                bits = (np.uint64(high) << np.uint64(32)) | np.uint64(low)
                if t <= m:
                    running -= np.log((np.float64(bits) + 1.0) * scale)
                if lap == 1 and t < m:
                    index[t] = min(np.int64(running / total * n), n - 1)
        total = running


@njit(inline="always")
def predict(X, i, Y, j, n_factors):
    """U_i . V_j + a_i + b_j."""
    total = np.float32(0.0)
    for d in range(n_factors):
        total += X[i, d] * Y[j, d]
    if X.shape[1] > n_factors:
        total += X[i, n_factors] + Y[j, n_factors]
    return total


@njit(**_JIT)
def predict_pairs(user_rows, item_rows, user, item, n_factors, out):
    """out[n] = prediction of the pair (user[n], item[n]), for known rows."""
    for n in range(user.shape[0]):
        out[n] = predict(user_rows, user[n], item_rows, item[n], n_factors)


@njit(**_JIT)
def add_expected(user_means, item_means, users, user, item, rated, n_factors, out):
    """out[n] += expected prediction of pair n given a draw; nothing for rows nobody has seen.

    For a rated pair the user's own row stands in (see Pairs.predict in monitor.py).
    """
    for n in range(user.shape[0]):
        i, j = user[n], item[n]
        if i < 0 or j < 0:
            continue
        if rated[n]:
            out[n] += predict(users, i, item_means, j, n_factors)
        else:
            out[n] += predict(user_means, i, item_means, j, n_factors)


@njit(**_JIT)
def find_rated(starts, items, user, item, out):
    """out[n] = whether item[n] is among the items of user[n], which stand in ascending order."""
    for n in range(user.shape[0]):
        out[n] = False
        if user[n] < 0:
            continue
        lo, hi = starts[user[n]], starts[user[n] + 1]
        while lo < hi:
            middle = (lo + hi) // 2
            if items[middle] < item[n]:
                lo = middle + 1
            else:
                hi = middle
        out[n] = lo < starts[user[n] + 1] and items[lo] == item[n]


@njit(**_JIT)
def sum_squared_errors(data, X, Y, n_factors):
    """Sum of squared errors of all ratings of a block, at one state."""
    user, item, value = data.user, data.item, data.value
    sse = 0.0
    for n in range(user.shape[0]):
        error = np.float64(value[n] - predict(X, user[n], Y, item[n], n_factors))
        sse += error * error
    return sse


@njit(**_JIT)
def predict_components(X, Y, user, item, n_factors, user_prior, item_prior, noise, mu, var):
    """Mean and variance of a new rating of each pair under one draw.

    A row number of -1 is a row nobody has seen: it has its prior's mean and spread.
    `user_prior` and `item_prior` are (mean as a 1 x width array, covariance).
    """
    x_mean, x_cov = user_prior
    y_mean, y_cov = item_prior
    for n in range(user.shape[0]):
        i, j = user[n], item[n]
        if i >= 0 and j >= 0:
            mu[n] = predict(X, i, Y, j, n_factors)
            var[n] = noise
        elif i >= 0:
            mu[n] = predict(X, i, y_mean, 0, n_factors)
            var[n] = noise + spread_along(X, i, y_cov, n_factors)
        elif j >= 0:
            mu[n] = predict(x_mean, 0, Y, j, n_factors)
            var[n] = noise + spread_along(Y, j, x_cov, n_factors)
        else:
            total = spread_along(y_mean, 0, x_cov, n_factors)
            total += spread_along(x_mean, 0, y_cov, n_factors)
            for d in range(n_factors):
                for e in range(n_factors):
                    total += x_cov[d, e] * y_cov[d, e]
            mu[n] = predict(x_mean, 0, y_mean, 0, n_factors)
            var[n] = noise + total


@njit(**_JIT)
def spread_along(X, i, cov, n_factors):
    """r^T cov r where r = [features of row i, 1]: what an unseen partner adds to the variance."""
    total = 0.0
    for d in range(cov.shape[0]):
        rd = np.float64(X[i, d]) if d < n_factors else 1.0
        for e in range(cov.shape[0]):
            re = np.float64(X[i, e]) if e < n_factors else 1.0
            total += rd * cov[d, e] * re
    return total


@njit(nogil=True, cache=True, error_model="numpy")
def column_squares(rows):
    """Sum of squares of each column, in float64."""
    out = np.zeros(rows.shape[1], np.float64)
    for i in range(rows.shape[0]):
        for d in range(rows.shape[1]):
            out[d] += np.float64(rows[i, d]) * np.float64(rows[i, d])
    return out


@njit(nogil=True, cache=True, error_model="numpy")
def second_moments(rows):
    """Sum of rows and sum of their outer products, in float64, without BLAS and its threads."""
    width = rows.shape[1]
    total, cross = np.zeros(width, np.float64), np.zeros((width, width), np.float64)
    row = np.zeros(width, np.float64)
    for i in range(rows.shape[0]):
        for d in range(width):
            row[d] = rows[i, d]
            total[d] += row[d]
        for d in range(width):
            value = row[d]
            for e in range(d + 1):
                cross[d, e] += value * row[e]
    for d in range(width):
        for e in range(d):
            cross[e, d] = cross[d, e]
    return total, cross
