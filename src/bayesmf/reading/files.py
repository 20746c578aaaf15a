"""Checks of files before they are read: existence, kind, compression, encoding."""

from __future__ import annotations

import contextlib
import csv
import difflib
import gzip
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from bayesmf.errors import InputError, polars_errors, reason_of
from bayesmf.storage.artefact import MODEL, PACKED, peek
from bayesmf.storage.paths import NotRegular, as_path, open_handle

if TYPE_CHECKING:
    import polars as pl

PARQUET = (".parquet", ".pq")
ARROW = (".arrow", ".feather", ".ipc")

_MAGIC_TYPED = {b"PAR1": "Parquet", b"ARROW1": "Arrow"}
_MAGIC_PACKED = {
    b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd",
    b"\x78\x01": "zlib", b"\x78\x9c": "zlib", b"\x78\xda": "zlib",
}  # fmt: skip
# First bytes of common files that are not tables, and what to do with them.
_MAGIC_OTHER = (
    (b"BZh", "compressed with bzip2: unpack it first"),
    (b"\xfd7zXZ", "compressed with xz: unpack it first"),
    (b"7z\xbc\xaf", "a 7-Zip archive: unpack it first"),
    (b"Rar!", "a RAR archive: unpack it first"),
    (b"\x93NUMPY", "a NumPy file: pass the array that np.load gives, or write it as text"),
    (b"\x89HDF", "an HDF5 file: read it with pandas or h5py, and write a Parquet file"),
    (b"SQLite format 3", "an SQLite database: write its table of ratings as text first"),
    (b"\xd0\xcf\x11\xe0", "an Excel workbook: save the sheet as CSV first"),
    (b"%PDF", "a PDF document, not a table"),
    (b"\x80\x04", "a pickle: write the data as a CSV or Parquet file first"),
    (b"\x80\x05", "a pickle: write the data as a CSV or Parquet file first"),
)
_WIDE = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16", b"\xff\xfe\0\0": "UTF-32"}
_LOOKED_AT = 4096


@contextlib.contextmanager
def reading(path: str | os.PathLike[str], kind: str = "text") -> Iterator[None]:
    """Raise `Unreadable` for an error of the system, polars, a decompressor or csv.

    Parameters
    ----------
    path
        The file, for the message.
    kind
        What it is read as.
    """
    try:
        yield
    except InputError:
        raise
    except polars_errors(OSError, EOFError, zlib.error, csv.Error, UnicodeError) as error:
        # The message of a panic is about the code of polars, not about the file.
        reason = reason_of(error) if isinstance(error, Exception) else "it is damaged"
        if "utf-8" in reason.lower() or "utf8" in reason.lower():
            raise InputError(
                f"{path} is not UTF-8 text; convert it first, for example with"
                " iconv -f LATIN1 -t UTF-8"
            ) from None
        if isinstance(error, EOFError):
            reason = "it ends too early; copy or download it again"
        raise Unreadable(path, kind, reason) from None


