"""Compiled conditional draws of rows: the inside of Algorithm 1, for both models.

Given the other side, a row's posterior is Gaussian. With a bias the regressors of a user are
[V_j, 1] and the target r - b_j, so features and bias are drawn jointly.

A row with many ratings is drawn from its precision matrix A = Lambda + tau sum x x^T
(`draw_primal`), a row with few from the smaller matrix between its ratings (`draw_dual`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.csr import rating_at
from bayesmf.kernels.gather import Gathered, gather, padded
from bayesmf.kernels.jit import ENTRY, PART, njit
from bayesmf.kernels.keys import fill_normals

# Ratings summed in float32 before they join the float64 sums. Longer sums are faster, until
# they leave the second-level cache.
CHUNK = 256
# Up to this many ratings per column the dual form is no slower (widths 31 to 101).
DUAL_SHARE = 0.7
# A pivot this small beside its diagonal has lost the digits that float32 sums have.
LOST_PIVOT = 1e-3


class RowScratch(NamedTuple):
    """Buffers of a half-sweep, allocated once."""

    A: NDArray[np.float64]  # the matrix to factor; below it four rows of right-hand sides
    inverse: NDArray[np.float64]  # of the factor's diagonal
    solution: NDArray[np.float64]
    target: NDArray[np.float64]
    x: NDArray[np.float32]  # regressors: a column for a rating
    e: NDArray[np.float32]  # targets: ratings without the other side's biases
    at: NDArray[np.uint64]  # where their partners' rows begin
    zeros: NDArray[np.float32]  # as wide as regressors
    y: NDArray[np.float64]  # regressors in float64; in the dual form a row for a rating
    z: NDArray[np.float32]


@njit(inline="always")
def round_up(n, unit):
    """The next multiple of `unit` from n on."""
    return (n + unit - 1) // unit * unit


def make_row_scratch(width: int, n_factors: int) -> RowScratch:
    """Allocate for rows of `width` columns, of which `n_factors` are features."""
    rows, columns = (width // 4 + 1) * 4, (max(CHUNK, width) // 8 + 1) * 8
    # Columns an odd number of vectors apart: they would share cache sets otherwise.
    columns += 8 * (columns // 8 % 2 == 0)
    padded_width = padded(n_factors)
    return RowScratch(
        A=np.zeros((rows + 4, rows + 4)),
        inverse=np.zeros(rows),
        solution=np.zeros(rows),
        target=np.zeros(rows),
        x=np.zeros((max(rows, padded_width), columns), np.float32),
        e=np.zeros(columns, np.float32),
        at=np.zeros(columns, np.uint64),
        zeros=np.zeros(padded_width, np.float32),
        y=np.zeros((rows, columns)),
        z=np.zeros(2 * rows, np.float32),
    )


@njit(**PART)
def add_products(P, x, corner, last, right, n, sign):
    """P += sign * x[:, :n] @ x[:, :n].T, lower half: rows corner..last, columns corner..right.

    In tiles of 4 x 2: eight running sums are what the vector registers hold. All limits are
    multiples of four.
    """
    for d in range(corner, last, 4):
        p0, p1, p2, p3 = x[d], x[d + 1], x[d + 2], x[d + 3]
        for e in range(corner, min(right, d + 4), 2):
            q0, q1 = x[e], x[e + 1]
            s00 = s01 = s10 = s11 = s20 = s21 = s30 = s31 = x.dtype.type(0)
            for k in range(n):
                s00 += p0[k] * q0[k]
                s01 += p0[k] * q1[k]
                s10 += p1[k] * q0[k]
                s11 += p1[k] * q1[k]
                s20 += p2[k] * q0[k]
                s21 += p2[k] * q1[k]
                s30 += p3[k] * q0[k]
                s31 += p3[k] * q1[k]
            P[d, e] += sign * s00
            P[d, e + 1] += sign * s01
            P[d + 1, e] += sign * s10
            P[d + 1, e + 1] += sign * s11
            P[d + 2, e] += sign * s20
            P[d + 2, e + 1] += sign * s21
            P[d + 3, e] += sign * s30
            P[d + 3, e + 1] += sign * s31


@njit(**PART)
def accumulate(scratch, ratings, lo, hi, width, n_factors, exactly):
    """A = sum of [x, target] [x, target]^T (lower half) over the ratings lo..hi of a row.

    Sums of a chunk are in float32, or `exactly` in float64.
    """
    A, x, y, e, zeros = scratch.A, scratch.x, scratch.y, scratch.e, scratch.zeros
    # Not a literal 0: functions are compiled apart for those.
    rows, corner = A.shape[0] - 4, np.int64(0)
    gathered = Gathered(x.reshape(x.size), np.uint64(x.shape[1]), e, scratch.at)
    clear(A, rows + 4)
    for start in range(lo, hi, CHUNK):
        n = min(CHUNK, hi - start)
        gather(gathered, ratings, np.uint64(len(zeros)), start, n, zeros, np.float32(0.0))
        for k in range(round_up(n, 8)):
            if width > n_factors:
                x[n_factors, k] = 1.0 if k < n else 0.0
            x[width, k] = e[k]
        n = round_up(n, 8)
        if exactly:
            for d in range(rows):
                for k in range(n):
                    y[d, k] = x[d, k]
            add_products(A, y, corner, rows, rows, n, 1.0)
        else:
            add_products(A, x, corner, rows, rows, n, 1.0)


@njit(**PART)
def clear(A, n):
    """A[:n] = 0."""
    # Not a slice: assignments to slices take long to compile.
    for i in range(n):
        for k in range(A.shape[1]):
            A[i, k] = 0.0


@njit(**PART)
def factor_block(A, inverse, j, lost):
    """The four pivots from j, whose block has been reduced. False if one has lost its digits."""
    sound = True
    for c in range(j, j + 4):
        pivot = A[c, c]
        for k in range(j, c):
            pivot -= A[c, k] * A[c, k]
        # Said this way round, NaN is not sound either.
        sound = sound and pivot > lost * inverse[c]
        inverse[c] = 1.0 / np.sqrt(pivot)
        for i in range(c + 1, j + 4):
            total = A[i, c]
            for k in range(j, c):
                total -= A[i, k] * A[c, k]
            A[i, c] = total * inverse[c]
    return sound


@njit(**PART)
def solve_panel(A, inverse, j, last):
    """Four columns from j of the factor, for the rows below its block of pivots."""
    i0, i1, i2, i3 = inverse[j], inverse[j + 1], inverse[j + 2], inverse[j + 3]
    l10, l20, l30 = A[j + 1, j], A[j + 2, j], A[j + 3, j]
    l21, l31, l32 = A[j + 2, j + 1], A[j + 3, j + 1], A[j + 3, j + 2]
    for i in range(j + 4, last):
        a0 = A[i, j] * i0
        a1 = (A[i, j + 1] - a0 * l10) * i1
        a2 = (A[i, j + 2] - a0 * l20 - a1 * l21) * i2
        a3 = (A[i, j + 3] - a0 * l30 - a1 * l31 - a2 * l32) * i3
        A[i, j], A[i, j + 1], A[i, j + 2], A[i, j + 3] = a0, a1, a2, a3


@njit(**PART)
def cholesky(A, inverse, size, lost):
    """Factor A = L L^T in place (lower half), `size` a multiple of four.

    The four rows below A are right-hand sides b and become L^-1 b: forward substitution is the
    same arithmetic. Of L's diagonal the inverse is stored. False if a pivot has lost its digits.
    """
    for d in range(size):
        # What its pivot is compared with, until it has one.
        inverse[d] = A[d, d]
    for j in range(0, size, 4):
        add_products(A, A, j, size + 4, j + 4, j, -1.0)
        if not factor_block(A, inverse, j, lost) and lost > 0.0:
            return False
        solve_panel(A, inverse, j, size + 4)
    return True


@njit(**PART)
def solve_back(A, inverse, solution, z, b, n, noise):
    """solution = L^-T (row b of A + noise * z), n of them. Returns |right-hand side|^2."""
    length = 0.0
    for d in range(n):
        solution[d] = A[b, d] + noise * np.float64(z[d])
        length += solution[d] * solution[d]
    for i in range(n - 1, -1, -1):
        row, value = A[i], solution[i] * inverse[i]
        solution[i] = value
        for k in range(i):
            solution[k] -= row[k] * value
    return length


@njit(**PART)
def lean(A, inverse, z, old, solution, b, relax):
    """Make z such that row b of A + z leads beyond the mean: over-relaxation (Adler 1981).

    In units of the factor L the row deviates from its mean by L^T old - b; the new deviation is
    -relax times that, and fresh noise for the rest of the variance.
    """
    width = old.shape[0]
    for i in range(width):
        row, value = A[i], np.float64(old[i])
        solution[i] = value / inverse[i]
        for k in range(i):
            solution[k] += row[k] * value
    fresh = np.sqrt(1.0 - relax * relax)
    for d in range(width):
        z[d] = fresh * np.float64(z[d]) - relax * (solution[d] - A[b, d])


@njit(**PART)
def lean_dual(new, mean, old, y, roots, errors, n, relax):
    """Over-relax a plain draw: new = mean - relax (old - mean) + sqrt(1 - relax^2) (new - mean).

    `errors` are those at the mean. Returns the sum of squared errors that the new row leaves.
    """
    fresh, sse = np.sqrt(1.0 - relax * relax), 0.0
    for d in range(new.shape[0]):
        old[d] = fresh * (new[d] - mean[d]) - relax * (old[d] - mean[d])
        new[d] = mean[d] + old[d]
        old[d] /= roots[d]
    for k in range(n):
        error = errors[k]
        for d in range(new.shape[0]):
            error -= y[k, d] * old[d]
        sse += error * error
    return sse


@njit(**PART)
def set_system(A, target, shift, Lambda, tau):
    """From the sums of `accumulate` to the system Lambda + tau P, its right-hand side below.

    Returns the sum of squared targets. Rows between width and size become those of the identity.
    """
    width = shift.shape[0]
    size = round_up(width, 4)
    squares = A[width, width]
    for d in range(width):
        target[d] = A[width, d]
        for e in range(d + 1):
            A[d, e] = tau * A[d, e] + Lambda[d, e]
    for d in range(width, size + 4):
        for e in range(size):
            A[d, e] = 1.0 if d == e else 0.0
    for d in range(width):
        A[size, d] = shift[d] + tau * target[d]
    return squares


@njit(**ENTRY)
def draw_primal(out, means, chosen, ratings, prior, sweep, scratch):
    """Draw the chosen rows from their precision matrices. Returns their sum of squared errors.

    `prior` is (Lambda mu, Lambda), Lambda a matrix. `out` holds the old rows and gets the new ones,
    `means` gets the conditional means, unless it has no rows.
    """
    A, inverse, solution, target = scratch.A, scratch.inverse, scratch.solution, scratch.target
    z, number, starts = scratch.z, ratings.number, ratings.starts
    n_factors, tau, relax, (round_, word, key) = sweep
    shift, Lambda = prior
    width = out.shape[1]
    size = round_up(width, 4)
    sse = 0.0
    for row in chosen:
        lo, hi = starts[row], starts[row + 1]
        fill_normals(z, size // 4, number[row], round_, word, key[0], key[1])
        squares = 0.0
        for lost in (LOST_PIVOT, 0.0):
            accumulate(scratch, ratings, lo, hi, width, n_factors, lost == 0.0)
            squares = set_system(A, target, shift, Lambda, tau)
            if cholesky(A, inverse, size, lost):
                break
        if relax > 0.0:
            lean(A, inverse, z, out[row], solution, size, relax)
        for draw in range(0 if means.shape[0] > 0 else 1, 2):
            rows = out if draw else means
            length = solve_back(A, inverse, solution, z, size, width, float(draw))
            for d in range(width):
                rows[row, d] = solution[d]
        sse += errors_left(squares, length, solution, target, Lambda, tau) if hi > lo else 0.0
    return sse


@njit(**PART)
def errors_left(squares, length, x, target, Lambda, tau):
    """The sum of squared errors at x, where x^T (Lambda + tau P) x = length."""
    fit, pull = 0.0, 0.0
    for d in range(Lambda.shape[0]):
        fit += x[d] * target[d]
        for e in range(Lambda.shape[0]):
            pull += x[d] * Lambda[d, e] * x[e]
    sse = squares - 2.0 * fit + (length - pull) / tau
    return 0.0 if sse < 0.0 else sse


@njit(**PART)
def whiten(scratch, ratings, lo, n, prior, tau, n_factors):
    """Rows of y: regressors of the ratings from lo on, in units of the prior's deviations.

    Below A comes what the prior's draw and the prior's mean leave of the targets.
    """
    A, y, z, (mu, roots) = scratch.A, scratch.y, scratch.z, prior
    R, bias, index = ratings.features, ratings.bias, ratings.other
    value, levels = ratings.value, ratings.levels
    width, size, spread = mu.shape[0], round_up(n, 4), 1.0 / np.sqrt(tau)
    padded_width = round_up(n_factors, 8)
    clear(y, size)
    for k in range(n):
        at = index[lo + k] * padded_width
        row = R[at : at + padded_width]
        left, noise = np.float64(rating_at(value, levels, lo + k)), 0.0
        if width > n_factors:
            y[k, n_factors] = roots[n_factors]
            left -= bias[index[lo + k]] + mu[n_factors]
            noise = roots[n_factors] * np.float64(z[n_factors])
        for d in range(n_factors):
            y[k, d] = row[d] * roots[d]
            left -= row[d] * mu[d]
            noise += y[k, d] * np.float64(z[d])
        A[size + 1, k] = left
        A[size, k] = left - noise - spread * np.float64(z[width + k])


@njit(**PART)
def correct(out, row, scratch, n, prior, tau, noise):
    """out[row] = mu + roots * (noise * z + tau y[:n].T @ solution[:n])."""
    y, z, solution, total, (mu, roots) = (
        scratch.y, scratch.z, scratch.solution, scratch.target, prior,
    )  # fmt: skip
    for d in range(mu.shape[0]):
        total[d] = noise * np.float64(z[d])
    for k in range(n):
        weight = tau * solution[k]
        for d in range(mu.shape[0]):
            total[d] += weight * y[k, d]
    for d in range(mu.shape[0]):
        out[row, d] = mu[d] + roots[d] * total[d]


@njit(**ENTRY)
def draw_dual(out, means, chosen, ratings, prior, sweep, scratch):
    """Draw the chosen rows by correcting draws from their prior. Returns the sum of squared errors.

    x0 from the prior and e from the noise are a draw of row and errors before the ratings are
    seen; x = x0 + Lambda^-1 X^T S^-1 (t - X x0 - e), S = X Lambda^-1 X^T + 1 / tau, is one after.
    `prior` is (mu, Lambda^-1/2), Lambda a diagonal; `out` and `means` as for `draw_primal`.
    """
    A, inverse, solution = scratch.A, scratch.inverse, scratch.solution
    y, z, number, starts = scratch.y, scratch.z, ratings.number, ratings.starts
    n_factors, tau, relax, (round_, word, key) = sweep
    roots = prior[1]
    width, spread, sse = out.shape[1], 1.0 / np.sqrt(tau), 0.0
    old, errors = np.zeros(width), np.zeros(width)
    for row in chosen:
        lo, n = starts[row], starts[row + 1] - starts[row]
        size = round_up(n, 4)
        fill_normals(z, (width + n + 3) // 4, number[row], round_, word, key[0], key[1])
        clear(A, size + 4)
        whiten(scratch, ratings, lo, n, prior, tau, n_factors)
        add_products(A, y, np.int64(0), size, size, round_up(width, 8), tau)
        for d in range(size):
            A[d, d] += 1.0
        cholesky(A, inverse, size, 0.0)
        for d in range(width):
            old[d] = out[row, d]
        for draw in range(0 if means.shape[0] > 0 else 1, 2):
            rows = out if draw else means
            solve_back(A, inverse, solution, z, size + 1 - draw, n, 0.0)
            correct(rows, row, scratch, n, prior, tau, float(draw))
            if draw == 0:
                errors[:n] = solution[:n]
        if relax > 0.0:
            sse += lean_dual(out[row], means[row], old, y, roots, errors, n, relax)
            continue
        for k in range(n):
            # The error that is left, t - X x, is e + S^-1 (...) / tau.
            error = spread * np.float64(z[width + k]) + solution[k]
            sse += error * error
    return sse
