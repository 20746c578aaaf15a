import gzip

import polars as pl
import pytest

from bayesmf.errors import InputError
from bayesmf.reading.formats import read_pairs, read_ratings


def write(folder, text, name="ratings.csv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def rows(table):
    columns = [column.tolist() for column in table if column is not None]
    return list(zip(*columns, strict=True))


@pytest.mark.parametrize("delimiter", ["::", "\t", ",", ";", "|", " ", "   ", ", ", " | "])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_delimiters(tmp_path, delimiter, end):
    lines = [("1", "10", "3.5", "100"), ("2", "11", "4", "200"), ("1", "11", "-1e0", "300")]
    path = write(tmp_path, end.join(delimiter.join(line) for line in lines) + end)
    table = read_ratings(path)
    assert rows(table) == [(1, 10, 3.5, 100), (2, 11, 4.0, 200), (1, 11, -1.0, 300)]
    assert [column.dtype.kind for column in table] == ["i", "i", "f", "i"]


def test_without_final_newline_and_timestamp(tmp_path):
    table = read_ratings(write(tmp_path, "1,10,3"))
    assert rows(table) == [(1, 10, 3.0)]
    assert table.timestamp is None


@pytest.mark.parametrize("header", [
    "timestamp,rating,movieId,userId", "Date,Score,ITEM_ID,User Id", "ts,stars,asin,reviewerID",
    "unix_time,r,book,u", "unixReviewTime,overall,business-id,customer",
    '"time","Book-Rating","ISBN","User-ID"',
])  # fmt: skip
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "::"])
def test_header_finds_columns(tmp_path, header, delimiter):
    if delimiter == "::":
        header = header.replace('"', "")
    text = f"{header}\n100,3,10,1\n200,4,11,2\n".replace(",", delimiter)
    assert rows(read_ratings(write(tmp_path, text))) == [(1, 10, 3.0, 100), (2, 11, 4.0, 200)]


def test_unknown_header_lists_columns(tmp_path):
    path = write(tmp_path, "kunde,artikel,note\n1,2,3\n")
    with pytest.raises(InputError, match=r"kunde, artikel, note.*--columns user="):
        read_ratings(path)
    named = {"user": "kunde", "item": "Artikel", "rating": "note"}
    assert rows(read_ratings(path, columns=named)) == [(1, 2, 3.0)]
    assert rows(read_ratings(path, columns={"user": 0, "item": 1, "rating": 2})) == [(1, 2, 3.0)]
    assert rows(read_ratings(path, columns={"user": "1", "item": "0", "rating": "2"})) == [
        (2, 1, 3.0)
    ]
    with pytest.raises(InputError, match="no column 'preis' for rating"):
        read_ratings(path, columns={**named, "rating": "preis"})
    with pytest.raises(InputError, match="cannot be number 7"):
        read_ratings(path, columns={"user": 0, "item": 1, "rating": 7})
    with pytest.raises(InputError, match="'stars' is not one of"):
        read_ratings(path, columns={"stars": 2})


def test_some_columns_by_name(tmp_path):
    path = write(tmp_path, "userId,sku,rating\n1,a,3\n")
    assert rows(read_ratings(path, columns={"item": "sku"})) == [(1, "a", 3.0)]


def test_ids_are_kept_as_they_are(tmp_path):
    table = read_ratings(write(tmp_path, "1::0054890::9\n2::12::8\n"))
    assert rows(table) == [(1, "0054890", 9.0), (2, "12", 8.0)]
    table = read_ratings(write(tmp_path, "+1,-5,9\n2,7,8\n"))
    assert rows(table) == [("+1", -5, 9.0), ("2", 7, 8.0)]
    table = read_ratings(write(tmp_path, '"a, b" ,"x ""y""",1\n 12 ,z z,2\n'.replace('" ,', '",')))
    assert rows(table) == [("a, b", 'x "y"', 1.0), ("12", "z z", 2.0)]


def test_a_lone_quote_is_text(tmp_path):
    table = read_ratings(write(tmp_path, 'u\tseven" single\t3\nv\tother\t4\n'))
    assert rows(table) == [("u", 'seven" single', 3.0), ("v", "other", 4.0)]


@pytest.mark.parametrize("blank", ["", "   ", ",,,"])
def test_blank_lines_are_ignored_but_counted(tmp_path, blank):
    text = f"{blank}\nuserId,itemId,rating,time\n{blank}\n1,2,3,4\n{blank}\n5,6,7,8\n{blank}\n"
    assert rows(read_ratings(write(tmp_path, text.lstrip(",")))) == [(1, 2, 3.0, 4), (5, 6, 7.0, 8)]
    path = write(tmp_path, f"\n\n1,2,3,4\n{blank}\n5,6,bad,8\n")
    with pytest.raises(InputError, match=r"ratings\.csv line 5: rating 'bad' is not a number"):
        read_ratings(path)


@pytest.mark.parametrize("delimiter", [",", "::", " "])
@pytest.mark.parametrize(("line", "message"), [
    ("1,2,abc,9", "line 4: rating 'abc' is not a number"),
    ("1,2,nan,9", "line 4: rating .* is not a number"),
    ("1,2,-inf,9", "line 4: rating .* is not"),
    ("1,2,1e39,9", "line 4: rating .* is too large"),
    ("1,2,3,soon", "line 4: timestamp 'soon'"),
    ("1,2,3,nan", "line 4: timestamp"),
    ("1,2,3", "line 4 has 3 fields instead of 4"),
    ("1", "line 4 has 1 fields instead of 4"),
    ("1,2,3,4,5", "line 4 has 5 fields instead of 4"),
])  # fmt: skip
def test_bad_lines(tmp_path, delimiter, line, message):
    text = f"user,item,rating,time\n1,1,1,1\n\n{line}\n2,2,2,2\n2,3,3,3\n"
    with pytest.raises(InputError, match=message) as info:
        read_ratings(write(tmp_path, text.replace(",", delimiter)))
    assert "\n" not in str(info.value)


