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

from bayesmf.kernels.jit import EXACT, njit

_SQRT_HALF = math.sqrt(0.5)
_INV_SQRT_2PI = 1.0 / math.sqrt(2.0 * math.pi)
_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
_TINY = float(np.finfo(np.float64).tiny)
_EPS = float(np.finfo(np.float64).eps)
# Far below any log density that can mean something, and small enough that sums stay finite.
_LOG_FLOOR = -1e300
# Columns gathered together by the quantile kernel: two cache lines of float64 per draw.
_BLOCK = 16
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


@njit(**EXACT)
def _cdf_pdf(x, m, s):
    """Return distribution function and density of the mixture of one pair at `x`."""
    below = 0.0
    density = 0.0
    for t in range(m.shape[0]):
        z = (x - m[t]) / s[t]
        below += math.erfc(-z * _SQRT_HALF)
        density += math.exp(-0.5 * z * z) / s[t]
    return 0.5 * below / m.shape[0], _INV_SQRT_2PI * density / m.shape[0]


@njit(**EXACT)
def _bracket(z, m, s):
    """Return bounds and a first guess of the quantile, and the smallest standard deviation.

    Left of the smallest component quantile every component has less than p below it, right of the
    largest every one has more: the mixture's quantile lies between.
    """
    lo = np.inf
    hi = -np.inf
    narrowest = np.inf
    mean = 0.0
    variance = 0.0
    spread = 0.0
    for t in range(m.shape[0]):
        q = m[t] + z * s[t]
        lo = min(lo, q)
        hi = max(hi, q)
        narrowest = min(narrowest, s[t])
        delta = m[t] - mean
        mean += delta / (t + 1.0)
        spread += delta * (m[t] - mean)
        variance += s[t] * s[t]
    guess = mean + z * math.sqrt((variance + spread) / m.shape[0])
    return lo, hi, guess, narrowest


@njit(**EXACT)
def _lower_quantile(p, z, m, s):
    """Return the p-quantile, p <= 1/2, of one pair by Newton on log F inside a bracket.

    The logarithm keeps Newton fast in the far tail, where F itself is nearly flat.  The density
    changes on the scale of the narrowest component, so a step that is short against it is the last.
    """
    lo, hi, x, narrowest = _bracket(z, m, s)
    if not math.isfinite(x):
        return np.nan
    if not lo < x < hi:
        x = 0.5 * lo + 0.5 * hi
    log_p = math.log(p)
    previous = hi - lo
    for _ in range(_MAX_STEPS):
        if hi - lo <= 1e-9 * narrowest + 4.0 * _EPS * max(abs(lo), abs(hi)):
            break
        below, density = _cdf_pdf(x, m, s)
        if below == p:
            return x
        if below < p:
            lo = x
        else:
            hi = x
        step = np.inf
        if below > 0.0 and density > 0.0:
            step = below * (math.log(below) - log_p) / density
        newton = x - step
        if abs(step) <= 1e-5 * narrowest:
            return min(max(newton, lo), hi)
        # A step that leaves the bracket or does not halve the last one gives way to bisection.
        if lo < newton < hi and abs(step) < 0.5 * previous:
            previous = abs(step)
            x = newton
        else:
            previous = 0.5 * (hi - lo)
            x = 0.5 * lo + 0.5 * hi
    return 0.5 * lo + 0.5 * hi


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
    z = _normal_quantile(tail)
    out = np.empty(n)
    m = np.empty((_BLOCK, draws))
    s = np.empty((_BLOCK, draws))
    for start in range(0, n, _BLOCK):
        width = min(_BLOCK, n - start)
        for t in range(draws):
            for b in range(width):
                m[b, t] = sign * np.float64(mu[t, start + b])
                s[b, t] = _sd(var[t, start + b])
        for b in range(width):
            out[start + b] = sign * _lower_quantile(tail, z, m[b], s[b])
    return out
