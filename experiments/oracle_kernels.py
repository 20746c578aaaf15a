"""Compiled parts of oracle.py: rows estimated while the other side is known.

A row x has the prior N(0, I), because regressors come multiplied by its planted deviations. Its
posterior is Gaussian where ratings are plain, and found in one step of Newton's. Of a star only
the interval is known that the rating fell in; the posterior then has one peak, at which Newton's
steps end, and is taken as the Gaussian with that peak and its curvature.

The algebra is separate from the library's, so that a bound shares no code with the samplers.
"""
# mypy: disallow-untyped-defs=False, disallow-untyped-decorators=False, disallow-untyped-calls=False

from __future__ import annotations

import math

import numpy as np

from bayesmf.kernels.jit import ENTRY, EXACT, PART, njit

_MOST_STEPS = 50
_CHUNK = 64  # ratings whose regressors are at hand before their squares are added up
_CLOSE = 1e-3  # steps end when none is longer than this part of the prior's deviations
_LOWEST, _HIGHEST = 1, 5
_ROOT_HALF = math.sqrt(0.5)
_INVERSE_ROOT = 1.0 / math.sqrt(2.0 * math.pi)


@njit(inline="always")
def _normal_cdf(x):
    """scipy.stats.norm.cdf(x)."""
    return 0.5 * math.erfc(-x * _ROOT_HALF)


@njit(inline="always")
def _density(x):
    """scipy.stats.norm.pdf(x)."""
    return _INVERSE_ROOT * math.exp(-0.5 * x * x)


@njit(**EXACT)
def expected_star(centre, deviation):
    """Mean and mean square of a star: a normal number that was rounded and clipped to 1..5."""
    # Sums of the chances to reach a star: E[s] = 1 + sum P(s >= k), E[s^2] = 1 + sum (2k-1) P.
    mean, square = float(_LOWEST), float(_LOWEST * _LOWEST)
    for star in range(_LOWEST + 1, _HIGHEST + 1):
        reached = _normal_cdf((centre - (star - 0.5)) / deviation)
        mean += reached
        square += (2 * star - 1) * reached
    return mean, square


@njit(**EXACT)
def pull_of_star(star, centre, noise):
    """Logarithm of a star's chance: its value, slope and negative curvature in `centre`."""
    low = -np.inf if star <= _LOWEST else (star - 0.5 - centre) / noise
    high = np.inf if star >= _HIGHEST else (star + 0.5 - centre) / noise
    sign = 1.0
    if low > 0.0:
        # The lower tail: there differences of the distribution function keep their digits.
        low, high, sign = -high, -low, -1.0
    chance = _normal_cdf(high) - _normal_cdf(low)
    if chance < 1e-280:
        # So far out, the star says what a plain rating at the interval's near end says.
        return -0.5 * high * high, sign * high / noise, 1.0 / (noise * noise)
    at_low = 0.0 if low == -np.inf else _density(low)
    at_high = 0.0 if high == np.inf else _density(high)
    slope = (at_low - at_high) / chance
    bend = slope * slope
    if at_high > 0.0:
        bend += high * at_high / chance
    if at_low > 0.0:
        bend -= low * at_low / chance
    return math.log(chance), sign * slope / noise, max(bend, 1e-12) / (noise * noise)


@njit(inline="always")
def _pull(rating, centre, noise, stars):
    """Logarithm of a rating's chance or density: value, slope and negative curvature."""
    if stars:
        return pull_of_star(rating, centre, noise)
    error = (rating - centre) / noise
    return -0.5 * error * error, error / noise, 1.0 / (noise * noise)


@njit(**PART)
def _add_squares(A, x, n):
    """A += sum of x[k] x[k]^T over k < n, lower half; zeros follow up to a multiple of four."""
    for k in range(0, n, 4):
        x0, x1, x2, x3 = x[k], x[k + 1], x[k + 2], x[k + 3]
        for d in range(A.shape[0]):
            a, c0, c1, c2, c3 = A[d], x0[d], x1[d], x2[d], x3[d]
            for e in range(d + 1):
                a[e] += c0 * x0[e] + c1 * x1[e] + c2 * x2[e] + c3 * x3[e]


@njit(**PART)
def _factor(A):
    """A = L L^T in place, lower half; of L's diagonal the inverse."""
    for d in range(A.shape[0]):
        for e in range(d + 1):
            left = A[d, e]
            for k in range(e):
                left -= A[d, k] * A[e, k]
            A[d, e] = left * A[e, e] if e < d else 1.0 / math.sqrt(left)


