"""Text files as they are: lines, and fields as strings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayesmf.errors import InputError

if TYPE_CHECKING:
    import polars as pl

# No text file has this control character: with it as separator a line is one field.
_NEVER = "\x1f"


def reason_of(error: Exception) -> str:
    """Give the first line of what another library said."""
    return str(error).partition("\n")[0].rstrip(".: ")


def read_lines(path: Path, count: int | None = None, part: bytes | None = None) -> pl.Series:
    """Read the lines of a text file, or of a part of it, null for a blank one."""
    return read_csv(path, _NEVER, None, count=count, part=part).to_series(0)


class Unreadable(InputError):
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
        raise Unreadable(path, reason) from None
