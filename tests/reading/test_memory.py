"""What users have in memory: as ratings, as pairs, as pairs with ratings beside them."""

import collections

import numpy as np
import polars as pl
import pytest
import scipy.sparse

from bayesmf import BayesianMF, Gibbs
from bayesmf.data.ratings import Ratings
from bayesmf.errors import InputError
from bayesmf.reading.memory import pairs_of, table_of, table_with

USERS, ITEMS, VALUES = ["a", "b", "a", "c", "d"], [1, 2, 2, 3, 1], [3.0, 4.0, 5.0, 1.0, 2.0]
ROWS = list(zip(USERS, ITEMS, VALUES, strict=True))
PAIRS = [row[:2] for row in ROWS]
Named = collections.namedtuple("Named", "rating user item")


def rows(table):
    columns = [column.tolist() for column in table if column is not None]
    return list(zip(*columns, strict=True))


def frame():
    pd = pytest.importorskip("pandas")
    return pd.DataFrame({"user": USERS, "item": ITEMS, "rating": VALUES})


TABLES = {
    "tuple of columns": lambda: (USERS, ITEMS, VALUES),
    "list of arrays": lambda: [np.array(USERS), np.array(ITEMS), np.array(VALUES)],
    "list of columns": lambda: [USERS, ITEMS, VALUES],
    "list of tuples": lambda: ROWS,
    "list of lists": lambda: [list(row) for row in ROWS],
    "zip": lambda: zip(USERS, ITEMS, VALUES, strict=True),
    "list of dicts": lambda: [{"rating": r, "user": u, "item": i} for u, i, r in ROWS],
    "named tuples": lambda: [Named(r, u, i) for u, i, r in ROWS],
    "rows of pandas": lambda: frame().itertuples(),
    "dict": lambda: {"rating": VALUES, "user": USERS, "item": np.array(ITEMS)},
    "structured": lambda: frame().to_records(),
    "array": lambda: np.array(ROWS, dtype=object),
    "pandas": frame,
    "pandas nullable": lambda: frame().convert_dtypes(),
    "pandas unnamed": lambda: frame().set_axis(range(3), axis=1),
    "polars": lambda: pl.DataFrame({"item": ITEMS, "user": USERS, "rating": VALUES}),
    "lazy": lambda: pl.LazyFrame({"item": ITEMS, "user": USERS, "rating": VALUES}),
    "Arrow table": lambda: pl.DataFrame(frame()).to_arrow(),
    "Arrow batch": lambda: pl.DataFrame(frame()).to_arrow().to_batches()[0],
}


@pytest.mark.parametrize("kind", TABLES)
def test_tables(kind):
    assert rows(table_of(TABLES[kind]())) == ROWS
    if kind != "list of columns":
        assert rows(pairs_of(TABLES[kind]())) == PAIRS


def columns_of(values):
    pd, pa = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    kind = "string" if isinstance(values[0], str) else "Int64"
    text = kind == "string"
    return [
        pd.array(values, dtype="string[pyarrow]" if text else "Int64"),
        pd.array(values, dtype="string[python]" if text else "Float64"),
        pd.Series(values, dtype="string[pyarrow]" if text else "int64[pyarrow]"),
        pd.Categorical(values),
        pd.Series(values, dtype="category"),
        pd.Index(values),
        pd.Series(values, index=[7] * len(values)),
        pa.array(values),
        pa.array(values).dictionary_encode() if text else pa.array(values, pa.int8()),
        pa.chunked_array([values[:2], values[2:]]),
        pl.Series(values),
        pl.Series(values, dtype=pl.Categorical if text else pl.UInt16),
        np.array(values, dtype=object),
        np.array(values),
        tuple(values),
        collections.deque(values),
    ]


@pytest.mark.parametrize("values", [USERS, [3, 1, 2, 5, 4]])
def test_columns_of_ids(values):
    for column in columns_of(values):
        assert Ratings(column, ITEMS, VALUES).users.tolist() == values, type(column)
        assert rows(pairs_of((ITEMS, column))) == list(zip(ITEMS, values, strict=True))
    assert Ratings(range(5), ITEMS, VALUES).users.tolist() == [0, 1, 2, 3, 4]


