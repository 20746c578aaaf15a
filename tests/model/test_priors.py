"""Draws of precisions against their known moments; log densities against their draws."""

import numpy as np
from scipy import stats

from bayesmf.model.priors import (
    GammaPrior,
    Params,
    WishartPrior,
    bartlett,
    draw_tau,
)

N = 20_000


def _close(sample, mean, sd):
    """Within four standard errors: a false-alarm rate of 6e-5."""
    return np.all(np.abs(sample - mean) < 4 * sd / N**0.5 + 1e-12)


def test_gamma_conditional_has_its_mean_and_variance():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(30, 3)).astype(np.float32)
    prior = GammaPrior(2.0, 3.0)
    lam = np.array([prior.draw(rows, rng).Lambda for _ in range(N)])
    shape, rate = 2.0 + 15, 3.0 + 0.5 * (rows.astype(float) ** 2).sum(0)
    assert _close(lam.mean(0), shape / rate, shape**0.5 / rate)
    kurtosis = 3 + 6 / shape
    variance = shape / rate**2
    assert _close(lam.var(0), variance, variance * (kurtosis - 1) ** 0.5)


def test_wishart_mean_and_variance():
    rng = np.random.default_rng(1)
    scale = np.array([[1.0, 0.3], [0.3, 0.5]])
    root = np.linalg.cholesky(scale)
    factors = [root @ bartlett(7.0, len(scale), rng) for _ in range(N)]
    W = np.array([factor @ factor.T for factor in factors])
    variance = 7 * (scale**2 + np.outer(np.diag(scale), np.diag(scale)))
    assert _close(W.mean(0), 7 * scale, variance**0.5)
    assert np.allclose(W.var(0), variance, rtol=0.1)


def test_gaussian_wishart_conditional_mean():
    """E[Lambda | rows] = (nu_0 + n) W*, written out from the formulas of Section 2.1."""
    rng = np.random.default_rng(2)
    rows = (rng.normal(size=(40, 2)) @ np.array([[1, 0.5], [0, 1]]) + 1).astype(np.float32)
    prior, n = WishartPrior(kappa_0=2.0, nu_0=5.0), 40
    x = rows.astype(float)
    mean = x.mean(0)
    S = (x - mean).T @ (x - mean)
    W = np.linalg.inv(np.eye(2) + S + 2 * n / (2 + n) * np.outer(mean, mean))
    draws = [prior.draw(rows, rng) for _ in range(N)]
    Lambda = np.array([d.Lambda for d in draws])
    variance = (5 + n) * (W**2 + np.outer(np.diag(W), np.diag(W)))
    assert _close(Lambda.mean(0), (5 + n) * W, variance**0.5)
    mu = np.array([d.mu for d in draws])
    assert _close(mu.mean(0), n * mean / (2 + n), mu.std(0))


PRIOR = WishartPrior(kappa_0=1.5, nu_0=4.5, bias=True, mu_0=0.7, W_0=0.3)


def _conditional(prior, rows):
    """mu*, beta*, nu* and W* of Salakhutdinov and Mnih (2008), row by row."""
    n, D = rows.shape
    mean = [sum(row[d] for row in rows) / n for d in range(D)]
    inverse = np.zeros((D, D))
    for d in range(D):
        for e in range(D):
            inverse[d, e] = (d == e) / prior.W_0
            inverse[d, e] += sum((row[d] - mean[d]) * (row[e] - mean[e]) for row in rows)
            away = (prior.mu_0 - mean[d]) * (prior.mu_0 - mean[e])
            inverse[d, e] += prior.kappa_0 * n / (prior.kappa_0 + n) * away
    center = [(prior.kappa_0 * prior.mu_0 + n * mean[d]) / (prior.kappa_0 + n) for d in range(D)]
    return np.array(center), prior.kappa_0 + n, prior.nu_0 + n, np.linalg.inv(inverse)


def test_all_hyper_parameters_by_plain_arithmetic():
    """The conditional's moments, and Bayes' rule: its parameters at any mu and Lambda."""
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(12, 3)).astype(np.float32) @ np.float32(
        [[1, 0.4, 0], [0, 1, 0], [0, 0, 2]]
    )
    center, kappa, nu, W = _conditional(PRIOR, rows.astype(float))
    draws = [PRIOR.draw(rows, rng) for _ in range(N)]
    Lambda, mu = np.array([d.Lambda for d in draws]), np.array([d.mu for d in draws])
    assert _close(Lambda.mean(0), nu * W, (nu * (W**2 + np.outer(np.diag(W), np.diag(W)))) ** 0.5)
    # The covariance of mu is E[Lambda^-1] / kappa, that of an inverse Wishart.
    spread = np.linalg.inv(W) / (nu - 3 - 1) / kappa
    assert _close(mu.mean(0), center, np.diag(spread) ** 0.5)
    assert np.allclose(np.cov(mu.T), spread, rtol=0.1, atol=0.02 * spread.max())
    joint = []
    for _ in range(3):
        at, precision = rng.normal(size=3), stats.wishart.rvs(8, np.eye(3) / 8, random_state=rng)

        def log_density(center, kappa, nu, W, at=at, precision=precision):
            spread = np.linalg.inv(kappa * precision)
            about = stats.multivariate_normal.logpdf(at, center, spread)
            return about + stats.wishart.logpdf(precision, nu, W)

        likelihood = stats.multivariate_normal.logpdf(rows, at, np.linalg.inv(precision)).sum()
        before = log_density(np.full(3, 0.7), 1.5, 4.5, 0.3 * np.eye(3))
        joint.append(likelihood + before - log_density(center, kappa, nu, W))
    assert np.ptp(joint) < 1e-8
    start = PRIOR.initial(2, 5.0)
    assert start.mu.tolist() == [0.7] * 3 and np.array_equal(start.Lambda, 5.0 * np.eye(3))


def test_tau_conditional():
    rng = np.random.default_rng(3)
    tau = np.array([draw_tau(50.0, 80, rng) for _ in range(N)])
    assert _close(tau.mean(), 41 / 26, 41**0.5 / 26)
    variance = 41 / 26**2
    assert _close(tau.var(), variance, variance * (2 + 6 / 41) ** 0.5)


def test_params_views_and_start():
    key = np.array([1, 2], np.uint32)
    params = Params.initial(5, 4, 3, bias=True, key=key)
    assert params.U.shape == (5, 3)
    params.users[2, 3] = 7.0
    assert params.a[2] == 7.0
    assert Params.initial(5, 4, 3, bias=False, key=key).b.tolist() == [0] * 4
    again = Params.initial(5, 4, 3, bias=True, key=key)
    assert np.array_equal(again.items, params.items)
