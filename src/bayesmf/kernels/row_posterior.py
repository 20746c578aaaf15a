"""The posterior of a row given the other side.

Given the other side's rows V, a row x with ratings r, prior N(mu, Lambda^-1) and noise precision
tau is Gaussian, and depends on its own ratings alone:

    A = Lambda + tau sum w V V^T,    m = A^-1 (Lambda mu + tau sum w r V),

with w the weights of its ratings (1 where the noise does not depend on the other side's row).
With a bias the regressors of a user are [V_j, 1] and the target r - b_j, so features and bias are
solved together. `row_posterior` computes the Cholesky factor of A; one substitution gives the mean
(predictions, new users, explanations) or, with noise, a draw (a half-sweep of Gibbs).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.gather import Gathered, RowRatings, gather, padded
from bayesmf.kernels.jit import ENTRY, PART, njit
from bayesmf.kernels.noise import KNOWN_TO, LEAST_TAU

# Ratings summed in float32 before they are added to float64 sums. Longer sums are faster while they
# fit the second-level cache.
CHUNK = 256
# A pivot below this share of its diagonal has lost the digits of float32 sums.
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
    root: NDArray[np.float32]  # of their weights
    zeros: NDArray[np.float32]  # as wide as regressors
    y: NDArray[np.float64]  # regressors in float64; in the dual form a row for a rating
    z: NDArray[np.float32]
    sums: NDArray[np.float64]  # of A before it is factored
    bias: NDArray[np.float64]  # sums of regressors times that of the bias
    left: NDArray[np.float64]  # dual form: targets minus their prediction by the prior's mean


@njit(inline="always")
def round_up(n, unit):
    """The next multiple of `unit` from n on."""
    return (n + unit - 1) // unit * unit


def make_row_scratch(width: int, n_factors: int) -> RowScratch:
    """Allocate for rows of `width` columns, of which `n_factors` are features."""
    rows, columns = (width // 4 + 1) * 4, (max(CHUNK, width) // 8 + 1) * 8
    # An odd number of vectors, because columns a power of two apart share cache sets.
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
        root=np.zeros(columns, np.float32),
        zeros=np.zeros(padded_width, np.float32),
        y=np.zeros((rows, columns)),
        z=np.zeros(2 * rows, np.float32),
        sums=np.zeros((width + 1, width + 1)),
        bias=np.zeros(width),
        left=np.zeros(rows),
    )


@njit(**PART)
def add_products(P, x, corner, last, right, n, sign):
    """P += sign * x[:, :n] @ x[:, :n].T, lower half: rows corner..last, columns corner..right.

    In tiles of 4 x 2: eight running sums fit the vector registers. All limits are multiples of
    four.
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
    """A = sum of w [x, target] [x, target]^T (lower half) over the ratings lo..hi of a row.

    Sums of a chunk are in float32, or `exactly` in float64.
    """
    A, x, y, e, zeros = scratch.A, scratch.x, scratch.y, scratch.e, scratch.zeros
    # Not a literal 0, for which the function would be compiled separately.
    rows, corner = A.shape[0] - 4, np.int64(0)
    stride, nothing = np.uint64(x.shape[1]), e[:0]
    gathered = Gathered(x.reshape(x.size), stride, e, scratch.at, scratch.root, nothing)
    clear(A, rows + 4)
    for start in range(lo, hi, CHUNK):
        n = min(CHUNK, hi - start)
        gather(gathered, ratings, np.uint64(len(zeros)), start, n, zeros, np.float32(0.0))
        for k in range(round_up(n, 8)):
            if width > n_factors:
                x[n_factors, k] = scratch.root[k]
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
    """Factor the four pivots from j, whose block is reduced. False if one is inaccurate."""
    sound = True
    for c in range(j, j + 4):
        pivot = A[c, c]
        for k in range(j, c):
            pivot -= A[c, k] * A[c, k]
        # This comparison is False for NaN.
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
    same arithmetic. L's diagonal is stored inverted. False if a pivot is inaccurate.
    """
    for d in range(size):
        # Until the pivot is computed: the diagonal it is compared with.
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
def set_system(A, target, shift, Lambda, tau):
    """Set up Lambda + tau P from the sums of `accumulate`, with the right-hand side below.

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


@njit(**PART)
def row_posterior(scratch, ratings, lo, hi, shift, Lambda, tau, n_factors):
    """Factor the precision matrix of a row: ratings lo..hi, prior (Lambda mu, Lambda).

    Leaves L in scratch.A, the inverse of its diagonal in scratch.inverse, L^-1 (Lambda mu + tau
    sum w r V) in the row of A at `round_up(width, 4)`: `solve_back` makes mean or draw of it.
    Returns the sum of squared targets; scratch.target holds sum w r V.
    """
    size, squares = round_up(shift.shape[0], 4), 0.0
    for lost in (LOST_PIVOT, 0.0):
        accumulate(scratch, ratings, lo, hi, shift.shape[0], n_factors, lost == 0.0)
        for d in range(shift.shape[0]):
            scratch.bias[d] = scratch.A[n_factors, d]  # unused without bias
        squares = set_system(scratch.A, scratch.target, shift, Lambda, tau)
        if cholesky(scratch.A, scratch.inverse, size, lost):
            break
    return squares


class PaddedRows(NamedTuple):
    """The other side under some draws, padded as by `regressors`."""

    features: NDArray[np.float32]
    bias: NDArray[np.float32]
    root: NDArray[np.float32]


