"""Draws from hyper-priors, for tests of samplers."""

import numpy as np

from bayesmf.model.priors import GammaPrior, RowPrior, bartlett


def draw_prior(prior, n_factors, rng):
    """The prior of rows from its hyper-prior, before any data."""
    width = n_factors + prior.bias
    if isinstance(prior, GammaPrior):
        return RowPrior(np.zeros(width), rng.gamma(prior.alpha_0, 1.0 / prior.beta_0, width))
    factor = bartlett(width if prior.nu_0 is None else prior.nu_0, width, rng)
    Lambda = prior.W_0 * factor @ factor.T
    root = np.linalg.cholesky(prior.kappa_0 * Lambda)
    return RowPrior(prior.mu_0 + np.linalg.solve(root.T, rng.standard_normal(width)), Lambda)


def covariance(prior):
    """Covariance of rows under their prior."""
    return np.diag(1.0 / prior.Lambda) if prior.Lambda.ndim == 1 else np.linalg.inv(prior.Lambda)
