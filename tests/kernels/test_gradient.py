"""Kernels equal their plain twins on the same random numbers, in float32 and in float64."""

import numpy as np
import pytest

import batch_twins
import naive
from batch_twins import (
    N_ITEMS,
    N_USERS,
    Batch,
    compare_gradient,
    compare_momentum,
    gradient_side,
    run_dealt,
)
from bayesmf.kernels import gradient as kernels
from bayesmf.kernels.keys import STREAM_ITEMS, STREAM_USERS, make_key
from bayesmf.kernels.linalg import second_moments
from bayesmf.kernels.minibatch import draw_sorted, make_columns, make_scratch, room_for
from interpreted import run_main

D = 3


def test_kernels_to_the_last_digit():
    """Those of rows with momenta too: as plain Python, where float64 needs no compiler."""
    run_main(batch_twins.__file__)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("full", [True, False])
def test_update_batch(bias, full):
    compare_gradient(D + bias, bias, full, False, np.float32, 2e-5)


@pytest.mark.parametrize(
    ("width", "coded"),
    # Compiled for each number of vectors, and once more for codes.
    [(1, False), (2, False), (7, False), (8, False), (9, True), (16, True)],
)
def test_any_width_and_coded_ratings(width, coded):
    """Rows of whole vectors and of broken ones; a user with one rating, an item with none."""
    compare_gradient(width, width > 1, False, coded, np.float32, 2e-5)


@pytest.mark.parametrize("gain", [0.0, 0.3])
@pytest.mark.parametrize(
    ("width", "bias", "full", "coded"),
    # Compiled for each number of vectors, kind of precision and of ratings.
    [(4, True, True, False), (8, True, True, False), (4, True, False, False),
     (10, True, False, True), (15, False, False, True)],
)  # fmt: skip
def test_momenta(width, bias, full, coded, gain):
    compare_momentum(width, bias, full, coded, gain, np.float32, 1e-4)


def _problem(step_items):
    rng = np.random.default_rng(0)
    batch = Batch(rng)
    users, items = (rng.normal(size=(n, D + 1)).astype(np.float32) for n in (N_USERS, N_ITEMS))
    x, _ = gradient_side(rng, users, False, 0.1, STREAM_USERS)
    y, _ = gradient_side(rng, items, False, step_items, STREAM_ITEMS)
    return batch, x, y, users, items


def test_rows_outside_the_batch_stay():
    batch, x, y, users, items = _problem(0.1)
    run_dealt(batch.arrays, [0], x, y, 0, make_key(0), D, D + 1)
    for side, old, hit in ((x, users, {r[0] for r in batch.all[:5]}),
                           (y, items, {r[1] for r in batch.all[:5]})):  # fmt: skip
        assert 0 < len(hit) < len(old)
        for k in range(len(old)):
            assert np.array_equal(side.rows[k, : D + 1], old[k]) == (k not in hit)


def test_a_step_of_zero_holds_a_side():
    batch, x, y, users, items = _problem(0.0)
    run_dealt(batch.arrays, [0, 1], x, y, 0, make_key(0), D, D + 1)
    assert np.array_equal(y.rows[:, : D + 1], items)
    assert not np.array_equal(x.rows[:, : D + 1], users)


def test_draw_sorted_is_uniform_with_replacement():
    """Order statistics in order; counts by chi-squared (false-alarm rate 1e-4)."""
    from scipy import stats

    index, n = np.empty(64, np.int64), 37
    total = np.zeros(n, int)
    for iteration in range(400):
        draw_sorted(index, n, iteration, 0, make_key(1))
        assert np.all(np.diff(index) >= 0)
        assert index[0] >= 0
        assert index[-1] < n
        total += np.bincount(index, minlength=n)
    assert total.sum() == 400 * 64
    assert stats.chisquare(total).pvalue > 1e-4


def test_run_replacement_equals_update_of_the_drawn_ratings():
    batch, x, y, _, _ = _problem(0.1)
    user, item, value = map(np.array, zip(*batch.all, strict=True))
    order, key = np.argsort(user, kind="stable"), make_key(9)
    user, item, value = user[order], item[order], value[order].astype(np.float32)
    x2, y2 = (side._replace(rows=side.rows.copy()) for side in (x, y))
    data = naive.as_batches(user, item, value, np.array([0, len(user)]))
    columns = make_columns(D, D + 1, np.float32)
    kernels.run_replacement(
        data, room_for(11, data), 1, 2, x, y, columns, 8, key, make_scratch(N_ITEMS, columns)
    )
    index = np.empty(11, np.int64)
    draw_sorted(index, len(user), 8, 2, key)
    drawn = naive.as_batches(user[index], item[index], value[index], np.array([0, 11]))
    run_dealt(drawn, [0], x2, y2, 8, key, D, D + 1)
    assert np.array_equal(x.rows, x2.rows)
    assert np.array_equal(y.rows, y2.rows)


def test_column_moments():
    rows = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    exact = rows.astype(float)
    assert np.allclose(kernels.column_squares(rows), (exact**2).sum(0))
    total, cross = second_moments(rows)
    assert np.allclose(total, exact.sum(0))
    assert np.allclose(cross, exact.T @ exact)
