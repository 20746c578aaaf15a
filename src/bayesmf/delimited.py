"""Delimited text: how a file is laid out, what is in it, and which line is wrong."""

from __future__ import annotations

import csv
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bayesmf.errors import InputError
from bayesmf.tables import (
    ROLES,
    TRIPLE,
    Columns,
    Table,
    check_columns,
    find_columns,
    first,
    make_table,
    recognise,
)

if TYPE_CHECKING:
    import polars as pl

DELIMITERS = ("::", "\t", ",", ";", "|", " ")

# No text file has this control character: with it as separator a line is one field.
_NEVER = "\x1f"
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


def existing_file(path: str | os.PathLike[str]) -> Path:
    """Check that there is a file with something in it."""
    path = Path(path)
    if not path.exists():
        raise InputError(f"There is no file {path}.")
    if path.is_dir():
        raise InputError(f"{path} is a folder, not a file of ratings.")
    if path.is_file() and path.stat().st_size == 0:
        raise InputError(f"{path} is empty.")
    return path


def reason_of(error: Exception) -> str:
    """Give the first line of what another library said."""
    return str(error).partition("\n")[0].rstrip(".: ")


def read_text(
    path: str | os.PathLike[str], columns: Columns | None = None, need: Sequence[str] = TRIPLE
) -> Table:
    """Read delimited text; delimiter and header are found from the file's first lines.

    Parameters
    ----------
    path, columns, need
        As for :func:`bayesmf.readers.read_table`.
    """
    path = existing_file(path)
    layout = sniff(path, columns, need)
    found = find_columns(layout.names, layout.width, columns, need, str(path))
    table = read_laid_out(path, layout, found)
    if table is None:
        raise InputError(f"{path} has no ratings in it.")
    return table


def read_laid_out(path: Path, layout: Layout, found: dict[str, int]) -> Table | None:
    """Read the lines of data, None where there is nothing in them.

    Parameters
    ----------
    path
        The file, for error messages and where the layout has no part of it.
    layout
        What :func:`sniff` found, perhaps with a part of the file, which begins with a line
        that is not blank.
    found
        Position of each role's column.
    """
    numbers: Sequence[int]
    frame = _read_numbers(path, layout, found)
    if frame is not None:
        rows, numbers = frame.height, range(frame.height)
    else:
        frame = _read_fields(path, layout)
        rows = frame.height
        frame, numbers = drop_blank(frame)
    if not frame.height:
        return None

    def place(row: int) -> str:
        row = int(numbers[row])
        lines = _data_lines(path, layout)
        if len(lines) != rows:  # quoted fields run over several lines
            return f"{path} row {row + 1} after the header"
        _check_widths(path, layout, lines, row)
        return f"{path} line {layout.skip + row + 1}"

    return make_table(
        {role: frame.to_series(at) for role, at in found.items()}, text=True, place=place
    )


def drop_blank(frame: pl.DataFrame) -> tuple[pl.DataFrame, Sequence[int]]:
    """Leave out the rows with nothing in them; also give the numbers of those kept."""
    import polars as pl

    if not any(column.null_count() for column in frame):
        return frame, range(frame.height)
    blank = _is_blank(frame)
    if not blank.any():
        return frame, range(frame.height)
    kept = pl.Series(range(frame.height)).filter(~blank)
    return frame.filter(~blank), kept  # type: ignore[return-value]


def _is_blank(frame: pl.DataFrame) -> pl.Series:
    import polars as pl

    empty = pl.all().is_null() | (pl.all().str.strip_chars() == "")
    return frame.select(pl.all_horizontal(empty)).to_series()


def sniff(path: Path, columns: Columns | None, need: Sequence[str]) -> Layout:
    """Find out how a text file is laid out, from its first lines."""
    lines = read_lines(path, _SAMPLE_LINES).fill_null("").to_list()
    filled = [k for k, line in enumerate(lines) if line.strip()]
    if not filled:
        raise InputError(f"{path} has no ratings in it, only blank lines.")
    sample = [lines[k] for k in filled]
    delimiter, width = _find_delimiter(path, sample, len(need))
    fields = split_line(sample[0], delimiter)
    if not _is_header(fields, columns, need):
        return Layout(delimiter, width, None, lines[: filled[0]])
    if len(sample) == 1:
        raise InputError(f"{path} has a header but no ratings.")
    if len(fields) != width:
        raise InputError(
            f"{path}: the header has {len(fields)} fields but the lines after it have {width}."
        )
    return Layout(delimiter, width, fields, lines[: filled[1]])


