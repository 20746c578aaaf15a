"""The collapsed draw of columns' scales: it leaves predictions and the posterior's law alone.

Marginals of rows are computed by Bayes' rule, p(rows) = p(rows | x) p(x) / p(x | rows) at any
precisions x, from SciPy's densities: nothing of the module's formulas enters. Kolmogorov-Smirnov
tests are at level 1e-4 each (a dozen functions: false-alarm rate about 1e-3); seeds are fixed.
"""

import numpy as np
import pytest
from scipy.stats import gamma, ks_2samp, kstest, multivariate_normal, norm, wishart

import bayesmf.model.priors
import bayesmf.model.scale
from bayesmf.chains.chain import draw_precisions
from bayesmf.chains.state import ChainState, RunSettings
from bayesmf.kernels.keys import make_key
from bayesmf.model.priors import GammaPrior, Params, Precisions, WishartPrior
from bayesmf.model.scale import draw_scales
from bayesmf.samplers.gibbs import Gibbs
from densities import covariance, draw_prior
from mutants import with_density

N_USERS, N_ITEMS, LEVEL = 9, 4, 1e-4
PRIORS = {
    "gamma": GammaPrior(4.0, 3.0),
    "wishart": WishartPrior(kappa_0=2.0, nu_0=7.0),
    "wishart-bias": WishartPrior(kappa_0=0.5, nu_0=7.0, bias=True),
    "scaled": WishartPrior(kappa_0=2.0, nu_0=7.0, W_0=0.3),
}


