"""Compiled kernels for ratings that take few values: probabilities of levels, and runs of them.

The line of real ratings is cut at `edges`, ascending, into one bin for each level; the outer bins
are open. A pair's mixture of normals (see `mixture`) gives each bin a probability. All arrays of
components are C-contiguous and of shape (T, n), float32 or float64; sums are taken in float64, over
draws in their order, so that a pair's answer does not depend on which others are asked for.
"""

import math

import numpy as np

from bayesmf.kernels.jit import EXACT, WITHIN, njit

_SQRT_HALF = math.sqrt(0.5)
_TINY = float(np.finfo(np.float64).tiny)
# Share of a variance that is left of it, whatever is taken off.
LEAST_SHARE = 0.25


@njit(**WITHIN)
def _add_bins(m, variance, weight, edges, out):
    """out += weight * probabilities of the bins under N(m, variance).

    Of each edge the smaller tail is found, so that bins far out keep their digits.
    """
    sd = math.sqrt(_TINY if 0.0 <= variance < _TINY else variance)
    n_edges = edges.shape[0]
    before, above = 0.0, False  # the smaller tail of the edge before, and is it on the right?
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
    """Return the probability of each bin for each pair.

    Parameters
    ----------
    edges : ndarray of float64, shape (K - 1,)
        Bounds between bins, ascending.
    mu, var : ndarray, shape (T, n)
        Means and variances of the components.
    rounding : float
        Variance that is taken off each component, down to a quarter of it: what rounding to levels
        adds to ratings is in the variances already, and bins would add it again (Sheppard's
        correction).

    Returns
    -------
    ndarray of float64, shape (n, K)
        Rows sum to one, but for rounding.
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
    """Return the shortest run of bins that holds at least `level`, for each row of `proba`.

    Of runs of one length the most probable is taken, and of equals the first.

    Parameters
    ----------
    proba : ndarray of float64, shape (n, K)
        Probabilities of bins.
    level : float
        What a run must hold; one that falls short by rounding alone is taken.

    Returns
    -------
    first, last : ndarray of int64, shape (n,)
        Numbers of the first and the last bin of each run.
    held : ndarray of float64, shape (n,)
        Its probability.
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
