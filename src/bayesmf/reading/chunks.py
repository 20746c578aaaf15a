"""Rating tables from files of any size, local or in object storage, chunk by chunk.

Local files are read by polars. Parquet files named by a URI are read by pyarrow, which is imported
for a URI alone.
"""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import gzip
import importlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from bayesmf.errors import InputError, reason_of
from bayesmf.reading.columns import TRIPLE, Columns, find_columns
from bayesmf.reading.files import (
    PARQUET,
    Unreadable,
    compression,
    existing_file,
    first_bytes,
    open_regular,
    polars_path,
    reading,
)
from bayesmf.reading.formats import ALIASES, FORMATS, check_format, find_files, recognise_format
from bayesmf.reading.table import Table, make_table
from bayesmf.reading.text import locate, read_laid_out
from bayesmf.storage.paths import as_path

if TYPE_CHECKING:
    import polars as pl

Sources = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

# Typical bytes of a line of ratings.
_LINE_BYTES = 16
# Lines searched for the end of a quoted field; beyond, the quote is text.
_QUOTED_LINES = 1000
# At least two letters, so that C:/ is a disk; web addresses are refused as missing files.
_URI = re.compile(r"(?!(?:https?|ftp)://)[A-Za-z][A-Za-z0-9+.-]+://")
# A question mark begins the settings of a storage, so it is not part of a pattern.
_PATTERN = re.compile(r"[*\[]")
_PARTS = {
    "parquet": ("*.parquet", "*.pq"),
    "arrow": ("*.arrow", "*.feather", "*.ipc"),
    "csv": ("*.csv", "*.tsv", "*.txt", "*.csv.gz", "*.tsv.gz", "*.txt.gz"),
}


@dataclass(frozen=True)
class RatingFile:
    """A local file of ratings.

    Parameters
    ----------
    path
        The file.
    format
        A name in :data:`bayesmf.reading.formats.FORMATS`.
    columns
        Columns named by the user.
    """

    path: Path
    format: str
    columns: Columns | None

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self.path.stat().st_size

    def timed(self) -> bool:
        """Whether the file has timestamps."""
        if self.format in ("parquet", "arrow"):
            return "timestamp" in _columns_of(self)[1]
        return self.format == "netflix" or "timestamp" in self._located()[1]

    def chunks(self, rows: int) -> Iterator[tuple[Table, float]]:
        """Yield tables of about `rows` ratings, and the share of the file read with each."""
        if self.format in ("parquet", "arrow"):
            return _typed_chunks(self, rows)
        if self.format == "netflix" or _packed(self.path) in ("zstd", "zlib"):
            return _whole_chunks(self, rows)
        return _text_chunks(self, rows)

    def _located(self) -> Any:
        return locate(self.path, self.columns, TRIPLE)


@dataclass(frozen=True)
class RemoteFile:
    """A Parquet file in object storage.

    Parameters
    ----------
    path
        Its URI in messages, without secrets.
    root, inner
        The URI of the storage as the user gave it, and the path of the file in it.
    size
        Bytes of the file.
    columns
        Columns named by the user.
    """

    path: str
    root: str
    inner: str
    size: int
    columns: Columns | None

    def timed(self) -> bool:
        """Whether the file has timestamps."""
        with self._open() as file:
            return "timestamp" in self._found(file)[1]

    def chunks(self, rows: int) -> Iterator[tuple[Table, float]]:
        """Yield tables of at most `rows` ratings, and the share of the file read with each."""
        import polars as pl

        with self._open() as file:
            names, found = self._found(file)
            wanted, total, offset = [names[at] for at in found.values()], file.metadata.num_rows, 0
            batches = file.iter_batches(batch_size=rows, columns=wanted)
            while True:
                with self._reading():
                    batch = next(batches, None)
                if batch is None:
                    break
                columns = dict(zip(found, pl.from_arrow(batch), strict=True))
                offset += batch.num_rows
                yield (
                    _typed_table(self.path, columns, offset - batch.num_rows),
                    offset / max(total, 1),
                )
            if offset != total:
                raise Unreadable(self.path, "Parquet data", "it has other rows than it counts")

    @contextlib.contextmanager
    def _open(self) -> Iterator[Any]:
        parquet = _pyarrow("parquet", self.path)
        with contextlib.ExitStack() as opened:
            with self._reading():
                storage, _ = _storage(self.root)
                stream = opened.enter_context(storage.open_input_file(self.inner))
                file = opened.enter_context(parquet.ParquetFile(stream))
            yield file

    def _found(self, file: Any) -> tuple[list[str], dict[str, int]]:
        names = list(file.schema_arrow.names)
        return names, find_columns(names, len(names), self.columns, TRIPLE, self.path)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        arrow = _pyarrow("lib", self.path)
        try:
            yield
        except (OSError, EOFError, arrow.ArrowException) as error:
            raise Unreadable(self.path, "Parquet data", reason_of(error)) from None


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
        if isinstance(path, str) and _URI.match(path):
            found += _remote_files(path, format, columns)
        else:
            found += (
                file for one in _matches(as_path(path)) for file in _files(one, format, columns)
            )
    for file in found:
        if isinstance(file, RatingFile):
            existing_file(file.path)
    return found


