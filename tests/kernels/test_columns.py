"""Rows drawn a few columns at a time: against a plain twin, and against the exact posterior."""

import numpy as np
import pytest
from scipy import stats

import bayesmf.worker.row_tasks
import naive
from bayesmf.kernels.columns import GROUP, LOST_PIVOT
from bayesmf.kernels.gather import padded
from row_cases import WIDTHS, Case, distance


def _normals(case, k):
    """The normals of a row, column by column."""
    groups = padded(-(-case.width // GROUP))
    return case.normals(k, groups).reshape(GROUP, groups).T.ravel()[: case.width].astype(float)


@pytest.mark.parametrize("joint", [4, 1])
@pytest.mark.parametrize("relax", [0.0, 0.9])
@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("width", WIDTHS)
def test_rows_equal_the_plain_twin(width, bias, full, relax, joint):
    """Each with a precision of its own, of ratings that have weights."""
    counts = [0, 1, 3, 8, width, 300, 9000]
    case = Case(width, counts, bias, full).with_own_noise()
    old = np.random.default_rng(5).normal(size=(len(counts), width)).astype(np.float32)
    out, means, sse = case.draw(relax=relax, old=old, joint=joint)
    for k in range(len(counts)):
        row, middle = naive.draw_by_columns(
            old[k].astype(float), *case.regression(k), case.mu, case.Lambda, case.tau[k], relax,
            joint, _normals(case, k),
        )  # fmt: skip
        assert distance(out[k], row) < 2e-4
        assert distance(means[k], middle) < 2e-4
    assert sse == pytest.approx(case.squared_errors(out), rel=1e-4)
    assert case.told_is_right(out, 2e-4)


@pytest.mark.parametrize("joint", [4, 1])
@pytest.mark.parametrize("full", [True, False])
def test_the_posterior_stays_in_place(full, joint):
    """20,000 rows of one posterior, each redrawn once; false-alarm rate 1e-4 a test.

    Over-relaxed rows lean on the old ones, so these are the posterior's own draws.
    """
    width, n = 7, 20_000
    case = Case(width, [5] * n, full=full)
    case.index, case.value = (np.tile(a[:5], n) for a in (case.index, case.value))
    mean, precision = case.posterior(0)
    root = np.linalg.cholesky(precision)
    old = mean + np.random.default_rng(3).normal(size=(n, width)) @ np.linalg.inv(root)
    white = (case.draw(relax=0.6, old=old, joint=joint)[0] - mean) @ root
    second = white.T @ white / n
    spread = np.sqrt((1 + np.eye(width)) / n)
    scores = np.concatenate(
        [white.mean(0) * n**0.5, ((second - np.eye(width)) / spread)[np.tril_indices(width)]]
    )
    assert np.abs(scores).max() < stats.norm.isf(1e-4 / 2 / len(scores))


def test_conditional_means_have_the_mean_of_the_draws():
    """Averages over the posterior: means, unlike draws, without their own noise."""
    width, n = 6, 20_000
    case = Case(width, [4] * n, full=True)
    case.index, case.value = (np.tile(a[:4], n) for a in (case.index, case.value))
    mean, precision = case.posterior(0)
    noise = np.random.default_rng(3).normal(size=(n, width))
    old = mean + noise @ np.linalg.inv(np.linalg.cholesky(precision))
    draws, means, _ = case.draw(relax=0.9, old=old, joint=4)
    z = (means.mean(0) - mean) / (means.std(0) / n**0.5)
    assert np.abs(z).max() < 4.5
    assert (means.var(0) < draws.var(0)).all()


def test_columns_that_are_nearly_the_same_are_drawn_with_the_whole_row():
    case = Case(9, [400, 400], bias=False, scale=1e-3)
    case.other[:, 3] = case.other[:, 2] + 0.1 * LOST_PIVOT * case.other[:, 3]
    old = np.zeros((2, 9), np.float32)
    out, means, _ = case.draw(old=old, joint=4)
    whole, whole_means, _ = case.draw(old=old)
    assert np.array_equal(out, whole)
    assert np.array_equal(means, whole_means)


def test_rows_too_long_for_the_buffer_are_drawn_whole(monkeypatch):
    monkeypatch.setattr(bayesmf.worker.row_tasks, "longest_row", lambda n_factors: 100)
    case, old = Case(9, [100, 101]), np.zeros((2, 9), np.float32)
    out, _, sse = case.draw(old=old, joint=4)
    whole, _, _ = case.draw(old=old)
    assert np.array_equal(out[1], whole[1])
    assert not np.array_equal(out[0], whole[0])
    assert sse == pytest.approx(case.squared_errors(out), rel=1e-5)


@pytest.mark.parametrize("joint", [4, 1])
def test_a_row_does_not_depend_on_its_stripe(joint):
    case = Case(9, [0, 1, 300, 5, 8, 700, 40])
    old = np.random.default_rng(1).normal(size=(7, 9)).astype(np.float32)
    out, means, _ = case.draw(old=old, joint=joint, relax=0.9)
    for rows in ([6, 5, 4, 3, 2, 1, 0], [2], [1, 4], [5, 0]):
        some, some_means, _ = case.draw(rows, old=old[rows], joint=joint, relax=0.9)
        assert np.array_equal(some, out[rows])
        assert np.array_equal(some_means, means[rows])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("joint", [4, 1])
@pytest.mark.parametrize("where", ["other", "bias", "value"])
def test_what_is_not_finite_shows(bad, joint, where):
    case = Case(7, [50])
    if where == "value":
        case.value[-1] = bad
    else:
        case.other[case.index[-1], case.D if where == "bias" else 2] = bad
    assert not np.isfinite(case.draw(old=0.0, joint=joint)[2])
