"""Probabilities of levels and runs of them, against scipy and brute force."""

import numpy as np
import pytest
from scipy import stats

from bayesmf.kernels.mixture import mixture_bins, shortest_runs


def problem(draws=7, n=50, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    mu, var = rng.normal(3.4, 0.8, (draws, n)), rng.gamma(3.0, 0.3, (draws, n))
    return mu.astype(dtype), var.astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("edges", [[1.6, 2.5, 3.4, 4.5], [3.0], []])
def test_bins_are_differences_of_distribution_functions(edges, dtype):
    mu, var = problem(dtype=dtype)
    found = mixture_bins(np.array(edges), mu, var, 0.0)
    assert found.shape == (50, len(edges) + 1)
    sd = np.sqrt(var.astype(float))
    below = [np.zeros(50), *(stats.norm.cdf(e, mu, sd).mean(0) for e in edges), np.ones(50)]
    np.testing.assert_allclose(found, np.diff(below, axis=0).T, atol=1e-13)
    np.testing.assert_allclose(found.sum(1), 1.0, atol=1e-13)


def test_bins_far_out_keep_their_digits():
    """Of a bin 20 standard deviations out 1 - 1 would be left of two distribution functions."""
    mu, var = np.array([[0.0]]), np.array([[1.0]])
    found = mixture_bins(np.array([-22.0, -20.0, 20.0, 22.0]), mu, var, 0.0)[0]
    inner = stats.norm.sf(20) - stats.norm.sf(22)
    np.testing.assert_allclose(found, [stats.norm.sf(22), inner, 1.0, inner, stats.norm.sf(22)])


def test_a_pair_has_the_same_bits_in_any_company():
    mu, var = problem(dtype=np.float32)
    edges = np.array([2.0, 3.0, 4.0])
    whole = mixture_bins(edges, mu, var, 0.1)
    for k in (0, 17, 49):
        one = np.ascontiguousarray(mu[:, k : k + 1]), np.ascontiguousarray(var[:, k : k + 1])
        np.testing.assert_array_equal(mixture_bins(edges, *one, 0.1)[0], whole[k])


def test_a_variance_of_zero_is_a_point():
    found = mixture_bins(np.array([1.0, 2.0]), np.array([[1.5, 9.0]]), np.zeros((1, 2)), 0.0)
    np.testing.assert_array_equal(found, [[0, 1, 0], [0, 0, 1]])


def test_what_rounding_added_is_taken_off_down_to_a_quarter():
    mu, edges = np.zeros((1, 2)), np.array([0.5])
    found = mixture_bins(edges, mu, np.array([[1.0, 0.08]]), 0.19)[:, 0]
    np.testing.assert_allclose(found, stats.norm.cdf([0.5 / 0.9, 0.5 / np.sqrt(0.02)]))


def test_refusals():
    with pytest.raises(ValueError, match="one shape"):
        mixture_bins(np.array([1.0]), np.zeros((2, 3)), np.ones((2, 4)), 0.0)
    with pytest.raises(ValueError, match="a draw or more"):
        mixture_bins(np.array([1.0]), np.zeros((0, 3)), np.ones((0, 3)), 0.0)


@pytest.mark.parametrize("level", [0.05, 0.5, 0.9, 0.999])
def test_runs_are_the_shortest(level):
    proba = np.random.default_rng(3).dirichlet(np.full(7, 0.7), 300)
    first, last, held = shortest_runs(proba, level)
    for p, a, b, share in zip(proba, first, last, held, strict=True):
        runs = [(j - i, -p[i : j + 1].sum(), i) for i in range(7) for j in range(i, 7)]
        length, most, at = min(run for run in runs if -run[1] >= level - 1e-12)
        assert (b - a, a) == (length, at)
        assert share == pytest.approx(-most)
        assert share >= level - 1e-12


def test_runs_of_equals_and_of_everything():
    first, last, held = shortest_runs(np.array([[0.25, 0.25, 0.25, 0.25]]), 0.5)
    assert (first[0], last[0], held[0]) == (0, 1, 0.5)
    # Rows that fall short of one by rounding alone are whole.
    first, last, _ = shortest_runs(np.full((1, 10), 0.1 - 1e-13), 1 - 1e-14)
    assert (first[0], last[0]) == (0, 9)
