"""Text files as they are: lines, and fields as strings."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayesmf.errors import InputError
from bayesmf.reading.files import compression, open_regular, polars_path, reading

if TYPE_CHECKING:
    import polars as pl

# No text file has this control character: with it as separator a line is one field.
_NEVER = "\x1f"
# What the first lines of a table fit into.
_HEAD_BYTES = 4 << 20


def read_lines(path: Path, count: int | None = None, part: bytes | None = None) -> pl.Series:
    """Read the lines of a text file, or of a part of it, null for a blank one."""
    if part is None and count is not None:
        part = _head(path)
    return read_csv(path, _NEVER, None, count=count, part=part).to_series(0)


def _head(path: Path) -> bytes | None:
    """Give the first lines of a file: polars would unpack all of it; None where only it can."""
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
            f"{path} is no table of ratings: its first line is longer than"
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
