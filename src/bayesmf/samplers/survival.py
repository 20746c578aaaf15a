"""How much of the mini-batches' noise survives in a row, and in its momenta."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def survival(eta: Array, persistence: Array, visits: Array) -> Array:
    """Variance that gradient noise of variance one leaves in x at the end of a pass.

    For curvature one the update is a linear filter of the noise with response h_k after k visits:
    independent noise leaves sum h^2. But mini-batches are visited WITHOUT replacement: over the K
    visits of a pass the noise of a row sums to zero, and a filter slower than a pass hardly
    notices it. For exchangeable noise that sums to zero in blocks of K each block leaves

        K / (K - 1) (sum h^2 - (sum h)^2 / K),        sums over the block's K values of h.

    The response is A1 L1^k + A2 L2^k, with L the roots of the update's matrix of trace
    (1 + c)(1 - eta/2) and determinant c; sums over k and over blocks are geometric.
    """
    eta, persistence, visits = (np.asarray(a, dtype=np.float64) for a in (eta, persistence, visits))
    one, two = _roots(eta, persistence)
    first = 0.5 * eta * (1.0 + persistence)
    second = first * (1.0 + persistence - first)
    a_one = (second - two * first) / (one - two)
    a_two = first - a_one
    every = _products(a_one, a_two, one, two)
    forever = np.isinf(visits)
    k = np.where(forever, 2.0, np.maximum(visits, 1.0 + 1e-9))
    ones, twos = _power(one, k), _power(two, k)
    b_one, b_two = a_one * (1.0 - ones) / (1.0 - one), a_two * (1.0 - twos) / (1.0 - two)
    sums = _products(b_one, b_two, ones, twos)
    dealt = k / (k - 1.0) * np.maximum(every - sums / k, 0.0)
    return np.where(forever, every, np.where(visits <= 1.0, 0.0, dealt))


def kinetic_survival(eta: Array, persistence: Array, visits: Array) -> Array:
    """Variance that such noise leaves in the momenta, averaged over the visits of a pass.

    Averaged also over before and after friction.

    In the midst of a pass noise has not yet summed to zero. Seen from a visit at random, the noise
    of one l visits earlier is of the same pass with probability 1 - l/K, and then correlated
    -1/(K-1):

        sum h^2 - 2/(K - 1) sum_{l < K} (1 - l/K) sum_k h_k h_{k+l}.
    """
    eta, persistence, visits = (np.asarray(a, dtype=np.float64) for a in (eta, persistence, visits))
    one, two = _roots(eta, persistence)
    # The kick itself, then what is left of it: u - sqrt(eta) x, one visit later.
    first = np.sqrt(eta)
    second = first * (persistence - 0.5 * eta * (1.0 + persistence))
    a_one = (second - two * first) / (one - two)
    a_two = first - a_one
    every = _products(a_one, a_two, one, two)
    forever = np.isinf(visits)
    k = np.where(forever, 2.0, np.maximum(visits, 1.0 + 1e-9))
    lagged = 0.0
    for root, a in ((one, a_one), (two, a_two)):
        lag = root / (1 - root) - root * (1 - _power(root, k)) / (k * (1 - root) ** 2)
        lagged = lagged + a * lag * (a_one / (1 - one * root) + a_two / (1 - two * root))
    dealt = np.maximum(every - 2.0 / (k - 1.0) * np.asarray(lagged).real, 0.0)
    out = np.where(forever, every, np.where(visits <= 1.0, 0.0, dealt))
    return np.asarray(0.5 * (1.0 + persistence**2) * out)


def _roots(eta: Array, persistence: Array) -> tuple[Any, Any]:
    """Roots of the update's matrix, complex."""
    half = 0.5 * (1.0 + persistence) * (1.0 - 0.5 * np.minimum(eta, 2.0 - 1e-6))
    # Kept from zero: two equal roots would need another formula, and nearly equal ones do not.
    gap = np.sqrt(half**2 - persistence + 1e-12 + 0j)
    return half + gap, half - gap


def _products(a: Any, b: Any, one: Any, two: Any) -> Array:
    """Sum over k of (a one^k + b two^k)^2."""
    total = a * a / (1 - one * one) + 2 * a * b / (1 - one * two) + b * b / (1 - two * two)
    return np.asarray(total.real)


def _power(base: Any, k: Array) -> Any:
    """base^k, zero for a base of zero (numpy's complex power of zero is not a number)."""
    return np.exp(k * np.log(np.where(np.abs(base) < 1e-30, 1e-30, base)))
