"""Compiled kernels for the predictive distribution of a new rating.

Given T posterior draws, the rating of a pair k is predicted by the equal-weight mixture of the
normals N(mu[t, k], var[t, k]).  Every kernel takes `mu` and `var` as C-contiguous arrays of shape
(T, n), float32 or float64, and computes in float64.  The loops run over draws outside and pairs
inside, the order in which the arrays lie in memory.

Variances must not be negative (the answer is then NaN); a variance of zero stands for a point mass
and is treated as the smallest normal number.
"""

import math

import numpy as np

from bayesmf.kernels.jit import APART, EXACT, njit
from bayesmf.kernels.normal import NEAR, erfc_near, exp_near

_SQRT_HALF = math.sqrt(0.5)
_INV_SQRT_2PI = 1.0 / math.sqrt(2.0 * math.pi)
_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
_TINY = float(np.finfo(np.float64).tiny)
_EPS = float(np.finfo(np.float64).eps)
# Far below any log density that can mean something, and small enough that sums stay finite.
_LOG_FLOOR = -1e300
# A bracket halves at least every second step, so this is out of reach of any finite bracket.
_MAX_STEPS = 400


@njit(**EXACT)
def _sd(variance):
    """Return the standard deviation; zero is lifted to stay a divisor, negative gives NaN."""
    v = np.float64(variance)
    return math.sqrt(_TINY if 0.0 <= v < _TINY else v)


@njit(**EXACT)
def _check_components(mu, var):
    if mu.shape != var.shape:
        raise ValueError("mu and var differ in shape: give both as (draws, pairs)")
    if mu.shape[0] == 0:
        raise ValueError("mu and var hold no draws: a mixture needs at least one")


@njit(**EXACT)
def _check_ratings(y, mu, var):
    _check_components(mu, var)
    if y.shape[0] != mu.shape[1]:
        raise ValueError("y does not fit mu and var: give one rating for each of their columns")


@njit(**EXACT)
def mixture_moments(mu, var):
    """Return mean and variance of each pair's mixture.

    Parameters
    ----------
    mu, var : ndarray, shape (T, n)
        Means and variances of the components.

    Returns
    -------
    mean, variance : ndarray of float64, shape (n,)
        The variance is the mean of the component variances plus the variance of the component
        means (law of total variance, divisor T), by Welford's recurrence.
    """
    _check_components(mu, var)
    draws, n = mu.shape
    mean = np.zeros(n)
    variance = np.zeros(n)
    spread = np.zeros(n)
    for t in range(draws):
        weight = 1.0 / (t + 1.0)
        for k in range(n):
            m = np.float64(mu[t, k])
            delta = m - mean[k]
            mean[k] += delta * weight
            spread[k] += delta * (m - mean[k])
            variance[k] += (np.float64(var[t, k]) - variance[k]) * weight
    for k in range(n):
        variance[k] += spread[k] / draws
    return mean, variance


@njit(**EXACT)
def mixture_cdf(y, mu, var):
    """Return the probability of a rating of at most `y` (the PIT, if `y` is the rating).

    Parameters
    ----------
    y : ndarray, shape (n,)
        One value for each pair.
    mu, var : ndarray, shape (T, n)
        Means and variances of the components.

    Returns
    -------
    ndarray of float64, shape (n,)
    """
    _check_ratings(y, mu, var)
    draws, n = mu.shape
    total = np.zeros(n)
    for t in range(draws):
        for k in range(n):
            z = (np.float64(mu[t, k]) - np.float64(y[k])) / _sd(var[t, k])
            total[k] += math.erfc(z * _SQRT_HALF)
    for k in range(n):
        total[k] *= 0.5 / draws
    return total


@njit(**EXACT)
def mixture_log_pdf(y, mu, var):
    """Return the log density of each pair's mixture at `y`.

    Parameters
    ----------
    y : ndarray, shape (n,)
        One value for each pair.
    mu, var : ndarray, shape (T, n)
        Means and variances of the components.

    Returns
    -------
    ndarray of float64, shape (n,)
        By log-sum-exp in one pass; never below -1e300, hence finite for finite input.
    """
    _check_ratings(y, mu, var)
    draws, n = mu.shape
    top = np.full(n, -np.inf)
    total = np.zeros(n)
    for t in range(draws):
        for k in range(n):
            sd = _sd(var[t, k])
            z = (np.float64(y[k]) - np.float64(mu[t, k])) / sd
            term = -0.5 * z * z - math.log(sd)
            if term < _LOG_FLOOR:
                term = _LOG_FLOOR
            if term > top[k]:
                total[k] = total[k] * math.exp(top[k] - term) + 1.0
                top[k] = term
            else:
                total[k] += math.exp(term - top[k])
    for k in range(n):
        top[k] += math.log(total[k] / draws) - _LOG_SQRT_2PI
    return top


