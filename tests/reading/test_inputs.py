"""Natural mistakes with files: each is read right, or refused in one sentence that says what to do.

Every case is read as ratings at once, as ratings chunk by chunk (`pack`), and as pairs.
"""

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile

import polars as pl
import pytest

from bayesmf import BayesianMF, InputError, pack
from bayesmf.reading.formats import read_pairs, read_ratings
from cli_tools import make_data, run

ROWS = "1,10,4\n2,10,3.5\n1,11,5\n"
READ = [(1, 10, 4.0), (2, 10, 3.5), (1, 11, 5.0)]
ASKS = "--columns user="


def rows(table):
    columns = [column.tolist() for column in table if column is not None]
    return list(zip(*columns, strict=True))


def packed(kind):
    out = io.BytesIO()
    if kind == "tar":
        with tarfile.open(fileobj=out, mode="w:gz") as archive:
            told = tarfile.TarInfo("ratings.csv")
            told.size = len(ROWS)
            archive.addfile(told, io.BytesIO(ROWS.encode()))
    elif kind == "parquet":
        columns = zip(*READ, strict=True)
        names = ("user", "item", "rating")
        pl.DataFrame(dict(zip(names, columns, strict=True))).write_parquet(out)
    else:
        with zipfile.ZipFile(out, "w") as archive:
            archive.writestr({"zip": "ratings.csv", "xlsx": "[Content_Types].xml"}[kind], ROWS)
    return out.getvalue()


def refused(path, message, read):
    with pytest.raises(InputError, match=message) as info:
        read(path)
    told = str(info.value)
    assert "\n" not in told and not told.endswith(".") and path.name in told