def test_columns_of_ratings():
    for column in [*columns_of([3, 1, 2, 5, 4]), range(5)]:
        made = Ratings(USERS, ITEMS, column)
        assert made.rating.tolist() == [float(value) for value in column]


def missing_ids():
    pd = pytest.importorskip("pandas")
    return [
        ["a", None, "b", "c", "d"],
        ["a", float("nan"), "b", "c", "d"],
        [1, pd.NA, 2, 3, 4],
        [1, np.nan, 2, 3, 4],
        np.array([1, None, 2, 3, 4], dtype=object),
        np.ma.array([1, 2, 3, 4, 5], mask=[0, 1, 0, 0, 0]),
        pd.array([1, None, 2, 3, 4], dtype="Int64"),
        pd.array([1, None, 2, 3, 4], dtype="Float64"),
        pd.array(["a", None, "b", "c", "d"], dtype="string[python]"),
        pd.Categorical(["a", None, "b", "c", "d"]),
    ]


def test_missing_ids_have_a_place():
    for column in missing_ids():
        with pytest.raises(InputError, match=r"user id at row 1 .*missing"):
            Ratings(column, ITEMS, VALUES)
        with pytest.raises(InputError, match=r"item id at row 1 .*missing"):
            pairs_of((ITEMS, column))


@pytest.mark.parametrize(("column", "message"), [
    (["a", 1, "b", "c", "d"], "mixes text and numbers: 1 at row 1"),
    ([1, "a", 2, 3, 4], "mixes numbers and text: 'a' at row 1"),
    ([1, True, 2, 3, 4], "mixes numbers and true or false: True at row 1"),
    (np.array([True, 1, 2, 3, 4], dtype=object), "mixes true or false and numbers"),
    ([True] * 5, "holds bool values from row 0"),
    (["a", ["b"], "c", "d", "e"], r"mixes text and list values: \['b'\] at row 1"),
    ([["a"]] * 5, "holds list values from row 0"),
    ([1.5] * 5, "1.5 at row 0"),
    ({1, 2, 3, 4, 5}, "is a set, not a column"),
    (np.ones((5, 1)), r"shape \(5, 1\).*ravel"),
    (np.ones((5, 2)), r"shape \(5, 2\), not a column with one dimension$"),
    (pl.DataFrame({"user": USERS}), "table with 1 columns"),
    ("alice", "3 or 4 columns"),
])  # fmt: skip
def test_what_is_no_column_of_ids(column, message):
    with pytest.raises(InputError, match=message) as info:
        Ratings(column, ITEMS, VALUES)
    assert "\n" not in str(info.value)


def test_other_columns_are_no_column():
    for column, message in (
        ("alice", "is a str"),
        (None, "is a NoneType"),
        (b"ab", "is a bytes"),
    ):
        with pytest.raises(InputError, match=f"{message}, not a column of values"):
            Ratings.from_data({"user": column, "item": [1], "rating": [1]})
    pd = pytest.importorskip("pandas")
    with pytest.raises(InputError, match="MultiIndex"):
        pairs_of((pd.MultiIndex.from_tuples(PAIRS), ITEMS))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            [[1, 7, 4], [2, 7, 3], [2, 8, 5]],
            "3 lists of 3 may be 3 rows or 3 columns.*rows as a list of tuples",
        ),
        ([[1, 7, 4], [2, 7, 3], [2, 8, 5], [3, 8, 1]], "4 lists of 3 may be"),
        (PAIRS[:3], "rows of the list have 2 values"),
        ([(1, 2, 3), (1, 2), (1, 2, 3), (1, 2, 3), (1, 2, 3)], r"Row 1 \(counting from 0\) has 2"),
        (["1,2,3", "2,3,4"], "holds rows"),
        ([(1, 2, 3, 4, 5)] * 5, "5 columns without names.*'1, 2, 3, 4, 5'"),
        ([{"user": 1, "item": 2, "rating": 3}, {"user": 1, "item": 3}], "row 1 .*missing"),
        ({"user": [1, 2], "item": [1], "rating": [1, 2]}, "equal length: user 2, item 1"),
        ({("a", 1): 3.0}, "dict of ratings holds columns"),
        ({"a": {"x": 3}}, "dict of ratings holds columns"),
        ({"user": [1], "customer": [1], "item": [1], "rating": [1]}, "'user' or 'customer'"),
        ([], "no ratings"),
        (np.array([[1, 2, 978300760], [2, 3, 978300761]]), "looks like times"),
        (np.c_[np.arange(6), [1, 2] * 3, [7, 8, 9] * 2, [3, 4] * 3], "counts the rows"),
        (pl.Series(VALUES), "one column"),
        ((USERS, ITEMS, np.array(["2020-01-01"] * 5, dtype="datetime64[s]")), "is a time"),
    ],
)
def test_refused_ratings(data, message):
    with pytest.raises(InputError, match=message) as info:
        Ratings.from_data(data)
    assert "\n" not in str(info.value)


