"""Compiled draws of rows that have Gaussian priors of their own, and the Gaussians that they leave.

A Gaussian of a row is its mean and its precision, a symmetric matrix of which the lower half is
stored, row by row: `triangle`. What a chain leaves of a row is found without its draws: the mean of
its conditional means, and as covariance the mean of its conditional covariances plus the covariance
of the conditional means, which is that of the draws with less noise (Rao and Blackwell).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.jit import ENTRY, PART, njit
from bayesmf.kernels.keys import fill_normals
from bayesmf.kernels.row_posterior import round_up, row_posterior, solve_back
from bayesmf.kernels.whole_rows import lean, tell_sums


class MomentSums(NamedTuple):
    """Sums over the sweeps of a chain, for each row: conditional means and second moments."""

    mean: NDArray[np.float64]  # (rows, width)
    second: NDArray[np.float64]  # (rows, triangle): m m^T, and covariances where they were found


class GaussianScratch(NamedTuple):
    """Buffers for one row: its prior's precision and shift, its mean, the inverse of a factor."""

    Lambda: NDArray[np.float64]
    shift: NDArray[np.float64]
    mean: NDArray[np.float64]
    inverse: NDArray[np.float64]
    z: NDArray[np.float32]


def make_gaussian_scratch(width: int) -> GaussianScratch:
    """Allocate for rows of `width` columns."""
    square = (width, width)
    return GaussianScratch(
        np.zeros(square), np.zeros(width), np.zeros(width), np.zeros(square),
        np.zeros(4 * (width // 4 + 1), np.float32),
    )  # fmt: skip


def triangle(width: int) -> int:
    """Numbers in the lower half of a matrix."""
    return width * (width + 1) // 2


@njit(**PART)
def unpack(matrix, packed):
    """Both halves of the symmetric matrix of which `packed` is the lower one."""
    at = 0
    for d in range(matrix.shape[0]):
        for e in range(d + 1):
            matrix[d, e] = matrix[e, d] = packed[at]
            at += 1


@njit(**PART)
def multiply(out, matrix, vector):
    """out = matrix @ vector."""
    for d in range(out.shape[0]):
        total = 0.0
        for e in range(out.shape[0]):
            total += matrix[d, e] * np.float64(vector[e])
        out[d] = total


@njit(**PART)
def invert_factor(W, A, inverse):
    """W = L^-1, lower, where A has L below its diagonal and `inverse` that of its diagonal."""
    for i in range(W.shape[0]):
        for c in range(i):
            W[i, c] = 0.0
        for k in range(i):
            factor = -A[i, k] * inverse[i]
            for c in range(k + 1):
                W[i, c] += factor * W[k, c]
        W[i, i] = inverse[i]


@njit(**PART)
def add_square(packed, W, weight):
    """packed += weight * W.T @ W, the lower half, for lower W."""
    for k in range(W.shape[0]):
        at = 0
        for d in range(k + 1):
            own = weight * W[k, d]
            for e in range(d + 1):
                packed[at + e] += own * W[k, e]
            at += d + 1


@njit(**PART)
def factor(C, inverse):
    """Cholesky's factor of C in place, lower, and the inverse of its diagonal; False if none."""
    sound = True
    for i in range(C.shape[0]):
        for j in range(i + 1):
            total = C[i, j]
            for k in range(j):
                total -= C[i, k] * C[j, k]
            if i > j:
                C[i, j] = total * inverse[j]
            else:
                sound = sound and total > 0.0  # NaN is not sound either
                C[i, i] = np.sqrt(total)
                inverse[i] = 1.0 / C[i, i]
    return sound


@njit(**ENTRY)
def draw_gaussians(out, told, ratings, prior, sweep, scratch, room, sums, covariances):
    """Draw all rows given the other side, and add what is known of them to `sums`.

    `prior` is (means, triangles of precisions), one of each for all rows, or one for each row.
    `out` holds the old rows and gets the new ones, `told` the sums of each row's ratings, as
    `draw_primal` has it. `sums` without rows are not added to; conditional covariances are, times
    the number `covariances`, where that is not 0.
    """
    A, inverse, solution, z = scratch.A, scratch.inverse, scratch.solution, scratch.z
    Lambda, shift, mean, W, _ = room
    number, starts = ratings.number, ratings.starts
    n_factors, taus, relax, (round_, word, key) = sweep
    means, triangles = prior
    width = out.shape[1]
    size = round_up(width, 4)
    for row in range(out.shape[0]):
        lo, hi, tau = starts[row], starts[row + 1], taus[row]
        own = row if means.shape[0] > 1 else 0
        unpack(Lambda, triangles[own])
        multiply(shift, Lambda, means[own])
        fill_normals(z, size // 4, number[row], round_, word, key[0], key[1])
        squares = row_posterior(scratch, ratings, lo, hi, shift, Lambda, tau, n_factors)
        if sums.mean.shape[0] > 0:
            solve_back(A, inverse, solution, z, size, width, 0.0)
            at = 0
            for d in range(width):
                mean[d] = solution[d]
                sums.mean[row, d] += mean[d]
                for e in range(d + 1):
                    sums.second[row, at + e] += mean[d] * mean[e]
                at += d + 1
            if covariances > 0.0:
                invert_factor(W, A, inverse)
                add_square(sums.second[row], W, covariances)
        if relax > 0.0:
            lean(A, inverse, z, out[row], solution, size, relax)
        length = solve_back(A, inverse, solution, z, size, width, 1.0)
        for d in range(width):
            out[row, d] = solution[d]
        if hi > lo:
            tell_sums(
                told[row], squares, length, solution, scratch.target, scratch.bias, Lambda, tau,
                n_factors,
            )  # fmt: skip


@njit(**ENTRY)
def match_moments(mean, packed, sums, n_sweeps, room):
    """The Gaussians with the moments that `sums` over so many sweeps have: means and precisions.

    Returns the number of rows whose covariance has no inverse, which are NaN.
    """
    C, inverse, own, W = room.Lambda, room.shift, room.mean, room.inverse
    width, bad, found = mean.shape[1], 0, np.empty(packed.shape[1])
    for row in range(mean.shape[0]):
        at = 0
        for d in range(width):
            own[d] = sums.mean[row, d] / n_sweeps
            mean[row, d] = own[d]
            for e in range(d + 1):
                C[d, e] = sums.second[row, at + e] / n_sweeps - own[d] * own[e]
            at += d + 1
        bad += not factor(C, inverse)
        invert_factor(W, C, inverse)
        for at in range(packed.shape[1]):
            found[at] = 0.0
        add_square(found, W, 1.0)
        for at in range(packed.shape[1]):
            packed[row, at] = found[at]
    return bad


@njit(**ENTRY)
def combine_gaussians(mean, packed, first, others, least, room):
    """Multiply Gaussians of the same rows, and divide by the one that was counted too often.

    `first` is (means, triangles), a prior that the `others`, arrays (k, rows, ...), have in common:
    so the product is first * prod_k (others[k] / first). What each adds to the precision is
    positive but for the noise of its chain; where the product's precision would be less than the
    share `least` of the first's in some direction, all of them count by half, by a quarter, or not
    at all. Gives means and Cholesky's factors of precisions, with their diagonals inverted; returns
    the number of rows where they did not count in full.
    """
    A, inverse, solution, B = room.Lambda, room.shift, room.mean, room.inverse
    base, triangles = first[1], others[1]
    width, less = mean.shape[1], 0
    for row in range(mean.shape[0]):
        for attempt in range(4):
            count = 0.5**attempt if attempt < 3 else 0.0
            at = 0
            for d in range(width):
                for e in range(d + 1):
                    total = old = np.float64(base[row, at])
                    for k in range(triangles.shape[0]):
                        total += count * (np.float64(triangles[k, row, at]) - old)
                    A[d, e], B[d, e] = total, total - least * old
                    at += 1
            if factor(B, inverse):
                break
        less += attempt > 0
        for d in range(width):
            solution[d] = 0.0
        add_shift(solution, base[row], first[0][row], 1.0 - count * triangles.shape[0])
        for k in range(triangles.shape[0]):
            add_shift(solution, triangles[k, row], others[0][k, row], count)
        factor(A, inverse)
        solve(A, inverse, solution)
        at = 0
        for d in range(width):
            mean[row, d] = solution[d]
            for e in range(d):
                packed[row, at + e] = A[d, e]
            packed[row, at + d] = inverse[d]
            at += d + 1
    return less


@njit(**PART)
def add_shift(out, packed, mean, weight):
    """out += weight * (the matrix of a triangle) @ mean."""
    at = 0
    for d in range(out.shape[0]):
        for e in range(d + 1):
            entry = weight * np.float64(packed[at])
            out[d] += entry * np.float64(mean[e])
            if e < d:
                out[e] += entry * np.float64(mean[d])
            at += 1


@njit(**PART)
def solve(L, inverse, x):
    """x = L^-T L^-1 x in place, for lower L with the inverse of its diagonal."""
    n = x.shape[0]
    for i in range(n):
        for k in range(i):
            x[i] -= L[i, k] * x[k]
        x[i] *= inverse[i]
    for i in range(n - 1, -1, -1):
        x[i] *= inverse[i]
        for k in range(i):
            x[k] -= L[i, k] * x[i]


@njit(**ENTRY)
def draw_products(out, mean, packed, number, counter, room):
    """Draw rows from Gaussians, means and factors as `combine_gaussians` gives them."""
    round_, word, key = counter
    x, z = room.shift, room.z
    width = out.shape[1]
    for row in range(out.shape[0]):
        fill_normals(z, round_up(width, 4) // 4, number[row], round_, word, key[0], key[1])
        for d in range(width):
            x[d] = z[d]
        at = packed.shape[1]
        for i in range(width - 1, -1, -1):
            at -= i + 1
            x[i] *= packed[row, at + i]
            for k in range(i):
                x[k] -= packed[row, at + k] * x[i]
        for d in range(width):
            out[row, d] = mean[row, d] + x[d]