def _matches(path: Path) -> list[Path]:
    """The files that match a pattern, by name; an existing path is not a pattern."""
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
            if not part.height:
                raise InputError(f"{file.path} ends before the {total:,} rows that it declares")
            columns = {role: part[names[at]] for role, at in found.items()}
            table = _typed_table(file.path, columns, offset)
            offset += part.height
            yield table, offset / total


def _typed_table(path: str | Path, columns: dict[str, Any], offset: int) -> Table:
    return make_table(columns, where=lambda row: f"{path} row {offset + row} (counting from 0)")


def _whole_chunks(file: RatingFile, rows: int) -> Iterator[tuple[Table, float]]:
    """Slices of a file that can only be read as a whole."""
    table = FORMATS[file.format].read(file.path, file.columns)
    total = len(table.user)
    for offset in range(0, total, rows):
        part = Table._make(None if col is None else col[offset : offset + rows] for col in table)
        yield part, min(offset + rows, total) / total


def _text_chunks(file: RatingFile, rows: int) -> Iterator[tuple[Table, float]]:
    layout, found = file._located()
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
    """Open the text of a file, and the file itself, whose position shows how much was read."""
    with reading(path), open_regular(path) as raw:
        packed = _packed(path)
        yield (cast(IO[bytes], gzip.GzipFile(fileobj=raw)) if packed else raw), raw


def _packed(path: Path) -> str | None:
    return compression(first_bytes(path, 4))


def _next_lines(stream: IO[bytes], size: int, quoted: bool) -> bytes:
    """Read whole lines, and whole quoted fields that run over several lines."""
    pieces = [stream.read(size), stream.readline()]
    odd = quoted and sum(piece.count(b'"') for piece in pieces) % 2 == 1
    for _ in range(_QUOTED_LINES if odd else 0):
        pieces.append(stream.readline())
        if pieces[-1].count(b'"') % 2:
            break
    return b"".join(pieces)


# -- object storage -------------------------------------------------------------------------------


def _remote_files(uri: str, format: str, columns: Columns | None) -> list[RemoteFile]:
    """The Parquet files at a URI of a file, a folder, or a pattern in its last part."""
    shown = _shown(uri)
    if format not in ("auto", "parquet"):
        raise InputError(f"{shown}: a URI is read as Parquet, not as {format!r}")
    root, pattern = _without_pattern(uri)
    where = _shown(root).rstrip("/")
    systems, arrow = _pyarrow("fs", shown), _pyarrow("lib", shown)
    try:
        storage, inner = _storage(root)
        about = storage.get_file_info(inner)
        if about.type == systems.FileType.NotFound:
            raise InputError(f"There is no file or folder {where}")
        listed = [about] if about.is_file else storage.get_file_info(systems.FileSelector(inner))
    except (OSError, arrow.ArrowException) as error:
        raise InputError(f"{shown} cannot be read: {reason_of(error)}") from None
    if about.is_file:
        return [_file(about, where, root, columns)]
    found = [one for one in listed if one.is_file and _is_wanted(one.base_name, pattern)]
    if not found:
        said = "matches no file" if pattern else "is a folder without Parquet files"
        raise InputError(f"{shown} {said}")
    found.sort(key=lambda one: one.base_name)
    return [_file(one, f"{where}/{one.base_name}", root, columns) for one in found]


def _shown(uri: str) -> str:
    """A URI without the user names, passwords and settings that may be in it."""
    return re.sub(r"(?<=://)[^/@]*@", "", uri.partition("?")[0])


def _without_pattern(uri: str) -> tuple[str, str]:
    """The folder that a pattern is in, with the settings of the storage; and the pattern."""
    path, mark, settings = uri.partition("?")
    if not _PATTERN.search(path):
        return uri, ""
    folder, _, pattern = path.rpartition("/")
    if _PATTERN.search(folder):
        raise InputError(f"{_shown(uri)}: only the last part of a URI may be a pattern")
    return folder + mark + settings, pattern


def _file(about: Any, path: str, root: str, columns: Columns | None) -> RemoteFile:
    if not about.size:
        raise InputError(f"{path} is empty")
    return RemoteFile(path, root, about.path, int(about.size), columns)


def _is_wanted(name: str, pattern: str) -> bool:
    if pattern:
        return fnmatch.fnmatchcase(name, pattern)
    return name.lower().endswith(PARQUET) and not name.startswith(".")


def _storage(uri: str) -> tuple[Any, str]:
    found: tuple[Any, str] = _pyarrow("fs", _shown(uri)).FileSystem.from_uri(uri)
    return found


def _pyarrow(module: str, uri: str) -> Any:
    try:
        return importlib.import_module(f"pyarrow.{module}")
    except ModuleNotFoundError:
        raise InputError(
            f"reading {uri} needs pyarrow, which is not installed: pip install pyarrow"
        ) from None
