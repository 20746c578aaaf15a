"""Chain diagnostics against ArviZ and known truths."""

import sys
import types
import warnings

import numpy as np
import pytest

from bayesmf.diagnostics import mixing
from bayesmf.diagnostics.mixing import effective_sample_size, split_rhat, to_arviz
from bayesmf.errors import InputError


def autoregression(phi, shape, seed):
    """Return stationary AR(1) chains of unit variance, shape (chains, draws, quantities)."""
    rng = np.random.default_rng(seed)
    chains, draws, quantities = shape
    x = np.empty(shape)
    x[:, 0] = rng.standard_normal((chains, quantities))
    for t in range(1, draws):
        noise = rng.standard_normal((chains, quantities))
        x[:, t] = phi * x[:, t - 1] + np.sqrt(1 - phi**2) * noise
    return x


def by_arviz(name, x, method):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import arviz
    function = getattr(arviz, name)
    return np.array([float(function(x[:, :, q], method=method)) for q in range(x.shape[2])])


@pytest.mark.parametrize("draws", [10, 20, 101, 1000])
@pytest.mark.parametrize("chains", [1, 2, 4])
@pytest.mark.parametrize("phi", [-0.5, 0.0, 0.6, 0.95])
def test_diagnostics_agree_with_arviz(phi, chains, draws):
    x = autoregression(phi, (chains, draws, 8), seed=draws + chains)
    # ArviZ refuses to split a single chain by itself.
    half = draws // 2
    halves = np.concatenate([x[:, :half], x[:, -half:]])
    np.testing.assert_allclose(split_rhat(x), by_arviz("rhat", halves, "identity"), rtol=1e-10)
    want = by_arviz("ess", x, "mean")
    # Where a short sequence ends only with the lags, ArviZ adds its last even lag if negative too.
    tolerance = 1e-6 if draws > 100 else 0.1
    np.testing.assert_allclose(effective_sample_size(x), want, rtol=tolerance)


def test_disagreeing_chains_agree_with_arviz():
    x = autoregression(0.5, (4, 400, 3), seed=1)
    x[0] += [3.0, 0.5, 0.0]
    x[:, :, 2] += np.linspace(0, 3, 400)
    got = split_rhat(x)
    assert np.all(got > 1.02)
    np.testing.assert_allclose(got, by_arviz("rhat", x, "split"), rtol=1e-10)
    want = by_arviz("ess", x, "mean")
    np.testing.assert_allclose(effective_sample_size(x), want, rtol=1e-6)


@pytest.mark.parametrize("phi", [-0.3, 0.0, 0.5, 0.9])
def test_ess_of_an_autoregression_is_known(phi):
    x = autoregression(phi, (4, 5000, 20), seed=7)
    truth = 20000 * (1 - phi) / (1 + phi)
    assert effective_sample_size(x).mean() == pytest.approx(truth, rel=0.05)
    assert np.all(np.abs(split_rhat(x) - 1) < 0.02)


def test_few_draws_give_nan():
    for draws in (0, 1, 3):
        x = np.ones((2, draws, 5))
        assert np.all(np.isnan(split_rhat(x)))
        assert np.all(np.isnan(effective_sample_size(x)))
    x = autoregression(0.0, (2, 4, 5), seed=0)
    assert np.all(np.isfinite(split_rhat(x)))
    assert np.all(np.isfinite(effective_sample_size(x)))
    assert split_rhat(np.ones((2, 9, 0))).shape == (0,)


def test_constant_stuck_and_infinite_quantities():
    x = autoregression(0.0, (2, 50, 4), seed=3)
    x[:, :, 1] = 0.1
    x[0, :, 2], x[1, :, 2] = 0.1, 0.3
    x[1, 7, 3] = np.inf
    rhat, ess = split_rhat(x), effective_sample_size(x)
    np.testing.assert_array_equal(np.isnan(rhat), [False, True, False, True])
    assert np.isinf(rhat[2])
    np.testing.assert_array_equal(np.isnan(ess), [False, True, False, True])
    assert ess[2] < 4


def test_blocks_do_not_change_the_answer(monkeypatch):
    x = autoregression(0.4, (3, 60, 11), seed=5).astype(np.float32)
    whole = split_rhat(x), effective_sample_size(x)
    monkeypatch.setattr(mixing, "_BLOCK_SIZE", 3 * 60 * 2)
    np.testing.assert_allclose(split_rhat(x), whole[0], rtol=1e-12)
    np.testing.assert_allclose(effective_sample_size(x), whole[1], rtol=1e-9)


# ArviZ


def test_to_arviz():
    rng = np.random.default_rng(0)
    draws = {"tau": rng.normal(size=(2, 30)), "factors": rng.normal(size=(2, 30, 3, 4))}
    posterior = to_arviz(draws)["posterior"]
    for name, values in draws.items():
        np.testing.assert_array_equal(posterior[name].values, values)


def test_to_arviz_with_the_interface_of_arviz_1(monkeypatch):
    seen = []

    def from_dict(data, *, name=None, sample_dims=None):
        seen.append(data)
        return "tree"

    monkeypatch.setitem(sys.modules, "arviz", types.SimpleNamespace(from_dict=from_dict))
    assert to_arviz({"tau": np.ones((2, 5))}) == "tree"
    assert list(seen[0]) == ["posterior"]


def test_to_arviz_says_how_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(InputError, match=r"pip install arviz"):
        to_arviz({"tau": np.ones((2, 5))})
