"""The values of a rating table: ids whole, ratings finite, times in seconds, or a sentence."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from bayesmf.checks import refuse_lost_digits
from bayesmf.errors import InputError, polars_errors, reason_of
from bayesmf.ids.encode import as_ids, canonical_ints
from bayesmf.ids.series import Where, first_true, memory_row, refuse_odd
from bayesmf.reading.after_fork import checked_columns
from bayesmf.system.forks import polars_is_lost
from bayesmf.wording import cut

if TYPE_CHECKING:
    import polars as pl

MISSING = ("", "nan", "na", "n/a", "null", "none", "?", "-")
"""What stands in text files where a value is missing, in lower case."""


class Table(NamedTuple):
    """The columns of a rating table, checked: ids whole, ratings finite."""

    user: pl.Series
    """Ids: Int64 or String."""
    item: pl.Series
    """Ids: Int64 or String."""
    rating: pl.Series | None
    """Float64; None when the ratings were not asked for."""
    timestamp: pl.Series | None
    """Int64; None when there are none."""


def make_table(
    found: Mapping[str, pl.Series], *, text: bool = False, where: Where = memory_row
) -> Table:
    """Check and convert the columns of a table.

    Parameters
    ----------
    found
        Role to column.
    text
        Whether the columns come from a text file: then ids that are all integers in
        their usual form become integers, and an empty id is a missing one.
    where
        Says where a row is in error messages.
    """
    import polars as pl

    if polars_is_lost():
        made = {role: pl.Series(c) for role, c in checked_columns(found, where).items()}
        return Table(made["user"], made["item"], made.get("rating"), made.get("timestamp"))
    for role, column in found.items():
        refuse_odd(column, f"{role} id" if role in ("user", "item") else role, where)
    id_column = text_ids if text else _plain_ids
    rating, timestamp = found.get("rating"), found.get("timestamp")
    try:
        return Table(
            id_column(found["user"], "user", where),
            id_column(found["item"], "item", where),
            None if rating is None else ratings_column(rating, where),
            None if timestamp is None else timestamps_column(timestamp, where),
        )
    except polars_errors() as error:
        raise InputError(f"The columns cannot be read as ratings: {reason_of(error)}") from None


def _plain_ids(column: pl.Series, what: str, where: Where) -> pl.Series:
    import polars as pl

    if column.dtype.is_float():
        _refuse_far_ids(column, what, where)
    return pl.Series(as_ids(column, what=f"{what} id", where=where))


def _refuse_far_ids(column: pl.Series, what: str, where: Where) -> None:
    """Refuse integers that a float cannot tell from the next ones: two ids would be one."""
    import polars as pl

    whole = float(2**24 if column.dtype == pl.Float32 else 2**53)
    low, high = (float(x or 0.0) for x in (column.min(), column.max()))  # type: ignore[arg-type]
    if -whole <= low <= high <= whole:
        return
    far = column.is_finite() & (column.abs() > whole)
    if far.any():
        row = first_true(far)
        raise InputError(
            f"{where(row)}: the {what} id {column[row]:.0f} is a {column.dtype}, which cannot tell"
            f" integers above {whole:.0f} apart: pass ids as integers or as text"
        )


def text_ids(column: pl.Series, what: str, where: Where) -> pl.Series:
    """Read a column of ids from text; integers only if every one is in its usual form."""
    if column.dtype.is_integer():
        return column
    numbers = canonical_ints(column)
    if not numbers.null_count():
        return numbers
    stripped = column.str.strip_chars()
    missing = stripped.is_null() | (stripped == "")
    if missing.any():
        raise InputError(f"{where(first_true(missing))}: the {what} id is missing")
    numbers = canonical_ints(stripped)
    if not numbers.null_count():
        return numbers
    _refuse_missing_words(stripped, numbers, what, where)
    return stripped


def _refuse_missing_words(texts: pl.Series, numbers: pl.Series, what: str, where: Where) -> None:
    """Refuse "nan" and its like where all other ids are integers."""
    odd = numbers.is_null()
    words = texts.filter(odd).str.to_lowercase()
    if len(words) < len(texts) and words.is_in(MISSING).all():
        row = first_true(odd)
        raise InputError(f"{where(row)}: the {what} id is missing ({cut(repr(texts[row]), 80)})")


def ratings_column(column: pl.Series, where: Where) -> pl.Series:
    """Read a column of ratings: finite numbers."""
    import polars as pl

    if column.dtype in (pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
    if column.dtype.is_temporal() and len(column):
        row = first_true(column.is_not_null())
        raise InputError(
            f"{where(row)}: the rating {str(column[row])!r} is a time, not a number; is the rating"
            " in another column?"
        )
    numbers = _floats(column)
    # Ratings are stored in single precision; what overflows there is refused here.
    bad = ~numbers.cast(pl.Float32, strict=False).is_finite().fill_null(False)
    if bad.any():
        row = first_true(bad)
        if column[row] is None or column[row] == "":
            raise InputError(f"{where(row)}: the rating is missing")
        if numbers[row] is not None and math.isfinite(numbers[row]):
            raise InputError(
                f"{where(row)}: rating {cut(repr(column[row]), 80)} is too large for"
                " single precision; divide all ratings by a number"
            )
        raise InputError(
            f"{where(row)}: rating {cut(repr(column[row]), 80)} is not a number that can be used;"
            f" ratings are finite numbers{_written(column[row])}"
        )
    low, high = (float(x) for x in (numbers.min() or 0.0, numbers.max() or 0.0))  # type: ignore[arg-type]
    refuse_lost_digits(low, high)
    return numbers


def _written(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(r"\s*[-+]?\d+,\d{1,2}\s*", value):
        return f", written with a point: {value.strip().replace(',', '.')}"
    return ""


def timestamps_column(column: pl.Series, where: Where) -> pl.Series:
    """Read a column of timestamps: integers as they are, dates as epoch seconds."""
    import polars as pl

    if column.dtype in (pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
    if column.dtype in (pl.Duration, pl.Time, pl.Boolean) and len(column):
        row = first_true(column.is_not_null())
        raise InputError(
            f"{where(row)}: the timestamp {str(column[row])!r} says no moment; pass dates or"
            " numbers of seconds, or leave timestamps out with columns={'timestamp': None}"
        )
    if column.dtype.is_temporal():
        seconds = column.cast(pl.Datetime("us"), strict=False).dt.epoch("s")
    elif column.dtype == pl.String:
        seconds = _text_seconds(column)
    else:
        seconds = column.cast(pl.Int64, strict=False)
    if seconds.null_count():
        row = first_true(seconds.is_null())
        if column[row] is None or column[row] == "":
            raise InputError(
                f"{where(row)}: the timestamp is missing; leave timestamps out with"
                " columns={'timestamp': None} (on the command line --columns timestamp=)"
            )
        raise InputError(
            f"{where(row)}: timestamp {cut(repr(column[row]), 80)} is neither a number nor an ISO"
            " date (2024-12-31 or 2024-12-31T23:59:59); leave timestamps out with"
            " columns={'timestamp': None} (on the command line --columns timestamp=)"
        )
    return seconds


def _floats(column: pl.Series) -> pl.Series:
    import polars as pl

    if column.dtype != pl.String:
        return column.cast(pl.Float64, strict=False)
    numbers = column.cast(pl.Float64, strict=False)
    if numbers.null_count() == column.null_count():
        return numbers
    return column.str.strip_chars().cast(pl.Float64, strict=False)


def _text_seconds(column: pl.Series) -> pl.Series:
    import polars as pl

    whole = column.cast(pl.Int64, strict=False)
    if not whole.null_count():
        return whole
    column = column.str.strip_chars()
    numbers = column.cast(pl.Float64, strict=False)
    if numbers.is_not_null().any():
        # Some exact integers have no exact double: those stay that were read as integers.
        return column.cast(pl.Int64, strict=False).fill_null(numbers.cast(pl.Int64, strict=False))
    return _iso_seconds(column)


def _iso_seconds(column: pl.Series) -> pl.Series:
    import polars as pl

    texts = column.str.replace("T", " ", literal=True).str.replace(r"[Zz]$", "+00:00")
    seconds = texts.str.to_date("%Y-%m-%d", strict=False).cast(pl.Datetime("us")).dt.epoch("s")
    for form in ("%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S%.f%z"):
        if not seconds.null_count():
            break
        zone = "UTC" if form.endswith("%z") else None
        times = texts.str.to_datetime(form, strict=False, time_unit="us", time_zone=zone)
        seconds = seconds.fill_null(times.dt.epoch("s"))
    return seconds
