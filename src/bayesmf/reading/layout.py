"""How a text file is laid out: delimiter, header, and which column is which."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bayesmf.errors import InputError
from bayesmf.reading.column_order import check_order, filled_width, is_number
from bayesmf.reading.columns import ROLES, Columns, check_columns, find_columns, recognise
from bayesmf.reading.files import check_text
from bayesmf.reading.lines import read_lines

DELIMITERS = ("::", "\t", ",", ";", "|", " ")

_SAMPLE_LINES = 200


class Layout(NamedTuple):
    """How a text file is laid out."""

    delimiter: str
    width: int
    """Fields in a line."""
    names: list[str] | None
    """The header's fields, None without a header."""
    head: list[str]
    """The lines before the first line of data."""
    part: bytes | None = None
    """Some lines of data, where not those of the whole file are meant; there is no head then."""
    before: int = 0
    """The file's lines before this part."""

    @property
    def skip(self) -> int:
        """Number of lines before the first line of data."""
        return self.before + len(self.head)


def locate(
    path: Path, columns: Columns | None, need: Sequence[str]
) -> tuple[Layout, dict[str, int]]:
    """Find a text file's layout, and the position of each role's column.

    Parameters
    ----------
    path
        The file, which is there.
    columns
        What the user said of the columns.
    need
        The roles that must be found.
    """
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
        check_order(rows, used, need, str(path), decimal=delimiter == ",")
    return Layout(delimiter, width, None, lines[: filled[0]]), found


def _with_header(
    path: Path, delimiter: str, width: int, rows: list[list[str]], head: list[str]
) -> Layout:
    if len(rows) == 1:
        raise InputError(f"{path} has a header but no ratings")
    if len(rows[0]) != width:
        raise InputError(
            f"{path}: the header has {len(rows[0])} fields but the lines after it have {width};"
            f" correct the first line, {delimiter.join(rows[0])[:60]!r}"
        )
    return Layout(delimiter, width, rows[0], head)


def find_delimiter(path: Path, sample: list[str], need: int) -> tuple[str, int]:
    found = []
    for order, delimiter in enumerate(DELIMITERS):
        rows = [split_line(line, delimiter) for line in sample]
        width, count = Counter(map(len, rows)).most_common(1)[0]
        if width >= need:
            # Several may cut all lines alike: the right one cuts "1;10;3,5" into numbers.
            fields = [field for row in rows for field in row]
            numbers = sum(map(is_number, fields)) / len(fields)
            found.append((count / len(sample), numbers, -order, delimiter, width))
    if not found:
        raise InputError(
            f"{path} is not a table of {need} columns or more, separated by '::', tab, comma, "
            f"semicolon, '|' or space: its first line is {sample[0][:60]!r}"
        )
    # White space cuts at tabs, too, and would hide a field that is empty.
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
    except csv.Error:  # a carriage return inside: what polars makes of it is checked later
        return [field.strip() for field in line.split(delimiter)]


def _is_header(rows: list[list[str]], columns: Columns | None, need: Sequence[str]) -> bool:
    """Tell whether the first line names the columns, perhaps with names that are not known."""
    fields, columns = rows[0], columns or {}
    chosen = [columns.get(role) for role in need]
    if any(isinstance(name, str) and (name in fields or not name.isdecimal()) for name in chosen):
        # Where the names that were given are not there, the message lists what is.
        return True
    unsaid = [role for role in need if role not in columns]
    if unsaid and all(recognise(fields, role) for role in unsaid):
        return True
    # With a number anywhere it is a line of data, perhaps with a wrong rating.
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
