"""Precisions of rows, what stands above them, and the slice sampler: against exact densities.

Draws are compared with densities on a grid by ranks: the distribution function at n draws is
uniform, its largest distance from that (Kolmogorov) has p-value above 1e-4, and so have the first
two moments of its normal scores. So variances are tested as well as means; a test of three p-values
raises a false alarm in 3e-4 of all seeds, and seeds are fixed.
"""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln

import bayesmf.model.noise
from bayesmf.errors import DivergenceError
from bayesmf.model.noise import Noise, RowNoise, _draw_exchange
from bayesmf.model.scale import slice_sample
from row_noise import drawn

LEVEL = 1e-4


def p_values(draws, grid, log_density):
    """That independent draws have a density known on a grid: of shape, mean and variance."""
    density = np.exp(log_density - log_density.max())
    steps = np.append(0.0, 0.5 * (density[1:] + density[:-1]) * np.diff(grid))
    uniform = np.interp(draws, grid, np.cumsum(steps) / steps.sum())
    z, n = stats.norm.ppf(np.clip(uniform, 1e-12, 1 - 1e-12)), len(draws)
    mean = 2 * stats.norm.sf(abs(z.mean()) * n**0.5)
    tails = stats.chi2.cdf((z**2).sum(), n), stats.chi2.sf((z**2).sum(), n)
    return stats.kstest(uniform, "uniform").pvalue, mean, 2 * min(tails)


def chain(step, start, n, thin):
    """Every `thin`-th state of a chain, from a start that is not remembered."""
    x, out = start, []
    for t in range(n * thin + 20):
        x = step(x)
        if t >= 20 and t % thin == 0:
            out.append(x)
    return np.array(out)


# -- slices ----------------------------------------------------------------------------------------


def test_slices_have_their_density():
    """A skew density, with steps that are too small and too large, and few of them."""
    rng, grid = np.random.default_rng(0), np.linspace(-12, 4, 20_001)
    for step, most in ((0.2, None), (5.0, None), (1.0, 3)):
        found = chain(
            lambda x, s=step, m=most: slice_sample(lambda y: y - math.exp(y), x, s, rng, m),
            3.0, 1500, 6,
        )  # fmt: skip
        assert min(p_values(found, grid, grid - np.exp(grid))) > LEVEL


def test_slices_of_two_modes_visit_both():
    def log_density(x):
        return float(np.logaddexp(-0.5 * (x - 1.5) ** 2 / 0.16, math.log(0.5) - 0.5 * (x + 1) ** 2))

    rng, grid = np.random.default_rng(1), np.linspace(-7, 5, 8001)
    found = chain(lambda x: slice_sample(log_density, x, 2.0, rng), 0.0, 1500, 12)
    assert min(p_values(found, grid, np.array([log_density(x) for x in grid]))) > LEVEL


@pytest.mark.parametrize("told", [math.nan, math.inf, -math.inf])
def test_no_slice_of_what_is_no_density(told):
    """It would be looked for without end."""
    with pytest.raises(DivergenceError, match="noise_by=None"):
        slice_sample(lambda x: told, 0.0, 1.0, np.random.default_rng(0))


# -- precisions given errors -----------------------------------------------------------------------


def test_precisions_given_errors():
    """Gamma(k + n / 2, rate beta + sse / 2), under the law drawn with them: 20,000 rows alike."""
    n, rng = 20_000, np.random.default_rng(2)
    for count, sse in ((0, 0.0), (3, 7.0), (400, 150.0)):
        own = RowNoise(np.ones(n, np.float32), 1.7, 2.5)
        found = drawn(own, np.full(n, count), np.full(n, sse), rng)
        exact = stats.gamma(found.shape + count / 2, scale=1 / (found.rate + sse / 2))
        assert stats.kstest(found.value, exact.cdf).pvalue > LEVEL


def test_precisions_are_never_zero():
    own = RowNoise(np.ones(200, np.float32), 1e-3, 1.0)
    found = drawn(own, np.zeros(200, int), np.zeros(200), np.random.default_rng(0))
    assert found.value.min() > 0 and np.isfinite(np.log(found.value)).all()


# -- shape and rate given precisions ---------------------------------------------------------------


def _some(n, true, seed=3, **more):
    value = np.random.default_rng(seed).gamma(true, 1 / true, n).astype(np.float32)
    return RowNoise(value, **more)


def _log_prior_of_k(k):
    """Density in k where s = 1 / sqrt(k) is half-normal: p(s) |ds / dk|."""
    return stats.halfnorm.logpdf(k**-0.5) + np.log(0.5 * k**-1.5)