def _rows(n, width, seed):
    """Rows whose columns hang together and have a mean."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, width)) @ rng.normal(size=(width, width)) + rng.normal(size=width)


def _params(prior, n_factors, seed):
    width = n_factors + prior.bias
    rows = _rows(N_USERS, width, seed), _rows(N_ITEMS, width, seed + 1)
    return Params(*(r.astype(np.float32) for r in rows), n_factors)


def _log_marginal(prior, rows):
    """log p(rows), precisions integrated out, whole with its constant."""
    rows = np.asarray(rows, np.float64)
    if isinstance(prior, GammaPrior):
        return sum(_log_marginal_gamma(prior, column) for column in rows.T)
    return _log_marginal_wishart(prior, rows)


def _log_marginal_gamma(prior, column):
    x, shape = 1.3, prior.alpha_0 + len(column) / 2
    rate = prior.beta_0 + column @ column / 2
    return (
        norm.logpdf(column, 0, x**-0.5).sum()
        + gamma.logpdf(x, prior.alpha_0, scale=1 / prior.beta_0)
        - gamma.logpdf(x, shape, scale=1 / rate)
    )


def _log_marginal_wishart(prior, rows):
    (n, width), kappa = rows.shape, prior.kappa_0 + len(rows)
    one, mean = np.eye(width), rows.mean(0)
    C = (rows - mean).T @ (rows - mean) + prior.kappa_0 * n / kappa * np.outer(mean, mean)
    mu, Lambda, W = np.full(width, 0.2), one + 0.3, np.linalg.inv(one / prior.W_0 + C)
    return (
        multivariate_normal.logpdf(rows, mu, np.linalg.inv(Lambda)).sum()
        + wishart.logpdf(Lambda, prior.nu_0, prior.W_0 * one)
        + multivariate_normal.logpdf(mu, np.zeros(width), np.linalg.inv(prior.kappa_0 * Lambda))
        - wishart.logpdf(Lambda, prior.nu_0 + n, W)
        - multivariate_normal.logpdf(mu, n * mean / kappa, np.linalg.inv(kappa * Lambda))
    )


def _scaled(rows, d, k):
    out = rows.copy()
    out[:, d] *= k
    return out


def _draw(params, prior, rng):
    """Draw scales and rescale, in place; returns the factors."""
    factors = draw_scales(params.users, params.items, params.n_factors, prior, rng)
    _rescale(params, factors)
    return factors


def _rescale(params, factors):
    params.users *= factors.astype(np.float32)
    params.items *= (1 / factors).astype(np.float32)


@pytest.mark.parametrize("n_factors", [1, 3])
@pytest.mark.parametrize("name", PRIORS)
def test_predictions_stay(name, n_factors):
    params = _params(PRIORS[name], n_factors, 3)
    before = params.U @ params.V.T, params.a.copy(), params.b.copy(), params.users.copy()
    factors = _draw(params, PRIORS[name], np.random.default_rng(0))
    assert np.abs(np.log(factors[:n_factors])).min() > 1e-3
    assert np.allclose(params.users, before[3] * factors, rtol=1e-6)
    assert np.allclose(params.U @ params.V.T, before[0], rtol=1e-4, atol=1e-5)
    assert np.array_equal(params.a, before[1]) and np.array_equal(params.b, before[2])


def test_conditional_means_go_along():
    prior, params, means = GammaPrior(), _params(GammaPrior(), 2, 3), _params(GammaPrior(), 2, 5)
    old = params.users.copy(), means.users.copy(), means.U @ means.V.T
    start = prior.initial(2)
    state = ChainState(0, make_key(0), params, Precisions(start, start, 1.0), means=means)
    draw_precisions(state, RunSettings(Gibbs(), prior, 2, 1.0, 0, 1), 0, burning=False)
    params, means = state.params, state.means
    assert not np.allclose(params.U, old[0][:, :2], rtol=1e-3)
    assert np.allclose(means.users / old[1], params.users / old[0], rtol=1e-5)
    assert np.allclose(means.U @ means.V.T, old[2], rtol=1e-4, atol=1e-5)


def test_an_empty_column_is_left_alone():
    params = _params(GammaPrior(), 3, 3)
    params.users[:, 1] = 0
    factors = _draw(params, GammaPrior(), np.random.default_rng(0))
    assert factors[1] == 1
    assert factors[0] != 1 and factors[2] != 1


@pytest.mark.parametrize("name", PRIORS)
def test_scales_follow_the_marginal_through_many_rescalings(name):
    prior, rng = PRIORS[name], np.random.default_rng(5)
    rows = _rows(11, 3, 8)
    columns = prior.columns(rows)
    for step in range(12):
        d, k = step % 3, np.exp(rng.normal())
        for trial in (0.1, 0.7, 4.0):
            found = columns.log_scale(d, np.log(trial)) - columns.log_scale(d, 0.0)
            change = _log_marginal(prior, _scaled(rows, d, trial)) - _log_marginal(prior, rows)
            assert found == pytest.approx(change, rel=1e-6, abs=1e-6)
        columns.rescale(d, k)
        rows = _scaled(rows, d, k)


def test_the_wisharts_weight_is_a_ratio_of_determinants():
    prior, rows = PRIORS["wishart"], _rows(11, 3, 8)
    mean = rows.mean(0)
    C = (rows - mean).T @ (rows - mean) + 2 * 11 / 13 * np.outer(mean, mean)
    without = np.delete(np.delete(C, 1, 0), 1, 1)
    ratio = np.linalg.det(np.eye(3) + C) / np.linalg.det(np.eye(2) + without)
    columns = prior.columns(rows)
    assert columns.log_scale(1, 0.0) == pytest.approx(-columns.power * np.log(ratio))


def _orbit(prior, params, d, x):
    """log density of log k on the orbit of params, column d: marginals, and volumes k^n dk / k."""
    k = np.exp(x)
    users, items = _scaled(params.users, d, k), _scaled(params.items, d, 1 / k)
    volume = (len(users) - len(items)) * x
    return _log_marginal(prior, users) + _log_marginal(prior, items) + volume


@pytest.mark.parametrize("name", PRIORS)
def test_each_column_is_drawn_given_the_others_as_they_are_now(name, monkeypatch):
    prior, points, found = PRIORS[name], (-1.0, -0.2, 0.0, 0.6, 2.0), []

    def at_points(log_density, start, step, rng):
        found.append([log_density(x) for x in points])
        return 0.7 - 0.5 * len(found)

    monkeypatch.setattr(bayesmf.model.scale, "slice_sample", at_points)
    now, params = _params(prior, 3, 20), _params(prior, 3, 20)
    factors = _draw(params, prior, np.random.default_rng(0))
    for d in range(3):
        expected = np.array([_orbit(prior, now, d, x) for x in points])
        assert np.allclose(np.array(found[d]) - found[d][2], expected - expected[2], atol=1e-4)
        now = Params(_scaled(now.users, d, factors[d]), _scaled(now.items, d, 1 / factors[d]), 3)


def _cdf(prior, params):
    grid = np.linspace(-4, 4, 321)
    log_density = np.array([_orbit(prior, params, 0, x) for x in grid])
    density = np.exp(log_density - log_density.max())
    assert max(density[0], density[-1]) < 1e-6
    total = np.concatenate([[0], np.cumsum(density[1:] + density[:-1])])
    return lambda x: np.interp(x, grid, total / total[-1])


def _walk(prior, params, n, thin=4):
    """log k of column 0 beside its beginning, after every `thin` draws: nearly independent."""
    now, rng, out = (
        Params(params.users.copy(), params.items.copy(), 1),
        np.random.default_rng(2),
        [],
    )
    x = 0.0
    for t in range(n * thin):
        x += np.log(_draw(now, prior, rng)[0])
        if t % thin == thin - 1:
            out.append(x)
    return np.array(out)


@pytest.mark.parametrize("name", ["gamma", "wishart", "wishart-bias"])
def test_scales_have_their_density(name):
    prior = PRIORS[name]
    params = _params(prior, 1, 12)
    assert kstest(_walk(prior, params, 1600), _cdf(prior, params)).pvalue > LEVEL


def _from_prior(prior, n_factors, rng):
    sides = [draw_prior(prior, n_factors, rng) for _ in range(2)]
    roots = [np.linalg.cholesky(covariance(side)) for side in sides]
    rows = [
        (side.mu + rng.normal(size=(n, len(root))) @ root.T).astype(np.float32)
        for side, root, n in zip(sides, roots, (N_USERS, N_ITEMS), strict=True)
    ]
    return Params(*rows, n_factors), sides


def _functions(params, sides):
    norms = [np.log((rows.astype(float) ** 2).sum(0)) for rows in (params.users, params.items)]
    spread = [np.linalg.slogdet(covariance(side))[1] for side in sides]
    return [norms[0][0], norms[1][0], norms[0][1] - norms[1][1], norms[0].sum(), *spread]


def _samples(prior, n):
    """Functions of prior draws; and of others, after three rounds of scales and precisions."""
    rng, fresh, moved = np.random.default_rng(6), [], []
    for _ in range(n):
        fresh.append(_functions(*_from_prior(prior, 2, rng)))
        params, _ = _from_prior(prior, 2, rng)
        for _ in range(3):
            _draw(params, prior, rng)
        sides = [prior.draw(rows, rng) for rows in (params.users, params.items)]
        moved.append(_functions(params, sides))
    return np.array(fresh).T, np.array(moved).T


def _least_p(name, n):
    pairs = zip(*_samples(PRIORS[name], n), strict=True)
    return min(ks_2samp(one, other).pvalue for one, other in pairs)


@pytest.mark.parametrize("name", PRIORS)
def test_the_prior_is_left_in_place(name):
    assert _least_p(name, 1000) > LEVEL


def test_a_wrong_volume_is_caught(monkeypatch):
    mutant = with_density(lambda x: -(N_USERS - N_ITEMS) * x)
    monkeypatch.setattr(bayesmf.model.scale, "slice_sample", mutant)
    assert _least_p("wishart-bias", 600) < LEVEL / 100


def test_a_wrong_weight_is_caught(monkeypatch):
    right = bayesmf.model.priors.WishartColumns.log_scale
    mutant = lambda c, d, x: right(c, d, x - 0.5 * np.log(2))  # noqa: E731
    monkeypatch.setattr(bayesmf.model.priors.WishartColumns, "log_scale", mutant)
    assert _least_p("wishart", 600) < LEVEL / 100
