"""Sums that do not depend on how their terms are cut."""

import numpy as np
import pytest

from bayesmf.kernels.exact import (
    LEAF,
    add_whole,
    exact_sums,
    packed_moments,
    total,
    unpacked_moments,
)

RNG = np.random.default_rng(0)


def test_sums_are_right_and_the_same_however_cut():
    terms = RNG.normal(size=(1000, 3)) * [1e-6, 1.0, 1e6]
    whole = exact_sums(terms)
    np.testing.assert_allclose(total([whole]), terms.sum(0), rtol=1e-12, atol=1e-12)
    for _ in range(20):
        order, cut = RNG.permutation(1000), RNG.integers(1, 999)
        parts = [exact_sums(terms[order][:cut]), exact_sums(terms[order][cut:])]
        assert np.array_equal(sum(parts), whole)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1e30, 3e15])
def test_a_term_that_cannot_be_added_spoils_its_sum_alone(bad):
    terms = np.ones((40, 2))
    terms[7, 1] = bad
    found = total([exact_sums(terms[:20]), exact_sums(terms[20:])])
    assert found[0] == 40 and np.isnan(found[1])


@pytest.mark.parametrize("width", [1, 4, 9, 31])
@pytest.mark.parametrize("full", [True, False])
def test_moments(width, full):
    n = 5 * LEAF + 7
    rows = RNG.normal(size=(n, width)).astype(np.float32)
    whole = packed_moments(rows, full)
    sums, cross = unpacked_moments([whole], width, full)
    exact = rows.astype(float).T @ rows.astype(float)
    np.testing.assert_allclose(sums, rows.sum(0, dtype=float), atol=1e-6)
    np.testing.assert_allclose(cross, exact if full else np.diag(exact), atol=2e-4, rtol=1e-5)
    for cut in (LEAF, 3 * LEAF):  # stripes begin at whole leaves
        parts = packed_moments(rows[:cut], full) + packed_moments(rows[cut:], full)
        assert np.array_equal(parts, whole)


def test_moments_of_rows_that_left_the_numbers():
    rows = np.ones((LEAF + 3, 5), np.float32)
    for bad in (np.nan, np.inf, 1e18):
        rows[LEAF + 1, 2] = bad
        parts = [
            packed_moments(rows[:LEAF], True),
            packed_moments(rows[LEAF:], True),
        ]
        assert np.isnan(unpacked_moments(parts, 5, True)[1]).all()


@pytest.mark.parametrize("n", range(1, 20))
def test_spoilt_parts_never_add_up_to_a_number(n):
    """However many are spoilt, and whoever adds first."""
    spoilt, sound = exact_sums(np.array([np.nan])), exact_sums(np.array([3.0]))
    assert np.isnan(total([spoilt] * n)) and np.isnan(total([sound, *[spoilt] * n]))
    halves = add_whole([spoilt] * n), add_whole([sound] * n)
    assert np.isnan(total(halves))
    rows = np.full((LEAF, 3), np.nan, np.float32)
    parts = [packed_moments(rows, True)] * n
    assert np.isnan(unpacked_moments(parts, 3, True)[1]).all()


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3, 1e5])
@pytest.mark.parametrize("n", [1, 2, 7, 5000])
def test_rows_and_errors_of_any_size(size, n):
    """As large as those of ratings that are not standardised."""
    rows = (size * RNG.normal(size=(n, 5))).astype(np.float32)
    cross = unpacked_moments([packed_moments(rows, True)], 5, True)[1]
    np.testing.assert_allclose(
        cross, rows.astype(float).T @ rows, rtol=1e-4, atol=1e-10 + 1e-5 * size**2 * n
    )
    terms = size**2 * RNG.gamma(200.0, size=n)
    assert total([exact_sums(terms)])[0] == pytest.approx(terms.sum(), rel=1e-12)