class UnknownNoise(NamedTuple):
    """Input for drawing unknown precisions of ratings: (draws, ...) of each.

    A few Gibbs steps, row given precision and precision given row, with the same random numbers for
    all rows: the result for a row does not depend on the other rows of a query.
    """

    shape: NDArray[np.float64]  # of the precision's Gamma prior; 0 or less if none
    rate: NDArray[np.float64]
    normals: NDArray[np.float32]  # (draws, steps, width + GAMMA_TRIES)
    uniforms: NDArray[np.float64]  # (draws, steps, GAMMA_TRIES + 1)


def all_known(n_draws: int) -> UnknownNoise:
    """An `UnknownNoise` for known precisions."""
    nothing = np.zeros(n_draws)
    return UnknownNoise(
        nothing, nothing, np.zeros((n_draws, 0, 1), np.float32), np.zeros((n_draws, 0, 1))
    )


# Candidates for a Gamma variate: each is accepted with at least 95%, the last always.
GAMMA_TRIES = 4


@njit(**PART)
def draw_gamma(shape, normals, first, uniforms):
    """A standard Gamma variate, by Marsaglia and Tsang (2000).

    For a shape below 1: a variate of shape + 1 times U^(1 / shape).
    """
    d = (shape + 1.0 if shape < 1.0 else shape) - 1.0 / 3.0
    found = d
    for k in range(GAMMA_TRIES):
        x = np.float64(normals[first + k])
        v = 1.0 + x / np.sqrt(9.0 * d)
        if v <= 0.0:
            continue
        v = v * v * v
        found = d * v
        if np.log(uniforms[k]) < 0.5 * x * x + d - found + d * np.log(v):
            break
    if shape < 1.0:
        found *= uniforms[GAMMA_TRIES] ** (1.0 / shape)
    return found


@njit(**PART)
def draw_unknown_tau(scratch, ratings, lo, hi, shift, Lambda, n_factors, unknown, t):
    """Draw the precision of a row's ratings given the other side, by Gibbs steps with the row.

    Sums over ratings are computed once. Starts at the prior's mean.
    """
    A, sums, solution = scratch.A, scratch.sums, scratch.solution
    width, n, normals = shift.shape[0], hi - lo, unknown.normals[t]
    size = round_up(width, 4)
    tau = unknown.shape[t] / unknown.rate[t]
    accumulate(scratch, ratings, lo, hi, width, n_factors, True)
    for i in range(width + 1):
        for k in range(i + 1):
            sums[i, k] = A[i, k]
    for step in range(normals.shape[0]):
        if step > 0:
            clear(A, A.shape[0])
            for i in range(width + 1):
                for k in range(i + 1):
                    A[i, k] = sums[i, k]
        squares = set_system(A, scratch.target, shift, Lambda, tau)
        cholesky(A, scratch.inverse, size, 0.0)
        solve_back(A, scratch.inverse, solution, normals[step], size, width, 1.0)
        fit, form = 0.0, 0.0
        for d in range(width):
            fit += solution[d] * scratch.target[d]
            form += solution[d] * solution[d] * sums[d, d]
            for e in range(d):
                form += 2.0 * solution[d] * solution[e] * sums[d, e]
        sse = max(squares - 2.0 * fit + form, 0.0)
        gamma = draw_gamma(
            unknown.shape[t] + 0.5 * n, normals[step], width, unknown.uniforms[t, step]
        )
        # Not zero, whose variance would be infinite in float32.
        tau = max(gamma / (unknown.rate[t] + 0.5 * (sse + KNOWN_TO * n)), LEAST_TAU)
    return tau


@njit(**ENTRY)
def solve_rows(
    means, factors, tau, place, chosen, ratings, given, prior, unknown, n_factors, scratch
):
    """Means and precision factors of the chosen rows under each of some draws of the other side.

    `ratings` are (starts, other, value, levels), and a row of -1 has none; `prior` is (Lambda mu,
    Lambda), an entry of each for a draw. tau[k, t] is the precision of row chosen[k]'s ratings, and
    is drawn where it is NaN. What is found of the row comes to place[k] of `means` and `factors`,
    (places, draws, ...). A factor is the lower half of L, row by row, with
    its diagonal inverted; none is written where `factors` has no places.
    """
    starts, other, value, levels = ratings
    shifts, Lambdas = prior
    number = np.empty(0, np.int32)
    A, inverse, width = scratch.A, scratch.inverse, means.shape[2]
    size = round_up(width, 4)
    for t in range(means.shape[1]):
        own = RowRatings(
            number, starts, other, value, levels, given.features[t], given.bias[t], given.root[t]
        )
        shift, Lambda = shifts[t], Lambdas[t]
        for k in range(chosen.shape[0]):
            row = chosen[k]
            lo, hi = np.int64(0), np.int64(0)
            if row >= 0:
                lo, hi = starts[row], starts[row + 1]
            if np.isnan(tau[k, t]):
                tau[k, t] = draw_unknown_tau(
                    scratch, own, lo, hi, shift, Lambda, n_factors, unknown, t
                )
            row_posterior(scratch, own, lo, hi, shift, Lambda, tau[k, t], n_factors)
            solve_back(A, inverse, scratch.solution, scratch.z, size, width, 0.0)
            for d in range(width):
                means[place[k], t, d] = scratch.solution[d]
            if factors.shape[0] > 0:
                at = 0
                for d in range(width):
                    for e in range(d):
                        factors[place[k], t, at] = A[d, e]
                        at += 1
                    factors[place[k], t, at] = inverse[d]
                    at += 1