def test_first_line_can_be_wrong_too(tmp_path):
    with pytest.raises(InputError, match="line 1: rating 'abc'"):
        read_ratings(write(tmp_path, "1,2,abc\n1,3,4\n"))
    with pytest.raises(InputError, match="line 1 has 2 fields instead of 3"):
        read_ratings(write(tmp_path, "1,2\n1,3,4\n1,4,5\n"))
    with pytest.raises(InputError, match="line 1 has 4 fields instead of 3"):
        read_ratings(write(tmp_path, "1,2,3,4\n1,3,4\n1,4,5\n"))


def test_quoted_fields_over_several_lines(tmp_path):
    text = 'user,item,review,rating\n1,2,"so\nlong",3\n1,3,"fine",4\n'
    assert rows(read_ratings(write(tmp_path, text))) == [(1, 2, 3.0), (1, 3, 4.0)]
    with pytest.raises(InputError, match="row 2 after"):
        read_ratings(write(tmp_path, text.replace("4", "four")))


@pytest.mark.parametrize(("text", "seconds"), [
    ("1260759144", 1260759144),
    ("9007199254740993", 9007199254740993),
    ("12.9", 12),
    ("1.5e3", 1500),
    ("1970-01-02", 86400),
    ("1970-01-01T00:01:00", 60),
    ("1970-01-01 00:01:00.75", 60),
    ("1970-01-01T00:01", 60),
    ("1970-01-01T00:01:00Z", 60),
    ("1970-01-01T02:01:00+02:00", 60),
])  # fmt: skip
def test_timestamps(tmp_path, text, seconds):
    assert rows(read_ratings(write(tmp_path, f"1,2,3,{text}\n"))) == [(1, 2, 3.0, seconds)]
    assert rows(read_ratings(write(tmp_path, f"1::2::3:: {text}\n"))) == [(1, 2, 3.0, seconds)]


def test_compressed_and_odd_names(tmp_path):
    path = write(tmp_path, gzip.compress(b"userId,movieId,rating\n1,2,3\n"), "r[1]*.csv.gz")
    assert rows(read_ratings(path)) == [(1, 2, 3.0)]
    assert rows(read_ratings(write(tmp_path, b"\xef\xbb\xbfuser,item,rating\n1,2,3\n"))) == [
        (1, 2, 3.0)
    ]


@pytest.mark.parametrize("suffix", ["parquet", "pq", "arrow", "feather", "ipc"])
def test_typed_files(tmp_path, suffix):
    frame = pl.DataFrame(
        {
            "note": ["x", "y"],
            "userId": [2, 1],
            "sku": ["007", "8"],
            "rating": [1.5, 2],
            "date": ["1970-01-02", "1970-01-03"],
        }
    ).with_columns(pl.col("date").str.to_date())
    path = tmp_path / f"a.{suffix}"
    frame.write_parquet(path) if suffix in ("parquet", "pq") else frame.write_ipc(path)
    assert rows(read_ratings(path)) == [(2, "007", 1.5, 86400), (1, "8", 2.0, 172800)]
    with pytest.raises(InputError, match="no column 'z'"):
        read_ratings(path, columns={"user": "z"})
    path.write_bytes(b"PAR1 this is not it")
    with pytest.raises(InputError, match="cannot be read as"):
        read_ratings(path)


def test_typed_file_problems(tmp_path):
    path = tmp_path / "a.parquet"
    pl.DataFrame({"user": [1, 2], "item": [1, None], "rating": [1.0, 2.0]}).write_parquet(path)
    with pytest.raises(InputError, match=r"item id at .*a.parquet row 1"):
        read_ratings(path)
    pl.DataFrame({"user": [1], "item": [1], "rating": [[1.0]]}).write_parquet(path)
    with pytest.raises(InputError):
        read_ratings(path)
    pl.DataFrame(schema={"user": pl.Int64, "item": pl.Int64, "rating": pl.Float64}).write_parquet(
        path
    )
    with pytest.raises(InputError, match="no ratings"):
        read_ratings(path)


def test_pairs(tmp_path):
    def pairs(text, columns=None):
        return rows(read_pairs(write(tmp_path, text), columns))

    assert pairs("1,2\n3,4\n") == [(1, 2), (3, 4)]
    assert pairs("1 2\n") == [(1, 2)]
    assert pairs("movieId,userId\n2,1\n") == [(1, 2)]
    assert pairs("u1\ti1\nu2\ti2\n") == [("u1", "i1"), ("u2", "i2")]
    assert pairs("user,item,rating\n1,2,bad\n") == [(1, 2)]
    assert pairs("1::2::3::0\n1::3::bad::0\n") == [(1, 2), (1, 3)]
    assert pairs("kunde,ware\n1,2\n", {"user": "kunde", "item": "ware"}) == [(1, 2)]
    assert pairs("9,1,2\n9,3,4\n", {"user": 2, "item": 1}) == [(2, 1), (4, 3)]
    with pytest.raises(InputError, match="line 2: the item id is missing"):
        pairs("1,2\n3,\n")
    with pytest.raises(InputError, match="2 columns or more"):
        pairs("1\n2\n")


def test_one_column_in_two_roles_is_refused(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text("1,2,3\n4,5,2\n")
    with pytest.raises(InputError, match="cannot be two of"):
        read_ratings(path, columns={"user": 0, "item": 0, "rating": 2})
    with pytest.raises(InputError, match="cannot be two of"):
        read_ratings(path, columns={"user": 1})
