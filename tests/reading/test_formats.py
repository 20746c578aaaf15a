from pathlib import Path

import polars as pl
import pytest

from bayesmf.data.ratings import Ratings
from bayesmf.errors import InputError
from bayesmf.reading.formats import read_ratings

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"

COMBINED = "1:\n1488844,3,2005-09-06\n822109,5,2005-05-13\n2:\n1488844,4,2005-09-07\n"
EXPECTED = [(1488844, 1, 3.0), (822109, 1, 5.0), (1488844, 2, 4.0)]


def triples(table):
    return list(zip(table.user.tolist(), table.item.tolist(), table.rating.tolist(), strict=True))


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize("format", ["auto", "netflix"])
def test_netflix_file(tmp_path, format):
    table = read_ratings(write(tmp_path / "some.txt", COMBINED), format)
    assert triples(table) == EXPECTED
    assert table.timestamp.tolist() == [1125964800, 1115942400, 1126051200]
    assert table.user.dtype == table.item.dtype == "int64"


def test_netflix_folder(tmp_path):
    write(tmp_path / "combined_data_1.txt", COMBINED)
    write(tmp_path / "combined_data_2.txt", "\r\n3:\r\n7:\r\n\r\n5,1,2005-01-01\r\n8:\r\n")
    write(tmp_path / "probe.txt", "1:\n30878\n")
    assert triples(read_ratings(tmp_path)) == [*EXPECTED, (5, 7, 1.0)]


@pytest.mark.parametrize("folder", ["training_set", "."])
def test_netflix_training_set(tmp_path, folder):
    write(tmp_path / folder / "mv_0000001.txt", COMBINED.partition("2:")[0])
    write(tmp_path / folder / "mv_0000002.txt", "2:\n1488844,4,2005-09-07\n")
    assert triples(read_ratings(tmp_path)) == EXPECTED
    assert triples(read_ratings(tmp_path, "netflix")) == EXPECTED
    assert triples(read_ratings(tmp_path / folder / "mv_0000001.txt")) == EXPECTED[:2]


@pytest.mark.parametrize(("text", "message"), [
    ("1:\n\n5,x,2005-01-01\n", "line 3: rating 'x' is not a number"),
    ("1:\n5,1,2005-01-01\n2:\n5,1,soon\n", "line 4: timestamp 'soon'"),
    ("1:\n5,1,2005-01-01\n2:\n,1,2005-01-01\n", "line 4: the user id is missing"),
    ("1:\n5,1,2005-01-01\n5,1,2005-01-01,9\n", "line 3 is neither"),
    ("1:\n5,1\n", "line 2 is neither"),
    ("1:\n30878\n2:\n", "line 2 is neither"),
    ("1:\n5,1,2005-01-01\n77\n", "line 3: the rating is missing"),
    ("1:\n5,1,2005-01-01\nx:\n6,1,2005-01-01\n", "line 3"),
    ("1:\n2:\n", "no ratings"),
    ("5,1,2005-01-01\n", "no line like '17:'"),
])  # fmt: skip
def test_bad_netflix_files(tmp_path, text, message):
    with pytest.raises(InputError, match=message) as info:
        read_ratings(write(tmp_path / "combined_data_1.txt", text), "netflix")
    assert "\n" not in str(info.value)


def test_netflix_takes_no_columns(tmp_path):
    with pytest.raises(InputError, match="columns="):
        read_ratings(write(tmp_path / "a.txt", COMBINED), columns={"user": 1})


def test_yahoo_reads_train_only(tmp_path):
    write(tmp_path / "train_0.txt", "0\t166\t5\n0\t167\t3\n")
    write(tmp_path / "train_1.txt", "1\t007\t1\n")
    write(tmp_path / "test_0.txt", "9\t9\t9\n")
    for format in ("auto", "yahoo-r2"):
        assert triples(read_ratings(tmp_path, format)) == [
            (0, "166", 5.0),
            (0, "167", 3.0),
            (1, "007", 1.0),
        ]
    assert triples(read_ratings(tmp_path / "test_0.txt")) == [(9, 9, 9.0)]


@pytest.mark.parametrize(("name", "text"), [
    ("u.data", "1\t2\t3\t4\n"),
    ("ratings.dat", "1::2::3::4\n"),
    ("ratings.csv", "userId,movieId,rating,timestamp\n1,2,3.0,4\n"),
])  # fmt: skip
@pytest.mark.parametrize("format", ["auto", "movielens", "ml-100k", "ml-1m", "ml-25m"])
def test_movielens(tmp_path, name, text, format):
    file = write(tmp_path / name, text)
    write(tmp_path / "movies.csv", "movieId,title\n2,x\n")
    assert triples(read_ratings(tmp_path, format)) == [(1, 2, 3.0)]
    assert triples(read_ratings(file, format)) == [(1, 2, 3.0)]


def test_format_overrules_suffix(tmp_path):
    path = tmp_path / "data.bin"
    frame = pl.DataFrame({"user": [1], "item": [2], "rating": [3.0]})
    frame.write_parquet(path)
    assert triples(read_ratings(path, "parquet")) == [(1, 2, 3.0)]
    frame.write_ipc(path)
    assert triples(read_ratings(path, "arrow")) == [(1, 2, 3.0)]
    path = write(tmp_path / "text.parquet", "1,2,3\n")
    assert triples(read_ratings(path, "csv")) == [(1, 2, 3.0)]
    frame.write_parquet(tmp_path / "a.pq")
    frame.write_ipc(tmp_path / "a.feather")
    assert triples(read_ratings(tmp_path / "a.pq")) == [(1, 2, 3.0)]
    assert triples(read_ratings(tmp_path / "a.feather")) == [(1, 2, 3.0)]


def test_refusals(tmp_path):
    with pytest.raises(InputError, match=r"format 'nope' is not known; .*movielens"):
        read_ratings(tmp_path, "nope")
    with pytest.raises(InputError, match="no file or folder"):
        read_ratings(tmp_path / "none")
    with pytest.raises(InputError, match=r"without ratings of a known format.*u\.data"):
        read_ratings(tmp_path)
    with pytest.raises(InputError, match=r"has no combined_data_\*"):
        read_ratings(tmp_path, "netflix")
    with pytest.raises(InputError, match="has no delimited text"):
        read_ratings(tmp_path, "csv")


@pytest.mark.data
@pytest.mark.parametrize(("name", "ratings", "users", "items"), [
    ("ml-100k", 100_000, 943, 1_682),
    ("ml-100k/u1.base", 80_000, 943, 1_650),
    ("ml-1m", 1_000_209, 6_040, 3_706),
    ("movietweetings", 141_695, 21_081, 12_611),
    ("ml-latest-small", 100_004, 671, 9_066),
])  # fmt: skip
def test_real_data(name, ratings, users, items):
    if not (DATA / name).exists():
        pytest.skip(f"no {name}")
    data = Ratings.read(DATA / name)
    assert (len(data), data.n_users, data.n_items) == (ratings, users, items)
