"""Compiled loops of answers: what pairs are predicted under a draw, and the best items of users.

float32 rows, sums in float64, no allocation inside a loop, the interpreter's lock released.
"""

from __future__ import annotations

import numpy as np

from bayesmf.kernels.gradient import predict
from bayesmf.kernels.jit import APART, ENTRY, njit

# Scores of which the largest is found before any is compared by itself: a vector register.
_STRIDE = 8


# -- pairs in any order ---------------------------------------------------------------------------


@njit(**ENTRY)
def sum_expected(user_means, item_means, users, user, item, rated, n_factors, out):
    """out[n] += expected predictions of pair n, over draws; nothing for rows nobody has seen.

    For a rated pair the user's own row stands in (see Pairs.predict in chains/monitor.py).
    """
    for t in range(users.shape[0]):
        add_expected(user_means[t], item_means[t], users[t], user, item, rated, n_factors, out)


@njit(inline="always")
def add_expected(user_means, item_means, users, user, item, rated, n_factors, out):
    """out[n] += the expected prediction of pair n under one draw, if both rows are known."""
    for n in range(user.shape[0]):
        i, j = user[n], item[n]
        if i < 0 or j < 0:
            continue
        if rated[n]:
            out[n] += predict(users, i, item_means, j, n_factors)
        else:
            out[n] += predict(user_means, i, item_means, j, n_factors)


@njit(**ENTRY)
def find_rated(starts, items, user, item, marks, out):
    """out[n] = whether item[n] is among the items of user[n], which stand in ascending order.

    Where a user has many pairs together they are answered by marking the user's items, where it has
    few by bisection. `marks` has one entry for each item and is all False, before and after.
    """
    n, end = 0, user.shape[0]
    while n < end:
        i, begin = user[n], n
        while n < end and user[n] == i:
            n += 1
        if i < 0:
            out[begin:n] = False
        elif starts[i + 1] - starts[i] < 8 * (n - begin):
            lookup_marked(items[starts[i] : starts[i + 1]], item[begin:n], marks, out[begin:n])
        else:
            lookup_bisected(items[starts[i] : starts[i + 1]], item[begin:n], out[begin:n])


@njit(**APART)
def lookup_marked(items, wanted, marks, out):
    """out[n] = whether wanted[n] is one of the items, through a table of marks."""
    for s in range(items.shape[0]):
        marks[items[s]] = True
    for n in range(wanted.shape[0]):
        out[n] = wanted[n] >= 0 and marks[wanted[n]]
    for s in range(items.shape[0]):
        marks[items[s]] = False


@njit(**APART)
def lookup_bisected(items, wanted, out):
    """out[n] = whether wanted[n] is one of the items."""
    for n in range(wanted.shape[0]):
        lo, hi = 0, items.shape[0]
        while lo < hi:
            middle = (lo + hi) // 2
            if items[middle] < wanted[n]:
                lo = middle + 1
            else:
                hi = middle
        out[n] = lo < items.shape[0] and items[lo] == wanted[n]


@njit(**ENTRY)
def predict_components(rows, pairs, n_factors, user_prior, item_prior, tau, mu, var):
    """Mean mu[t, n] and variance var[t, n] of a new rating of pair n under draw t.

    `rows` are those of users and of items, of all draws; `pairs` are (user, item). A row number of
    -1 is a row nobody has seen: it has its prior's mean and spread. `user_prior` and `item_prior`
    are means, each a 1 x width array, and covariances, of all draws; empty ones will do where all
    rows are known.
    """
    (users, items), (x_mean, x_cov), (y_mean, y_cov) = rows, user_prior, item_prior
    for t in range(users.shape[0]):
        set_components(
            (users[t], items[t]), pairs, n_factors, (x_mean[t], x_cov[t]), (y_mean[t], y_cov[t]),
            1.0 / tau[t], mu[t], var[t],
        )  # fmt: skip


@njit(inline="always")
def set_components(rows, pairs, n_factors, user_prior, item_prior, noise, mu, var):
    """Mean mu[n] and variance var[n] of a new rating of pair n under one draw."""
    (X, Y), (user, item) = rows, pairs
    (x_mean, x_cov), (y_mean, y_cov) = user_prior, item_prior
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


