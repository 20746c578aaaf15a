"""Kernels equal their plain twins on the same random numbers, in float32 and in float64."""

import numpy as np
import pytest

import naive
from bayesmf.kernels import gradient as kernels
from bayesmf.kernels.gather import padded
from bayesmf.kernels.keys import STREAM_ITEMS, STREAM_USERS, make_key, stream_word
from bayesmf.kernels.linalg import second_moments
from bayesmf.kernels.minibatch import (
    draw_sorted,
    make_columns,
    make_scratch,
    pad,
    room_for,
    sum_squared_errors,
)
from bayesmf.worker.block_tasks import pad_precision

N_USERS, N_ITEMS, D = 7, 9, 3


def _round(data, order, x, y, scale, first, key, d=D, width=D + 1):
    """run_dealt with all it needs."""
    columns = make_columns(d, width, x.rows.dtype)
    scratch = make_scratch(len(y.rows), columns)
    return kernels.run_dealt(data, np.array(order), x, y, columns, scale, first, key, scratch)


def _problem(width, seed=0, n=40, dtype=np.float64):
    rng = np.random.default_rng(seed)
    cells = rng.choice(N_USERS * N_ITEMS, n, replace=False)
    cells.sort()
    user, item = (cells // N_ITEMS).astype(np.int32), (cells % N_ITEMS).astype(np.int32)
    value = rng.normal(size=n).astype(np.float32)
    users = rng.normal(size=(N_USERS, width)).astype(dtype)
    items = rng.normal(size=(N_ITEMS, width)).astype(dtype)
    return rng, user, item, value, users, items


def _prior(rng, width, full):
    root = rng.normal(size=(width, width))
    mu = rng.normal(size=width)
    return mu, (root @ root.T + np.eye(width) if full else np.diag(rng.uniform(1, 3, width)))


def _side(rng, rows, full, step, stream, dtype):
    n, width = rows.shape
    mu, Lambda = _prior(rng, width, full)
    weight, noise = rng.uniform(1, 4, n), rng.uniform(0, 3, n)
    numbers = rng.permutation(100)[:n].astype(np.int32)
    stored = Lambda if full else np.diag(Lambda).copy()
    wide = padded(width)
    side = kernels.Side(
        pad(rows, wide), numbers, weight.astype(dtype), noise.astype(dtype), pad(mu, wide, dtype),
        pad_precision(stored, wide, dtype), dtype(step), stream_word(stream, 4),
    )  # fmt: skip
    return side, (step, weight, noise, mu, Lambda)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 2e-5)])
def test_update_batch(bias, full, dtype, tolerance):
    width = D + bias
    rng, user, item, value, users, items = _problem(width, dtype=dtype)
    x, x_plain = _side(rng, users, full, 0.02, STREAM_USERS, dtype)
    y, y_plain = _side(rng, items, full, 0.02, STREAM_ITEMS, dtype)
    data = naive.as_batches(user, item, value, np.array([0, 5, 40]))
    key = make_key(3)
    sse, count = _round(data, [1], x, y, dtype(2.5), 6, key, width=width)
    z = [
        {k: naive.normals([s.numbers[k]], width, 6, s.stream, key)[s.numbers[k]]
         for k in range(len(s.numbers))}
        for s in (x, y)
    ]  # fmt: skip
    ratings = list(zip(user[5:], item[5:], value[5:].astype(float), strict=True))
    expected = naive.update_batch(users, items, ratings, D, 2.5, (x_plain, y_plain), z)
    assert count == 35
    assert sse == pytest.approx(expected[2], rel=tolerance)
    for side, rows in zip((x, y), expected[:2], strict=True):
        assert np.allclose(side.rows[:, :width], rows, rtol=0, atol=tolerance * 10)
        assert not side.rows[:, width:].any()


