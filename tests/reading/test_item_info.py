"""Tables about items: which column is which, and what is refused."""

import polars as pl
import pytest

from bayesmf import InputError
from bayesmf.reading.item_info import read_item_info

LINES = ["1{0}Toys (1995){0}Animation", "2{0}Jumble (1995){0}Adventure", "3{0}Old Men{0}Comedy"]


def written(tmp_path, text, name="items.csv"):
    path = tmp_path / name
    path.write_text(text, "utf-8")
    return path


@pytest.mark.parametrize("delimiter", ["::", ",", "\t", ";", "|"])
def test_without_a_header_the_id_comes_first_and_then_the_title(tmp_path, delimiter):
    text = "\n".join(LINES).format(delimiter)
    found = read_item_info(written(tmp_path, text, "movies.dat"))
    assert found.columns == ["item", "title", "column 2"]
    assert found["item"].to_list() == ["1", "2", "3"]
    assert found["title"][0] == "Toys (1995)"


@pytest.mark.parametrize(("header", "others"), [
    ("movieId,title,genres", ["genres"]),
    ("item_id,name,genres", ["genres"]),
    ("id,Title,genres", ["genres"]),
    ("ItemID,genres,Movie_Title", ["genres"]),
])  # fmt: skip
def test_columns_are_known_by_their_names(tmp_path, header, others):
    title = [name.lower() for name in header.split(",")].index("genres") == 1
    row = "7,Drama,Sea" if title else "7,Sea,Drama"
    found = read_item_info(written(tmp_path, f"{header}\n{row}\n"))
    assert found.columns == ["item", "title", *others]
    assert found.row(0) == ("7", "Sea", "Drama")


def test_quotes_commas_accents_and_blank_lines(tmp_path):
    text = 'item,title,year\n\n1,"Oslo, 31 May",1999\n2,Café,\n\n'
    found = read_item_info(written(tmp_path, text))
    assert found["title"].to_list() == ["Oslo, 31 May", "Café"]
    assert found["year"].to_list() == ["1999", None]


def test_typed_files_keep_their_types(tmp_path):
    frame = pl.DataFrame({"sku": [3, 4], "title": ["a", "b"], "price": [1.5, 2.0]})
    frame.write_parquet(tmp_path / "items.parquet")
    found = read_item_info(tmp_path / "items.parquet")
    assert found.columns == ["item", "title", "price"]
    assert found["item"].to_list() == [3, 4] and found["price"].to_list() == [1.5, 2.0]


@pytest.mark.parametrize(("text", "said"), [
    ("", "empty|no items"),
    ("\n\n", "no items"),
    ("item,title\n", "no items"),
    ("item,title\n1,a\n1,b\n", "item 1 twice"),
    ("item,title\n,a\n2,b\n", "without an item id"),
    ("item,title\n1,a,b\n2,b\n3,c\n", "fields"),
])  # fmt: skip
def test_what_is_refused(tmp_path, text, said):
    with pytest.raises(InputError, match=said):
        read_item_info(written(tmp_path, text))


def test_a_typed_file_without_ids_and_one_that_is_none(tmp_path):
    pl.DataFrame({"colour": ["red"], "weight": [1.0]}).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(InputError, match="no column of item ids among colour, weight"):
        read_item_info(tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(InputError, match=r"b\.parquet"):
        read_item_info(tmp_path / "b.parquet")
    with pytest.raises(InputError):
        read_item_info(tmp_path / "none.csv")
    (tmp_path / "latin.csv").write_bytes("item,title\n1,Caf\xe9\n".encode("latin-1"))
    with pytest.raises(InputError, match="iconv"):
        read_item_info(tmp_path / "latin.csv")


def test_a_header_without_ids_and_one_that_is_too_short_are_named(tmp_path):
    path = tmp_path / "items.csv"
    path.write_text("name,genre\nA,drama\nB,comedy\n")
    with pytest.raises(InputError, match=r"no column of item ids among name, genre"):
        read_item_info(path)
    path.write_text("item,title\n1,Yes, but\n2,No, thanks\n")
    with pytest.raises(InputError, match=r"2 names in its header and 3 fields .* quote titles"):
        read_item_info(path)


def test_columns_of_other_types_are_text_or_refused(tmp_path):
    path, day = tmp_path / "items.parquet", pl.Series([2**40], dtype=pl.Int64).cast(pl.Duration)
    ids = pl.Series("item", [7], dtype=pl.Int64)
    pl.DataFrame({"item": ids, "title": ["A"], "Title": ["B"], "long": day}).write_parquet(path)
    found = read_item_info(path)
    assert found.columns == ["item", "title", "Title", "long"]
    assert found["long"].dtype == pl.Int64
    late = pl.Series([2**50], dtype=pl.Int64).cast(pl.Datetime("ms"))  # the year 36812
    pl.DataFrame({"item": ids, "late": late}).write_parquet(path)
    assert read_item_info(path)["late"].dtype == pl.String
    pl.DataFrame({"item": ids, "title": [["A"]]}).write_parquet(path)
    with pytest.raises(InputError, match=r"List\(String\) in the column title: leave it out"):
        read_item_info(path)


def test_names_that_are_there_twice_get_numbers_of_their_own(tmp_path):
    path = tmp_path / "items.csv"
    path.write_text("item,title,x,x,x (2)\n1,A,b,c,d\n")
    assert read_item_info(path).columns == ["item", "title", "x", "x (3)", "x (2)"]
