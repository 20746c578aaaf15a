"""Compiled conditional draws of rows: the inside of Algorithm 1, for both models.

Given the other side, a row's posterior is Gaussian. With a bias the regressors of a user are
[V_j, 1] and the target r - b_j, so features and bias are drawn jointly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from bayesmf.keys import FAST, fill_normals

_JIT: Any = {"nogil": True, "cache": True, "fastmath": FAST, "error_model": "numpy"}


@njit(**_JIT)
def add_outer(P, x, width):
    """P += sum of the outer products of four regressors: the lower half only.

    Four at a time: each element of P is then read and written once for eight flops.
    """
    for d in range(width):
        row = P[d]
        x0, x1, x2, x3 = x[0, d], x[1, d], x[2, d], x[3, d]
        for e in range(d + 1):
            row[e] += x0 * x[0, e] + x1 * x[1, e] + x2 * x[2, e] + x3 * x[3, e]


@njit(**_JIT)
def accumulate(P, rhs, x, other, index, value, lo, hi, n_factors):
    """P = sum x x^T (lower half) and rhs = sum x * target, over the ratings lo..hi of a row."""
    width = P.shape[0]
    P[:, :] = np.float32(0.0)
    rhs[:] = 0.0
    for start in range(lo, hi, 4):
        x[:, :] = np.float32(0.0)
        for k in range(min(4, hi - start)):
            row, target = other[index[start + k]], value[start + k]
            for d in range(n_factors):
                x[k, d] = row[d]
            if width > n_factors:
                x[k, n_factors] = np.float32(1.0)
                target -= row[n_factors]
            for d in range(width):
                rhs[d] += np.float64(target * x[k, d])
        add_outer(P, x, width)


@njit(**_JIT)
def cholesky_draw(A, rhs, z, out):
    """out = A^-1 rhs + L^-T z where A = L L^T, given by its lower half, which is overwritten."""
    width = A.shape[0]
    for i in range(width):
        for j in range(i):
            total = A[i, j]
            for k in range(j):
                total -= A[i, k] * A[j, k]
            A[i, j] = total / A[j, j]
        total = A[i, i]
        for k in range(i):
            total -= A[i, k] * A[i, k]
        A[i, i] = np.sqrt(total)
    for i in range(width):
        total = rhs[i]
        for k in range(i):
            total -= A[i, k] * rhs[k]
        rhs[i] = total / A[i, i]
    for i in range(width):
        rhs[i] += np.float64(z[i])
    for i in range(width - 1, -1, -1):
        rhs[i] /= A[i, i]
        for k in range(i):
            rhs[k] -= A[i, k] * rhs[i]
        out[i] = np.float32(rhs[i])


@njit(**_JIT)
def draw_rows(out, numbers, starts, index, value, other, mu, Lambda, tau, n_factors, place, key):
    """Draw every row of a stripe given the other side.

    `Lambda` is the diagonal or the matrix of the prior's precisions, `place` is (round, stream
    word). Returns the sum of squared errors of the new rows.
    """
    width = out.shape[1]
    P = np.zeros((width, width), np.float32)
    A = np.zeros((width, width), np.float64)
    rhs, shift = np.zeros(width, np.float64), np.zeros(width, np.float64)
    x, z = np.zeros((4, width), np.float32), np.zeros(width + 3, np.float32)
    for d in range(width):
        if Lambda.ndim == 1:
            shift[d] = Lambda[d] * mu[d]
        else:
            for e in range(width):
                shift[d] += Lambda[d, e] * mu[e]
    sse = 0.0
    for k in range(out.shape[0]):
        lo, hi = starts[k], starts[k + 1]
        accumulate(P, rhs, x, other, index, value, lo, hi, n_factors)
        for d in range(width):
            rhs[d] = shift[d] + tau * rhs[d]
            for e in range(d + 1):
                A[d, e] = tau * np.float64(P[d, e])
                if Lambda.ndim == 2:
                    A[d, e] += Lambda[d, e]
            if Lambda.ndim == 1:
                A[d, d] += Lambda[d]
        fill_normals(z, (width + 3) // 4, numbers[k], place[0], place[1], key[0], key[1])
        cholesky_draw(A, rhs, z, out[k])
        sse += squared_errors(out[k], other, index, value, lo, hi, n_factors)
    return sse


@njit(**_JIT)
def squared_errors(row, other, index, value, lo, hi, n_factors):
    """Sum of squared errors of one row's ratings."""
    sse = 0.0
    for n in range(lo, hi):
        partner = other[index[n]]
        total = np.float32(0.0)
        for d in range(n_factors):
            total += row[d] * partner[d]
        if row.shape[0] > n_factors:
            total += row[n_factors] + partner[n_factors]
        error = np.float64(value[n] - total)
        sse += error * error
    return sse
