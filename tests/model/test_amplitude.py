"""The amplitude move against the joint density as it is written down, precisions by quadrature.

`test_noise.p_values` says what is compared; false-alarm rates are 3e-4 a test, seeds fixed.
"""

import functools

import numpy as np
import pytest
from scipy import stats
from test_noise import LEVEL, chain, p_values

import bayesmf.model.scale
import naive
from bayesmf.model.priors import GammaPrior, WishartPrior
from bayesmf.model.scale import draw_amplitudes
from mutants import with_density

N_USERS, N_ITEMS, D = 5, 4, 2
PRIORS = {
    "gamma": GammaPrior(1.5, 0.7),
    "wishart": WishartPrior(kappa_0=2.0, nu_0=4.0),
    "wishart-bias": WishartPrior(kappa_0=2.0, nu_0=4.0, bias=True),
}


@functools.cache
def _problem(bias, seed=0):
    """Users, items, and all ratings with their precisions."""
    rng, width = np.random.default_rng(seed), D + bias
    users = rng.normal(size=(N_USERS, width))
    items = (0.6 * rng.normal(size=(N_ITEMS, width))).astype(np.float32)
    rating, tau = rng.normal(size=(2, N_USERS, N_ITEMS)) * 0.8
    return users, items, rating, np.exp(tau)


def _sums(users, items, rating, tau):
    """What a half-sweep of items tells, in all, times the ratings' precisions."""
    told = 0.0
    for j, row in enumerate(items.astype(float)):
        told = told + naive.row_sums(*naive.regression(users, rating[:, j], D, tau[:, j]), row, D)
    return told


def _log_likelihood(users, items, rating, tau):
    mean = users[:, :D] @ items[:, :D].T
    if items.shape[1] > D:
        mean = mean + users[:, D:] + items[:, D]
    return -0.5 * np.sum(tau * (rating - mean) ** 2)


def _log_rows(prior, items):
    """log p(rows), precisions integrated out: by quadrature, or by Bayes' rule at one of them."""
    n, width = items.shape
    if isinstance(prior, GammaPrior):
        log_lambda = np.linspace(-14, 8, 2001)
        lam = np.exp(log_lambda)
        over = stats.gamma.logpdf(lam, prior.alpha_0, scale=1 / prior.beta_0) + log_lambda
        return sum(
            np.logaddexp.reduce(over + stats.norm.logpdf(x[:, None], 0, lam**-0.5).sum(0))
            for x in items.T
        )
    # p(rows) = p(rows | mu, Lambda) p(mu, Lambda) / p(mu, Lambda | rows), at any mu and Lambda.
    mu, Lambda, mean = np.full(width, 0.2), 0.9 * np.eye(width) + 0.1, items.mean(0)
    kappa, nu = prior.kappa_0 + n, prior.nu_0 + n
    scatter = (items - mean).T @ (items - mean)
    M = np.eye(width) + scatter + prior.kappa_0 * n / kappa * np.outer(mean, mean)

    def normal_wishart(center, k, df, inverse_scale):
        return stats.multivariate_normal.logpdf(
            mu, center, np.linalg.inv(k * Lambda)
        ) + stats.wishart.logpdf(Lambda, df, np.linalg.inv(inverse_scale))

    rows = stats.multivariate_normal.logpdf(items, mu, np.linalg.inv(Lambda)).sum()
    before = normal_wishart(np.zeros(width), prior.kappa_0, prior.nu_0, np.eye(width))
    return rows + before - normal_wishart(n * mean / kappa, kappa, nu, M)


def _path(name, which, x):
    """log density of x where the chosen columns are exp(x) times as large: rows' Haar measure."""
    prior, out = PRIORS[name], np.empty(len(x))
    users, items, rating, tau = _problem(prior.bias)
    for at, k in enumerate(np.exp(x)):
        scaled = items.astype(float)
        scaled[:, which] *= k
        jacobian = scaled[:, which].size * x[at]
        out[at] = _log_likelihood(users, scaled, rating, tau) + _log_rows(prior, scaled) + jacobian
    return out


def _moved(name, fixed, n=600, thin=5):
    """log factors of a chain of moves of the features (bias fixed) or of the biases alone."""
    prior, rng = PRIORS[name], np.random.default_rng(7)
    users, items, rating, tau = _problem(prior.bias)
    column = D if fixed == "features" else 0

    def step(x):
        now = items.copy()
        free = slice(D, None) if fixed == "features" else slice(0, D)
        now[:, free] *= np.float32(np.exp(x))
        new = now * draw_amplitudes(now, D, prior, _sums(users, now, rating, tau), rng)
        return x + float(np.log(new[0, column] / now[0, column]))

    return chain(step, 0.0, n, thin)


@pytest.mark.parametrize("name", PRIORS)
def test_features(name):
    x = np.linspace(-6, 3, 301)
    found = _moved(name, "bias")
    assert min(p_values(found, x, _path(name, slice(0, D), x))) > LEVEL


@pytest.mark.parametrize("name", ["gamma", "wishart-bias"])
def test_both_moves_leave_the_posterior_invariant(name):
    """(log k, log l) from their joint density on a grid, one move, and the same density again.

    Means, variances and the covariance before and after agree with the exact ones.
    """
    prior, rng, n = PRIORS[name], np.random.default_rng(8), 1000
    users, items, rating, tau = _problem(prior.bias)
    x, y = np.linspace(-4, 1.5, 40), np.linspace(-5, 2.5, 41)
    density = np.empty((len(x), len(y)))
    for b, other in enumerate(np.exp(y)):
        for a, k in enumerate(np.exp(x)):
            scaled = items * np.array([k] * D + [other])
            jacobian = N_ITEMS * (D * x[a] + y[b])
            density[a, b] = (
                _log_likelihood(users, scaled, rating, tau) + _log_rows(prior, scaled) + jacobian
            )
    weight = np.exp(density - density.max())
    weight /= weight.sum()
    pick = rng.choice(weight.size, n, p=weight.ravel())
    start = np.array([x[pick // len(y)], y[pick % len(y)]])
    start += rng.uniform(-0.5, 0.5, start.shape) * [[x[1] - x[0]], [y[1] - y[0]]]
    after = np.empty_like(start)
    for at, (a, b) in enumerate(start.T):
        now = items * np.exp([a] * D + [b]).astype(np.float32)
        new = now * draw_amplitudes(now, D, prior, _sums(users, now, rating, tau), rng)
        after[:, at] = (a + np.log(new[0, 0] / now[0, 0]), b + np.log(new[0, D] / now[0, D]))
    grid = np.meshgrid(x, y, indexing="ij")
    for power in ((1, 0), (0, 1), (2, 0), (1, 1), (0, 2)):
        exact = np.sum(weight * grid[0] ** power[0] * grid[1] ** power[1])
        got = after[0] ** power[0] * after[1] ** power[1]
        assert abs(got.mean() - exact) < 4.5 * got.std() / n**0.5 + 2e-3
    assert np.abs(after - start).mean() > 0.05  # it moves


def test_a_missing_jacobian_is_caught(monkeypatch):
    """Half of it: rows without any would shrink to nothing."""
    mutant = with_density(lambda x: -N_ITEMS * x)
    monkeypatch.setattr(bayesmf.model.scale, "slice_sample", mutant)
    with pytest.raises(AssertionError):
        test_features("wishart")


def test_rows_without_ratings_or_of_zeros_stay():
    rows = np.ones((3, 3), np.float32)
    found = draw_amplitudes(rows, 2, PRIORS["gamma"], np.zeros(6), np.random.default_rng(0))
    assert (found == 1).all()
