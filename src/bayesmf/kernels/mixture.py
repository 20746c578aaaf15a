"""Compiled kernels for the predictive distribution of a new rating.

Given T posterior draws, the rating of a pair k is predicted by the equal-weight mixture of the
normals N(mu[t, k], var[t, k]).  Every kernel takes `mu` and `var` as C-contiguous arrays of shape
(T, n), float32 or float64, and computes in float64.  The loops run over draws outside and pairs
inside, the order in which the arrays lie in memory.

Variances must not be negative (the answer is then NaN); a variance of zero stands for a point mass
and is treated as the smallest normal number.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.jit import APART, EXACT, WITHIN, njit
from bayesmf.kernels.simd import fma, recast

NEAR = 2.85  # greatest argument, either way, of erfc_near; exp_near takes -500 to 500

_U = np.uint64
_STEPS = 128  # powers of two between one and two


def _powers() -> NDArray[np.uint64]:
    """2^(k / 128) less its exponent k << 45, as bits, after the share that is lost by rounding."""
    one = 1 << 256
    root, power, out = 2 * one, one, np.empty(2 * _STEPS, np.uint64)
    for _ in range(7):
        root = math.isqrt(root * one)
    for k in range(_STEPS):
        rounded = power / one
        exact = int(rounded * 2**60) << 196
        lost = np.array([(power - exact) / exact, rounded]).view(np.uint64)
        out[2 * k : 2 * k + 2] = lost - np.array([0, k << 45], np.uint64)
        power = power * root >> 256
    return out


_POWERS = _powers()
_PER_POWER = float.fromhex("0x1.71547652b82fep0") * _STEPS  # 128 / log 2
_LOG_HIGH, _LOG_LOW = (
    float.fromhex(x) for x in ("-0x1.62e42fefa0000p-8", "-0x1.cf79abc9e3b39p-47")
)
_SHIFT = 1.5 * 2**52  # added, rounds to a whole number, which is then in the last bits
_E2, _E3, _E4, _E5 = (
    float.fromhex(x)
    for x in (
        "0x1.ffffffffffdbdp-2",
        "0x1.555555555543cp-3",
        "0x1.55555cf172b91p-5",
        "0x1.1111167a4d017p-7",
    )
)
_ERX = 8.45062911510467529297e-01


@njit(**WITHIN)
def exp_near(x):
    """exp(x) by the method of glibc: 2^(n / 128) exp(r), the second factor by a polynomial."""
    shifted = fma(_PER_POWER, x, _SHIFT)
    n, whole = recast(shifted), shifted - _SHIFT
    r = fma(whole, _LOG_LOW, fma(whole, _LOG_HIGH, x))
    at, rr = (n & _U(_STEPS - 1)) << _U(1), r * r
    low = fma(rr, fma(r, _E3, _E2), recast(_POWERS[at]) + r)
    tail = fma(rr * rr, fma(r, _E5, _E4), low)
    power = recast(_POWERS[at + _U(1)] + (n << _U(45)))
    return fma(power, tail, power)


@njit(**WITHIN)
def erfc_near(x):
    """erfc(x) by the three rational approximations of fdlibm, without branches."""
    a, z = abs(x), x * x
    small, large = a < 0.84375, a >= 1.25
    p0, q0 = _small(z)
    p1, q1 = _medium(a - 1.0)
    p2, q2 = _large(1.0 / z)
    y = (p0 if small else (p2 if large else p1)) / (q0 if small else (q2 if large else q1))
    near = 1.0 - (x + x * y) if x < 0.25 else 0.5 - (x * y + (x - 0.5))
    about_one = (1.0 - _ERX) - y if x >= 0.0 else 1.0 + (_ERX + y)
    high = recast(recast(a) & _U(0xFFFFFFFF00000000))
    tail = exp_near(-high * high - 0.5625) * exp_near((high - a) * (high + a) + y) / a
    far = tail if x > 0.0 else 2.0 - tail
    return near if small else (far if large else about_one)


@njit(**WITHIN)
def _small(z):
    zz = z * z
    p = 1.28379167095512558561e-01 + z * -3.25042107247001499370e-01
    p += zz * (-2.84817495755985104766e-02 + z * -5.77027029648944159157e-03)
    p += zz * zz * -2.37630166566501626084e-05
    q = 1.0 + z * 3.97917223959155352819e-01
    q += zz * (6.50222499887672944485e-02 + z * 5.08130628187576562776e-03)
    return p, q + zz * zz * (1.32494738004321644526e-04 + z * -3.96022827877536812320e-06)


@njit(**WITHIN)
def _medium(s):
    s2, s4 = s * s, (s * s) * (s * s)
    p = -2.36211856075265944077e-03 + s * 4.14856118683748331666e-01
    p += s2 * (-3.72207876035701323847e-01 + s * 3.18346619901161753674e-01)
    p += s4 * (-1.10894694282396677476e-01 + s * 3.54783043256182359371e-02)
    q = 1.0 + s * 1.06420880400844228286e-01
    q += s2 * (5.40397917702171048937e-01 + s * 7.18286544141962662868e-02)
    q += s4 * (1.26171219808761642112e-01 + s * 1.36370839120290507362e-02)
    return p + s4 * s2 * -2.16637559486879084300e-03, q + s4 * s2 * 1.19844998467991074170e-02


@njit(**WITHIN)
def _large(s):
    s2, s4 = s * s, (s * s) * (s * s)
    p = -9.86494403484714822705e-03 + s * -6.93858572707181764372e-01
    p += s2 * (-1.05586262253232909814e01 + s * -6.23753324503260060396e01)
    p += s4 * (-1.62396669462573470355e02 + s * -1.84605092906711035994e02)
    p += s4 * s2 * (-8.12874355063065934246e01 + s * -9.81432934416914548592e00)
    q = 1.0 + s * 1.96512716674392571292e01
    q += s2 * (1.37657754143519042600e02 + s * 4.34565877475229228821e02)
    q += s4 * (6.45387271733267880336e02 + s * 4.29008140027567833386e02)
    q += s4 * s2 * (1.08635005541779435134e02 + s * 6.57024977031928170135e00)
    return p, q + s4 * s4 * -6.04244152148580987438e-02


_SQRT_HALF = math.sqrt(0.5)
_INV_SQRT_2PI = 1.0 / math.sqrt(2.0 * math.pi)
_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
_TINY = float(np.finfo(np.float64).tiny)
_EPS = float(np.finfo(np.float64).eps)
# Below any meaningful log density, and small enough that sums stay finite.
_LOG_FLOOR = -1e300
# A bracket halves at least every second step, so no finite bracket needs this many.
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
    """Mean and variance of each pair's mixture.

    The variance is the mean of the component variances plus the variance of the component means
    (law of total variance, divisor T), by Welford's recurrence.
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
    """Probability of a rating of at most y[k], for each pair: the PIT, if `y` are the ratings."""
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
    """Log density of each pair's mixture at y[k], by log-sum-exp in one pass.

    Never below -1e300, hence finite for finite input.
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
    """Continuous ranked probability score of each pair, E|X - y| - E|X - X'| / 2.

    The first expectation is exact. The second, a sum over all T^2 pairs of draws if taken exactly,
    is taken over the T cyclically shifted pairs (t, (t + T // 2) mod T): O(T) work, unbiased for
    independent draws, and exact for T = 1. The score of one pair is noisy (it can even fall below
    zero), the mean over many pairs is not.
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


# Pairs whose quantiles are computed together: several vector registers of float64.
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
    """Whether the bracket of pair b is as narrow as rounding allows."""
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
    # A step that leaves the bracket or does not halve the last step is replaced by bisection.
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
    """The `p`-quantile of each pair's mixture, 0 < p < 1.

    Exact to about 1e-8 of the narrowest component's standard deviation, in the tails too. Where
    components lie so far apart that a whole interval has probability `p` below it to machine
    precision, some point of that interval; NaN where the input is not finite.
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


# Smallest share of a variance that remains after subtracting `rounding`.
LEAST_SHARE = 0.25


@njit(**WITHIN)
def _add_bins(m, variance, weight, edges, out):
    """out += weight * probabilities of the bins under N(m, variance).

    The smaller tail of each edge is computed, so that bins far out keep their digits.
    """
    sd = math.sqrt(_TINY if 0.0 <= variance < _TINY else variance)
    n_edges = edges.shape[0]
    before, above = 0.0, False  # smaller tail of the previous edge; is it the upper one
    for k in range(n_edges):
        z = (edges[k] - m) / sd
        tail = 0.5 * math.erfc(abs(z) * _SQRT_HALF)
        if z < 0.0:
            share = tail - before
        elif above:
            share = before - tail
        else:
            share = 1.0 - tail - before
        out[k] += weight * share
        before, above = tail, z >= 0.0
    out[n_edges] += weight * (before if above else 1.0 - before)


@njit(**EXACT)
def mixture_bins(edges, mu, var, rounding):
    """Probability of each bin between ascending `edges` for each pair, (n, K).

    `rounding` is taken off the variance of each component, down to a quarter of it: rounding to
    levels is in the variances already, and bins would add it again (Sheppard's correction).
    """
    draws, n = mu.shape
    if mu.shape != var.shape or draws == 0:
        raise ValueError("mu and var must be of one shape, (draws, pairs), with a draw or more")
    out = np.zeros((n, edges.shape[0] + 1))
    weight = 1.0 / draws
    for t in range(draws):
        for k in range(n):
            v = np.float64(var[t, k])
            _add_bins(
                np.float64(mu[t, k]), max(v - rounding, LEAST_SHARE * v), weight, edges, out[k]
            )
    return out


@njit(**EXACT)
def shortest_runs(proba, level):
    """The shortest run of bins that holds at least `level`, for each row of `proba`, (n, K).

    Returns numbers of the first and the last bin, and the run's probability. Of runs of one length
    the most probable is taken, of equals the first; one that falls short by rounding alone counts.
    """
    n, n_bins = proba.shape
    first, last = np.zeros(n, np.int64), np.zeros(n, np.int64)
    held, below = np.zeros(n), np.zeros(n_bins + 1)
    for k in range(n):
        for j in range(n_bins):
            below[j + 1] = below[j] + proba[k, j]
        for length in range(1, n_bins + 1):
            best, at = -1.0, 0
            for lo in range(n_bins - length + 1):
                total = below[lo + length] - below[lo]
                if total > best:
                    best, at = total, lo
            if best >= level - 1e-12 or length == n_bins:
                first[k], last[k], held[k] = at, at + length - 1, min(best, 1.0)
                break
    return first, last, held
