"""Tables of items: ids, titles and other columns."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from bayesmf.errors import InputError
from bayesmf.reading.columns import list_names, plain_name, recognise
from bayesmf.reading.files import ARROW, PARQUET, check_text, existing_file, open_regular, reading
from bayesmf.reading.text import (
    TextLayout,
    drop_blank,
    find_delimiter,
    read_fields,
    read_lines,
    split_line,
)
from bayesmf.wording import cut

if TYPE_CHECKING:
    import polars as pl

# Names of the column of titles, in order of preference.
TITLES = ("title", "name", "itemtitle", "itemname", "movietitle", "label", "description")
_SAMPLE_LINES = 200
# Columns without a name: MovieLens has id::title::genres.
_UNNAMED = ("item", "title")


def read_item_info(path: str | os.PathLike[str]) -> pl.DataFrame:
    """Read a table of items; the first column of the result is `item`, their ids.

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
    typed = kind in (*PARQUET, *ARROW)
    frame = _typed(path, kind) if typed else _text(path)
    with reading(path, "Parquet or Arrow data" if typed else "text"):
        return _in_order(frame, path)


def _typed(path: Path, kind: str) -> pl.DataFrame:
    import polars as pl

    reader = pl.read_parquet if kind in PARQUET else pl.read_ipc
    with reading(path, "Parquet or Arrow data"), open_regular(path) as file:
        return reader(file)


def _plain_types(frame: pl.DataFrame, path: Path) -> pl.DataFrame:
    """Numbers, text and yes or no as they are; dates and the like as text, durations as numbers."""
    import polars as pl

    for name, kind in frame.schema.items():
        is_id = name == "item"
        whole = kind in (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32)
        if kind == pl.String or (kind in (pl.Boolean, pl.Float32, pl.Float64) and not is_id):
            continue
        if whole or (kind == pl.UInt64 and not is_id):
            continue
        if kind.is_nested() or kind in (pl.Binary, pl.Object):
            raise InputError(f"{path} has {kind} in the column {cut(name, 40)}: leave it out")
        plain = pl.Int64 if kind == pl.Duration else pl.String
        frame = frame.with_columns(pl.col(name).cast(plain, strict=False))
    return frame


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
        frame, _ = drop_blank(read_fields(path, TextLayout(delimiter, width, None, head)))
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
    """Number the names that are empty or repeated."""
    out: list[str] = []
    for at, name in enumerate(names):
        name = name or f"column {at}"
        again = (f"{name} ({k})" for k in range(2, len(names) + 2))
        out.append(name if name not in out else next(one for one in again if one not in names))
    return out


def _item_column(names: list[str]) -> str | None:
    """The name of the column of ids, None if no column has a usual name."""
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
    plain = {plain_name(name): name for name in reversed(frame.columns)}  # the first of each
    title = next((plain[name] for name in TITLES if name in plain and plain[name] != item), None)
    first = [pl.col(item).alias("item"), *([pl.col(title).alias("title")] if title else [])]
    rest = [name for name in frame.columns if name not in (item, title)]
    names = _different([*("item", "title")[: len(first)], *rest])[len(first) :]
    others = zip(rest, names, strict=True)
    frame = frame.select(*first, *(pl.col(name).alias(new) for name, new in others))
    if frame["item"].null_count():
        raise InputError(f"{path} has a line without an item id: fill it in, or remove the line")
    if (twice := frame.filter(pl.col("item").is_duplicated())).height:
        raise InputError(
            f"{path} has item {cut(str(twice[0, 'item']), 40)} twice: keep one line of it"
        )
    frame = _plain_types(frame, path)
    if title:
        frame = frame.with_columns(pl.col("title").cast(pl.String).str.strip_chars())
    return frame