def _find_delimiter(path: Path, sample: list[str], need: int) -> tuple[str, int]:
    best, best_share, best_width = "", 0.0, 0
    for delimiter in DELIMITERS:
        widths = Counter(len(split_line(line, delimiter)) for line in sample)
        width, count = widths.most_common(1)[0]
        if width >= need and count / len(sample) > best_share:
            best, best_share, best_width = delimiter, count / len(sample), width
    if not best:
        raise InputError(
            f"{path} is not a table of {need} columns or more, separated by '::', tab, comma, "
            f"semicolon, '|' or space: its first line is {sample[0][:60]!r}."
        )
    return best, best_width


def split_line(line: str, delimiter: str) -> list[str]:
    """Split one line into its fields, without the white space around them."""
    if delimiter == " ":
        return line.split()
    if delimiter == "::" or '"' not in line:
        return [field.strip() for field in line.split(delimiter)]
    return [field.strip() for field in next(csv.reader([line], delimiter=delimiter))]


def _is_header(fields: list[str], columns: Columns | None, need: Sequence[str]) -> bool:
    """Tell whether the first line names the columns."""
    columns = check_columns(columns)
    chosen = [columns.get(role) for role in need]
    if any(isinstance(name, str) and name in fields for name in chosen):
        return True
    if any(isinstance(name, str) and not name.isdecimal() for name in chosen):
        # Names were given that are not there: as a header, the message lists what is.
        return True
    if all(recognise(fields, role) is not None for role in need if role not in columns) and any(
        role not in columns for role in need
    ):
        return True
    if "rating" not in need:
        return False
    at = int(columns.get("rating") or ROLES.index("rating"))
    # With a number anywhere it is a line of data whose rating is wrong.
    return at < len(fields) and fields[at] != "" and not any(map(_is_number, fields))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def read_lines(path: Path, count: int | None = None) -> pl.Series:
    """Read a text file's lines, null for a blank one."""
    return read_csv(path, _NEVER, None, count=count).to_series(0)


def _data_lines(path: Path, layout: Layout) -> pl.Series:
    return read_csv(path, _NEVER, None, part=layout.part).to_series(0).slice(len(layout.head))


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


def _read_fields(path: Path, layout: Layout) -> pl.DataFrame:
    """Read all lines of data as columns of text, a row of nulls for a blank line."""
    if layout.delimiter in ("::", " "):
        return _split_lines(path, layout)
    reason = f"its first line of data does not have {layout.width} fields"
    # Where quotes do not pair up they are part of the text.
    for quote in ('"', None):
        try:
            frame = read_csv(path, layout.delimiter, quote, head=layout.head, part=layout.part)
        except _Unreadable as error:
            reason = error.reason
            continue
        if frame.width == layout.width:
            _check_short(path, layout, frame)
            return frame
    _check_widths(path, layout, _data_lines(path, layout))
    raise InputError(f"{path} cannot be read as delimited text: {reason}.")


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


class _Unreadable(InputError):
    """polars refused the file; ``reason`` is the first line of what it said."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} cannot be read as text: {reason}.")
        self.reason = reason


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
    """Read a text file's fields as they are: columns of strings, nulls in a blank line.

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
        Polars types of all the columns, where they are not strings.
    part
        Some of the file's lines, to read these alone.
    """
    import polars as pl

    source: Path | bytes = path
    if part is not None:
        source = part
    elif not all(line.strip() for line in head):
        # Versions of polars do not agree on whether skip_rows counts blank lines.
        rest = read_lines(path).slice(len(head)).fill_null("")
        source, head = "\n".join(rest.to_list()).encode(), ()
    elif set("*?[") & set(str(path)):
        # polars would take such a name for a pattern.
        source = path.read_bytes()
    try:
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
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = reason_of(error)
        if "utf-8" in reason.lower() or "utf8" in reason.lower():
            raise InputError(
                f"{path} is not UTF-8 text; convert it first, for example with"
                " iconv -f LATIN1 -t UTF-8."
            ) from None
        raise _Unreadable(path, reason) from None


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
        row = first(bad)
        raise InputError(
            f"{path} line {layout.skip + start + row + 1} has {widths[row]} fields instead of"
            f" {layout.width}; correct or remove the line."
        )
