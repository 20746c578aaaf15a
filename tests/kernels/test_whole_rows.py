"""Compiled row draws against plain float64 arithmetic, in the primal and in the dual form."""

import numpy as np
import pytest
from scipy import stats

from bayesmf.kernels.row_posterior import CHUNK
from row_cases import WIDTHS, Case, distance


@pytest.mark.parametrize("own_noise", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("width", WIDTHS)
def test_rows_equal_plain_posterior(width, full, bias, own_noise):
    counts = [0, 1, 3, width - 1, width, CHUNK, CHUNK + 1, 5000]
    case = Case(width, counts, bias, full)
    if own_noise:
        case.with_own_noise()
    out, means, sse = case.draw()
    for k in range(len(counts)):
        assert distance(means[k], case.posterior(k)[0]) < 2e-5
        assert distance(out[k], case.expected_draw(k)) < 2e-5
    assert sse == pytest.approx(case.squared_errors(out), rel=1e-6)
    assert case.told_is_right(out, 1e-5)
    alone, _, same = case.draw(want_means=False)
    assert np.array_equal(alone, out)
    assert same == sse


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("n_ratings", [0, 1, 3, 4, 6, 30])
def test_errors_of_a_single_row(n_ratings, full):
    case = Case(7, [n_ratings], full=full)
    out, _, sse = case.draw()
    assert sse == pytest.approx(case.squared_errors(out), rel=1e-5, abs=1e-12)


def test_errors_where_the_prior_outweighs_the_ratings():
    case = Case(9, [1, 3, 8, 40], full=True, scale=1e6)
    out, _, sse = case.draw()
    assert sse == pytest.approx(case.squared_errors(out), rel=1e-5)


@pytest.mark.parametrize(("full", "n_ratings"), [(False, 2), (False, 3), (False, 9), (True, 2)])
def test_draws_have_the_posterior_covariance(full, n_ratings):
    """Dual (2, 3) and primal: 20,000 rows of the same ratings; false-alarm rate 1e-4 a test."""
    width, n = 5, 20_000
    case = Case(width, [n_ratings] * n, full=full)
    case.index, case.value = (np.tile(a[:n_ratings], n) for a in (case.index, case.value))
    assert case.is_dual(0) == (not full and n_ratings < 4)
    mean, precision = case.posterior(0)
    white = (case.draw()[0] - mean) @ np.linalg.cholesky(precision)
    # Independent standard normals: every mean, variance and covariance has its known spread.
    second = white.T @ white / n
    spread = np.sqrt((1 + np.eye(width)) / n)
    scores = np.concatenate(
        [white.mean(0) * n**0.5, ((second - np.eye(width)) / spread)[np.tril_indices(width)]]
    )
    assert np.abs(scores).max() < stats.norm.isf(1e-4 / 2 / len(scores))


@pytest.mark.parametrize("full", [True, False])
def test_a_row_does_not_depend_on_its_stripe(full):
    case = Case(9, [0, 1, 300, 5, 8, 700, 40], full=full)
    out, means, _ = case.draw()
    for rows in ([6, 5, 4, 3, 2, 1, 0], [2], [1, 4], [5, 0]):
        some, some_means, _ = case.draw(rows)
        assert np.array_equal(some, out[rows])
        assert np.array_equal(some_means, means[rows])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("n_ratings", [1, 3, 50])
@pytest.mark.parametrize("where", ["other", "bias", "value"])
def test_what_is_not_finite_shows(bad, full, n_ratings, where):
    case = Case(7, [n_ratings], full=full)
    if where == "value":
        case.value[-1] = bad
    else:
        case.other[case.index[-1], case.D if where == "bias" else 2] = bad
    assert not np.isfinite(case.draw()[2])


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("width", [1, 8, 9, 31])
def test_over_relaxation_reflects_deviations_and_adds_the_rest_as_noise(width, full):
    """m - r (old - m) + sqrt(1 - r^2) (draw - m), for the dual form (n small) and the primal."""
    problem = Case(width, [0, 1, 3, 2 * width + 5, 400], full=full).with_own_noise()
    plain, means, _ = problem.draw()
    old = np.random.default_rng(5).normal(size=plain.shape).astype(np.float32)
    out, same, sse = problem.draw(relax=0.9, old=old)
    assert np.allclose(same, means, atol=1e-6)
    expected = means - 0.9 * (old - means) + np.sqrt(1 - 0.81) * (plain - means)
    assert np.allclose(out, expected, atol=2e-4 * np.abs(expected).max())
    assert sse == pytest.approx(problem.squared_errors(out), rel=1e-4)
    assert problem.told_is_right(out, 1e-4)
