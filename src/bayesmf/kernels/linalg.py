"""Compiled algebra of small symmetric matrices, for the precisions of the rows' priors.

LAPACK's threads compete with ours: a 100 x 100 inverse took 50 ms instead of 1 ms. Matrices are
given by their lower halves.
"""

from __future__ import annotations

import numpy as np

from bayesmf.kernels.jit import ENTRY, njit
from bayesmf.kernels.simd import LANES, fma, load, splat, store

FEW_ROWS = 128  # of up to 64 columns they fill 32 kB, the first-level cache


@njit(**ENTRY)
def cholesky(A):
    """np.linalg.cholesky(A), with NaN where A is not positive definite."""
    n = A.shape[0]
    L = np.zeros((n, n))
    for i in range(n):
        for j in range(i + 1):
            total = A[i, j]
            for k in range(j):
                total -= L[i, k] * L[j, k]
            L[i, j] = np.sqrt(total) if i == j else total / L[j, j]
    return L


@njit(**ENTRY)
def solve_upper(L, B):
    """np.linalg.solve(L.T, B) for lower L."""
    n = L.shape[0]
    X = B.copy()
    for i in range(n - 1, -1, -1):
        inverse = 1.0 / L[i, i]
        for c in range(X.shape[1]):  # `X[i] *= inverse` would compile a shape error message
            X[i, c] *= inverse
        for k in range(i):
            factor = L[i, k]
            for c in range(X.shape[1]):
                X[k, c] -= factor * X[i, c]
    return X


@njit(**ENTRY)
def outer_square(X):
    """X @ X.T."""
    n = X.shape[0]
    out = np.empty((n, n))
    for i in range(n):
        for j in range(i + 1):
            total = 0.0
            for k in range(X.shape[1]):
                total += X[i, k] * X[j, k]
            out[i, j] = total
            out[j, i] = total
    return out


@njit(**ENTRY)
def rescale_inverse(N, d, k):
    """Make the inverse N of M = I + C that of M with row and column d of C times k, in place.

    M' = E M E + (1 - k^2) e e^T with E = diag(1, .., k, .., 1): a change of rank one.
    """
    for j in range(N.shape[0]):
        N[d, j] /= k
        N[j, d] /= k
    c = 1.0 - k * k
    share, row = c / (1.0 + c * N[d, d]), N[d].copy()
    for i in range(N.shape[0]):
        for j in range(N.shape[0]):
            N[i, j] -= share * row[i] * row[j]


@njit(**ENTRY)
def multiply(L, x):
    """L @ x for lower L."""
    out = np.zeros(x.shape[0])
    for i in range(x.shape[0]):
        for k in range(i + 1):
            out[i] += L[i, k] * x[k]
    return out


@njit(**ENTRY)
def second_moments(rows):
    """rows.sum(0) and rows.T @ rows in float64, without BLAS and its threads.

    In single precision over a few rows at a time, which fit the first-level cache, in double over
    all: four entries of a row times eight at once.
    """
    n, width = rows.shape
    padded_width = np.uint64((width + LANES - 1) // LANES * LANES)
    total, cross = np.zeros(width), np.zeros((padded_width, padded_width))
    x, lane = np.zeros(np.uint64(FEW_ROWS) * padded_width, np.float32), np.empty(LANES, np.float32)
    for first in range(0, n, FEW_ROWS):
        few = min(FEW_ROWS, n - first)
        for i in range(few):
            for d in range(width):
                x[np.uint64(i) * padded_width + np.uint64(d)] = rows[first + i, d]
                total[d] += rows[first + i, d]
        for d in range(np.uint64(0), padded_width, np.uint64(4)):
            for e in range(np.uint64(0), d + np.uint64(4), np.uint64(LANES)):
                a0 = a1 = a2 = a3 = splat(np.float32(0.0))
                for at in range(np.uint64(0), np.uint64(few) * padded_width, padded_width):
                    own = load(x, at + e)
                    a0 = fma(splat(x[at + d]), own, a0)
                    a1 = fma(splat(x[at + d + np.uint64(1)]), own, a1)
                    a2 = fma(splat(x[at + d + np.uint64(2)]), own, a2)
                    a3 = fma(splat(x[at + d + np.uint64(3)]), own, a3)
                add_lanes(cross, d, e, a0, lane)
                add_lanes(cross, d + np.uint64(1), e, a1, lane)
                add_lanes(cross, d + np.uint64(2), e, a2, lane)
                add_lanes(cross, d + np.uint64(3), e, a3, lane)
    for d in range(width):
        for e in range(d):
            cross[e, d] = cross[d, e]
    return total, cross[:width, :width].copy()


@njit(inline="always")
def add_lanes(cross, d, e, vector, lane):
    """cross[d, e : e + 8] += vector, by way of the buffer `lane`."""
    store(lane, np.uint64(0), vector)
    for k in range(LANES):
        cross[d, e + np.uint64(k)] += lane[k]
