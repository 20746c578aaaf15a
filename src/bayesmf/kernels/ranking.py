"""Compiled loops over all draws of one user, limited by memory bandwidth.

Sums are taken in a fixed order, so an item's score has the same bits for any other items.
"""

from __future__ import annotations

import numpy as np

from bayesmf.kernels.jit import APART, ENTRY, EXACT, njit
from bayesmf.kernels.simd import LANES, fma, load, splat
from bayesmf.kernels.simd import total as lane_sum

_U = np.uint64


@njit(inline="always")
def padded_dot(X, x, Y, y, width, full, last):
    """x . y for a row of X padded by `pad_user_rows` and an unpadded row of Y.

    The last eight columns of y are read as one vector, so nothing beyond the row is read.
    """
    if width < _U(LANES):
        found = np.float32(0.0)
        for d in range(width):
            found += X[x + d] * Y[y + d]
        return found
    sums = splat(np.float32(0.0))
    for v in range(full):
        c = _U(LANES) * v
        sums = fma(load(X, x + c), load(Y, y + c), sums)
    return lane_sum(fma(load(X, x + _U(LANES) * full), load(Y, y + last), sums))


@njit(**EXACT)
def sum_scores(X, rows, items, out):
    """out[k] += the sum over draws t of X_t . rows_t,items[k]."""
    draws, n, width = rows.shape
    flat_X, flat = X.reshape(-1), rows.reshape(-1)
    padded_width, full, last = _U(X.shape[1]), _U(X.shape[1] // LANES - 1), _U(width - LANES)
    for t in range(_U(draws)):
        first = t * _U(n)
        for k in range(items.shape[0]):
            y = (first + _U(items[k])) * _U(width)
            out[k] += np.float64(
                padded_dot(flat_X, t * padded_width, flat, y, _U(width), full, last)
            )


@njit(**EXACT)
def sum_moments(X, bias, rows, items, first, total, squares):
    """Predictions of the first draw; sums of all draws' from there on, and of their squares."""
    draws, n, width = rows.shape
    flat_X, flat = X.reshape(-1), rows.reshape(-1)
    padded_width, full, last = _U(X.shape[1]), _U(X.shape[1] // LANES - 1), _U(width - LANES)
    for t in range(_U(draws)):
        begin, offset = t * _U(n), bias[t]
        for k in range(items.shape[0]):
            y = (begin + _U(items[k])) * _U(width)
            found = padded_dot(flat_X, t * padded_width, flat, y, _U(width), full, last)
            score = np.float64(offset) + np.float64(found)
            if t == _U(0):
                first[k] = score
            change = score - first[k]
            total[k] += change
            squares[k] += change * change


# Scores whose maximum is compared before single scores: a vector register.
_STRIDE = 8


@njit(**ENTRY)
def add_block(found, bias, first, total, squares):
    """Moments of one draw's scores of a block of users, from the first draw's on."""
    for r in range(found.shape[0]):
        for j in range(found.shape[1]):
            change = found[r, j] + bias[r] - first[r, j]
            total[r, j] += change
            squares[r, j] += change * change


@njit(**ENTRY)
def add_bonus(scores, total, squares, more, sign, n_draws):
    """scores += sign times a standard deviation: over draws, and `more` variance besides."""
    share = np.float32(1.0 / n_draws)
    for r in range(scores.shape[0]):
        for j in range(scores.shape[1]):
            mean = total[r, j] * share
            variance = max(squares[r, j] * share - mean * mean, np.float32(0.0)) + more[r, j]
            scores[r, j] += sign * np.sqrt(variance)


@njit(**ENTRY)
def forbid(scores, user, starts, items, where):
    """scores = -inf for rated items; item j is at position where[j]."""
    for r in range(user.shape[0]):
        if user[r] >= 0:
            for s in range(starts[user[r]], starts[user[r] + 1]):
                at = where[items[s]]
                if at >= 0:
                    scores[r, at] = -np.inf


@njit(**ENTRY)
def select_top(scores, heap, out):
    """out[r] = the items with the best scores of row r, best first; ties by lower number.

    -1 where no score above -inf is left. `heap` has the size of a row of `out`. The maximum of each
    stride is compared with the worst of the best first; few strides need more.
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
                size, bar = push_scores(row, lo, lo + _STRIDE, heap, item, size, bar)
        size, bar = push_scores(row, whole, n_items, heap, item, size, bar)
        empty_heap(heap, item, size)


@njit(inline="always")
def push_scores(row, lo, hi, heap, item, size, bar):
    """Push scores [lo, hi) to the heap; returns its size, and the score to exceed."""
    for j in range(lo, hi):
        if row[j] > bar:
            size = push(heap, item, size, row[j], j)
            if size == heap.shape[0]:
                bar = heap[0]
    return size, bar


@njit(inline="always")
def ranks_below(score, item, other_score, other_item):
    """Whether an item ranks below another: by score, ties by higher number."""
    return score < other_score or (score == other_score and item > other_item)


@njit(**APART)
def push(heap, item, size, score, j):
    """Push onto the heap; a full heap drops its first entry, the worst."""
    if size == heap.shape[0]:
        replace_first(heap, item, size, score, j)
        return size
    k = size
    while k > 0:
        parent = (k - 1) // 2
        if not ranks_below(score, j, heap[parent], item[parent]):
            break
        heap[k], item[k] = heap[parent], item[parent]
        k = parent
    heap[k], item[k] = score, j
    return size + 1


@njit(**APART)
def replace_first(heap, item, size, score, j):
    """Replace the first entry and sift it down."""
    k = 0
    while 2 * k + 1 < size:
        child = 2 * k + 1
        if child + 1 < size and ranks_below(
            heap[child + 1], item[child + 1], heap[child], item[child]
        ):
            child += 1
        if not ranks_below(heap[child], item[child], score, j):
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
        replace_first(heap, item, left, score, j)
    for k in range(size, item.shape[0]):
        item[k] = -1
