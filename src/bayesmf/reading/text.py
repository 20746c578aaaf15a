"""Delimited text: its lines, its layout (delimiter, header, columns) and its values."""

from __future__ import annotations

import csv
import gzip
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bayesmf.errors import InputError
from bayesmf.reading.columns import (
    ROLES,
    TRIPLE,
    Columns,
    check_columns,
    check_order,
    filled_width,
    find_columns,
    is_number,
    recognise,
)
from bayesmf.reading.files import (
    Unreadable,
    check_text,
    compression,
    existing_file,
    first_true,
    open_regular,
    polars_path,
    reading,
)
from bayesmf.reading.table import Table, make_table

if TYPE_CHECKING:
    import polars as pl

DELIMITERS = ("::", "\t", ",", ";", "|", " ")

_SAMPLE_LINES = 200
# No text file has this control character: with it as separator a line is one field.
_NEVER = "\x1f"
# Bytes that hold the first lines of a table.
_HEAD_BYTES = 4 << 20


def read_text(
    path: str | os.PathLike[str], columns: Columns | None = None, need: Sequence[str] = TRIPLE
) -> Table:
    """Read delimited text; delimiter and header are found from the file's first lines.

    Parameters
    ----------
    path, columns, need
        As for :func:`bayesmf.reading.formats.read_typed`.
    """
    path = existing_file(path)
    with reading(path):
        layout, found = locate(path, columns, need)
        table = read_laid_out(path, layout, found)
    if table is None:
        raise InputError(f"{path} has no ratings in it")
    return table