@pytest.mark.parametrize(
    ("width", "coded"),
    # Compiled for each number of vectors, and once more for codes.
    [(1, False), (7, False), (8, False), (9, True), (101, True)],
)
def test_any_width_and_coded_ratings(width, coded):
    """Rows of whole vectors and of broken ones; a user with one rating, an item with none."""
    d = max(width - 1, 1)
    rng, _, _, _, users, items = _problem(width)
    users, items = users / width**0.5, items / width**0.5
    user = np.repeat(np.arange(N_USERS), [8, 1, 0, 5, 8, 1, 8])
    item = np.concatenate([np.sort(rng.permutation(N_ITEMS - 1)[:k]) for k in (8, 1, 5, 8, 1, 8)])
    levels = np.array([-1.5, 0.25, 1.0], np.float32)
    code = rng.integers(0, 3, len(user)).astype(np.uint8)
    value = levels[code]
    x, x_plain = _side(rng, users, False, 0.02, STREAM_USERS, np.float64)
    y, y_plain = _side(rng, items, False, 0.02, STREAM_ITEMS, np.float64)
    data = naive.as_batches(user, item, code if coded else value, np.array([0, 31]), levels)
    key = make_key(3)
    sse, _ = _round(data, [0], x, y, 2.5, 6, key, d, width)
    z = [naive.normals(s.numbers, width, 6, s.stream, key) for s in (x, y)]
    z = [
        {k: own[number] for k, number in enumerate(s.numbers)}
        for s, own in zip((x, y), z, strict=True)
    ]
    ratings = list(zip(user, item, value, strict=True))
    expected = naive.update_batch(users, items, ratings, d, 2.5, (x_plain, y_plain), z)
    assert sse == pytest.approx(expected[2], rel=1e-12)
    for side, rows in zip((x, y), expected[:2], strict=True):
        assert np.allclose(side.rows[:, :width], rows, rtol=0, atol=1e-11)
        assert not side.rows[:, width:].any()
    columns = make_columns(d, width, np.float64)
    exact = sum_squared_errors(data, pad(users, padded(width)), pad(items, padded(width)), columns)
    assert exact == pytest.approx(expected[2], rel=1e-12)


def test_rows_outside_the_batch_stay():
    rng, user, item, value, users, items = _problem(D + 1)
    x, _ = _side(rng, users, False, 0.1, STREAM_USERS, np.float64)
    y, _ = _side(rng, items, False, 0.1, STREAM_ITEMS, np.float64)
    data = naive.as_batches(user, item, value, np.array([0, 3, 40]))
    _round(data, [0], x, y, 1.0, 0, make_key(0))
    for side, old, hit in ((x, users, set(user[:3])), (y, items, set(item[:3]))):
        for k in range(len(old)):
            assert np.array_equal(side.rows[k, : D + 1], old[k]) == (k not in hit)


def test_a_step_of_zero_holds_a_side():
    rng, user, item, value, users, items = _problem(D + 1)
    x, _ = _side(rng, users, False, 0.1, STREAM_USERS, np.float64)
    y, _ = _side(rng, items, False, 0.0, STREAM_ITEMS, np.float64)
    data = naive.as_batches(user, item, value, np.array([0, 40]))
    _round(data, [0], x, y, 1.0, 0, make_key(0))
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
    rng, user, item, value, users, items = _problem(D + 1)
    key = make_key(9)
    x, _ = _side(rng, users.astype(np.float32), False, 0.05, STREAM_USERS, np.float32)
    y, _ = _side(rng, items.astype(np.float32), False, 0.05, STREAM_ITEMS, np.float32)
    x2, y2 = (side._replace(rows=side.rows.copy()) for side in (x, y))
    data = naive.as_batches(user, item, value, np.array([0, 40]))
    columns, scale = make_columns(D, D + 1, np.float32), np.float32(1.5)
    kernels.run_replacement(
        data, room_for(11, data), 1, 2, x, y, columns, scale, 8, key, make_scratch(N_ITEMS, columns)
    )
    index = np.empty(11, np.int64)
    draw_sorted(index, 40, 8, 2, key)
    drawn = naive.as_batches(user[index], item[index], value[index], np.array([0, 11]))
    _round(drawn, [0], x2, y2, scale, 8, key)
    assert np.array_equal(x.rows, x2.rows)
    assert np.array_equal(y.rows, y2.rows)


def test_column_moments():
    rows = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    exact = rows.astype(float)
    assert np.allclose(kernels.column_squares(rows), (exact**2).sum(0))
    total, cross = second_moments(rows)
    assert np.allclose(total, exact.sum(0))
    assert np.allclose(cross, exact.T @ exact)
