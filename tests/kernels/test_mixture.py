"""The compiled mixture kernels against scipy and plain numpy twins."""

import math

import numpy as np
import pytest
from numba import njit
from scipy import integrate, special, stats

from bayesmf.kernels.mixture import (
    NEAR,
    erfc_near,
    exp_near,
    mixture_cdf,
    mixture_crps,
    mixture_log_pdf,
    mixture_moments,
    mixture_quantile,
)

PROBABILITIES = (1e-300, 1e-12, 1e-4, 0.025, 0.25, 0.5, 0.8, 0.975, 1 - 1e-4, 1 - 1e-12)


def mixture(draws, n, seed=0, dtype=np.float64, spread=1.0):
    rng = np.random.default_rng(seed)
    mu = (3.5 + spread * rng.standard_normal((draws, n))).astype(dtype)
    var = rng.gamma(2.0, 0.4, (draws, n)).astype(dtype) + dtype(0.01)
    y = (3.5 + 2.0 * rng.standard_normal(n)).astype(dtype)
    return y, mu, var


def twin(y, mu, var):
    """Return cdf, log pdf and first CRPS term in float64 by scipy."""
    y, mu, var = (np.asarray(a, dtype=np.float64) for a in (y, mu, var))
    law = stats.norm(mu, np.sqrt(var))
    log_pdf = special.logsumexp(law.logpdf(y), axis=0) - np.log(len(mu))
    return law.cdf(y).mean(axis=0), log_pdf