@njit(inline="always")
def spread_along(X, i, cov, n_factors):
    """r^T cov r where r = [features of row i, 1]: what an unseen partner adds to the variance."""
    total = 0.0
    for d in range(cov.shape[0]):
        rd = np.float64(X[i, d]) if d < n_factors else 1.0
        for e in range(cov.shape[0]):
            re = np.float64(X[i, e]) if e < n_factors else 1.0
            total += rd * cov[d, e] * re
    return total


# -- pairs sorted by user, items packed -----------------------------------------------------------


@njit(**ENTRY)
def stream_moments(draws, pairs, which, n_factors, scratch, sums):
    """Sums over draws t of what sorted pairs n are predicted, p[t, n].

    `draws` are the rows of users and items, and of their means, which may be empty; `pairs` users,
    slots and which are rated; `which` the items of the slots, whose rows are brought together in
    the first array of `scratch`. `sums` are first = p[0], total += p - p[0], summed over t,
    squares += (p - p[0]) ** 2, and expected += the predictions by the means.
    """
    users, items, user_means, item_means = draws
    (user, slot, rated), (Y, x) = pairs, scratch
    first, total, squares, expected = sums
    for t in range(users.shape[0]):
        pack_rows(items[t], which, Y)
        if t == 0:
            start_moments(users[t], Y, user, slot, n_factors, x, first)
        else:
            add_moments(users[t], Y, user, slot, n_factors, x, first, total, squares)
        if user_means.shape[0] > 0:
            pack_rows(item_means[t], which, Y)
            add_expected_sorted(
                user_means[t], Y, users[t], user, slot, rated, n_factors, x, expected
            )  # fmt: skip


@njit(inline="always")
def pack_rows(rows, which, out):
    """Rows by number, one after the other, each filled up with the zeros that `out` has."""
    for k in range(which.shape[0]):
        for d in range(rows.shape[1]):
            out[k, d] = rows[which[k], d]


@njit(inline="always")
def unfold(X, i, n_factors, x, k):
    """x_k = [features, 1], so that x_k . [V_j, b_j] lacks only the bias, which is returned."""
    for d in range(n_factors):
        x[k, d] = X[i, d]
    if X.shape[1] == n_factors:
        return np.float32(0.0)
    x[k, n_factors] = np.float32(1.0)
    return X[i, n_factors]


@njit(inline="always")
def packed_dot(x, k, Y, j):
    """x_k . Y_j over whole vector registers: what is beyond the row is zero in both."""
    total = np.float32(0.0)
    for d in range(Y.shape[1]):
        total += x[k, d] * Y[j, d]
    return total


@njit(inline="always")
def start_moments(X, Y, user, slot, n_factors, x, first):
    """first[n] = prediction of pair n under the first draw; `slot` tells its item's row in Y."""
    last, bias = -1, np.float32(0.0)
    for n in range(user.shape[0]):
        if user[n] != last:
            last = user[n]
            bias = unfold(X, last, n_factors, x, 0)
        first[n] = bias + packed_dot(x, 0, Y, slot[n])


@njit(inline="always")
def add_moments(X, Y, user, slot, n_factors, x, first, total, squares):
    """Sums of a later draw's predictions and of their squares, both from the first draw's on.

    Measured from there nothing large cancels, so one pass is as good as two.
    """
    last, bias = -1, np.float32(0.0)
    for n in range(user.shape[0]):
        if user[n] != last:
            last = user[n]
            bias = unfold(X, last, n_factors, x, 0)
        change = np.float64(bias + packed_dot(x, 0, Y, slot[n]) - first[n])
        total[n] += change
        squares[n] += change * change


@njit(inline="always")
def add_expected_sorted(user_means, Y, users, user, slot, rated, n_factors, x, out):
    """add_expected for pairs sorted by user; Y are the packed rows of the items' means.

    One sum over one of two rows: a branch around two sums would cost more than either.
    """
    last, bias, own = -1, np.float32(0.0), np.float32(0.0)
    for n in range(user.shape[0]):
        if user[n] != last:
            last = user[n]
            bias = unfold(user_means, last, n_factors, x, 0)
            own = unfold(users, last, n_factors, x, 1)
        k = 1 if rated[n] else 0
        out[n] += (own if rated[n] else bias) + packed_dot(x, k, Y, slot[n])


# -- the best items of users ----------------------------------------------------------------------