@njit(**PART)
def _forward(A, right, out):
    """out = L^-1 right. Returns |out|^2: the variance of right . row if L L^T is its precision."""
    total = 0.0
    for d in range(right.size):
        left = np.float64(right[d])
        for e in range(d):
            left -= A[d, e] * out[e]
        out[d] = left * A[d, d]
        total += out[d] * out[d]
    return total


@njit(**PART)
def _solve(A, right, out):
    """out = L^-T L^-1 right."""
    _forward(A, right, out)
    for d in range(right.size - 1, -1, -1):
        out[d] *= A[d, d]
        for e in range(d):
            out[e] -= A[d, e] * out[d]


@njit(**PART)
def _sum_up(work, row, side, ratings, lo, hi, noise, stars):
    """A = I + curvature, slope and, returned, height of a row's log posterior at `row`."""
    A, slope, _, x = work
    (table, offset), (index, value) = side, ratings
    width, height = row.size, 0.0
    for d in range(width):
        for e in range(d + 1):
            A[d, e] = 1.0 if d == e else 0.0
        slope[d] = -row[d]
        height -= 0.5 * row[d] * row[d]
    for start in range(lo, hi, _CHUNK):
        n = min(_CHUNK, hi - start)
        for k in range(n):
            other, centre = table[index[start + k]], offset[index[start + k]]
            for d in range(width):
                centre += row[d] * other[d]
            log, pull, bend = _pull(value[start + k], centre, noise, stars)
            height += log
            root = math.sqrt(bend)
            for d in range(width):
                slope[d] += pull * other[d]
                x[k, d] = root * other[d]
        for k in range(n, (n + 3) // 4 * 4):
            for d in range(width):
                x[k, d] = 0.0
        _add_squares(A, x, n)
    return height


@njit(**PART)
def find_peak(work, row, side, ratings, lo, hi, noise, stars):
    """Climb from zero to the peak of a row's posterior; A becomes the factor of its curvature.

    Returns the number of steps, or -1 if they did not end.
    """
    A, slope, step, _ = work
    width = row.size
    best = -np.inf
    for d in range(width):
        row[d] = step[d] = 0.0
    for n in range(_MOST_STEPS):
        height = _sum_up(work, row, side, ratings, lo, hi, noise, stars)
        if height < best - 1e-9 * abs(best):
            # Too far: half the way back. The posterior has one peak, so this ends.
            for d in range(width):
                step[d] *= 0.5
                row[d] -= step[d]
            continue
        best = height
        _factor(A)
        _solve(A, slope, step)
        longest = 0.0
        for d in range(width):
            row[d] += step[d]
            longest = max(longest, abs(step[d]))
        # The log posterior of plain ratings is a parabola: one step is exact.
        if not stars or longest < _CLOSE:
            return n + 1
    _sum_up(work, row, side, ratings, lo, hi, noise, stars)
    _factor(A)
    return -1


@njit(**ENTRY)
def predict_rows(out, starts, ratings, side, test_starts, test, noise, stars):
    """Predict the test pairs of every row from the row's posterior given its own ratings.

    `ratings` are rows of the other side and the ratings themselves, `side` the regressors and the
    known part of a rating by row of the other side. `test` are rows of the other side as well,
    those of our row r from test_starts[r] on, and `out` gets their expected ratings. Returns the
    number of rows whose peak was not found.
    """
    table, offset = side
    width = table.shape[1]
    work = np.zeros((width, width)), np.zeros(width), np.zeros(width), np.zeros((_CHUNK, width))
    row, forward, lost = np.zeros(width), np.zeros(width), 0
    for r in range(starts.size - 1):
        if test_starts[r] == test_starts[r + 1]:
            continue
        lost += find_peak(work, row, side, ratings, starts[r], starts[r + 1], noise, stars) < 0
        for t in range(test_starts[r], test_starts[r + 1]):
            other, centre = table[test[t]], offset[test[t]]
            for d in range(width):
                centre += row[d] * other[d]
            if stars:
                spread = _forward(work[0], other, forward)
                centre, _ = expected_star(centre, math.sqrt(noise * noise + spread))
            out[t] = centre
    return lost


@njit(**ENTRY)
def score_truth(rows, test, mean, noise, stars):
    """Sums over pairs of a rating's variance given the truth, and of the squared error of its mean.

    `rows` are (U, V, a, b), `test` is (user, item, rating). The mean is E[rating | truth].
    """
    (U, V, a, b), (user, item, rating) = rows, test
    variance, errors = 0.0, 0.0
    for k in range(user.size):
        i, j = user[k], item[k]
        centre = mean + a[i] + b[j]
        for d in range(U.shape[1]):
            centre += U[i, d] * V[j, d]
        if stars:
            centre, square = expected_star(centre, noise)
            variance += square - centre * centre
        else:
            variance += noise * noise
        error = rating[k] - centre
        errors += error * error
    return variance, errors
