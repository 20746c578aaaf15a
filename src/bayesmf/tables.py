"""Rating tables: which column is which, and how its values are read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bayesmf.errors import InputError
from bayesmf.ids import Place, as_ids, canonical_ints, row_place, to_series

if TYPE_CHECKING:
    import polars as pl

Columns = Mapping[str, str | int | None]
"""Role (user, item, rating, timestamp) to column name or position from 0; None to leave out."""

ROLES = ("user", "item", "rating", "timestamp")
TRIPLE = ("user", "item", "rating")
PAIR = ("user", "item")

# In order of preference; users and items are also recognised with "id" behind the name.
_BASES = {
    "user": "user customer reviewer member client profile person viewer visitor u",
    "item": "item movie film product song track book isbn asin business article artist album"
    " show anime game app recipe restaurant venue place hotel beer joke sku parentasin i",
    "rating": "rating score stars star value overall bookrating reviewscore reviewrating r",
    "timestamp": "timestamp unixtime unixreviewtime time ts datetime date reviewtime reviewdate"
    " when createdat created ratedat t",
}
NAMES = {
    role: [base + end for base in bases.split() for end in (("id", "") if role in PAIR else ("",))]
    for role, bases in _BASES.items()
}


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


def find_columns(
    names: Sequence[str] | None,
    count: int,
    columns: Columns | None,
    need: Sequence[str],
    where: str,
) -> dict[str, int]:
    """Find the position of each role's column.

    Parameters
    ----------
    names
        The columns' names, None where there are none: then the order is user, item,
        rating, timestamp.
    count
        Number of columns.
    columns
        What the user said of the columns.
    need
        The roles that must be found; a timestamp is looked for beside a rating.
    where
        What to call the data in error messages.
    """
    columns = check_columns(columns)
    wanted = [*need, *(("timestamp",) if "rating" in need else ())]
    found: dict[str, int] = {}
    for role in wanted:
        if role in columns:
            chosen = columns[role]
            at = None if chosen is None else _chosen(role, chosen, names, count, where)
        elif names is None:
            at = ROLES.index(role) if ROLES.index(role) < count else None
        else:
            at = recognise(names, role)
        if at is not None:
            found[role] = at
    missing = [role for role in need if role not in found]
    if missing:
        raise InputError(_not_found(missing, names, count, where))
    if len(set(found.values())) < len(found):
        raise InputError(f"{where}: one column cannot be two of user, item, rating and timestamp.")
    return found


def check_columns(columns: Columns | None) -> Columns:
    """Check the roles that the user named."""
    for role in columns or {}:
        if role not in ROLES:
            raise InputError(f"columns: {role!r} is not one of user, item, rating, timestamp.")
    return columns or {}


def recognise(names: Sequence[str], role: str) -> int | None:
    """Find the column whose name is usual for the role: any case, ignoring ``_ -`` and space."""
    plain = [re.sub(r"[_\-\s]", "", name).lower() for name in names]
    return next((plain.index(name) for name in NAMES[role] if name in plain), None)


def _chosen(role: str, chosen: str | int, names: Sequence[str] | None, n: int, where: str) -> int:
    if names is not None and chosen in names:
        return list(names).index(str(chosen))
    if isinstance(chosen, str) and names is not None:
        plain = [name.strip().lower() for name in names]
        if chosen.strip().lower() in plain:
            return plain.index(chosen.strip().lower())
    # A position may come from a command line, as text.
    if isinstance(chosen, int) or chosen.isdecimal():
        if 0 <= int(chosen) < n:
            return int(chosen)
        raise InputError(
            f"{where} has {n} columns, so the {role} column cannot be number {chosen}"
            f" (positions count from 0)."
        )
    listed = "no column names" if names is None else f"the columns {', '.join(names)}"
    raise InputError(f"{where} has {listed}; there is no column {chosen!r} for {role}.")


def _not_found(missing: list[str], names: Sequence[str] | None, n: int, where: str) -> str:
    if names is None:
        return f"{where} has only {n} columns; {' and '.join(missing)} cannot be found in it."
    return (
        f"{where} has the columns {', '.join(names)}, of which none is known as"
        f" {' or '.join(missing)}; say which is which with columns= (on the command line"
        " --columns user=...,item=...,rating=...)."
    )


def make_table(
    found: Mapping[str, pl.Series], *, text: bool = False, place: Place = row_place
) -> Table:
    """Check and convert the columns of a table.

    Parameters
    ----------
    found
        Role to column.
    text
        Whether the columns come from a text file: then ids that are all integers in
        their usual form become integers, and an empty id is a missing one.
    place
        Says where a row is in error messages.
    """
    import polars as pl

    id_column = text_ids if text else _plain_ids
    rating, timestamp = found.get("rating"), found.get("timestamp")
    try:
        return Table(
            id_column(found["user"], "user", place),
            id_column(found["item"], "item", place),
            None if rating is None else ratings_column(rating, place),
            None if timestamp is None else timestamps_column(timestamp, place),
        )
    except pl.exceptions.PolarsError as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"The columns cannot be read as ratings: {reason}.") from None


def _plain_ids(column: pl.Series, what: str, place: Place) -> pl.Series:
    import polars as pl

    return pl.Series(as_ids(column, what=f"{what} id", place=place))


def text_ids(column: pl.Series, what: str, place: Place) -> pl.Series:
    """Read a column of ids from text; integers only if every one is in its usual form."""
    if column.dtype.is_integer():
        return column
    numbers = canonical_ints(column)
    if not numbers.null_count():
        return numbers
    stripped = column.str.strip_chars()
    missing = stripped.is_null() | (stripped == "")
    if missing.any():
        raise InputError(f"{place(first(missing))}: the {what} id is missing.")
    numbers = canonical_ints(stripped)
    return stripped if numbers.null_count() else numbers


def ratings_column(column: pl.Series, place: Place) -> pl.Series:
    """Read a column of ratings: finite numbers."""
    import polars as pl

    if column.dtype in (pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
    numbers = _floats(column)
    # Ratings are kept in single precision; what overflows there is refused here.
    bad = ~numbers.cast(pl.Float32, strict=False).is_finite().fill_null(False)
    if bad.any():
        row = first(bad)
        if column[row] is None or column[row] == "":
            raise InputError(f"{place(row)}: the rating is missing.")
        raise InputError(
            f"{place(row)}: rating {column[row]!r} is not a number that can be used;"
            " ratings are finite numbers."
        )
    return numbers


def timestamps_column(column: pl.Series, place: Place) -> pl.Series:
    """Read a column of timestamps: integers as they are, dates as epoch seconds."""
    import polars as pl

    if column.dtype in (pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
    if column.dtype.is_temporal():
        seconds = column.cast(pl.Datetime("us"), strict=False).dt.epoch("s")
    elif column.dtype == pl.String:
        seconds = _text_seconds(column)
    else:
        seconds = column.cast(pl.Int64, strict=False)
    if seconds.null_count():
        row = first(seconds.is_null())
        if column[row] is None or column[row] == "":
            raise InputError(
                f"{place(row)}: the timestamp is missing; leave timestamps out with"
                " columns={'timestamp': None}."
            )
        raise InputError(
            f"{place(row)}: timestamp {column[row]!r} is neither a number nor an ISO date"
            " (2024-12-31 or 2024-12-31T23:59:59)."
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
        # Some exact integers have no exact double: keep those that were read as integers.
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


def first(mask: pl.Series) -> int:
    """Give the position of the first true value."""
    return int(np.argmax(mask.fill_null(False).to_numpy()))


def table_of(data: Any, columns: Columns | None = None) -> Table | None:
    """Make a table of in-memory data, None when it is of no known type.

    Parameters
    ----------
    data
        What :meth:`bayesmf.ratings.Ratings.of` takes, but for paths.
    columns
        Column of each role, where ``data`` has named columns.
    """
    import polars as pl

    if hasattr(data, "tocoo"):
        return _of_sparse(data)
    if isinstance(data, np.ndarray):
        return _of_array(data, columns)
    if isinstance(data, (tuple, list)):
        return _of_columns(data)
    if hasattr(data, "iloc") and hasattr(data, "columns"):
        return _of_pandas(data, columns)
    try:
        if isinstance(data, pl.LazyFrame):
            data = data.collect()
        elif hasattr(data, "__arrow_c_stream__") and not isinstance(data, pl.DataFrame):
            data = pl.DataFrame(data)
    except (pl.exceptions.PolarsError, TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"The {type(data).__name__} cannot be read: {reason}.") from None
    if isinstance(data, pl.DataFrame):
        return _of_frame(data.to_series, data.columns, data.width, columns)
    return None


def _of_pandas(data: Any, columns: Columns | None) -> Table:
    # Columns that pandas itself numbered have no names.
    unnamed = list(data.columns) == list(range(data.shape[1]))
    names = None if unnamed else [str(name) for name in data.columns]
    return _of_frame(lambda at: data.iloc[:, at], names, data.shape[1], columns)


def _of_frame(
    column: Any, names: Sequence[str] | None, count: int, columns: Columns | None
) -> Table:
    found = find_columns(names, count, columns, TRIPLE, "The table")
    return make_table({role: to_series(column(at), role) for role, at in found.items()})


def _of_columns(data: Sequence[Any]) -> Table:
    if len(data) == 4 and data[3] is None:
        data = data[:3]
    if len(data) not in (3, 4) or not all(hasattr(column, "__len__") for column in data):
        raise InputError(
            f"A {type(data).__name__} of ratings holds 3 or 4 columns of equal length: users,"
            " items, ratings and perhaps timestamps."
        )
    found = {role: to_series(column, role) for role, column in zip(ROLES, data, strict=False)}
    lengths = {role: len(column) for role, column in found.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{role} {length:,}" for role, length in lengths.items())
        raise InputError(f"The columns of ratings are not of equal length: {told}.")
    return make_table(found)


def _of_array(data: np.ndarray[Any, Any], columns: Columns | None) -> Table:
    if data.ndim != 2 or data.shape[1] not in (3, 4):
        raise InputError(
            f"An array of shape {data.shape} is not a table of ratings; pass an array with the"
            " 3 or 4 columns user, item, rating (and timestamp), or a SciPy sparse matrix of"
            " users x items, where an absent cell is not a rating."
        )
    return _of_frame(lambda at: data[:, at], None, data.shape[1], columns)


def _of_sparse(data: Any) -> Table:
    if len(data.shape) != 2:
        raise InputError(f"A sparse array of ratings is users x items, not {data.shape}.")
    cells = data.tocoo()
    rows, cols = (np.asarray(part, dtype=np.int64) for part in (cells.row, cells.col))
    return _of_columns((rows, cols, np.asarray(cells.data)))