@njit(**ENTRY)
def correct_rated(scores, user, starts, items, user_means, users, item_means, x, weight):
    """Rated pairs of a block of scores from the user's conditional mean over to its own row.

    `x` is room for the factors of a row.
    """
    n_factors = x.shape[0]
    for r in range(user.shape[0]):
        i, offset = user[r], np.float32(0.0)
        for d in range(n_factors):
            x[d] = weight * (users[i, d] - user_means[i, d])
        if users.shape[1] > n_factors:
            offset = weight * (users[i, n_factors] - user_means[i, n_factors])
        for s in range(starts[i], starts[i + 1]):
            j, total = items[s], offset
            for d in range(n_factors):
                total += x[d] * item_means[j, d]
            scores[r, j] += total


@njit(**ENTRY)
def add_block(found, bias, first, total, squares):
    """Moments of one draw's scores of a block of users, from the first draw's on."""
    for r in range(found.shape[0]):
        for j in range(found.shape[1]):
            change = found[r, j] + bias[r] - first[r, j]
            total[r, j] += change
            squares[r, j] += change * change


@njit(**ENTRY)
def add_bonus(scores, total, squares, n_draws):
    """scores += the standard deviation of the draws' scores."""
    share = np.float32(1.0 / n_draws)
    for r in range(scores.shape[0]):
        for j in range(scores.shape[1]):
            mean = total[r, j] * share
            scores[r, j] += np.sqrt(max(squares[r, j] * share - mean * mean, np.float32(0.0)))


@njit(**ENTRY)
def forbid(scores, user, starts, items):
    """scores = -inf where a user of the block has rated the item."""
    for r in range(user.shape[0]):
        if user[r] >= 0:
            for s in range(starts[user[r]], starts[user[r] + 1]):
                scores[r, items[s]] = -np.inf


@njit(**ENTRY)
def select_top(scores, heap, out):
    """out[r] = the items of the best scores of row r, best first; of equals the lower number.

    Where nothing is left above -inf it is -1. `heap` is room for one row of `out`.
    Only the largest of a stride is compared with the worst of the best: few are looked at more.
    """
    n_items = scores.shape[1]
    whole = n_items - n_items % _STRIDE
    for r in range(scores.shape[0]):
        row, item = scores[r], out[r]
        size, bar = 0, np.float32(-np.inf)
        for lo in range(0, whole, _STRIDE):
            top = row[lo]
            for k in range(_STRIDE):
                score = row[lo + k]
                top = score if score > top else top
            if top > bar:
                size, bar = offer(row, lo, lo + _STRIDE, heap, item, size, bar)
        size, bar = offer(row, whole, n_items, heap, item, size, bar)
        empty_heap(heap, item, size)


@njit(inline="always")
def offer(row, lo, hi, heap, item, size, bar):
    """Scores [lo, hi) to the heap of the best; its size, and what the next must be above."""
    for j in range(lo, hi):
        if row[j] > bar:
            size = push(heap, item, size, row[j], j)
            if size == heap.shape[0]:
                bar = heap[0]
    return size, bar


@njit(inline="always")
def worse(score, item, other_score, other_item):
    """Whether an item ranks below another: by its score, of equals the higher number."""
    return score < other_score or (score == other_score and item > other_item)


@njit(**APART)
def push(heap, item, size, score, j):
    """Push onto the heap of the best; of a full one the first goes, which is the worst of them."""
    if size == heap.shape[0]:
        sink(heap, item, size, score, j)
        return size
    k = size
    while k > 0:
        parent = (k - 1) // 2
        if not worse(score, j, heap[parent], item[parent]):
            break
        heap[k], item[k] = heap[parent], item[parent]
        k = parent
    heap[k], item[k] = score, j
    return size + 1


@njit(**APART)
def sink(heap, item, size, score, j):
    """Put an entry in the first one's stead, and where it belongs."""
    k = 0
    while 2 * k + 1 < size:
        child = 2 * k + 1
        if child + 1 < size and worse(heap[child + 1], item[child + 1], heap[child], item[child]):
            child += 1
        if not worse(heap[child], item[child], score, j):
            break
        heap[k], item[k] = heap[child], item[child]
        k = child
    heap[k], item[k] = score, j


@njit(**APART)
def empty_heap(heap, item, size):
    """Turn a heap into a list in place, best first, followed by -1."""
    for left in range(size - 1, 0, -1):
        score, j = heap[left], item[left]
        heap[left], item[left] = heap[0], item[0]
        sink(heap, item, left, score, j)
    for k in range(size, item.shape[0]):
        item[k] = -1