def read_laid_out(path: Path, layout: TextLayout, found: dict[str, int]) -> Table | None:
    """Read the lines of data; None if all are blank.

    Parameters
    ----------
    path
        The file.
    layout
        As returned by :func:`locate`, perhaps with a part of the file that begins with a line
        that is not blank.
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
    del frame
    return make_table(chosen, text=True, where=where)


def drop_blank(frame: pl.DataFrame) -> tuple[pl.DataFrame, Sequence[int]]:
    """Remove blank rows; also return the numbers of the others."""
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


def _data_lines(path: Path, layout: TextLayout) -> pl.Series:
    return read_lines(path, part=layout.part).slice(len(layout.head))


def _read_numbers(path: Path, layout: TextLayout, found: dict[str, int]) -> pl.DataFrame | None:
    """Read ratings and timestamps as numbers, which is fast; None if a value is not a number."""
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


def read_fields(path: Path, layout: TextLayout) -> pl.DataFrame:
    """Read the lines of data as columns of text, with a row of nulls for a blank line."""
    if layout.delimiter in ("::", " "):
        return _split_lines(path, layout)
    reason = f"its first line of data does not have {layout.width} fields"
    # Quotes that are not in pairs are part of the text.
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


def _split_lines(path: Path, layout: TextLayout) -> pl.DataFrame:
    lines = _data_lines(path, layout)
    _check_widths(path, layout, lines)
    if layout.delimiter == " ":
        lines = _single_spaces(lines)
    return lines.str.split_exact(layout.delimiter, layout.width - 1).struct.unnest()


def _single_spaces(lines: pl.Series) -> pl.Series:
    return lines.str.strip_chars().str.replace_all(r"\s+", " ")


def _check_short(path: Path, layout: TextLayout, frame: pl.DataFrame) -> None:
    """Refuse lines that are too short, which polars fills with nulls."""
    short = frame.to_series(-1).is_null()
    if not short.any() or _is_blank(frame.filter(short)).all():
        return
    lines = _data_lines(path, layout)
    if len(lines) == frame.height:
        _check_widths(path, layout, lines)


def _check_widths(
    path: Path, layout: TextLayout, lines: pl.Series, only: int | None = None
) -> None:
    """Refuse lines of data (or the line ``only``) with too many or too few fields."""
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


# -- layout ---------------------------------------------------------------------------------------


class TextLayout(NamedTuple):
    """Layout of a text file."""

    delimiter: str
    width: int
    """Number of fields in a line."""
    names: list[str] | None
    """Fields of the header, None without a header."""
    head: list[str]
    """The lines before the first line of data."""
    part: bytes | None = None
    """Lines of data to read instead of the whole file; `head` is empty then."""
    before: int = 0
    """Number of lines before this part."""

    @property
    def skip(self) -> int:
        """Number of lines before the first line of data."""
        return self.before + len(self.head)


def locate(
    path: Path, columns: Columns | None, need: Sequence[str]
) -> tuple[TextLayout, dict[str, int]]:
    """The layout of a text file, and the position of the column of each role."""
    check_columns(columns)
    check_text(path)
    lines = read_lines(path, _SAMPLE_LINES).fill_null("").to_list()
    filled = [k for k, line in enumerate(lines) if line.strip()]
    if not filled:
        raise InputError(f"{path} has no ratings in it, only blank lines")
    sample = [lines[k] for k in filled]
    delimiter, width = find_delimiter(path, sample, len(need))
    rows = [split_line(line, delimiter) for line in sample]
    if _is_header(rows, columns, need):
        layout = _with_header(path, delimiter, width, rows, lines[: filled[1 % len(filled)]])
        return layout, find_columns(layout.names, width, columns, need, str(path))
    used = filled_width(rows, width, len(need))
    found = find_columns(None, used, columns, need, str(path), sample[0])
    if not set(need) & set(columns or ()):
        check_order(rows, used, need, str(path))
    return TextLayout(delimiter, width, None, lines[: filled[0]]), found


def _with_header(
    path: Path, delimiter: str, width: int, rows: list[list[str]], head: list[str]
) -> TextLayout:
    if len(rows) == 1:
        raise InputError(f"{path} has a header but no ratings")
    if len(rows[0]) != width:
        raise InputError(
            f"{path}: the header has {len(rows[0])} fields but the lines after it have {width};"
            f" correct the first line, {delimiter.join(rows[0])[:60]!r}"
        )
    return TextLayout(delimiter, width, rows[0], head)


def find_delimiter(path: Path, sample: list[str], need: int) -> tuple[str, int]:
    found = []
    for order, delimiter in enumerate(DELIMITERS):
        rows = [split_line(line, delimiter) for line in sample]
        width, count = Counter(map(len, rows)).most_common(1)[0]
        if width >= need:
            # Of several that fit, the right one splits "1;10;3,5" into numbers.
            fields = [field for row in rows for field in row]
            numbers = sum(map(is_number, fields)) / len(fields)
            found.append((count / len(sample), numbers, -order, delimiter, width))
    if not found:
        raise InputError(
            f"{path} is not a table of {need} columns or more, separated by '::', tab, comma, "
            f"semicolon, '|' or space: its first line is {sample[0][:60]!r}"
        )
    # White space splits at tabs, too, and would hide an empty field.
    tabs = [width for *_, delimiter, width in found if delimiter == "\t"]
    chosen = max(one for one in found if one[3] != " " or one[4] not in tabs)
    return chosen[3:]


def split_line(line: str, delimiter: str) -> list[str]:
    """Split one line into its fields, without the white space around them."""
    if delimiter == " ":
        return line.split()
    if delimiter == "::" or '"' not in line:
        return [field.strip() for field in line.split(delimiter)]
    try:
        return [field.strip() for field in next(csv.reader([line], delimiter=delimiter))]
    except csv.Error:  # a carriage return inside; checked after reading
        return [field.strip() for field in line.split(delimiter)]


def _is_header(rows: list[list[str]], columns: Columns | None, need: Sequence[str]) -> bool:
    """Whether the first line is a header, perhaps of unknown names."""
    fields, columns = rows[0], columns or {}
    chosen = [columns.get(role) for role in need]
    if any(isinstance(name, str) and (name in fields or not name.isdecimal()) for name in chosen):
        return True
    unsaid = [role for role in need if role not in columns]
    if unsaid and all(recognise(fields, role) for role in unsaid):
        return True
    # A line with a number is data, perhaps with a wrong rating.
    if any(map(is_number, fields)):
        return False
    if "rating" in need:
        at = _position(columns, "rating")
        return at < len(fields) and fields[at] != ""
    # Pairs of words may be a header or ids: alice,matrix.
    if unsaid and (len(fields) > 2 or any(recognise(fields, role) for role in ROLES)):
        return True
    return any(_is_numeric(rows[1:], _position(columns, role)) for role in need)


def _position(columns: Columns, role: str) -> int:
    chosen = columns.get(role)
    return ROLES.index(role) if chosen is None else int(chosen)


def _is_numeric(rows: list[list[str]], at: int) -> bool:
    return bool(rows) and all(at < len(row) and is_number(row[at]) for row in rows)


# -- lines and fields -----------------------------------------------------------------------------


def read_lines(path: Path, count: int | None = None, part: bytes | None = None) -> pl.Series:
    """Read the lines of a text file, or of a part of it; null for a blank line."""
    if part is None and count is not None:
        part = _head(path)
    return read_csv(path, _NEVER, None, count=count, part=part).to_series(0)


def _head(path: Path) -> bytes | None:
    """The first lines of a file, unpacked if it is gzip; None for what only polars unpacks."""
    with reading(path), open_regular(path) as raw:
        packed = compression(raw.read(4))
        if packed in ("zstd", "zlib"):
            return None
        raw.seek(0)
        stream = gzip.GzipFile(fileobj=raw) if packed else raw
        head = stream.read(_HEAD_BYTES)
    if len(head) < _HEAD_BYTES:
        return head
    end = head.rfind(b"\n") + 1
    if not end:
        raise InputError(
            f"{path} is not a table of ratings: its first line is longer than"
            f" {_HEAD_BYTES >> 20} million characters"
        )
    return head[:end]


def read_csv(
    path: Path,
    separator: str,
    quote: str | None,
    *,
    head: Sequence[str] = (),
    count: int | None = None,
    types: Sequence[Any] | None = None,
    part: bytes | None = None,
) -> pl.DataFrame:
    """Read the fields of a text file as columns of strings, with nulls in a blank line.

    Parameters
    ----------
    path
        The file, perhaps compressed.
    separator, quote
        One character each; no quoting when ``quote`` is None.
    head
        The lines to leave out at the start.
    count
        How many lines to read.
    types
        Types of all columns, if not strings.
    part
        Lines to read instead of the file.
    """
    import polars as pl

    with reading(path):
        source: Path | bytes | None = polars_path(path)
        if part is not None:
            source = part
        elif not all(line.strip() for line in head):
            # Versions of polars do not agree on whether skip_rows counts blank lines.
            rest = read_lines(path).slice(len(head)).fill_null("")
            source, head = "\n".join(rest.to_list()).encode(), ()
        elif source is None:
            with open_regular(path) as file:
                source = file.read()
        return pl.read_csv(
            source,
            separator=separator,
            quote_char=quote,
            skip_rows=len(head),
            n_rows=count,
            has_header=False,
            infer_schema=False,
            schema_overrides=types,
        )
