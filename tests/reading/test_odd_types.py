"""Columns of odd types as ratings, ids and times: right, or refused with a sentence."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp

from bayesmf import BayesianMF, Ratings
from bayesmf.checks import number_array
from bayesmf.errors import InputError
from bayesmf.estimator.fit import training_ratings
from bayesmf.ids.id_map import IdMap
from bayesmf.packed.pack import pack
from bayesmf.reading.memory import pairs_of
from bayesmf.run.prepare import prepare

DAYS = [dt.date(2020, 1, k) for k in (1, 2, 3)]
MOMENTS = [dt.datetime(2020, 1, k, 5, tzinfo=dt.UTC) for k in (1, 2, 3)]
HOURS = [dt.time(k) for k in (1, 2, 3)]
SPANS = [dt.timedelta(k) for k in (1, 2, 3)]
TIMES = [
    *(make(values) for values in (DAYS, MOMENTS, HOURS, SPANS)
      for make in (list, pl.Series, pd.Series, pa.array, lambda x: np.array(x, object))),
    *(np.array([1, 2, 3], unit) for unit in ("M8[D]", "M8[ns]", "m8[s]", "m8[Y]", "m8")),
    pd.Series(pd.period_range("2020", periods=3)),
    np.ma.array(np.array([1, 2, 3], "m8[s]"), mask=[0, 1, 0]),
]  # fmt: skip


@pytest.mark.parametrize("column", TIMES, ids=lambda x: f"{type(x).__name__}")
def test_times_are_neither_ratings_nor_ids(column):
    with pytest.raises(InputError):
        Ratings.from_data(([1, 2, 3], [1, 2, 3], column))
    with pytest.raises(InputError):
        Ratings.from_pairs([(1, 2), (3, 4), (5, 6)], column)
    with pytest.raises(InputError):
        Ratings.from_data((column, [1, 2, 3], [1.0, 2.0, 3.0]))


def test_times_in_files_are_no_ratings(tmp_path):
    for values in (DAYS, MOMENTS, HOURS, SPANS):
        frame = pl.DataFrame({"user": [1, 2, 3], "item": [1, 2, 3], "rating": values})
        frame.write_parquet(tmp_path / "a.parquet")
        with pytest.raises(InputError, match="is a time, not a number"):
            Ratings.from_data(tmp_path / "a.parquet")


def test_lists_in_files_are_nothing(tmp_path):
    """A struct was cast to a struct of numbers, which nobody looked at again."""
    odd = [[{"a": 1}, {"a": 2}, {"a": 3}], [[1], [2], [3]], [b"1", b"2", b"3"]]
    for values in odd:
        for role in ("user", "rating", "timestamp"):
            columns = {"user": [1, 2, 3], "item": [1, 2, 3], "rating": [1, 2, 3], role: values}
            pl.DataFrame(columns).write_parquet(tmp_path / "a.parquet")
            with pytest.raises(InputError, match=f"The {role}.* column holds"):
                Ratings.from_data(tmp_path / "a.parquet")


def test_times_are_no_numbers_anywhere():
    times, three = np.array([1, 2, 3], "M8[s]"), np.arange(3)
    ids = IdMap([1, 2, 3])
    with pytest.raises(InputError, match="must be numbers"):
        number_array("ratings", times)
    with pytest.raises(InputError, match="must be numbers"):
        Ratings.from_arrays(three, three, times, None, ids, ids)


MASKED = np.ma.array([[1, 2, 3.0], [2, 3, 4.0], [3, 4, 5.0]], mask=np.zeros((3, 3)))


@pytest.mark.parametrize(("at", "said"), [(0, "user id"), (1, "item id"), (2, "rating")])
def test_what_numpy_masks_is_missing(at, said):
    table = MASKED.copy()
    table[1, at] = np.ma.masked
    named = np.ma.array(
        [tuple(row) for row in table.data],
        dtype=[("user", int), ("item", int), ("rating", float)],
        mask=[tuple(row) for row in table.mask],
    )
    columns = tuple(table[:, k] for k in range(3))
    rows = [tuple(row) for row in table]  # with the mark for masked among numbers
    for data in (table, named, named.view(np.ma.MaskedArray), columns, rows):
        with pytest.raises(InputError, match=rf"{said}.* row 1|row 1 .*{said}"):
            Ratings.from_data(data)
    assert len(Ratings.from_data(MASKED)) == 3


def test_masked_y_is_missing():
    y = np.ma.array([1.0, 2.0, 3.0], mask=[0, 1, 0])
    pairs = [(1, 2), (3, 4), (5, 6)]
    for column in (y, y[:, None]):
        with pytest.raises(InputError, match=r"row 1 .* missing"):
            training_ratings(pairs, column, None)
    with pytest.raises(InputError, match="masked"):
        number_array("ratings", y)


@pytest.mark.parametrize("kind", [sp.coo_matrix, sp.coo_array])
def test_repeated_cells_of_a_sparse_matrix_are_summed(kind):
    cells = ([100, 100, 3, 0], ([0, 0, 1, 1], [0, 0, 1, 0]))
    for dtype in (np.int8, np.float32):
        data = kind(cells, shape=(2, 2), dtype=dtype)
        made = Ratings.from_data(data)
        found = sorted(zip(made.users, made.items, made.rating, strict=True))
        assert found == [(0, 0, 200), (1, 0, 0), (1, 1, 3)]  # a stored zero is a rating
        assert data.nnz == 4
        assert data.dtype == dtype
    assert [ids.tolist() for ids in pairs_of(data)] == [[0, 1, 1], [0, 0, 1]]


def test_repeated_cells_by_rows_are_summed():
    data = sp.csr_matrix(([1.0, 2.0, 3.0], [1, 1, 0], [0, 2, 3]), shape=(2, 2))
    assert Ratings.from_data(data).rating.tolist() == [3, 3]
    assert data.nnz == 3
    unsorted = sp.csr_matrix(([1.0, 2.0, 3.0], [1, 0, 0], [0, 2, 3]), shape=(2, 2))
    assert Ratings.from_data(unsorted).rating.tolist() == [1, 2, 3]
    wide = sp.coo_matrix(([1, 2], ([2**40, 2**40], [5, 5])), shape=(2**41, 2**41))
    assert Ratings.from_data(wide).rating.tolist() == [3]


def test_sums_of_cells_that_are_no_ratings():
    cells = ([True, True, True], ([0, 0, 1], [0, 0, 1]))
    assert Ratings.from_data(sp.coo_matrix(cells)).rating.tolist() == [1, 1]
    far = sp.coo_matrix(([3e38, 3e38], ([0, 0], [0, 0])))
    with pytest.raises(InputError, match="too large"):
        Ratings.from_data(far)


def test_cells_outside_of_a_sparse_matrix_are_refused():
    data = sp.coo_matrix(([1, 2], ([0, 1], [0, 1])), shape=(2, 2))
    data.row[0] = -5
    with pytest.raises(InputError, match="outside"):
        Ratings.from_data(data)


@pytest.mark.parametrize(("values", "works"), [
    ([1e8, 1e8 + 9, 1e8 - 9, 1e8 + 1], False),
    ([1e6, 1e6 + 1, 1e6 - 1, 1e6 + 1], False),
    ([1e5, 1e5 + 1, 1e5 - 1, 1e5 + 1], True),
    ([1.0, 2.0, 3.0, 1e9], True),
])  # fmt: skip
def test_ratings_that_rounding_blurs_are_not_learnt_from(tmp_path, values, works):
    """Told by the fit: a few test ratings may lie close together."""
    data = Ratings.from_data(([1, 2, 3, 4], [1, 2, 1, 2], values))
    data.write(tmp_path / "a.csv")
    packed = pack(tmp_path / "a.csv", tmp_path / "packed")
    for source in (data, packed):
        if works:
            prepare(source, True)
        else:
            with pytest.raises(InputError, match="subtract their mean"):
                prepare(source, True)


def test_a_fit_of_blurred_ratings_says_so():
    with pytest.raises(InputError, match="single precision"):
        BayesianMF().fit([(1, 2), (3, 4), (5, 6)], [1e8, 1e8 + 1, 1e8 + 20])


@pytest.mark.parametrize(("column", "said"), [
    (np.array([2.0**53 + 2, 2.0**60]), "9007199254740994"),
    (np.array([2**24 + 2, 5], np.float32), "16777218"),
    (pl.Series([1e300, 1.0]), "1e.300|10000"),
])  # fmt: skip
def test_ids_that_lost_digits_are_refused(column, said):
    with pytest.raises(InputError, match=said):
        Ratings.from_data((column, [1, 2], [1.0, 2.0]))


@pytest.mark.parametrize("column", [
    [Decimal("1.5"), Decimal("NaN")],
    bytearray(b"ab"),
    [[1], [2]],
    [{"a": 1}, {"a": 2}],
    np.array([1 + 2j, 2]),
    [1 + 2j, 2],
    [b"1", b"2"],
    [object(), object()],
], ids=lambda x: type(x[0]).__name__)  # fmt: skip
def test_what_is_no_number_is_no_rating(column):
    with pytest.raises(InputError, match=r"The rating column|the rating|Decimal"):
        Ratings.from_data(([1, 2], [1, 2], column))


@pytest.mark.parametrize("column", [
    [True, False], HOURS[:2], SPANS[:2], np.array([2**62, 1], "M8[Y]"), np.array([1, 2], "m8[s]"),
], ids=str)  # fmt: skip
def test_what_says_no_moment_is_no_timestamp(column):
    with pytest.raises(InputError, match="timestamp"):
        Ratings.from_data(([1, 2], [1, 2], [1.0, 2.0], column))


@pytest.mark.parametrize("column", [
    [True, False],
    [Decimal("1.0"), Decimal("0")],
    np.array([1, 0], np.float16),
    np.array([1, 0], ">i2"),
    np.array([1, 0], np.uint64),
    pd.Series([1, 0], dtype="Int64"),
    pd.Series(pd.Categorical([1, 0])),
    pl.Series(["1", "0"], dtype=pl.Enum(["0", "1"])),
    pl.Series([1, 0], dtype=pl.Int128),
    pa.array([1, 0]).dictionary_encode(),
], ids=lambda x: f"{type(x).__name__}")  # fmt: skip
def test_other_types_of_numbers_are_ratings(column):
    assert Ratings.from_data(([1, 2], [1, 2], column)).rating.tolist() == [1, 0]