@pytest.mark.parametrize(("n", "shape"), [(1, 1.0), (5, 0.7), (60, 4.0), (3000, 12.0)])
def test_shape_and_rate(n, shape):
    """Against a grid in two dimensions, of the joint density as the model is written down."""
    own, rng = _some(n, shape), np.random.default_rng(4)
    x, y = np.linspace(-4, 14, 1801)[:, None], np.linspace(-9, 14, 1501)[None]
    if n > 50:
        x, y = x / 18 * 4 + 1.2, y / 23 * 4 + 1.2
    k, beta, value = np.exp(x), np.exp(y), own.value.astype(float)
    joint = (
        n * (k * y - gammaln(k)) + (k - 1) * np.log(value).sum() - beta * value.sum()
        + _log_prior_of_k(k) + stats.expon.logpdf(beta) + x + y
    )  # fmt: skip
    joint -= joint.max()
    found = chain(lambda now: now.draw_hyper(rng), own, 800, 8)
    of_k = np.log(np.exp(joint).sum(1) + 1e-300)
    of_rate = np.log(np.exp(joint).sum(0) + 1e-300)
    assert min(p_values(np.log([f.shape for f in found]), x[:, 0], of_k)) > LEVEL
    assert min(p_values(np.log([f.rate for f in found]), y[0], of_rate)) > LEVEL
    assert all(f.value is own.value for f in found)


@pytest.mark.parametrize(("n", "shape"), [(1, 1.0), (5, 0.7), (300, 12.0)])
def test_shape_of_mean_one(n, shape):
    own, rng = _some(n, shape, mean_one=True), np.random.default_rng(5)
    x, value = np.linspace(-5, 16, 8001), own.value.astype(float)
    k = np.exp(x)
    exact = stats.gamma.logpdf(value[:, None], k, scale=1 / k).sum(0) + _log_prior_of_k(k) + x
    found = chain(lambda now: now.draw_hyper(rng), own, 1000, 8)
    assert min(p_values(np.log([f.shape for f in found]), x, exact)) > LEVEL
    assert all(f.rate == f.shape for f in found)


@pytest.mark.parametrize("seed", range(3))
def test_the_exchange_of_sizes(seed):
    """log c of (c tau, w / c) against the joint density of all precisions along that path.

    The density in c is the joint one, with beta integrated out by numbers, times the Jacobian of
    (tau, w) -> (c tau, w / c), c^(n - m), and dc / c.
    """
    users, items = _some(7, 2.0, seed, shape=1.3), _some(4, 5.0, seed + 9, shape=3.0, mean_one=True)
    rng, x = np.random.default_rng(seed), np.linspace(-6, 6, 601)
    log_beta = np.linspace(-16, 9, 4001)
    exact = np.empty(len(x))
    for at, c in enumerate(np.exp(x)):
        tau, w = c * users.value.astype(float), items.value.astype(float) / c
        over = stats.expon.logpdf(np.exp(log_beta)) + log_beta
        over = over + stats.gamma.logpdf(tau[:, None], 1.3, scale=np.exp(-log_beta)).sum(0)
        exact[at] = np.logaddexp.reduce(over) + stats.gamma.logpdf(w, 3.0, scale=1 / 3.0).sum()
        exact[at] += (len(tau) - len(w)) * x[at]

    def step(now):
        moved = [
            RowNoise(own.value * np.float32(np.exp(sign * now)), own.shape, 1.0, own.mean_one)
            for own, sign in ((users, 1), (items, -1))
        ]
        return now + _draw_exchange(*moved, rng)

    assert min(p_values(chain(step, 0.0, 1000, 8), x, exact)) > LEVEL


def test_the_exchange_leaves_products():
    noise = Noise(_some(7, 2.0), _some(4, 5.0, mean_one=True))
    found = noise.draw_hyper(np.random.default_rng(0))
    before, after = (np.outer(n.users.value, n.items.value) for n in (noise, found))
    assert np.allclose(before, after, rtol=1e-6)
    assert not np.allclose(noise.users.value, found.users.value)


@pytest.mark.parametrize("by", ["user", "item", "both"])
def test_a_start(by):
    noise = Noise.initial(by, 3, 2)
    assert (noise.users is None) == (by == "item") and (noise.items is None) == (by == "user")
    assert noise.items is None or noise.items.mean_one == (by == "both")
    assert noise.typical() == 1.0


def test_a_forgotten_prior_of_the_shape_is_caught(monkeypatch):
    monkeypatch.setattr(bayesmf.model.noise, "log_shape_prior", lambda log_k: 0.0)
    with pytest.raises(AssertionError):
        test_shape_of_mean_one(5, 0.7)