def test_refused_frames():
    pd = pytest.importorskip("pandas")
    with pytest.raises(InputError, match=r"one column.*reset_index"):
        Ratings.from_data(frame().set_index(["user", "item"])["rating"])
    for items in (ITEMS, [0, 1, 1, 2, 0]):
        wide = frame().assign(item=items).pivot(index="user", columns="item", values="rating")
        with pytest.raises(InputError, match="a column for each item"):
            Ratings.from_data(wide)
    with pytest.raises(InputError, match="5 columns without names"):
        Ratings.from_data(pd.DataFrame(np.ones((3, 5))))
    twice = pd.DataFrame([[1, 2, 3, 4]] * 2, columns=["user", "item", "rating", "rating"])
    with pytest.raises(InputError, match="position 2 or 3"):
        Ratings.from_data(twice)
    assert rows(table_of(twice, {"rating": 3}))[0] == (1, 2, 4.0)


def test_wide_arrays_by_position():
    wide = np.arange(15.0).reshape(3, 5)
    assert rows(table_of(wide, {"user": 4, "item": 3, "rating": 0}))[0] == (4, 3, 0.0)
    assert rows(pairs_of(wide, {"user": 4, "item": 3}))[0] == (4, 3)


def test_pairs():
    sparse = pytest.importorskip("scipy.sparse")
    assert rows(pairs_of([(1, 2), (3, 4)])) == [(1, 2), (3, 4)]
    assert rows(pairs_of([[1, 2], [3, 4], [5, 6]])) == [(1, 2), (3, 4), (5, 6)]
    assert rows(pairs_of([USERS, ITEMS])) == PAIRS
    assert rows(pairs_of(np.array([[1, 2], [3, 4]]))) == [(1, 2), (3, 4)]
    assert rows(pairs_of(Ratings(USERS, ITEMS, VALUES))) == PAIRS
    assert rows(pairs_of(sparse.csr_array(np.array([[0, 3], [4, 0]])))) == [(0, 1), (1, 0)]
    assert rows(pairs_of([])) == rows(pairs_of(np.empty((0, 2)))) == []
    assert rows(pairs_of({"x": USERS, "y": ITEMS}, {"user": "x", "item": 1})) == PAIRS