def twin_crps(y, mu, var, pairs):
    def mean_abs(m, v):
        z = m / np.sqrt(v)
        return m * (2 * stats.norm.cdf(z) - 1) + 2 * np.sqrt(v) * stats.norm.pdf(z)

    mu, var = mu.astype(np.float64), var.astype(np.float64)
    near = mean_abs(mu - y, var).mean(axis=0)
    apart = [mean_abs(mu[t] - mu[u], var[t] + var[u]) for t, u in pairs]
    return near - 0.5 * np.mean(apart, axis=0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("draws", [1, 2, 7, 40])
def test_against_twins(draws, dtype):
    y, mu, var = mixture(draws, 33, seed=draws, dtype=dtype)
    cdf, log_pdf = twin(y, mu, var)
    mean, variance = mixture_moments(mu, var)
    wide, wide_var = mu.astype(np.float64), var.astype(np.float64)
    assert mean.dtype == variance.dtype == np.float64
    np.testing.assert_allclose(mean, wide.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(variance, wide_var.mean(axis=0) + wide.var(axis=0), rtol=1e-12)
    np.testing.assert_allclose(mixture_cdf(y, mu, var), cdf, rtol=1e-11)
    np.testing.assert_allclose(mixture_log_pdf(y, mu, var), log_pdf, rtol=1e-11, atol=1e-12)
    pairs = [(t, (t + draws // 2) % draws) for t in range(draws)]
    want = twin_crps(y.astype(np.float64), mu, var, pairs)
    np.testing.assert_allclose(mixture_crps(y, mu, var), want, rtol=1e-10, atol=1e-12)


def test_variance_does_not_cancel():
    rng = np.random.default_rng(3)
    offsets = rng.standard_normal((50, 5)) * 1e-3
    mean, variance = mixture_moments(1e6 + offsets, np.full((50, 5), 1e-6))
    np.testing.assert_allclose(variance, offsets.var(axis=0) + 1e-6, rtol=1e-6)
    np.testing.assert_allclose(mean, 1e6 + offsets.mean(axis=0), rtol=1e-15)


def test_crps_is_the_integral_of_the_squared_error_of_the_cdf():
    y, mu, var = mixture(1, 4, seed=8)
    for k in range(4):

        def cdf(x, k=k):
            return stats.norm.cdf(x, mu[0, k], np.sqrt(var[0, k]))

        left, _ = integrate.quad(lambda x: cdf(x) ** 2, y[k] - 30, y[k], points=[mu[0, k]])
        right, _ = integrate.quad(lambda x: (1 - cdf(x)) ** 2, y[k], y[k] + 30, points=[mu[0, k]])
        assert mixture_crps(y, mu, var)[k] == pytest.approx(left + right, rel=1e-6)


def test_crps_shifted_pairs_are_close_to_all_pairs_on_average():
    y, mu, var = mixture(100, 400, seed=5, spread=0.3)
    exact = twin_crps(y, mu, var, [(t, u) for t in range(100) for u in range(100)])
    assert mixture_crps(y, mu, var).mean() == pytest.approx(exact.mean(), rel=5e-3)


def test_log_pdf_is_finite_at_extremes():
    y = np.array([1e300, -1e300, 1e308, 3.0, 0.0, 0.0])
    mu = np.array([[0.0, 0.0, -1e308, 3.0, 1e200, 1e4], [1.0, 1.0, -1e308, 3.0, 1e200, 2e4]])
    var = np.array([[1.0, 1e-300, 1.0, 0.0, 1e-308, 1e-2]] * 2)
    got = mixture_log_pdf(y, mu, var)
    assert np.all(np.isfinite(got))
    assert np.isfinite(got.sum())
    assert got[5] == pytest.approx(twin(y[5:], mu[:, 5:], var[:, 5:])[1][0], rel=1e-12)


def test_cdf_at_extremes():
    mu, var = np.zeros((3, 5)), np.full((3, 5), 1.0)
    got = mixture_cdf(np.array([-1e300, -30.0, 0.0, 30.0, 1e300]), mu, var)
    np.testing.assert_allclose(got, [0.0, stats.norm.cdf(-30.0), 0.5, 1.0, 1.0], rtol=1e-12)
    # Variance zero is a point mass.
    got = mixture_cdf(np.array([-1.0, 0.0, 1.0]), np.zeros((2, 3)), np.zeros((2, 3)))
    np.testing.assert_array_equal(got, [0.0, 0.5, 1.0])


@pytest.mark.parametrize("p", PROBABILITIES)
def test_quantile_of_one_component(p):
    _, mu, var = mixture(1, 9, seed=1)
    sd = np.sqrt(var[0])
    want = stats.norm.ppf(p, mu[0], sd)
    assert np.max(np.abs(mixture_quantile(p, mu, var) - want) / sd) < 1e-7


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("p", PROBABILITIES)
@pytest.mark.parametrize("draws", [2, 3, 60])
def test_quantile_then_cdf_is_the_identity(p, draws, dtype):
    _, mu, var = mixture(draws, 37, seed=draws, dtype=dtype)
    x = mixture_quantile(p, mu, var)
    if p <= 0.5:
        np.testing.assert_allclose(mixture_cdf(x, mu, var), p, rtol=2e-6)
    else:
        np.testing.assert_allclose(mixture_cdf(-x, -mu, var), 1 - p, rtol=2e-6)


@pytest.mark.parametrize("gap", [1e2, 1e6, 1e12])
def test_quantile_of_widely_separated_components(gap):
    mu = np.array([[-gap], [gap], [gap]])
    var = np.array([[1.0], [0.25], [0.25]])
    tolerance = 1e-6 + 4e-16 * gap
    want = -gap + stats.norm.ppf(0.3)
    assert abs(mixture_quantile(0.1, mu, var)[0] - want) < tolerance
    want = gap + 0.5 * stats.norm.ppf((0.9 - 1 / 3) * 1.5)
    assert abs(mixture_quantile(0.9, mu, var)[0] - want) < tolerance
    assert -gap < mixture_quantile(1 / 3, mu, var)[0] < gap


def test_quantile_of_components_of_very_different_width():
    mu = np.array([[0.0], [3.0], [3.0]])
    var = np.array([[1e8], [1e-8], [1.0]])
    for p in (0.001, 0.2, 0.4, 0.5, 0.7, 0.8, 0.999):
        x = mixture_quantile(p, mu, var)
        assert mixture_cdf(x, mu, var)[0] == pytest.approx(p, rel=1e-6)


def test_quantile_is_monotone_in_p_and_exact_for_point_masses():
    _, mu, var = mixture(30, 10, seed=6)
    grid = np.linspace(0.001, 0.999, 41)
    rows = np.array([mixture_quantile(p, mu, var) for p in grid])
    assert np.all(np.diff(rows, axis=0) > 0)
    mu = np.array([[1.0], [2.0], [4.0]])
    zero = np.zeros((3, 1))
    got = [mixture_quantile(p, mu, zero)[0] for p in (0.2, 0.5, 0.9)]
    np.testing.assert_allclose(got, [1.0, 2.0, 4.0], rtol=1e-12)


def test_nan_stays_in_its_column():
    y, mu, var = mixture(5, 3, seed=2)
    mu[2, 1] = np.nan
    for got in (
        mixture_cdf(y, mu, var),
        mixture_log_pdf(y, mu, var),
        mixture_crps(y, mu, var),
        mixture_quantile(0.3, mu, var),
        *mixture_moments(mu, var),
    ):
        np.testing.assert_array_equal(np.isnan(got), [False, True, False])


def test_empty_and_wrong_shapes():
    y, mu, var = mixture(4, 3)
    assert mixture_crps(y[:0], mu[:, :0].copy(), var[:, :0].copy()).shape == (0,)
    assert mixture_quantile(0.5, mu[:, :0].copy(), var[:, :0].copy()).shape == (0,)
    with pytest.raises(ValueError, match="differ in shape"):
        mixture_moments(mu, var[:2])
    with pytest.raises(ValueError, match="no draws"):
        mixture_moments(mu[:0], var[:0])
    for kernel in (mixture_cdf, mixture_log_pdf, mixture_crps):
        with pytest.raises(ValueError, match="one rating for each"):
            kernel(y[:2], mu, var)
    for p in (0.0, 1.0, -0.1, np.nan):
        with pytest.raises(ValueError, match="strictly between"):
            mixture_quantile(p, mu, var)


@njit
def near(x, y):
    return np.array([erfc_near(v) for v in x]), np.array([exp_near(v) for v in y])


def test_vector_code_of_the_normal_distribution():
    rng = np.random.default_rng(9)
    x, y = rng.uniform(-NEAR, NEAR, 20_000), rng.uniform(-500, 500, 20_000)
    x[:6] = 0.0, 0.25, 0.84375, -0.84375, 1.25, -1.25
    y[:3] = 0.0, 1e-300, -1e-18
    erfc, exp = near(x, y)
    # All bits with the glibc that it was written after; other libraries round otherwise.
    np.testing.assert_allclose(erfc, [math.erfc(v) for v in x], rtol=4e-16)
    np.testing.assert_allclose(exp, [math.exp(v) for v in y], rtol=4e-16)


@pytest.mark.parametrize("p", [1e-9, 0.05, 0.5, 0.95])
def test_a_quantile_does_not_depend_on_other_pairs(p):
    _, mu, var = mixture(30, 50, seed=7)
    mu[:, ::7] *= 3.0  # some pairs take more steps than others
    alone = [mixture_quantile(p, mu[:, [k]].copy(), var[:, [k]].copy())[0] for k in range(50)]
    np.testing.assert_array_equal(mixture_quantile(p, mu, var), alone)
