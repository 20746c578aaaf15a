"""Tables about items: an id, a title, and whatever else there is of each."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from bayesmf.errors import InputError
from bayesmf.reading.columns import list_names, plain_name, recognise
from bayesmf.reading.delimited import drop_blank, read_fields
from bayesmf.reading.files import ARROW, PARQUET, check_text, existing_file, open_regular, reading
from bayesmf.reading.layout import Layout, find_delimiter, split_line
from bayesmf.reading.lines import read_lines
from bayesmf.wording import cut

if TYPE_CHECKING:
    import polars as pl

# Names of the column that people know an item by, in order of preference.
TITLES = ("title", "name", "itemtitle", "itemname", "movietitle", "label", "description")
_SAMPLE_LINES = 200
# Columns without a name: MovieLens has id::title::genres.
_UNNAMED = ("item", "title")


def read_item_info(path: str | os.PathLike[str]) -> pl.DataFrame:
    """Read a table about items: its first column has the ids, and is called `item`.

    Parameters
    ----------
    path
        A CSV, TSV, `::` or `|` file with or without a header, a Parquet or an Arrow file. Without
        a header the first column is the item and the second its title.

    Returns
    -------
    polars.DataFrame
        `item`, then `title` where there is one, then the other columns under their names, all of
        text but where the file has types.

    Raises
    ------
    InputError
        If it cannot be read, no column is the item, or an item is there twice.
    """
    path = existing_file(path)
    kind = path.suffix.lower()
    frame = _typed(path, kind) if kind in (*PARQUET, *ARROW) else _text(path)
    return _in_order(frame, path)


def _typed(path: Path, kind: str) -> pl.DataFrame:
    import polars as pl

    reader = pl.read_parquet if kind in PARQUET else pl.read_ipc
    with reading(path, "Parquet or Arrow data"), open_regular(path) as file:
        return reader(file)


def _text(path: Path) -> pl.DataFrame:
    check_text(path)
    with reading(path):
        lines = read_lines(path, _SAMPLE_LINES).fill_null("").to_list()
        filled = [k for k, line in enumerate(lines) if line.strip()]
        if not filled:
            raise InputError(f"{path} has no items in it, only blank lines")
        sample = [lines[k] for k in filled]
        delimiter, width = find_delimiter(path, sample, 2)
        first = split_line(sample[0], delimiter)
        named = _item_column(first) is not None
        if named and len(first) != width:
            raise InputError(
                f"{path} has {len(first)} names in its header and {width} fields in its lines: "
                "quote titles that have the separator in them"
            )
        _refuse_other_header(path, first)
        head = lines[: filled[1 % len(filled)] if named else filled[0]]
        if named and len(sample) == 1:
            raise InputError(f"{path} has a header but no items")
        frame, _ = drop_blank(read_fields(path, Layout(delimiter, width, None, head)))
    names = first if named else [*_UNNAMED, *(f"column {k}" for k in range(2, width))][:width]
    return frame.rename(dict(zip(frame.columns, _different(names), strict=True)))


def _refuse_other_header(path: Path, first: list[str]) -> None:
    """Refuse a first line that has a title's name in it, but none of an id."""
    if _item_column(first) is None and any(plain_name(name) in TITLES for name in first):
        raise InputError(
            f"{path} has no column of item ids among {list_names(first)}: call it item, as in "
            "item,title"
        )


def _different(names: list[str]) -> list[str]:
    """Names that are empty or there twice get a number."""
    seen: Counter[str] = Counter()
    out = []
    for at, name in enumerate(names):
        name = name or f"column {at}"
        seen[name] += 1
        out.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return out


def _item_column(names: list[str]) -> str | None:
    """The name of the column of ids, None where none is usual for it."""
    found = recognise(names, "item")
    if found:
        return names[found[0]]
    return next((name for name in names if plain_name(name) == "id"), None)


def _in_order(frame: pl.DataFrame, path: Path) -> pl.DataFrame:
    """The id first, then the title, under these names."""
    import polars as pl

    if not frame.height:
        raise InputError(f"{path} has no items in it")
    item = _item_column(frame.columns)
    if item is None:
        raise InputError(
            f"{path} has no column of item ids among {list_names(frame.columns)}: call it item, as "
            "in item,title"
        )
    plain = {plain_name(name): name for name in frame.columns}
    title = next((plain[name] for name in TITLES if name in plain and plain[name] != item), None)
    first = [pl.col(item).alias("item"), *([pl.col(title).alias("title")] if title else [])]
    rest = [name for name in frame.columns if name not in (item, title)]
    frame = frame.select(*first, *(pl.col(name).alias(_apart(name)) for name in rest))
    if frame["item"].null_count():
        raise InputError(f"{path} has a line without an item id: fill it in, or remove the line")
    if (twice := frame.filter(pl.col("item").is_duplicated())).height:
        raise InputError(
            f"{path} has item {cut(str(twice[0, 'item']), 40)} twice: keep one line of it"
        )
    if title:
        frame = frame.with_columns(pl.col("title").cast(pl.String).str.strip_chars())
    return frame


def _apart(name: str) -> str:
    return f"{name} (2)" if name in ("item", "title") else name