def test_pairs_of_a_file(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("item,user\n1,a\n")
    assert rows(pairs_of(path)) == rows(pairs_of(str(path))) == [("a", 1)]


def test_two_named_columns():
    pd = pytest.importorskip("pandas")
    assert rows(pairs_of({"movie": ITEMS, "userId": USERS})) == PAIRS
    assert rows(pairs_of(pd.DataFrame({0: USERS, 1: ITEMS}))) == PAIRS
    for names in (("x", "y"), ("user", "rating"), ("user", "customer"), ("who", "item")):
        with pytest.raises(InputError, match="--columns user="):
            pairs_of(dict(zip(names, (USERS, ITEMS), strict=True)))


@pytest.mark.parametrize(("data", "message"), [
    ([[1, 2], [3, 4]], "2 lists of 2 may be 2 rows or 2 columns.*list of tuples"),
    (("alice", "matrix"), r"a tuple of pairs holds the columns"),
    (["alice", "matrix"], r"a list of pairs holds rows \(user, item\)"),
    (((1, 2), (3, 4), (5, 6), (7, 8), (9, 9)), "go in a list"),
    ((USERS, ITEMS[:2]), "equal length"),
    (np.array([1, 2]), r"shape \(2,\)"),
    (5, "taken from a int"),
    ([("a", "b", "c")] * 2, "third column"),
])  # fmt: skip
def test_refused_pairs(data, message):
    with pytest.raises(InputError, match=f"(?i){message}"):
        pairs_of(data)


def test_pairs_with_ratings():
    for ratings in (VALUES, np.array(VALUES), frame()["rating"], pl.Series(VALUES)):
        assert rows(table_with(PAIRS, ratings)) == ROWS
        assert rows(table_with(frame()[["item", "user"]], ratings)) == ROWS
        assert rows(table_with({"x": USERS, "y": ITEMS}, ratings, {"user": 0, "item": 1})) == ROWS
    timed = table_with(frame()[["user", "item"]].assign(timestamp=range(5)), VALUES)
    assert timed.timestamp.tolist() == [0, 1, 2, 3, 4]


def test_refused_pairs_with_ratings():
    sparse = pytest.importorskip("scipy.sparse")
    pairs = frame()[["user", "item"]]
    for x, y, message in (
        (frame(), VALUES, "X has ratings in column 'rating' already, and y was given too"),
        (np.ones((3, 3)), [1, 2, 3], "X has a third column"),
        (pairs, [1, 2], "X has 5 pairs and y 2 ratings"),
        (pairs, np.ones((5, 1)), "ravel"),
        (pairs, frame()[["rating"]], "y is a table"),
        (pairs, [1, 2, float("nan"), 3, 4], "row 2 .*rating nan"),
        (pairs, [1, 2, None, 3, 4], "row 2 .*missing"),
        (pairs, "abc", "is a str"),
        (pairs, 3.0, "one-dimensional"),
        ("x.csv", VALUES, "leave y out"),
        (Ratings(USERS, ITEMS, VALUES), VALUES, "leave y out"),
        (sparse.csr_array(np.eye(3)), [1, 2, 3], "leave y out"),
        (5, VALUES, "X cannot be taken from a int"),
    ):
        with pytest.raises(InputError, match=message):
            table_with(x, y)


def test_rows_of_text_and_numbers_are_rows_however_few():
    rows = [("ann", "tea", 5), ("ann", "milk", 2), ("bob", "tea", 4)]
    numbers = [(1, 7, 4), (2, 7, 3), (2, 8, 5)]
    for given in (rows, [list(row) for row in rows], [*rows, ("eve", "tea", 3)], numbers):
        table = table_of(given)
        assert table.user.tolist() == [row[0] for row in given]
        assert table.rating.tolist() == [row[2] for row in given]


# -- columns= where there is nothing to choose ----------------------------------------------------


def test_columns_of_what_has_none_are_refused():
    frame = pl.DataFrame({"who": [1, 1, 2], "what": [3, 4, 3], "stars": [5.0, 1.0, 2.0]})
    roles = {"user": "who", "item": "what", "rating": "stars"}
    sampler = Gibbs(epochs=4)
    with pytest.raises(InputError, match=r"columns= \(on the command line"):
        BayesianMF(2, sampler=sampler).fit(frame.rename({"who": "x1", "what": "x2"}))
    model = BayesianMF(2, sampler=sampler, random_state=0).fit(frame, columns=roles)
    assert model.user_ids_.ids.tolist() == [1, 2]
    ratings = Ratings.from_data(frame, columns=roles)
    matrix = scipy.sparse.coo_array(([5.0, 1.0], ([0, 1], [1, 0])))
    for data in (ratings, matrix):
        for ask in (model.fit, model.evaluate, model.predict):
            with pytest.raises(InputError, match="columns does nothing for"):
                ask(data, columns=roles)
    with pytest.raises(InputError, match="columns does nothing for users and items"):
        model.predict(1, 3, columns=roles)
    other = frame.rename({"who": "x1", "what": "x2"})
    with pytest.raises(InputError, match="the validation set: The table has the columns x1, x2"):
        BayesianMF(2, sampler=sampler).fit(frame, columns=roles, validation=other)
