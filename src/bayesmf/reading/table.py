"""Values of rating tables: ids, finite ratings, times in seconds; errors name the row."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.checks import refuse_lost_digits
from bayesmf.errors import InputError, polars_errors, reason_of
from bayesmf.ids.columns import (
    Where,
    explanation,
    id_column,
    is_missing,
    memory_row,
    plain_column,
    polars_series,
)
from bayesmf.ids.strings import Strings
from bayesmf.reading.files import first_true
from bayesmf.wording import cut

if TYPE_CHECKING:
    import polars as pl

Ids = NDArray[np.int64] | Strings

MISSING = ("", "nan", "na", "n/a", "null", "none", "?", "-")
"""Marks of a missing value in text files, in lower case."""

_DROP_TIMES = "leave timestamps out with columns={'timestamp': None}"
_ON_COMMAND_LINE = f"{_DROP_TIMES} (on the command line --columns timestamp=)"
# Units of NumPy's dates that are longer than a microsecond.
_WIDE_UNITS = ("Y", "M", "W", "D", "h", "m", "s", "ms")


class Table(NamedTuple):
    """Checked columns of a rating table: ids are integers or text, ratings are finite."""

    user: Ids
    item: Ids
    rating: NDArray[np.float64] | None
    """None if ratings were not requested."""
    timestamp: NDArray[np.int64] | None
    """Seconds, or integers as they were given; None if there are none."""


def make_table(found: dict[str, Any], *, text: bool = False, where: Where = memory_row) -> Table:
    """Check and convert the columns of a table.

    Parameters
    ----------
    found
        Role to column, of any kind that :func:`bayesmf.ids.columns.plain_column` takes. Ids are
        removed from it, so that their memory is free once they are converted.
    text
        Whether the columns are polars series from a text file: then ids that are all integers
        in their usual form become integers, and an empty id is a missing one.
    where
        Position of a row in error messages.
    """
    rating, timestamp = found.get("rating"), found.get("timestamp")
    try:
        user, item = (
            _text_ids(found, side, where)
            if text and not found[side].dtype.is_integer()
            else id_column(found.pop(side), what=f"{side} id", where=where)
            for side in ("user", "item")
        )
        return Table(
            user,
            item,
            None if rating is None else _ratings(rating, where),
            None if timestamp is None else _timestamps(timestamp, where),
        )
    except polars_errors() as error:
        raise InputError(f"The columns cannot be read as ratings: {reason_of(error)}") from None


def join_tables(tables: Sequence[Table]) -> Table:
    """Concatenate tables."""
    ratings = [table.rating for table in tables if table.rating is not None]
    times = [table.timestamp for table in tables if table.timestamp is not None]
    return Table(
        join_ids([table.user for table in tables]),
        join_ids([table.item for table in tables]),
        np.concatenate(ratings) if len(ratings) == len(tables) else None,
        np.concatenate(times) if len(times) == len(tables) else None,
    )


def join_ids(columns: Sequence[Ids]) -> Ids:
    """Concatenate columns of ids, as text if some are text."""
    if len(columns) == 1:
        return columns[0]
    numbers = [column for column in columns if isinstance(column, np.ndarray)]
    if len(numbers) == len(columns):
        return np.concatenate(numbers)
    # Integer columns held only integers in their usual form, so their text is unchanged.
    return Strings.concat(
        [
            Strings.from_texts(list(map(str, column.tolist())))
            if isinstance(column, np.ndarray)
            else column
            for column in columns
        ]
    )


def _text_ids(found: dict[str, Any], side: str, where: Where) -> Ids:
    """Ids from text; integers only if every one is in its usual form."""
    column: pl.Series = found.pop(side)
    numbers = _canonical_ints(column)
    if not numbers.null_count():
        return numbers.to_numpy()
    texts = column.fill_null("").str.strip_chars()
    del column
    empty = texts == ""
    if empty.any():
        raise InputError(f"{where(first_true(empty))}: the {side} id is missing")
    numbers = _canonical_ints(texts)
    if not numbers.null_count():
        return numbers.to_numpy()
    odd = numbers.is_null()
    del numbers
    words = texts.filter(odd).str.to_lowercase()
    if len(words) < len(texts) and words.is_in(MISSING).all():
        row = first_true(odd)
        shown = cut(repr(texts[row]), 80)
        raise InputError(f"{where(row)}: the {side} id is missing ({shown})")
    return Strings.from_series(texts)


def _canonical_ints(texts: pl.Series) -> pl.Series:
    """Strings as integers; null where the text is not the usual form of one ("007", "+7", "-0")."""
    import polars as pl

    numbers = texts.cast(pl.Int64, strict=False)
    padded = texts.str.starts_with("0") & (texts.str.len_bytes() > 1)
    unusual = padded | texts.str.starts_with("+") | texts.str.starts_with("-0")
    return numbers.set(unusual, None) if unusual.any() else numbers


# -- ratings --------------------------------------------------------------------------------------


def _ratings(column: Any, where: Where) -> NDArray[np.float64]:
    values, numbers = _numbers(column, where)
    # Ratings are stored in single precision, so overflow there is refused here.
    with np.errstate(over="ignore"):
        bad = ~np.isfinite(numbers.astype(np.float32))
    if bad.any():
        row = int(bad.argmax())
        value = values[row]
        if value is None or value == "":
            raise InputError(f"{where(row)}: the rating is missing")
        shown = cut(repr(value.item() if isinstance(value, np.generic) else value), 80)
        if np.isfinite(numbers[row]):
            raise InputError(
                f"{where(row)}: rating {shown} is too large for single precision; divide all"
                " ratings by a number"
            )
        what = "finite" if isinstance(value, float) else "a number"
        raise InputError(f"{where(row)}: rating {shown} is not {what}: {_advice(value)}")
    if len(numbers):
        refuse_lost_digits(float(numbers.min()), float(numbers.max()))
    return numbers


def _numbers(column: Any, where: Where) -> tuple[Any, NDArray[np.float64]]:
    """The values of a column, and these as numbers; NaN where one is not a number."""
    series = polars_series(column, "rating")
    if series is not None:
        import polars as pl

        if series.dtype in (pl.Categorical, pl.Enum):
            series = series.cast(pl.String)
        if series.dtype == pl.String:
            numbers = series.str.strip_chars().cast(pl.Float64, strict=False)
            return series, numbers.fill_null(float("nan")).to_numpy()
        column = series
    values = plain_column(column, "rating")
    if not isinstance(values, np.ndarray):
        return values, _numbers_of_list(values, where)
    kind = values.dtype.kind
    if kind == "c":
        raise InputError("The rating column holds complex numbers; pass real ones, as x.real")
    if kind in "mM" and len(values):
        raise InputError(_no_rating(values[0], where(0)))
    if kind not in "iufbmM":
        return values, _numbers_of_list(values.tolist(), where)
    return values, values.astype(np.float64, copy=False)


def _numbers_of_list(values: Sequence[Any], where: Where) -> NDArray[np.float64]:
    kinds = {kind for kind in map(type, values) if kind.__name__ not in _MISSING_TYPES}
    truth = {kind for kind in kinds if issubclass(kind, bool | np.bool_)}
    text = {kind for kind in kinds if issubclass(kind, str)}
    numbers = all(issubclass(kind, _REAL) for kind in kinds - truth - text)
    times = {kind for kind in kinds if issubclass(kind, np.datetime64 | np.timedelta64)}
    if times or any(kind.__module__ in ("datetime", "pandas") for kind in kinds):
        row = next(k for k, value in enumerate(values) if not is_missing(value))
        raise InputError(_no_rating(values[row], where(row)))
    if not numbers or len([some for some in (truth, text, kinds - truth - text) if some]) > 1:
        raise InputError(explanation(values, "rating"))
    return np.fromiter(map(_number, values), np.float64, len(values))


_MISSING_TYPES = ("NoneType", "NAType", "NaTType")
_REAL = (int, float, np.integer, np.floating, Decimal)


def _number(value: Any) -> float:
    try:
        if isinstance(value, str) and (not value.isascii() or "_" in value):
            return float("nan")
        return float(value)
    except (TypeError, ValueError):
        return float("nan")
    except OverflowError:
        return 1e300


def _no_rating(value: Any, where: str) -> str:
    return (
        f"{where}: the rating {str(value)!r} is a time, not a number; is the rating in another"
        " column?"
    )


def _advice(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(r"\s*[-+]?\d+,\d{1,2}\s*", value):
        return f"write it with a point, {value.strip().replace(',', '.')}"
    return "correct or remove it"


# -- timestamps -----------------------------------------------------------------------------------


def _timestamps(column: Any, where: Where) -> NDArray[np.int64]:
    """Integers as they are, dates as epoch seconds."""
    series = polars_series(column, "timestamp")
    if series is None:
        values = plain_column(column, "timestamp")
        if isinstance(values, np.ndarray):
            return _array_seconds(values, where)
        if all(issubclass(kind, int) and kind is not bool for kind in set(map(type, values))):
            try:
                return np.array(values, np.int64)
            except OverflowError:
                pass
        series = _series(values)
    elif series.dtype.is_integer() and not series.null_count():
        return _array_seconds(series.to_numpy(), where)
    return _series_seconds(series, where)


def _array_seconds(values: NDArray[Any], where: Where) -> NDArray[np.int64]:
    kind = values.dtype.kind
    bad = np.zeros(len(values), bool)
    if kind not in "iufM":
        bad[:] = True
    elif kind == "u":
        bad = values > np.uint64(2**63 - 1)
    elif kind == "f":
        bad = ~(np.abs(values) < 2.0**63)
    elif kind == "M":
        bad = np.isnat(values)
        seconds = values.astype("datetime64[us]")
        wide = np.datetime_data(values.dtype)[0] in _WIDE_UNITS
        # NumPy does not report a date that does not fit.
        if wide and np.any((seconds.astype(values.dtype) != values) & ~bad):
            raise InputError("The timestamp column holds dates that are too far away to be stored")
        values = seconds.astype("datetime64[s]")
    if bad.any():
        row = int(bad.argmax())
        raise InputError(_no_moment(values[row], where(row), kind))
    return values.astype(np.int64, copy=False)


def _no_moment(value: Any, where: str, kind: str) -> str:
    if kind not in ("", *"iufM"):
        return (
            f"{where}: the timestamp {str(value)!r} is not a point in time; pass dates or numbers"
            f" of seconds, or {_DROP_TIMES}"
        )
    if is_missing(value) or value == "":
        return f"{where}: the timestamp is missing; {_ON_COMMAND_LINE}"
    shown = cut(repr(value.item() if isinstance(value, np.generic) else value), 80)
    return (
        f"{where}: timestamp {shown} is neither a number nor an ISO date (2024-12-31 or"
        f" 2024-12-31T23:59:59); {_ON_COMMAND_LINE}"
    )


def _series(values: Sequence[Any]) -> pl.Series:
    """A polars series of dates, or of text that may be dates."""
    import polars as pl

    odd = (list, tuple, dict, set, frozenset, np.ndarray)
    kinds = set(map(type, values)) - {type(None)}
    if (len(kinds) > 1 and bool in kinds) or any(issubclass(kind, odd) for kind in kinds):
        raise InputError(explanation(values, "timestamp"))
    make: tuple[Callable[[], pl.Series], ...]
    make = (lambda: pl.Series(values), lambda: pl.Series(values, dtype=pl.Float64))
    for attempt in make:  # integers and floats together are floats
        try:
            return attempt()
        except polars_errors(TypeError, ValueError, OverflowError, AttributeError, IndexError):
            continue
    raise InputError(explanation(values, "timestamp"))


def _series_seconds(column: pl.Series, where: Where) -> NDArray[np.int64]:
    import polars as pl

    if column.dtype in (pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
    dtype = column.dtype
    row = first_true(column.is_not_null())
    if dtype in (pl.Duration, pl.Time, pl.Boolean) and len(column):
        raise InputError(_no_moment(column[row], where(row), "m"))
    if dtype.is_temporal():
        seconds = column.cast(pl.Datetime("us"), strict=False).dt.epoch("s")
    elif dtype == pl.String:
        seconds = _text_seconds(column)
    elif dtype.is_numeric() or dtype == pl.Null or not len(column):
        seconds = column.cast(pl.Int64, strict=False)
    else:
        held = type(column[row]).__name__ if dtype == pl.Object else str(dtype)
        raise InputError(
            f"The timestamp column holds {cut(held, 60)} values, as at {where(row)}; pass a column"
            " of numbers or of text"
        )
    if seconds.null_count():
        row = first_true(seconds.is_null())
        raise InputError(_no_moment(column[row], where(row), ""))
    return seconds.to_numpy()


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
