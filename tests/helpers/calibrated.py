"""Mixtures whose truth is known, and their calibration."""

import numpy as np

from bayesmf.diagnostics.calibration import Calibrator


def mixtures(n, draws=6, seed=0):
    """Components of n mixtures, a rating drawn from each, and training counts of user and item."""
    rng = np.random.default_rng(seed)
    mu = rng.normal(3.5, 0.6, (draws, n))
    var = rng.gamma(4.0, 0.2, (draws, n))
    pick = rng.integers(draws, size=n), np.arange(n)
    y = mu[pick] + np.sqrt(var[pick]) * rng.standard_normal(n)
    return y, mu, var, rng.integers(0, 300, n), rng.geometric(0.02, n)


def calibrate(y, mu, var, users, items, chunk=None, errors=None, levels=None):
    calibrator = Calibrator(users, items, errors, levels)
    for lo in range(0, len(y), chunk or len(y)):
        part = slice(lo, lo + (chunk or len(y)))
        pieces = np.ascontiguousarray(mu[:, part]), np.ascontiguousarray(var[:, part])
        calibrator.add(y[part], pieces[0].mean(axis=0), *pieces)
    return calibrator.result()
