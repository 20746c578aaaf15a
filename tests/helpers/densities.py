"""Draws from hyper-priors and log densities of a model, for tests of its samplers."""

import math

import numpy as np

from bayesmf.model.priors import GammaPrior, RowPrior, bartlett


def draw_prior(prior, n_factors, rng):
    """The prior of rows from its hyper-prior, before any data."""
    width = n_factors + prior.bias
    if isinstance(prior, GammaPrior):
        return RowPrior(np.zeros(width), rng.gamma(prior.alpha_0, 1.0 / prior.beta_0, width))
    factor = bartlett(width if prior.nu_0 is None else prior.nu_0, width, rng)
    Lambda = factor @ factor.T
    root = np.linalg.cholesky(prior.kappa_0 * Lambda)
    return RowPrior(np.linalg.solve(root.T, rng.standard_normal(width)), Lambda)


def covariance(prior):
    """Covariance of rows under their prior."""
    return np.diag(1.0 / prior.Lambda) if prior.Lambda.ndim == 1 else np.linalg.inv(prior.Lambda)


def log_rows(rows, prior):
    """log p(rows | mu, Lambda), up to a constant."""
    centred = rows.astype(np.float64) - prior.mu
    matrix = np.diag(prior.Lambda) if prior.Lambda.ndim == 1 else prior.Lambda
    log_det = float(np.linalg.slogdet(matrix)[1])
    return 0.5 * (len(rows) * log_det - float(np.einsum("nd,de,ne->", centred, matrix, centred)))


def log_likelihood(errors, tau):
    """log p(R | U, V, a, b, tau) of given errors."""
    return 0.5 * len(errors) * math.log(tau / (2.0 * math.pi)) - 0.5 * tau * float(errors @ errors)
