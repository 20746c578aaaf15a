"""Rating tables from files of any size, chunk by chunk, in the order of the files."""

from __future__ import annotations

import contextlib
import glob
import gzip
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from bayesmf.errors import InputError
from bayesmf.reading.columns import TRIPLE, Columns, find_columns
from bayesmf.reading.files import (
    compression,
    existing_file,
    first_bytes,
    open_regular,
    polars_path,
    reading,
)
from bayesmf.reading.formats import ALIASES, FORMATS, check_format, find_files, recognise_format
from bayesmf.reading.remote import RemoteFile, is_uri, remote_files
from bayesmf.reading.table import Table, make_table
from bayesmf.reading.text import Layout, locate, read_laid_out

if TYPE_CHECKING:
    import polars as pl

Sources = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

# A line of ratings takes about this many bytes: chunks of text hold about as many ratings.
_LINE_BYTES = 16
# Lines that are looked at for the end of a quoted field before the quote is taken for text.
_QUOTED_LINES = 1000
_PARTS = {
    "parquet": ("*.parquet", "*.pq"),
    "arrow": ("*.arrow", "*.feather", "*.ipc"),
    "csv": ("*.csv", "*.tsv", "*.txt", "*.csv.gz", "*.tsv.gz", "*.txt.gz"),
}


@dataclass(frozen=True)
class RatingFile:
    """A file of ratings and how it is read.

    Parameters
    ----------
    path
        The file.
    format
        A name in :data:`bayesmf.reading.formats.FORMATS`.
    columns
        What the user said of the columns.
    """

    path: Path
    format: str
    columns: Columns | None

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self.path.stat().st_size

    def timed(self) -> bool:
        """Tell whether the file has timestamps."""
        if self.format in ("parquet", "arrow"):
            return "timestamp" in _columns_of(self)[1]
        if self.format == "netflix":
            return True
        return "timestamp" in _layout_of(self)[1]

    def chunks(self, rows: int) -> Iterator[tuple[Table, float]]:
        """Yield tables of about `rows` ratings, and the share of the file read with each."""
        if self.format in ("parquet", "arrow"):
            return _typed_chunks(self, rows)
        if self.format == "netflix" or _packed(self.path) in ("zstd", "zlib"):
            return _whole_chunks(self, rows)
        return _text_chunks(self, rows)


AnyFile = RatingFile | RemoteFile


def rating_files(source: Sources, format: str, columns: Columns | None) -> list[AnyFile]:
    """List the files of ratings, in the order in which they are read.

    Parameters
    ----------
    source
        A file, a folder of a known format or of files of one kind, a pattern such as
        ``part-*.parquet``, the URI of Parquet files in object storage, or several of these.
    format
        ``"auto"`` or a name of a format.
    columns
        Column of each role, where it cannot be guessed.
    """
    paths = [source] if isinstance(source, (str, os.PathLike)) else source
    if not isinstance(paths, list | tuple) or not all(
        isinstance(path, str | os.PathLike) for path in paths
    ):
        raise InputError(
            f"pack reads files, not a {type(source).__name__}: write it to a file first, or give"
            " it to fit as it is"
        )
    if not paths:
        raise InputError("There is nothing to read: give a file or a folder of ratings")
    found: list[AnyFile] = []
    for path in paths:
        if is_uri(path):
            found += remote_files(str(path), format, columns)
        else:
            found += (file for one in _matches(Path(path)) for file in _files(one, format, columns))
    for file in found:
        if isinstance(file, RatingFile):
            existing_file(file.path)
    return found


def _matches(path: Path) -> list[Path]:
    """What a pattern stands for, in the order of names; a path that is there is no pattern."""
    if not glob.has_magic(str(path)):
        return [path]
    with reading(path):
        if os.path.lexists(path):
            return [path]
        return sorted(map(Path, glob.glob(str(path), recursive=True))) or [path]


def _files(path: Path, format: str, columns: Columns | None) -> list[RatingFile]:
    check_format(path, format)
    if not path.is_dir():
        name = recognise_format(path) if format == "auto" else ALIASES.get(format, format)
        return [RatingFile(path, name, columns)]
    names = tuple(FORMATS) if format == "auto" else (ALIASES.get(format, format),)
    listed = {name: find_files(path, FORMATS[name].patterns) for name in names}
    # Folders of a named format come first: they may hold other tables beside the ratings.
    for name, files in (
        *listed.items(),
        *((name, find_files(path, (parts,))) for name, parts in _PARTS.items()),
    ):
        if files and name in names:
            return [RatingFile(file, name, columns) for file in files]
    raise InputError(
        f"{path} is a folder without ratings"
        f"{'' if format == 'auto' else f' of the format {format!r}'}; give the files"
    )