@njit(**EXACT)
def _mean_abs(m, sd):
    """Return E|X| for X ~ N(m, sd^2)."""
    z = m / sd
    return m * math.erf(z * _SQRT_HALF) + 2.0 * _INV_SQRT_2PI * sd * math.exp(-0.5 * z * z)


@njit(**EXACT)
def mixture_crps(y, mu, var):
    """Return the continuous ranked probability score of each pair, E|X - y| - E|X - X'| / 2.

    The first expectation is exact.  The second, a sum over all T^2 pairs of draws if taken exactly,
    is taken over the T cyclically shifted pairs (t, (t + T // 2) mod T) only: O(T) work, unbiased
    for two independent draws of the posterior, and exact for T = 1.  It follows that the score of
    one pair is noisy (it can even fall below zero) while its mean over many pairs is not.

    Parameters
    ----------
    y : ndarray, shape (n,)
        One rating for each pair.
    mu, var : ndarray, shape (T, n)
        Means and variances of the components.

    Returns
    -------
    ndarray of float64, shape (n,)
    """
    _check_ratings(y, mu, var)
    draws, n = mu.shape
    shift = draws // 2
    # With an even number of draws the second half of the shifted pairs repeats the first.
    shifted = shift if draws % 2 == 0 else draws
    near = np.zeros(n)
    apart = np.zeros(n)
    for t in range(draws):
        for k in range(n):
            near[k] += _mean_abs(np.float64(mu[t, k]) - np.float64(y[k]), _sd(var[t, k]))
    for t in range(shifted):
        u = (t + shift) % draws
        for k in range(n):
            sd = _sd(np.float64(var[t, k]) + np.float64(var[u, k]))
            apart[k] += _mean_abs(np.float64(mu[t, k]) - np.float64(mu[u, k]), sd)
    for k in range(n):
        near[k] = near[k] / draws - 0.5 * apart[k] / shifted
    return near


@njit(**EXACT)
def _normal_quantile(p):
    """Return the standard normal quantile for 0 < p <= 1/2, by bisection (once per call)."""
    lo = -40.0
    hi = 0.0
    while True:
        mid = 0.5 * (lo + hi)
        if mid <= lo or mid >= hi:
            return mid
        if 0.5 * math.erfc(-mid * _SQRT_HALF) < p:
            lo = mid
        else:
            hi = mid


# Pairs whose quantiles are found together: several vector registers of float64.
_TOGETHER = 16
# Rows of the table of a search, a column for each of these pairs.
_LO, _HI, _X, _NARROW, _PREVIOUS, _BELOW, _DENSITY, _Z, _MEAN, _SPREAD = range(10)
_COLUMNS = 10


@njit(**APART)
def _bracket(z, m, s, n, table):
    """Bounds and a first guess of the quantile of n pairs, and their smallest standard deviations.

    Left of the smallest component quantile every component has less than p below it, right of the
    largest every one has more: the mixture's quantile lies between.
    """
    lo, hi, x, narrow = table[_LO], table[_HI], table[_X], table[_NARROW]
    mean, spread, variance = table[_MEAN], table[_SPREAD], table[_Z]
    for b in range(n):
        lo[b] = narrow[b] = np.inf
        hi[b] = -np.inf
        mean[b] = variance[b] = spread[b] = 0.0
    for t in range(m.shape[0]):
        for b in range(n):
            q = m[t, b] + z * s[t, b]
            lo[b] = min(lo[b], q)
            hi[b] = max(hi[b], q)
            narrow[b] = min(narrow[b], s[t, b])
            delta = m[t, b] - mean[b]
            mean[b] += delta / (t + 1.0)
            spread[b] += delta * (m[t, b] - mean[b])
            variance[b] += s[t, b] * s[t, b]
    for b in range(n):
        x[b] = mean[b] + z * math.sqrt((variance[b] + spread[b]) / m.shape[0])


@njit(**APART)
def _cdf_pdf(m, s, n, table):
    """Distribution functions and densities of the mixtures of n pairs, each at its own point."""
    x, z, below, density = table[_X], table[_Z], table[_BELOW], table[_DENSITY]
    for b in range(n):
        below[b] = density[b] = 0.0
    for t in range(m.shape[0]):
        farthest = 0.0
        for b in range(n):
            z[b] = (x[b] - m[t, b]) / s[t, b]
            farthest = max(farthest, abs(z[b]))
        if farthest * _SQRT_HALF < NEAR:
            for b in range(n):
                below[b] += erfc_near(-z[b] * _SQRT_HALF)
                density[b] += exp_near(-0.5 * z[b] * z[b]) / s[t, b]
        else:
            for b in range(n):
                below[b] += math.erfc(-z[b] * _SQRT_HALF)
                density[b] += math.exp(-0.5 * z[b] * z[b]) / s[t, b]
    for b in range(n):
        below[b] = 0.5 * below[b] / m.shape[0]
        density[b] = _INV_SQRT_2PI * density[b] / m.shape[0]


