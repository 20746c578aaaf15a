"""Compiled algebra of small symmetric matrices, for the precisions above the rows.

LAPACK would do it, on threads of its own: while ours are busy these wait for each other, and a
100 x 100 inverse took 50 ms instead of one. Matrices are given by their lower halves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from bayesmf.keys import FAST

_JIT: Any = {"nogil": True, "cache": True, "fastmath": FAST, "error_model": "numpy"}


@njit(**_JIT)
def cholesky(A):
    """Lower L with L L^T = A; NaN where A is not positive."""
    n = A.shape[0]
    L = np.zeros((n, n))
    for i in range(n):
        for j in range(i + 1):
            total = A[i, j]
            for k in range(j):
                total -= L[i, k] * L[j, k]
            L[i, j] = np.sqrt(total) if i == j else total / L[j, j]
    return L


@njit(**_JIT)
def solve_upper(L, B):
    """X with L^T X = B, column by column of B at once."""
    n = L.shape[0]
    X = B.copy()
    for i in range(n - 1, -1, -1):
        X[i] /= L[i, i]
        for k in range(i):
            factor = L[i, k]
            for c in range(X.shape[1]):
                X[k, c] -= factor * X[i, c]
    return X


@njit(**_JIT)
def outer_square(X):
    """X X^T."""
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


@njit(**_JIT)
def multiply(L, x):
    """L x for lower L."""
    out = np.zeros(x.shape[0])
    for i in range(x.shape[0]):
        for k in range(i + 1):
            out[i] += L[i, k] * x[k]
    return out
