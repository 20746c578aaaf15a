"""The named formats of rating data, and how files and folders are recognised."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bayesmf.errors import InputError
from bayesmf.reading.columns import PAIR, TRIPLE, Columns, find_columns
from bayesmf.reading.files import (
    check_text,
    existing_file,
    first_true,
    missing_file,
    open_regular,
    reading,
    typed_kind,
)
from bayesmf.reading.table import Table, join_tables, make_table
from bayesmf.reading.text import drop_blank, read_csv, read_lines, read_text
from bayesmf.storage.paths import as_path

if TYPE_CHECKING:
    import polars as pl

_HEAD_LINES = 1000
_OPENING = re.compile(r"\s*\d+:\s*")


class Format(NamedTuple):
    """A format of rating data."""

    about: str
    """Short description."""
    patterns: tuple[tuple[str, ...], ...]
    """Patterns of file names in a folder; the first alternative with matches is read."""
    read: Callable[[Path, Columns | None], Table]
    """Read one file."""


def read_ratings(
    path: str | os.PathLike[str], format: str = "auto", columns: Columns | None = None
) -> Table:
    """Read ratings from a file, or from a folder of a known format.

    Parameters
    ----------
    path
        A file or a folder.
    format
        ``"auto"`` or one of the names in :data:`FORMATS` and :data:`ALIASES`.
    columns
        Column of each role, by name or by position from 0, where it cannot be guessed.
    """
    path = as_path(path)
    check_format(path, format)
    if format == "auto":
        format = recognise_format(path)
    chosen = FORMATS[ALIASES.get(format, format)]
    if not path.is_dir():
        return chosen.read(path, columns)
    files = find_files(path, chosen.patterns)
    if not files:
        raise InputError(f"{path} has no {_names(chosen)}, the files of the format {format!r}")
    return join_tables([chosen.read(file, columns) for file in files])


def read_pairs(path: str | os.PathLike[str], columns: Columns | None = None) -> Table:
    """Read pairs of user and item from a file; other columns are ignored.

    Parameters
    ----------
    path
        Text (perhaps compressed: ``.gz``, ``.zst``), Parquet or Arrow file, by its first bytes or
        its suffix.
    columns
        As for :func:`read_ratings`.
    """
    kind = typed_kind(existing_file(path))
    if kind is None:
        return read_text(path, columns, PAIR)
    return read_typed(path, kind, columns, PAIR)


def check_format(path: Path, format: str) -> None:
    """Refuse an unknown format and a missing path."""
    if format != "auto" and format not in FORMATS and format not in ALIASES:
        known = ", ".join(["auto", *FORMATS, *ALIASES])
        raise InputError(f"format {format!r} is not known; the formats are {known}")
    with reading(path):
        there = path.exists()
    if not there:
        raise InputError(missing_file(path, "file or folder"))


def recognise_format(path: Path) -> str:
    """The format of a file or a folder."""
    if path.is_dir():
        for name, format in FORMATS.items():
            if find_files(path, format.patterns):
                return name
        known = "; ".join(_names(format) for format in FORMATS.values() if format.patterns)
        raise InputError(
            f"{path} is a folder without ratings of a known format ({known}); give the file"
        )
    kind = typed_kind(existing_file(path))
    if kind is not None:
        return kind.lower()
    check_text(path)
    head = read_lines(path, _HEAD_LINES).drop_nulls().head(1).to_list()
    return "netflix" if head and _OPENING.fullmatch(head[0]) else "csv"


def find_files(folder: Path, patterns: Sequence[Sequence[str]]) -> list[Path]:
    """The files in a folder that match the first alternative with matches, by name."""
    for alternative in patterns:
        files = sorted(file for pattern in alternative for file in folder.glob(pattern))
        if files:
            return files
    return []


def read_typed(
    path: str | os.PathLike[str],
    kind: str,
    columns: Columns | None = None,
    need: Sequence[str] = TRIPLE,
) -> Table:
    """Read a Parquet or an Arrow file, as ``kind`` says.

    Parameters
    ----------
    path
        The file.
    kind : {"Parquet", "Arrow"}
        Format of the file.
    columns
        Column of each role, by name or by position from 0, where it cannot be guessed.
    need
        The roles that must be there.
    """
    import polars as pl

    path = existing_file(path)
    reader = pl.read_parquet if kind == "Parquet" else pl.read_ipc
    # Opened here: a name with * or [ in it is a name, not a pattern, and need not be UTF-8.
    with reading(path, f"{kind} data"), open_regular(path) as file:
        names = list(reader(file, n_rows=0).columns)
        found = find_columns(names, len(names), columns, need, str(path))
        file.seek(0)
        frame = reader(file, columns=[names[at] for at in sorted(set(found.values()))])
    if not frame.height:
        raise InputError(f"{path} has no ratings in it")
    return make_table(
        {role: frame[names[at]] for role, at in found.items()},
        where=lambda row: f"{path} row {row} (counting from 0)",
    )


def read_netflix(path: Path, columns: Columns | None = None) -> Table:
    """Read a Netflix file: a line ``17:`` opens a movie, lines ``user,rating,date`` follow.

    Parameters
    ----------
    path
        The file.
    columns
        Must be None: the layout is fixed.
    """
    if columns:
        raise InputError("columns= cannot be used with the netflix format: its layout is fixed")
    with reading(existing_file(path)):
        return _read_netflix(path)


def _read_netflix(path: Path) -> Table:
    head = read_lines(path, _HEAD_LINES).fill_null("").to_list()
    data = (k for k, line in enumerate(head) if line.strip() and not _OPENING.fullmatch(line))
    skip = next(data, None)
    opened = [line for line in head[:skip] if line.strip()]
    if skip is None or not opened:
        missing = "ratings" if skip is None else "line like '17:' before its first rating"
        raise InputError(f"{path} is not a Netflix file: it has no {missing}")
    frame, numbers = drop_blank(_three_fields(path, head[:skip]))
    opens = frame.select(_opened()).to_series()
    movie = opens.fill_null(strategy="forward").fill_null(int(opened[-1].strip().rstrip(":")))
    rated = opens.is_null()
    found = frame.with_columns(item=movie).filter(rated).to_dict()

    def where(row: int) -> str:
        return f"{path} line {skip + int(numbers[int(rated.arg_true()[row])]) + 1}"

    return make_table(found, text=True, where=where)


def _three_fields(path: Path, head: list[str]) -> pl.DataFrame:
    # polars takes the number of fields from the first line read, so that must be a rating.
    try:
        frame = read_csv(path, ",", None, head=head)
    except InputError:
        frame = None
    if frame is None or frame.width != 3:
        lines = read_lines(path).slice(len(head)).fill_null(":")
        bad = (lines.str.count_matches(",", literal=True) != 2) & ~lines.str.ends_with(":")
        line = len(head) + (first_true(bad) if bad.any() else 0) + 1
        raise InputError(f"{path} line {line} is neither 'movie:' nor 'user,rating,date'")
    frame.columns = ["user", "rating", "timestamp"]
    return frame


def _opened() -> pl.Expr:
    """The movie that a line opens, null on other lines."""
    import polars as pl

    line = pl.col("user").str.strip_chars_end()
    movie = line.str.strip_suffix(":").cast(pl.Int64, strict=False)
    return pl.when(pl.col("rating").is_null() & line.str.ends_with(":")).then(movie)


FORMATS = {
    "csv": Format("delimited text", (), read_text),
    "parquet": Format("Parquet", (), lambda path, columns: read_typed(path, "Parquet", columns)),
    "arrow": Format("Arrow IPC", (), lambda path, columns: read_typed(path, "Arrow", columns)),
    "movielens": Format(
        "MovieLens folder", (("u.data",), ("ratings.dat",), ("ratings.csv",)), read_text
    ),
    "netflix": Format(
        "Netflix Prize",
        (("combined_data_*.txt",), ("training_set/mv_*.txt",), ("mv_*.txt",)),
        read_netflix,
    ),
    # The test files hold the rest of the same ratings; they are read by their own names.
    "yahoo-r2": Format("Yahoo! Music R2", (("train_*.txt",),), read_text),
}
_MOVIELENS_SIZES = ("100k", "1m", "10m", "20m", "25m", "32m", "latest", "latest-small")
ALIASES = {f"ml-{size}": "movielens" for size in _MOVIELENS_SIZES}


def _names(format: Format) -> str:
    names = [name for alternative in format.patterns for name in alternative]
    return " or ".join(names) or f"{format.about} file"