@njit(**APART)
def _is_narrow(table, b):
    """Whether the bracket of pair b is as narrow as rounding lets it be."""
    lo, hi = table[_LO, b], table[_HI, b]
    return hi - lo <= 1e-9 * table[_NARROW, b] + 4.0 * _EPS * max(abs(lo), abs(hi))


@njit(**APART)
def _middle(table, b):
    return 0.5 * table[_LO, b] + 0.5 * table[_HI, b]


@njit(**APART)
def _step(table, b, p, log_p):
    """A step of Newton on log F for pair b: whether it was the last, and the quantile then.

    The logarithm keeps Newton fast in the far tail, where F itself is nearly flat. The density
    changes on the scale of the narrowest component, so a step that is short against it is the last.
    """
    x, below, density = table[_X, b], table[_BELOW, b], table[_DENSITY, b]
    if below == p:
        return True, x
    table[_LO if below < p else _HI, b] = x
    step = np.inf
    if below > 0.0 and density > 0.0:
        step = below * (math.log(below) - log_p) / density
    lo, hi, newton = table[_LO, b], table[_HI, b], x - step
    if abs(step) <= 1e-5 * table[_NARROW, b]:
        return True, min(max(newton, lo), hi)
    # A step that leaves the bracket or does not halve the last one gives way to bisection.
    if lo < newton < hi and abs(step) < 0.5 * table[_PREVIOUS, b]:
        table[_PREVIOUS, b], table[_X, b] = abs(step), newton
    else:
        table[_PREVIOUS, b], table[_X, b] = 0.5 * (hi - lo), _middle(table, b)
    return _is_narrow(table, b), _middle(table, b)


@njit(**APART)
def _begin(table, b):
    """The first point of pair b: whether its quantile is known already, and the quantile then."""
    if not math.isfinite(table[_X, b]):
        return True, np.nan
    if not table[_LO, b] < table[_X, b] < table[_HI, b]:
        table[_X, b] = _middle(table, b)
    table[_PREVIOUS, b] = table[_HI, b] - table[_LO, b]
    return _is_narrow(table, b), _middle(table, b)


@njit(**APART)
def _lower_quantiles(p, z, m, s, n, table, number, out):
    """The p-quantiles, p <= 1/2, of n pairs by Newton inside brackets; columns are reordered."""
    _bracket(z, m, s, n, table)
    log_p, left = math.log(p), n
    for b in range(n):
        number[b] = b
    for step in range(_MAX_STEPS):
        if step > 0:
            _cdf_pdf(m, s, left, table)
        for b in range(left - 1, -1, -1):
            done, found = _step(table, b, p, log_p) if step > 0 else _begin(table, b)
            if done:  # the last pair takes its place
                out[number[b]] = found
                left -= 1
                number[b] = number[left]
                for t in range(m.shape[0] if b < left else 0):
                    m[t, b], s[t, b] = m[t, left], s[t, left]
                for k in range(_COLUMNS):
                    table[k, b] = table[k, left]
        if left == 0:
            return
    for b in range(left):
        out[number[b]] = _middle(table, b)


@njit(**EXACT)
def mixture_quantile(p, mu, var):
    """Return the `p`-quantile of each pair's mixture.

    Parameters
    ----------
    p : float
        Probability, strictly between 0 and 1; the same for all pairs.
    mu, var : ndarray, shape (T, n)
        Means and variances of the components.

    Returns
    -------
    ndarray of float64, shape (n,)
        Exact to about 1e-8 of the narrowest component's standard deviation, in the tails too.
        Where the components lie so far apart that a whole interval has probability `p` below it
        to machine precision, some point of that interval; NaN where the input is not finite.
    """
    if not 0.0 < p < 1.0:
        raise ValueError("p is not a probability strictly between 0 and 1: give one that is")
    _check_components(mu, var)
    draws, n = mu.shape
    # The upper half is solved mirrored, where 1 - p is exact and the tail does not cancel.
    sign = 1.0 if p <= 0.5 else -1.0
    tail = p if p <= 0.5 else 1.0 - p
    z, out = _normal_quantile(tail), np.empty(n)
    m, s = np.empty((draws, _TOGETHER)), np.empty((draws, _TOGETHER))
    table, number = np.empty((_COLUMNS, _TOGETHER)), np.empty(_TOGETHER, np.int64)
    for start in range(0, n, _TOGETHER):
        width = min(_TOGETHER, n - start)
        for t in range(draws):
            for b in range(width):
                m[t, b] = sign * np.float64(mu[t, start + b])
                s[t, b] = _sd(var[t, start + b])
        _lower_quantiles(tail, z, m, s, width, table, number, out[start : start + width])
    for k in range(n):
        out[k] *= sign
    return out
