"""Delimited text: what is in a file, and which line is wrong."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayesmf.errors import InputError
from bayesmf.ids.series import Where, first_true
from bayesmf.reading.columns import NAMES, PAIR, TRIPLE, Columns, plain_name
from bayesmf.reading.files import Unreadable, existing_file, reading
from bayesmf.reading.layout import Layout, locate
from bayesmf.reading.lines import read_csv, read_lines
from bayesmf.reading.table import Table, make_table

if TYPE_CHECKING:
    import polars as pl


def read_text(
    path: str | os.PathLike[str], columns: Columns | None = None, need: Sequence[str] = TRIPLE
) -> Table:
    """Read delimited text; delimiter and header are found from the file's first lines.

    Parameters
    ----------
    path, columns, need
        As for :func:`bayesmf.reading.parquet_arrow.read_typed`.
    """
    path = existing_file(path)
    with reading(path):
        layout, found = locate(path, columns, need)
        table = read_laid_out(path, layout, found)
    if table is None:
        raise InputError(f"{path} has no ratings in it")
    return table


def read_laid_out(path: Path, layout: Layout, found: dict[str, int]) -> Table | None:
    """Read the lines of data, None where there is nothing in them.

    Parameters
    ----------
    path
        The file, for error messages and where the layout has no part of it.
    layout
        What :func:`layout.locate` found, perhaps with a part of the file, which begins
        with a line that is not blank.
    found
        Position of each role's column.
    """
    numbers: Sequence[int]
    frame = _read_numbers(path, layout, found)
    if frame is not None:
        rows, numbers = frame.height, range(frame.height)
    else:
        frame = read_fields(path, layout)
        rows = frame.height
        frame, numbers = drop_blank(frame)
    if not frame.height:
        return None

    def where(row: int) -> str:
        row = int(numbers[row])
        lines = _data_lines(path, layout)
        if len(lines) != rows:  # quoted fields run over several lines
            return f"{path} row {row + 1} after the header"
        _check_widths(path, layout, lines, row)
        return f"{path} line {layout.skip + row + 1}"

    chosen = {role: frame.to_series(at) for role, at in found.items()}
    if "rating" not in found:
        _refuse_late_header(chosen, layout, found, where)
    return make_table(chosen, text=True, where=where)


def _refuse_late_header(
    ids: dict[str, pl.Series], layout: Layout, found: dict[str, int], where: Where
) -> None:
    """Refuse a header among pairs, where its words would pass for ids."""
    masks = []
    for role in PAIR:
        own = [] if layout.names is None else [plain_name(layout.names[found[role]])]
        plain = ids[role].str.to_lowercase().str.replace_all(r"[_\-\s]", "")
        masks.append(plain.is_in([*NAMES[role], *own]))
    late = masks[0] & masks[1]
    if late.any():
        raise InputError(f"{where(first_true(late))} is a header, not a pair; remove the line")


def drop_blank(frame: pl.DataFrame) -> tuple[pl.DataFrame, Sequence[int]]:
    """Leave out the rows with nothing in them; also give the numbers of the others."""
    import polars as pl

    if not any(column.null_count() for column in frame):
        return frame, range(frame.height)
    blank = _is_blank(frame)
    if not blank.any():
        return frame, range(frame.height)
    filled = pl.Series(range(frame.height)).filter(~blank)
    return frame.filter(~blank), filled  # type: ignore[return-value]


def _is_blank(frame: pl.DataFrame) -> pl.Series:
    import polars as pl

    empty = pl.all().is_null() | (pl.all().str.strip_chars() == "")
    return frame.select(pl.all_horizontal(empty)).to_series()


def _data_lines(path: Path, layout: Layout) -> pl.Series:
    return read_lines(path, part=layout.part).slice(len(layout.head))


def _read_numbers(path: Path, layout: Layout, found: dict[str, int]) -> pl.DataFrame | None:
    """Read ratings and timestamps at once as numbers, None where that is not possible.

    This is quicker, and what it cannot read is read again as text, which can say why.
    """
    import polars as pl

    if layout.delimiter in ("::", " ") or "rating" not in found:
        return None
    types: list[Any] = [pl.String] * layout.width
    if "timestamp" in found:
        types[found["timestamp"]] = pl.Int64
    types[found["rating"]] = pl.Float64
    if types[found["user"]] != pl.String or types[found["item"]] != pl.String:
        return None
    try:
        frame = read_csv(
            path, layout.delimiter, '"', head=layout.head, types=types, part=layout.part
        )
    except InputError:
        return None
    complete = not any(column.null_count() for column in frame)
    return frame if complete and frame.width == layout.width else None


def read_fields(path: Path, layout: Layout) -> pl.DataFrame:
    """Read all lines of data as columns of text, a row of nulls for a blank line."""
    if layout.delimiter in ("::", " "):
        return _split_lines(path, layout)
    reason = f"its first line of data does not have {layout.width} fields"
    # Where quotes do not pair up they are part of the text.
    for quote in ('"', None):
        try:
            frame = read_csv(path, layout.delimiter, quote, head=layout.head, part=layout.part)
        except Unreadable as error:
            reason = error.reason
            continue
        if frame.width == layout.width:
            _check_short(path, layout, frame)
            return frame
    _check_widths(path, layout, _data_lines(path, layout))
    raise InputError(f"{path} cannot be read as delimited text: {reason}")


def _split_lines(path: Path, layout: Layout) -> pl.DataFrame:
    lines = _data_lines(path, layout)
    _check_widths(path, layout, lines)
    if layout.delimiter == " ":
        lines = _single_spaces(lines)
    return lines.str.split_exact(layout.delimiter, layout.width - 1).struct.unnest()


def _single_spaces(lines: pl.Series) -> pl.Series:
    return lines.str.strip_chars().str.replace_all(r"\s+", " ")


def _check_short(path: Path, layout: Layout, frame: pl.DataFrame) -> None:
    """Refuse lines that are too short: polars fills them up with nulls."""
    short = frame.to_series(-1).is_null()
    if not short.any() or _is_blank(frame.filter(short)).all():
        return
    lines = _data_lines(path, layout)
    if len(lines) == frame.height:
        _check_widths(path, layout, lines)


def _check_widths(path: Path, layout: Layout, lines: pl.Series, only: int | None = None) -> None:
    """Refuse lines of data (or the one at ``only``) with too many or too few fields."""
    start = 0
    if only is not None:
        start, lines = only, lines.slice(only, 1)
    if layout.delimiter == " ":
        lines = _single_spaces(lines)
    elif layout.delimiter != "::":
        lines = lines.str.replace_all(r'"[^"]*"', "")
    widths = lines.str.count_matches(layout.delimiter, literal=True) + 1
    bad = widths != layout.width
    if bad.any():
        bad &= lines.str.strip_chars() != ""
    if bad.any():
        row = first_true(bad)
        raise InputError(
            f"{path} line {layout.skip + start + row + 1} has {widths[row]} fields instead of"
            f" {layout.width}; correct or remove the line"
        )
