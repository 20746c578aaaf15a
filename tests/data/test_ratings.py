import datetime
import logging
import os
import subprocess
import sys

import numpy as np
import polars as pl
import pytest

from bayesmf.data.ratings import Ratings
from bayesmf.errors import InputError
from bayesmf.ids.id_map import IdMap

USERS, ITEMS, VALUES, TIMES = [7, 3, 7, 5], ["b", "a", "a", "c"], [1.0, 2.5, 3.0, 4.0], [9, 8, 7, 6]


def rows(data):
    columns = [data.users.tolist(), data.items.tolist(), data.rating.tolist()]
    if data.timestamp is not None:
        columns.append(data.timestamp.tolist())
    return list(zip(*columns, strict=True))


def some(count=1000, users=50, items=80, seed=0, timed=True):
    rng = np.random.default_rng(seed)
    cells = rng.choice(users * items, count, replace=False)
    times = rng.integers(0, 300, count) if timed else None
    return Ratings(cells // items, cells % items, rng.integers(1, 6, count), times)


def test_from_columns():
    data = Ratings(USERS, ITEMS, VALUES, TIMES)
    assert rows(data) == list(zip(USERS, ITEMS, VALUES, TIMES, strict=True))
    assert (data.n_users, data.n_items, len(data)) == (3, 3, 4)
    assert (data.user_rows.dtype, data.item_rows.dtype) == (np.int32, np.int32)
    assert (data.rating.dtype, data.timestamp.dtype) == (np.float32, np.int64)
    assert data.user_ids == IdMap([3, 5, 7])
    assert data.item_ids == IdMap(["a", "b", "c"])
    assert data.mean() == pytest.approx(2.625)
    assert data.range() == (1.0, 4.0)
    assert repr(data) == (
        "Ratings(4 ratings of 3 items by 3 users, 1 to 4, mean 2.625, timestamps)"
    )
    assert Ratings(USERS, ITEMS, VALUES).timestamp is None
    assert "timestamps" not in repr(Ratings(USERS, ITEMS, VALUES))


def test_timestamps_of_many_kinds():
    days = ["1970-01-02", "1970-01-03"]
    dates = [datetime.datetime(1970, 1, 2), datetime.datetime(1970, 1, 3)]
    pd = pytest.importorskip("pandas")
    for times in (
        days,
        dates,
        [day.date() for day in dates],
        np.array(days, dtype="datetime64[s]"),
        np.array(days, dtype="datetime64[ns]"),
        pd.Series(pd.to_datetime(days)),
        pd.Series(pd.to_datetime(days, utc=True)).dt.tz_convert("Asia/Tokyo"),
        [86400.7, 172800.0],
    ):
        data = Ratings([1, 2], [1, 2], [1, 2], times)
        assert data.timestamp.tolist() == [86400, 172800]
    with pytest.raises(InputError, match=r"row 1 .*timestamp"):
        Ratings([1, 2], [1, 2], [1, 2], pd.Series([1.0, None]))


@pytest.mark.parametrize(("columns", "message"), [
    (([], [], []), "no ratings"),
    (([1], [1, 2], [1]), "equal length"),
    (([1, 2], [1, 2], [1, np.nan]), "row 1 .*rating nan"),
    (([1, 2], [1, 2], [np.inf, 1]), "row 0 .*rating inf"),
    (([1, 2], [1, 2], [1, None]), "row 1 .*rating is missing"),
    (([1, 2], [1, 2], ["1", "x"]), "row 1 .*rating 'x'"),
    (([1, 2], [1, 2], [1, 1e39]), "row 1 .*rating"),
    (([1, None], [1, 2], [1, 2]), "user id at row 1"),
    (([1, 2], ["a", None], [1, 2]), "item id at row 1"),
    (([1, 2], [1, 2], [[1], [2]]), "cannot be read|rating"),
    ((1, 2, 3), "3 or 4 columns"),
])  # fmt: skip
def test_refused_columns(columns, message):
    with pytest.raises(InputError, match=message):
        Ratings(*columns)


def test_duplicates_last(caplog):
    with caplog.at_level(logging.WARNING, "bayesmf"):
        data = Ratings([1, 2, 1, 1], [5, 5, 5, 6], [1, 2, 3, 4])
    assert rows(data) == [(2, 5, 2.0), (1, 5, 3.0), (1, 6, 4.0)]
    assert "1 of the 4 ratings" in caplog.text
    data = Ratings([1, 2, 1, 1], [5, 5, 5, 5], [1, 2, 3, 4], [30, 0, 10, 20])
    assert rows(data) == [(1, 5, 1.0, 30), (2, 5, 2.0, 0)]
    data = Ratings([1, 1, 1], [5, 5, 5], [1, 2, 3], [10, 20, 20])
    assert rows(data) == [(1, 5, 3.0, 20)]


def test_duplicates_mean_and_error():
    columns = ([1, 2, 1, 2], [5, 6, 5, 6], [1, 2, 4, 5], [3, 2, 1, 0])
    assert rows(Ratings(*columns, duplicates="mean")) == [(1, 5, 2.5, 3), (2, 6, 3.5, 2)]
    with pytest.raises(InputError, match="User 1 rated item 5 more than once"):
        Ratings(*columns, duplicates="error")
    assert len(Ratings([1, 2], [1, 1], [1, 2], duplicates="error")) == 2
    with pytest.raises(InputError, match="'first'"):
        Ratings([1], [1], [1], duplicates="first")


@pytest.mark.parametrize("timed", [False, True])
def test_duplicates_agree_with_a_dictionary(timed):
    rng = np.random.default_rng(1)
    users, items = rng.integers(0, 20, 2000), rng.integers(0, 30, 2000)
    values, times = rng.random(2000).astype(np.float32), rng.integers(0, 50, 2000)
    last, groups = {}, {}
    for k, pair in enumerate(zip(users.tolist(), items.tolist(), strict=True)):
        groups.setdefault(pair, []).append(values[k])
        if not timed or pair not in last or times[k] >= times[last[pair]]:
            last[pair] = k
    times = times if timed else None
    data = Ratings(users, items, values, times)
    kept = sorted(last.values())
    assert np.array_equal(data.users, users[kept])
    assert np.array_equal(data.items, items[kept])
    assert np.array_equal(data.rating, values[kept])
    data = Ratings(users, items, values, times, duplicates="mean")
    means = [np.mean(groups[pair]) for pair in zip(data.users, data.items, strict=True)]
    assert np.allclose(data.rating, means)


def test_of_frames_with_columns():
    pd = pytest.importorskip("pandas")
    columns = {"a": USERS, "b": ITEMS, "c": VALUES}
    chosen = {"user": "a", "item": "b", "rating": 2}
    for frame in (pd.DataFrame(columns), pl.DataFrame(columns)):
        assert rows(Ratings.from_data(frame, columns=chosen)) == list(
            zip(USERS, ITEMS, VALUES, strict=True)
        )
        with pytest.raises(InputError, match="the columns a, b, c"):
            Ratings.from_data(frame)


def test_of_arrays():
    table = np.array([[1, 10, 3.5], [2, 10, 4.0]])
    assert rows(Ratings.from_data(table)) == [(1, 10, 3.5), (2, 10, 4.0)]
    assert rows(Ratings.from_data(np.array([[1, 2, 3, 4]]))) == [(1, 2, 3.0, 4)]
    for wrong in (np.ones((4, 6)), np.ones(3), np.ones((2, 3, 4))):
        with pytest.raises(InputError, match="sparse matrix"):
            Ratings.from_data(wrong)
    with pytest.raises(InputError, match=r"1\.5"):
        Ratings.from_data(np.array([[1.5, 2, 3]]))


def test_of_other_things(tmp_path):
    data = some()
    assert Ratings.from_data(data) is data
    path = tmp_path / "a.csv"
    path.write_text("1,2,3\n")
    assert rows(Ratings.from_data(path)) == rows(Ratings.from_data(str(path))) == [(1, 2, 3.0)]
    for wrong in (5, None, {"user": [1]}, {(1, 2): 3}, {1, 2}):
        with pytest.raises(InputError):
            Ratings.from_data(wrong)


def test_take_and_compact():
    data = Ratings(USERS, ITEMS, VALUES, TIMES)
    part = data.take([2, 1])
    assert rows(part) == [(7, "a", 3.0, 7), (3, "a", 2.5, 8)]
    assert part.user_ids is data.user_ids
    small = part.compact()
    assert rows(small) == rows(part)
    assert (small.n_users, small.n_items) == (2, 1)
    assert rows(data.take(np.array([True, False, False, False]))) == rows(data)[:1]
    nothing = data.take([])
    assert len(nothing) == 0
    assert repr(nothing).startswith("Ratings(0")
    with pytest.raises(InputError, match="there are 0"):
        nothing.mean()


def check_parts(data, train, test):
    assert train.user_ids is test.user_ids is data.user_ids
    assert train.item_ids is test.item_ids is data.item_ids
    assert sorted(rows(train) + rows(test)) == sorted(rows(data))


def test_split():
    data = some()
    train, test = data.split(0.2, random_state=3)
    check_parts(data, train, test)
    assert len(test) == 200
    assert rows(data.split(0.2, random_state=3)[1]) == rows(test)
    assert rows(data.split(0.2, random_state=4)[1]) != rows(test)


def test_split_by_user():
    data = some(timed=False)
    train, test = data.split_by_user(0.25, random_state=1)
    check_parts(data, train, test)
    total, held = (np.bincount(part.user_rows, minlength=data.n_users) for part in (data, test))
    assert np.all(held >= 1)
    assert np.all(np.abs(held - 0.25 * total) <= 0.5 + 1e-9)
    assert rows(data.split_by_user(0.25, random_state=1)[1]) == rows(test)
    lone = Ratings([1, 2, 2], [1, 1, 2], [1, 2, 3])
    train, test = lone.split_by_user(0.9)
    assert train.users.tolist() == [1, 2]
    assert test.users.tolist() == [2]
    with pytest.raises(InputError, match="one rating only"):
        Ratings([1, 2], [1, 2], [1, 2]).split_by_user()


def test_split_by_time():
    data = some()
    train, test = data.split_by_time(0.1)
    check_parts(data, train, test)
    assert len(test) == 100
    assert train.timestamp.max() <= test.timestamp.min()
    tied = Ratings([1, 2, 3], [1, 1, 1], [1, 2, 3], [5, 5, 5])
    assert tied.split_by_time(0.3)[1].users.tolist() == [3]
    with pytest.raises(InputError, match="no timestamps"):
        some(timed=False).split_by_time()


def test_k_folds():
    data = some(count=103)
    folds = list(data.k_folds(4, random_state=2))
    assert [len(test) for _, test in folds] == [26, 26, 26, 25]
    for train, test in folds:
        check_parts(data, train, test)
    assert sorted(row for _, test in folds for row in rows(test)) == sorted(rows(data))


@pytest.mark.parametrize("share", [0, 1, -0.1, 2, float("nan"), "a", None])
def test_wrong_shares(share):
    for split in (some().split, some().split_by_user, some().split_by_time):
        with pytest.raises(InputError, match="share"):
            split(share)


def test_other_wrong_arguments():
    for k in (1, 0, 2.5, 10**6, True):
        with pytest.raises(InputError, match="k must"):
            some().k_folds(k)
    for seed in (-1, 1.5, "a", None):
        with pytest.raises(InputError, match="random_state"):
            some().split(random_state=seed)
    with pytest.raises(InputError, match="2 ratings or more"):
        Ratings([1], [1], [1]).split()


@pytest.mark.parametrize("suffix", ["csv", "parquet", "pq"])
@pytest.mark.parametrize("timed", [False, True])
def test_write_and_read_again(tmp_path, suffix, timed):
    path = tmp_path / f"a.{suffix}"
    path.write_text("old")
    data = Ratings(USERS, ['x, "y"', "007", "8", "é"], [0.1, 2.5, 3, 4], TIMES if timed else None)
    data.write(path)
    assert rows(Ratings.read(path)) == rows(data)
    assert os.listdir(tmp_path) == [path.name]


def test_write_refusals(tmp_path):
    data = Ratings(USERS, ITEMS, VALUES)
    with pytest.raises(InputError, match="csv or"):
        data.write(tmp_path / "a.xls")
    with pytest.raises(InputError, match="cannot be written"):
        data.write(tmp_path / "none" / "a.csv")
    (tmp_path / "b.csv").mkdir()
    with pytest.raises(InputError, match="cannot be written"):
        data.write(tmp_path / "b.csv")
    assert os.listdir(tmp_path) == ["b.csv"]


def test_import_is_light():
    code = (
        "import sys, bayesmf.data.ratings, bayesmf.reading.formats;"
        "print([m for m in ('polars', 'pandas', 'pyarrow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_notebook_shows_the_first_rows():
    data = Ratings(np.arange(1000), np.arange(1000) % 7, np.ones(1000))
    text = data._repr_html_()
    assert text.count("<tr>") == 11 and "990 more rows" in text
    assert "<p>1,000 ratings of 7 items by 1,000 users, 1 to 1, mean 1</p>" in text
    assert "<th>user</th><th>item</th><th>rating</th>" in text
    assert "more rows" not in data.take([3])._repr_html_()
    assert data.take([])._repr_html_().count("<tr>") == 1