# What is wrong with the file -> its text, what is said of it as ratings and as pairs; None: it is
# read, and "": it is not asked.
MISTAKES = {
    "movies": ("movieId,title,genres\n1,Toy Story,Adventure\n", ASKS, "movieId, title, genres"),
    "movies of 1m": ("1::Toy Story::Comedy\n2::Heat::Crime\n", "'Comedy' is not", "third column"),
    "users": ("1::F::1::10::48067\n", "5 columns.*rating=.*'1::F::1::10", "item=.*'1::F::1::10"),
    "users of 100k": ("1|24|M|technician|85711\n", "5 columns without", "5 columns without"),
    "matrix": ("5,3,0,1,2\n4,0,0,1,3\n", "5 columns without", "5 columns without"),
    "one known name": ("userId,title\n1,Alien\n", "3 columns", "known name of item"),
    "title alone": ("rating,title\n1,Alien\n", "3 columns", "known name of user or item"),
    "words before numbers": ("kunde,ware\n1,2\n3,4\n", "3 columns", "kunde, ware"),
    "unknown names": ("id,title,genres\n1,Toy Story,Crime\n", "id, title", "id, title"),
    "three words": ("ann,alien,good\nbob,matrix,bad\n", "ann, alien", "ann, alien"),
    "two users": (
        "userId,user,movieId,item,rating\n1,a,2,b,3\n",
        "the user, 'userId' or 'user'.*columns={'user': 'userId'}.*--columns user=userId",
        "the user, 'userId' or 'user'",
    ),
    "two items": ("user,item,itemid,rating\n1,2,3,4\n", "'itemid' or 'item'", "'itemid' or"),
    "two ratings": ("user,item,rating,score\n1,2,3,4\n", "'rating' or 'score'", None),
    "a name twice": ("user,item,rating,rating\n1,2,3,4\n", r"position 2 or 3 .*: 2}", None),
    "index": (
        "".join(f"{k},{1 + k % 2},{10 + k % 3},{1 + k / 2}\n" for k in range(6)),
        "first column counts the rows",
        "first column counts the rows",
    ),
    "rating behind time": ("1,2,978300760,4\n2,3,978300761,5\n", "looks like times", None),
    "clicks": ("1,2,978300760\n2,3,978300761\n", "third column looks like times", None),
    "decimal comma": ("1;10;3,5\n2;11;4,0\n", r"'3,5' is not .* point, 3\.5", None),
    "decimal comma, header": ("user;item;rating\n1;10;3,5\n", r"line 2.*point, 3\.5", None),
    "decimal, short header": ("user,item,rating\n1,2,3,5\n1,3,4,0\n", "header has 3", "has 3"),
    "thousands": ('1,10,"1,000"\n1,11,"2,000"\n', "rating '1,000' is not a number", None),
    "quoted lines": ('"1,10,3"\n"2,10,4"\n', "not a table", "not a table"),
    "carriage returns": (ROWS.replace("\n", "\r"), "carriage return", "carriage return"),
    "comment": ("# ratings\n" + ROWS, "line 1 has 1 fields", "has 1 fields.*'# ratings'"),
    "sep=": ("sep=;\nuser;item;rating\n1;2;3\n1;3;4\n", "line 1 has 2", "line 1 has 2"),
    "row names": ('"user" "item" "rating"\n"1" 1 10 3\n"2" 2 10 4\n', "header has 3", "has 3"),
    "workbook": (packed("xlsx"), "Excel workbook: save the sheet", "Excel"),
    "zip": (packed("zip"), "zip archive: unpack", "zip archive"),
    "tar": (packed("tar"), "tar archive: unpack", "tar archive"),
    "bzip2": (bz2.compress(ROWS.encode()), "bzip2: unpack", "bzip2"),
    "xz": (lzma.compress(ROWS.encode()), "xz: unpack", "xz"),
    "half a gzip": (gzip.compress(ROWS.encode())[:-9], "cannot be read", "cannot be read"),
    "lines of JSON": ('{"user": 1, "item": 2, "rating": 3}\n', "is JSON", "is JSON"),
    "JSON": ('[{"user": 1,\n"item": 2}]', "is JSON", "is JSON"),
    "page": ("<!DOCTYPE html>\n<html>1,2,3</html>\n", "HTML or XML page", "HTML or XML"),
    "UTF-16": ("user,item\n1,2\n".encode("utf-16"), "not UTF-8 but UTF-16", "iconv -f UTF-16"),
    "UTF-16 without mark": ("user,item\n".encode("utf-16-le"), "zero bytes", "zero bytes"),
    "pickle": (b"\x80\x04\x95", "is a pickle", "is a pickle"),
    "NumPy": (b"\x93NUMPY\x01", "NumPy file", "NumPy file"),
    "header again": (
        "userId,movieId,rating\n1,2,3\nuserId,movieId,rating\n2,3,4\n",
        "line 3: rating 'rating' is not",
        None,
    ),
    "header at the end": ("1,2,3\n1,3,4\nuser_id,item_id,rating\n", "line 3", None),
    "words for ratings": ("user,item,rating\n1,2,five\n", "line 2: rating 'five'", None),
    "fractions": ("user,item,rating\n1,2,4/5\n", "line 2: rating '4/5'", None),
    "no ratings yet": ("user,item,rating\n1,2,\n1,3,\n", "line 2: the rating is missing", None),
    "no rating in the third": ("1,2,\n2,3,\n", "line 1: the rating is missing", None),
    "nan for an id": ("user,item,rating\n1,2,3\nnan,3,4\n", r"line 3: .* \('nan'\)", "line 3"),
    "American dates": ("user,item,rating,date\n1,2,3,01/31/2020\n", "--columns timestamp=", None),
    "infinite": ("1,2,inf\n", "line 1: rating inf", None),
    "empty": ("", "is empty", "is empty"),
    "blank": ("\n  \n", "blank", "blank"),
    "header alone": ("user,item,rating\n\n\n", "header but no", "header but no"),
    "one column": ("hello\nworld\n", "not a table of 3 columns", "not a table of 2 columns"),
    "Latin-1": (b"1,2,3\n" * 500 + "a,é,3\n".encode("latin-1"), "not UTF-8", "not UTF-8"),
    "no user": ("1,1,1,1\n,2,3,9\n", "line 2: the user id is missing", "line 2: the user id"),
    "no item": ("1,1,1,1\n1, ,3,9\n", "line 2: the item id is missing", "line 2: the item id"),
    "no time": ("1,1,1,1\n1,2,3,\n", "line 2: the timestamp is missing", None),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_told(tmp_path, mistake):
    text, as_ratings, as_pairs = MISTAKES[mistake]
    path = tmp_path / "given.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    refused(path, as_ratings, read_ratings)
    refused(path, as_ratings, lambda path: pack(path, tmp_path / "packed"))
    if as_pairs is None:
        assert len(read_pairs(path).user)
    else:
        refused(path, as_pairs, read_pairs)


HARMLESS = {
    "an index with no name": (",userId,movieId,rating\n0,1,10,4\n1,2,10,3\n", 4),
    "an index": ("Unnamed: 0,userId,movieId,rating\n0,1,10,4\n1,2,10,3\n", 4),
    "columns beside": ("user_id,item_id,rating,timestamp,title\n1,10,4,9,x\n2,10,3,9,y\n", 4),
    "a name of the user": ("user_id,user_name,item,rating\n1,bob,10,4\n2,al,10,3\n", 4),
    "Amazon": (
        "reviewerID,asin,overall,unixReviewTime,reviewTime\n"
        '1,10,4,1400000000,"05 3, 2014"\n2,10,3,1400000001,"05 4, 2014"\n',
        1400000000,
    ),
    "Goodreads": ("user_id,book_id,rating,date_added\n1,10,4,Mon\n2,10,3,Tue\n", 4),
    "items first": ("movieId,userId,rating\n10,1,4\n10,2,3\n", 4),
    "quotes": ('"user","item","rating"\n"1","10","4"\n"2","10","3"\n', 4),
    "byte order mark": ("\ufeff1,10,4\n2,10,3\n", 4),
    "Windows": ("1,10,4\r\n2,10,3\r\n", 4),
    "blank lines": ("\n\n1,10,4\n\n2,10,3\n\n", 4),
    "a last delimiter": ("1::10::4::9::\n2::10::3::9::\n", 4),
    "a last comma": ("1,10,4,\n2,10,3,\n", 4),
    "a user for each line": ("1,10,4\n2,10,3\n", 4),
}


@pytest.mark.parametrize("case", HARMLESS)
def test_harmless_files_are_read(tmp_path, case):
    path = tmp_path / "given.csv"
    path.write_text(HARMLESS[case][0], encoding="utf-8", newline="")
    table = read_ratings(path)
    assert rows(table[:3]) == [(1, 10, 4.0), (2, 10, 3.0)]
    assert rows(read_pairs(path)) == [(1, 10), (2, 10)]
    assert len(pack(path, tmp_path / "packed")) == 2
    if case == "Amazon":
        assert table.timestamp.tolist()[0] == HARMLESS[case][1]


def test_pairs_of_words_without_header(tmp_path):
    path = tmp_path / "given.csv"
    for text in ("alice,matrix\nbob,alien\n", "alice,matrix\n", "alice,12\nbob,13\n"):
        path.write_text(text)
        assert read_pairs(path).user.tolist()[0] == "alice"
    path.write_text("x,alice,matrix\ny,bob,alien\n")
    assert rows(read_pairs(path, {"user": 1, "item": 2})) == [("alice", "matrix"), ("bob", "alien")]
    path.write_text("kunde,ware\n1,2\n")
    assert rows(read_pairs(path, {"user": 1, "item": 0})) == [(2, 1)]
    path.write_text("1;10;3,5\n2;11;4,0\n")
    assert rows(read_pairs(path)) == [(1, 10), (2, 11)]


def test_positions_of_a_wide_file(tmp_path):
    path = tmp_path / "given.csv"
    path.write_text("x,5,10,1,z\ny,4,11,2,z\n")
    chosen = {"user": 3, "item": 2, "rating": 1}
    assert rows(read_ratings(path, columns=chosen)) == [(1, 10, 5.0), (2, 11, 4.0)]
    assert len(pack(path, tmp_path / "packed", columns=chosen)) == 2
    with pytest.raises(InputError, match="5 columns without names"):
        read_ratings(path, columns={"user": 3, "rating": 1})
    path.write_text("note,ware,kunde\n5,10,1\n4,11,2\n")
    assert rows(read_ratings(path, columns={"user": 2, "item": 1, "rating": 0})) == [
        (1, 10, 5.0),
        (2, 11, 4.0),
    ]


@pytest.mark.parametrize(("columns", "message"), [
    (["user", "item", "rating"], "columns is a dict such as"),
    ({"customer": "user"}, "write {'user': 'customer'}"),
    ({"user": 1.5}, "neither the name nor the position of the user"),
    ({"user": True}, "neither the name nor the position"),
])  # fmt: skip
def test_wrong_columns(tmp_path, columns, message):
    path = tmp_path / "given.csv"
    path.write_text(ROWS)
    with pytest.raises(InputError, match=message):
        read_ratings(path, columns=columns)


def test_what_a_file_is_counts_more_than_its_name(tmp_path):
    for name, text in {
        "a.csv": packed("parquet"),
        "b.csv": gzip.compress(ROWS.encode()),
        "c.csv.gz": ROWS.encode(),
    }.items():
        path = tmp_path / name
        path.write_bytes(text)
        assert rows(read_ratings(path)) == READ
        assert rows(read_pairs(path)) == [row[:2] for row in READ]
        assert len(pack(path, tmp_path / f"packed {name}")) == 3


def test_a_missing_file_with_a_near_name(tmp_path):
    (tmp_path / "ratings.csv").write_text(ROWS)
    for read in (read_ratings, read_pairs, lambda path: pack(path, tmp_path / "packed")):
        for name in ("rating.csv", "Ratings.CSV", "ratigns.csv"):
            with pytest.raises(InputError, match=r"did you mean .*ratings\.csv\?"):
                read(tmp_path / name)
        with pytest.raises(InputError, match=r"zzz$"):
            read(tmp_path / "zzz")
        with pytest.raises(InputError, match="'' is not a path"):  # not the working directory
            read("")
        with pytest.raises(InputError, match=r"there is no folder .*nowhere"):
            read(tmp_path / "nowhere" / "ratings.csv")
    with pytest.raises(InputError, match="is a folder"):
        read_pairs(tmp_path)
    with pytest.raises(InputError, match=r"https://.* addresses are not read; download"):
        read_ratings("https://example.org/ratings.csv")
    with pytest.raises(InputError, match="'~' is not read"):
        read_ratings("~/no such ratings.csv")


def test_predict_and_fit_refuse_other_tables(tmp_path):
    data = make_data(tmp_path)
    movies, users = tmp_path / "movies.csv", tmp_path / "users.dat"
    movies.write_text("movieId,title,genres\n1,Toy Story,Adventure\n")
    users.write_text("1::F::1::10::48067\n2::M::56::16::70072\n")
    for table in (movies, users):
        for command in (
            ("predict", data.model, table),
            ("fit", table, "--out", tmp_path / "other"),
            ("pack", table, "--out", tmp_path / "packed"),
        ):
            ran = run(*command)
            assert ran.status == 2
            assert ASKS in ran.sentence


def test_clicks_are_refused_packed_too(tmp_path):
    path = tmp_path / "clicks.csv"
    path.write_text("user,item,rating\n" + "".join(f"{k % 9},{k},1\n" for k in range(1000)))
    made = pack(path, tmp_path / "packed")
    for ratings in (path, made, tmp_path / "packed"):
        with pytest.raises(InputError, match=r"all 1,000 ratings are 1: .*implicit"):
            BayesianMF().fit(ratings)