class Unreadable(InputError):
    """A file that cannot be read, and the reason."""

    def __init__(self, path: str | os.PathLike[str], kind: str, reason: str) -> None:
        super().__init__(f"{path} cannot be read as {kind}: {reason}")
        self.reason = reason


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file for reading; pipes and devices are refused."""
    try:
        return open(path, "rb", opener=lambda name, _: open_handle(name))
    except NotRegular:
        raise InputError(_no_file(path)) from None


def _no_file(path: str | os.PathLike[str]) -> str:
    return f"{path} is a pipe or a device, which cannot be read twice: write it to a file first"


def polars_path(path: Path) -> Path | None:
    """The path if polars takes it literally; None for patterns, "~" and non-UTF-8 names."""
    name = str(path)
    plain = name.isprintable() and not set("*?[") & set(name) and not name.startswith("~")
    return path if plain else None


def existing_file(path: str | os.PathLike[str]) -> Path:
    """Check that a file exists and is not empty."""
    path = as_path(path)
    with reading(path):
        return _existing(path)


def _existing(path: Path) -> Path:
    if not path.exists():
        raise InputError(missing_file(path, "file"))
    if path.is_dir():
        raise InputError(f"{path} is a folder, not a file of ratings")
    if not os.access(path, os.R_OK):
        raise InputError(f"{path} cannot be read: you have no permission to")
    if not path.is_file():
        raise InputError(_no_file(path))
    if path.stat().st_size == 0:
        raise InputError(f"{path} is empty")
    if peek(path, MODEL) is not None:
        raise InputError(f"{path} is a model, not ratings: give a file of ratings")
    if peek(path, PACKED) is not None:
        raise InputError(f"{path} holds packed ratings, which are for fit: give a file of ratings")
    return path


def missing_file(path: Path, what: str) -> str:
    """Message for a missing file, with a suggestion."""
    said = f"There is no {what} {path}"
    if str(path) == "-":
        return f"{said}: standard input is not read; write it to a file first"
    if address := re.match(r"(https?|ftp|s3|gs):/", str(path)):
        read = "; pack it (bayesmf pack) or" if address[1] in ("s3", "gs") else ";"
        return f"{said.replace(':/', '://', 1)}: addresses are not read{read} download it first"
    parent = path.parent
    if not parent.is_dir():
        return f"{said}: there is no folder {parent}"
    try:
        names = {name.lower(): name for name in sorted(os.listdir(parent), reverse=True)}
    except OSError:  # no permission to list it
        return f"{said}"
    near = difflib.get_close_matches(path.name.lower(), names, n=1, cutoff=0.7)
    return f"{said}; did you mean {parent / names[near[0]]}?" if near else f"{said}"


def typed_kind(path: Path) -> str | None:
    """ "Parquet" or "Arrow" by the first bytes or the suffix of a file, else None."""
    found = _by_magic(first_bytes(path), _MAGIC_TYPED)
    suffix = path.suffix.lower()
    return found or ("Parquet" if suffix in PARQUET else "Arrow" if suffix in ARROW else None)


def compression(head: bytes) -> str | None:
    """ "gzip", "zstd" or "zlib" by the first bytes of a file, else None."""
    return _by_magic(head, _MAGIC_PACKED)


def _by_magic(head: bytes, known: dict[bytes, str]) -> str | None:
    return next((kind for magic, kind in known.items() if head.startswith(magic)), None)


def first_bytes(path: Path, count: int = 8) -> bytes:
    """The first bytes of a file; empty if it cannot be read or is not a regular file."""
    try:
        with open_regular(path) as file:
            return file.read(count)
    except (OSError, InputError):
        return b""


def check_text(path: Path) -> None:
    """Refuse a file that is not a text table, by its first bytes."""
    head = first_bytes(path, _LOOKED_AT)
    if head.startswith(b"PK\x03\x04"):
        office = b"[Content_Types].xml" in head or path.suffix.lower().startswith(".xl")
        kind = "an Excel workbook: save the sheet as CSV" if office else "a zip archive: unpack it"
        raise InputError(f"{path} is {kind} first, and give that file")
    for magic, said in _MAGIC_OTHER:
        if head.startswith(magic):
            raise InputError(f"{path} is {said}")
    if compression(head) == "gzip":
        head = _unzipped(path)
    _check_characters(path, head)


def _unzipped(path: Path) -> bytes:
    try:
        with gzip.open(path, "rb") as file:
            return file.read(_LOOKED_AT)
    except (OSError, EOFError, zlib.error):
        return b""  # reported when it is read


def _check_characters(path: Path, head: bytes) -> None:
    wide = next((_WIDE[mark] for mark in sorted(_WIDE, reverse=True) if head.startswith(mark)), "")
    if wide:
        raise InputError(
            f"{path} is not UTF-8 but {wide} text; convert it first, for example with"
            f" iconv -f {wide} -t UTF-8"
        )
    if head[257:262] == b"ustar":
        raise InputError(f"{path} is a tar archive: unpack it first")
    if compression(head) != "zstd" and b"\0" in head:
        raise InputError(
            f"{path} is not UTF-8 text: it has zero bytes, as binary files and UTF-16 text have;"
            " convert it first"
        )
    if b"\r" in head and b"\n" not in head:
        raise InputError(
            f"{path} has lines that end with a carriage return alone; convert it first, for"
            " example with tr '\\r' '\\n'"
        )
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if re.match(rb"<(!doctype|html|\?xml|head|body|[a-z]+>)", start, re.IGNORECASE):
        raise InputError(
            f"{path} is an HTML or XML page, not a table; was a web page saved instead of the data?"
        )
    if re.match(rb"[\[{]\s*[\[{\"]", start) or start.startswith(b"{}"):
        reader = "read_json" if start.startswith(b"[") else "read_ndjson"
        raise InputError(
            f"{path} is JSON, not a table; write it as CSV or Parquet first, for example with"
            f" polars.{reader}(...).write_parquet(...)"
        )


def first_true(mask: pl.Series) -> int:
    """The position of the first true value."""
    return int(mask.fill_null(False).arg_max() or 0)
