"""Parquet files in object storage, named by URIs: read by row groups, with pyarrow's file systems.

Local files are read without pyarrow; it is imported for a URI alone. What is wrong with a file is
told as of a local one.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from bayesmf.errors import InputError, reason_of
from bayesmf.reading.columns import TRIPLE, Columns, find_columns
from bayesmf.reading.files import PARQUET, Unreadable
from bayesmf.reading.table import Table, make_table

MISCOUNTED = "it has other rows than it counts"

# Two letters at the least, so that C:/ is a disk.
# What is fetched otherwise is refused as a file that is not there.
_URI = re.compile(r"(?!(?:https?|ftp)://)[A-Za-z][A-Za-z0-9+.-]+://")
# A question mark begins the settings of a storage.
_PATTERN = re.compile(r"[*\[]")


def is_uri(path: str | os.PathLike[str]) -> bool:
    """Whether it is the address of something in a storage, and no path."""
    return isinstance(path, str) and _URI.match(path) is not None


@dataclass(frozen=True)
class RemoteFile:
    """A Parquet file in a storage; what it is asked is what `RatingFile` is.

    Parameters
    ----------
    path
        Its URI, for people.
    root, inner
        The URI that the user gave, which says which storage it is, and the file's path in there.
    size
        Its bytes.
    columns
        What the user said of the columns.
    """

    path: str
    root: str
    inner: str
    size: int
    columns: Columns | None
    format: str = "parquet"

    def timed(self) -> bool:
        """Tell whether the file has timestamps."""
        with self._open() as file:
            return "timestamp" in self._columns(file)[1]

    def chunks(self, rows: int) -> Iterator[tuple[Table, float]]:
        """Yield tables of `rows` ratings, and the share of the file read with each."""
        import polars as pl

        with self._open() as file:
            names, found = self._columns(file)
            wanted = [names[at] for at in found.values()]
            total = self._total(file)
            offset = 0
            while offset < total:
                with self._reading():
                    part = pl.from_arrow(_rows(file, wanted, offset, min(rows, total - offset)))
                assert isinstance(part, pl.DataFrame)
                if part.height != min(rows, total - offset):
                    raise Unreadable(self.path, "Parquet data", MISCOUNTED)
                where = partial(_row, self.path, offset)
                table = make_table(
                    {role: part[names[at]] for role, at in found.items()}, where=where
                )
                offset += part.height
                yield table, offset / total

    def _total(self, file: Any) -> int:
        """Rows of the file, which its row groups have to have."""
        about = file.metadata
        total = int(about.num_rows)
        if total < 0 or total != sum(_group_sizes(about)):
            raise Unreadable(self.path, "Parquet data", MISCOUNTED)
        return total

    @contextlib.contextmanager
    def _open(self) -> Iterator[Any]:
        parquet = _pyarrow("parquet", self.path)
        with contextlib.ExitStack() as opened:
            with self._reading():
                storage, _ = _storage(self.root)
                stream = opened.enter_context(storage.open_input_file(self.inner))
                file = opened.enter_context(parquet.ParquetFile(stream))
            yield file

    def _columns(self, file: Any) -> tuple[list[str], dict[str, int]]:
        names = list(file.schema_arrow.names)
        return names, find_columns(names, len(names), self.columns, TRIPLE, self.path)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Say in a sentence why a file could not be read."""
        arrow = _pyarrow("lib", self.path)
        try:
            yield
        except InputError:
            raise
        except (OSError, EOFError, arrow.ArrowException) as error:
            raise Unreadable(self.path, "Parquet data", reason_of(error)) from None


def _group_sizes(about: Any) -> list[int]:
    return [int(about.row_group(k).num_rows) for k in range(about.num_row_groups)]


def _rows(file: Any, columns: list[str], offset: int, count: int) -> Any:
    """Some rows of a Parquet file, of which the row groups that hold them are read."""
    groups: list[int] = []
    before = begin = 0
    for k, n in enumerate(_group_sizes(file.metadata)):
        if before < offset + count and offset < before + n:
            if not groups:
                begin = before
            groups.append(k)
        before += n
    return file.read_row_groups(groups, columns=columns).slice(offset - begin, count)


def _row(path: str, offset: int, row: int) -> str:
    return f"{path} row {offset + row} (counting from 0)"


def remote_files(uri: str, format: str, columns: Columns | None) -> list[RemoteFile]:
    """List the Parquet files at a URI: of a file, a folder, or a pattern in its last part.

    Parameters
    ----------
    uri
        As pyarrow takes it: ``s3://bucket/ratings``, ``gs://...``, ``hdfs://...``, ``file:///...``.
    format
        ``"auto"`` or ``"parquet"``.
    columns
        Column of each role, where it cannot be guessed.
    """
    shown = _shown(uri)
    if format not in ("auto", "parquet"):
        raise InputError(f"{shown}: what has a URI is read as Parquet, not as {format!r}")
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
        said = "stands for no file" if pattern else "is a folder without Parquet files"
        raise InputError(f"{shown} {said}")
    found.sort(key=lambda one: one.base_name)
    return [_file(one, f"{where}/{one.base_name}", root, columns) for one in found]


def _shown(uri: str) -> str:
    """A URI for people and notes: without the names, passwords and settings that may be in it."""
    return re.sub(r"(?<=://)[^/@]*@", "", uri.partition("?")[0])


def _without_pattern(uri: str) -> tuple[str, str]:
    """The folder that a pattern is in, with the settings of the storage; and the pattern."""
    path, mark, settings = uri.partition("?")
    if not _PATTERN.search(path):
        return uri, ""
    folder, _, pattern = path.rpartition("/")
    if _PATTERN.search(folder):
        raise InputError(f"{_shown(uri)}: a pattern may stand in the last part of a URI alone")
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
    import importlib

    try:
        return importlib.import_module(f"pyarrow.{module}")
    except ModuleNotFoundError:
        raise InputError(
            f"reading {uri} needs pyarrow, which is not installed: pip install pyarrow"
        ) from None
