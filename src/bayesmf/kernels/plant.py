"""Compiled parts of synthetic/synthetic.py: planted rows, and items drawn without replacement."""

from __future__ import annotations

import math

import numpy as np

from bayesmf.kernels.jit import ENTRY, EXACT, njit
from bayesmf.kernels.keys import STREAM_SYNTHETIC, fill_normals, log32, philox, unit

# One last counter word for each use, so that no two uses share a number.
USERS, ITEMS, ACTIVITY, ORDER, DRAW, NOISE, HOLD = np.arange(7, dtype=np.uint32) + np.uint32(
    STREAM_SYNTHETIC << 24
)

# Users with more than this share of all items: a key for each item costs less than rejections.
_HEAVY = 0.1
_U32 = np.uint32


@njit(**EXACT)
def plant(X, x, start, each, bias, use, k0, k1):
    """X = each * normals, x = bias * normals: planted factors and biases, rows from `start` on.

    A row depends on its own number only.
    """
    D = X.shape[1]
    quads = D // 4 + 1
    z = np.empty(4 * quads, dtype=np.float32)
    for r in range(x.size):
        fill_normals(z, quads, start + r, 0, use, k0, k1)
        x[r] = bias * z[D]
        for d in range(D):
            X[r, d] = each * z[d]


@njit(**EXACT)
def alias_table(chance):
    """Walker's table by Vose: column j gives j with chance own[j], else other[j]."""
    n = chance.size
    rest = chance * n
    own = np.ones(n, dtype=np.float32)
    other = np.arange(n).astype(np.int32)
    # One array for two stacks: columns with less than their share grow up from the left end,
    # the others down from the right.
    stack = np.empty(n, dtype=np.int32)
    small, large = 0, n
    for j in range(n):
        if rest[j] < 1.0:
            stack[small] = j
            small += 1
        else:
            large -= 1
            stack[large] = j
    while small > 0 and large < n:
        small -= 1
        s, g = stack[small], stack[large]
        own[s] = rest[s]
        other[s] = g
        rest[g] -= 1.0 - rest[s]
        if rest[g] < 1.0:
            large += 1
            stack[small] = g
            small += 1
    return own, other


@njit(inline="always")
def _pick(column, chance, own, other):
    """Draw an item by an alias table, from two random words."""
    j = np.int32((np.uint64(column) * np.uint64(own.size)) >> np.uint64(32))
    return j if unit(chance) <= own[j] else other[j]


@njit(**EXACT)
def _draw_light(out, user, drawn_by, own, other, k0, k1):
    """Draw items without replacement, by rejecting repeats."""
    n, q = 0, 0
    while n < out.size:
        w0, w1, w2, w3 = philox(_U32(q), _U32(user), _U32(0), DRAW, k0, k1)
        q += 1
        for j in (_pick(w0, w1, own, other), _pick(w2, w3, own, other)):
            # The last user who drew j, so that nothing is cleared between users.
            if drawn_by[j] != user and n < out.size:
                drawn_by[j] = user
                out[n] = j
                n += 1


@njit(**EXACT)
def _nth_smallest(keys, n):
    """The n-th smallest of positive keys by bisection of its value.

    np.partition would do, but takes eight seconds to compile and a user is drawn in microseconds.
    """
    low, high = np.float32(0.0), np.float32(keys.max())
    while True:
        middle = np.float32(0.5) * (low + high)
        if middle <= low or middle >= high:
            return high
        count = 0
        for key in keys:
            count += key <= middle
        if count >= n:
            high = middle
        else:
            low = middle


@njit(**EXACT)
def _draw_heavy(out, user, keys, inverse, k0, k1):
    """Items without replacement by Efraimidis and Spirakis: the smallest exponential / weight."""
    m = inverse.size
    quads = keys.size // 4
    for q in range(quads):
        w0, w1, w2, w3 = philox(_U32(q), _U32(user), _U32(0), DRAW, k0, k1)
        keys[q] = -log32(unit(w0))
        keys[quads + q] = -log32(unit(w1))
        keys[2 * quads + q] = -log32(unit(w2))
        keys[3 * quads + q] = -log32(unit(w3))
    for j in range(m):
        keys[j] *= inverse[j]
    limit = _nth_smallest(keys[:m], out.size)
    n = 0
    for j in range(m):
        # Equal keys are rare but exist in float32, hence the second condition.
        if keys[j] <= limit and n < out.size:
            out[n] = j
            n += 1


@njit(**ENTRY)
def fill(out, first, bounds, rows, tables, scalars, key):
    """Ratings of users first, first + 1, ...: user first + r has out[bounds[r] : bounds[r + 1]]."""
    users, items, ratings = out
    U, a, V, b = rows
    own, other, inverse = tables
    mean, noise, stars = scalars
    k0, k1 = key[0], key[1]
    m, D = V.shape
    drawn_by = np.full(m, -1, dtype=np.int32)
    keys = np.empty(4 * ((m + 3) // 4), dtype=np.float32)
    z = np.empty(m + 4, dtype=np.float32)
    for r in range(a.size):
        user, start, n = first + r, bounds[r], bounds[r + 1] - bounds[r]
        mine = items[start : start + n]
        if n > _HEAVY * m:
            _draw_heavy(mine, user, keys, inverse, k0, k1)
        else:
            _draw_light(mine, user, drawn_by, own, other, k0, k1)
        fill_normals(z, (n + 3) // 4, user, 0, NOISE, k0, k1)
        centre = mean + a[r]
        for k in range(n):
            j = mine[k]
            rating = centre + b[j] + noise * z[k]
            for d in range(D):
                rating += U[r, d] * V[j, d]
            if stars:
                rating = min(max(math.floor(rating + np.float32(0.5)), 1.0), 5.0)
            users[start + k] = user
            ratings[start + k] = rating


@njit(**EXACT)
def hold(out, first, bounds, wanted, k0, k1):
    """Mark wanted[u] ratings of each user from `first` on, uniformly at random.

    Floyd's algorithm (Bentley and Floyd, CACM 1987): one random number for each marked rating.
    """
    for r in range(wanted.size):
        start, n = bounds[r], bounds[r + 1] - bounds[r]
        for j in range(n - wanted[r], n):
            word, _, _, _ = philox(_U32(j), _U32(first + r), _U32(0), HOLD, k0, k1)
            t = np.int64((np.uint64(word) * np.uint64(j + 1)) >> np.uint64(32))
            out[start + (j if out[start + t] else t)] = True
