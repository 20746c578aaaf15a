import numpy as np
import pytest

from bayesmf.kernels.csr import (
    RowLists,
    code_ratings,
    group_rows,
    row_starts,
    sort_rows,
    transpose,
    transpose_some,
)


def triples(n, n_rows, n_other, dtype, seed=0):
    rng = np.random.default_rng(seed)
    row, other = (rng.integers(0, k, n).astype(np.int32) for k in (n_rows, n_other))
    return row, other, rng.integers(0, 200, n).astype(dtype)


def assert_same(lists, starts, other, value):
    assert (lists.starts.dtype, lists.other.dtype) == (np.int64, np.int32)
    np.testing.assert_array_equal(lists.starts, starts)
    np.testing.assert_array_equal(lists.other, other)
    np.testing.assert_array_equal(lists.value, value)
    assert lists.value.dtype == value.dtype


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize(("n", "n_rows", "n_other"), [(0, 3, 2), (1, 1, 1), (5000, 70, 40)])
def test_sorting_is_stable(dtype, n, n_rows, n_other):
    """With repeats of a pair, which keep their order."""
    row, other, value = triples(n, n_rows, n_other, dtype)
    order = np.lexsort((other, row))
    starts = np.searchsorted(row[order], np.arange(n_rows + 1))
    lists = sort_rows(row, other, value, n_rows, n_other)
    assert_same(lists, starts, other[order], value[order])
    assert len(lists) == n
    np.testing.assert_array_equal(lists.counts(), np.bincount(row, minlength=n_rows))


def test_grouping_keeps_the_order_given():
    row, other, value = triples(5000, 70, 40, np.float32)
    order = np.argsort(row, kind="stable")
    starts = np.searchsorted(row[order], np.arange(71))
    assert_same(group_rows(row, other, value, 70), starts, other[order], value[order])


def test_transposing_twice_gives_the_same():
    row, other, value = triples(5000, 70, 40, np.uint8)
    lists = sort_rows(row, other, value, 70, 40)
    turned = transpose(lists, 40)
    assert_same(turned, *vars(sort_rows(other, row, value, 40, 70)).values())
    again = transpose(turned, 70)
    np.testing.assert_array_equal(again.other, lists.other)
    assert isinstance(again, RowLists)


@pytest.mark.parametrize(("first", "last"), [(0, 0), (0, 40), (7, 19), (39, 40)])
def test_some_rows_of_the_other_side(first, last):
    row, other, value = triples(5000, 70, 40, np.float32)
    lists = sort_rows(row, other, value, 70, 40)
    whole, starts = transpose(lists, 40), row_starts(other, 40)
    np.testing.assert_array_equal(starts, np.cumsum([0, *np.bincount(other, minlength=40)]))
    own = slice(starts[first], starts[last])
    some = transpose_some(lists, starts, first, last)
    begin = starts[first : last + 1] - starts[first]
    assert_same(some, begin, whole.other[own], whole.value[own])


def test_ratings_are_coded_exactly():
    rng = np.random.default_rng(1)
    levels = np.sort(rng.normal(size=256).astype(np.float32))
    rating = rng.permutation(np.concatenate([levels, rng.choice(levels, 10_000)]))
    found = code_ratings(rating)
    assert found is not None
    codes, got = found
    assert (codes.dtype, got.dtype) == (np.uint8, np.float32)
    np.testing.assert_array_equal(got, levels)
    np.testing.assert_array_equal(got[codes], rating)


def test_one_level_too_many_is_seen_wherever_it_stands():
    rating = np.concatenate([np.repeat(np.arange(256), 100), [256.5]]).astype(np.float32)
    assert code_ratings(rating) is None
    assert code_ratings(rating[::-1]) is None
    assert code_ratings(rating[:-1]) is not None


def test_minus_zero_is_zero_and_none_is_none():
    codes, levels = code_ratings(np.array([0.0, -0.0, -1.0], dtype=np.float32))
    assert codes.tolist() == [1, 1, 0] and levels.tolist() == [-1.0, 0.0]
    codes, levels = code_ratings(np.empty(0, dtype=np.float32))
    assert len(codes) == len(levels) == 0