def read_chunks(files: Sequence[AnyFile], rows: int) -> Iterator[tuple[Table, int]]:
    """Yield the ratings of files in chunks of about `rows`, and the bytes read with each."""
    done = 0
    for file in files:
        for table, share in file.chunks(rows):
            yield table, done + int(share * file.size)
        done += file.size


@contextlib.contextmanager
def _scan(file: RatingFile) -> Iterator[pl.LazyFrame]:
    import polars as pl

    scan = pl.scan_parquet if file.format == "parquet" else pl.scan_ipc
    path = polars_path(file.path)
    with contextlib.ExitStack() as opened:
        with _reading(file):
            frame = scan(opened.enter_context(open_regular(file.path)) if path is None else path)
        yield frame


def _columns_of(file: RatingFile) -> tuple[list[str], dict[str, int]]:
    with _reading(file), _scan(file) as frame:
        names = frame.collect_schema().names()
    return names, find_columns(names, len(names), file.columns, TRIPLE, str(file.path))


def _reading(file: RatingFile) -> contextlib.AbstractContextManager[None]:
    return reading(file.path, f"{file.format.capitalize()} data")


def _typed_chunks(file: RatingFile, rows: int) -> Iterator[tuple[Table, float]]:
    import polars as pl

    offset = 0
    names, found = _columns_of(file)
    with _scan(file) as frame:
        with _reading(file):
            total = frame.select(pl.len()).collect().item()
            wanted = frame.select(names[at] for at in found.values())
        while offset < total:
            with _reading(file):
                part = wanted.slice(offset, rows).collect()
            where = partial(_file_row, file.path, offset)
            table = make_table({role: part[names[at]] for role, at in found.items()}, where=where)
            if not part.height:
                raise InputError(f"{file.path} ends before the {total:,} rows it speaks of")
            offset += part.height
            yield table, offset / total


def _file_row(path: Path, offset: int, row: int) -> str:
    return f"{path} row {offset + row} (counting from 0)"


def _whole_chunks(file: RatingFile, rows: int) -> Iterator[tuple[Table, float]]:
    """Chunks of a file that can only be read as a whole."""
    table = FORMATS[file.format].read(file.path, file.columns)
    total = len(table.user)
    for offset in range(0, total, rows):
        part = Table._make(None if col is None else col[offset : offset + rows] for col in table)
        yield part, min(offset + rows, total) / total


def _layout_of(file: RatingFile) -> tuple[Layout, dict[str, int]]:
    return locate(file.path, file.columns, TRIPLE)


def _text_chunks(file: RatingFile, rows: int) -> Iterator[tuple[Table, float]]:
    layout, found = _layout_of(file)
    size = file.size
    quoted = layout.delimiter not in ("::", " ")
    with _open_text(file.path) as (stream, raw):
        lines = layout.skip
        for _ in range(lines):
            stream.readline()
        while part := _next_lines(stream, rows * _LINE_BYTES, quoted):
            blank = len(part) - len(part.lstrip(b"\r\n"))
            before = lines + part[:blank].count(b"\n")
            lines += part.count(b"\n")
            if blank == len(part):
                continue
            laid_out = layout._replace(head=[], part=part[blank:], before=before)
            table = read_laid_out(file.path, laid_out, found)
            if table is not None:
                yield table, min(raw.tell() / size, 1.0)


@contextlib.contextmanager
def _open_text(path: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Open the text of a file, and the file it comes from, which tells how much was read."""
    with reading(path), open_regular(path) as raw:
        packed = _packed(path)
        yield (cast(IO[bytes], gzip.GzipFile(fileobj=raw)) if packed else raw), raw


def _packed(path: Path) -> str | None:
    return compression(first_bytes(path, 4))


def _next_lines(stream: IO[bytes], size: int, quoted: bool) -> bytes:
    """Read whole lines, and no half of a quoted field that runs over several of them."""
    pieces = [stream.read(size), stream.readline()]
    odd = quoted and sum(piece.count(b'"') for piece in pieces) % 2 == 1
    for _ in range(_QUOTED_LINES if odd else 0):
        pieces.append(stream.readline())
        if pieces[-1].count(b'"') % 2:
            break
    return b"".join(pieces)
