"""Columns of ids by polars, for many: brought to one of two forms, and numbered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.errors import InputError
from bayesmf.ids.series import Where, first_true, memory_row, to_series
from bayesmf.system.forks import polars_is_lost

if TYPE_CHECKING:
    import polars as pl

# A lookup table over the whole range of integer ids beats hashing while it stays about as
# small as the data; ids spread over a wider range go through polars' hash tables.
_TABLE_SLACK = 1 << 22


def as_ids(
    values: Any, *, what: str = "id", where: Where = memory_row
) -> NDArray[np.int64] | pl.Series:
    """Bring a column of ids to one of the two forms used here.

    Parameters
    ----------
    values
        NumPy array, list, polars, pandas or Arrow column of integers or strings; floats
        are taken when they are whole numbers (pandas makes them of integers).
    what
        What to call a value in error messages.
    where
        Says where a row is in error messages.

    Returns
    -------
    numpy.ndarray or polars.Series
        An ``int64`` array, or a series of strings.
    """
    import polars as pl

    column = to_series(values, what)
    dtype = column.dtype
    if dtype.is_float():
        column = column.fill_nan(None)
    if column.null_count():
        raise InputError(f"The {what} at {where(first_true(column.is_null()))} is missing")
    if dtype.is_integer() or dtype.is_float():
        numbers = column.cast(pl.Int64, strict=False)
        bad = numbers.is_null()
        if dtype.is_float():
            bad |= column != column.floor()
        if bad.any():
            row = first_true(bad)
            raise InputError(
                f"The {what} {column[row]} at {where(row)} is not a 64-bit integer;"
                " ids are integers or strings"
            )
        return numbers.to_numpy()
    if dtype in (pl.String, pl.Categorical, pl.Enum):
        return column.cast(pl.String)
    if not len(column):
        return np.empty(0, dtype=np.int64)
    raise InputError(
        f"The {what} column holds {dtype} values from {where(0)} on; ids are integers or strings"
    )


def encode_ids(
    column: NDArray[np.int64] | pl.Series,
) -> tuple[NDArray[np.int64] | pl.Series, NDArray[np.int32]]:
    """Give the distinct ids, ascending, and the position among them of every value.

    Parameters
    ----------
    column
        What :func:`as_ids` gave.
    """
    if isinstance(column, np.ndarray):
        return _encode_ints(column)
    unique = column.unique().sort()
    return unique, _positions(column, unique).astype(np.int32)


def canonical_ints(texts: pl.Series) -> pl.Series:
    """Read strings as integers; null where the text is not an integer's usual form."""
    import polars as pl

    numbers = texts.cast(pl.Int64, strict=False)
    # What was read as an integer but does not look like one: "007", "+7", "-0".
    padded = texts.str.starts_with("0") & (texts.str.len_bytes() > 1)
    unusual = padded | texts.str.starts_with("+") | texts.str.starts_with("-0")
    return numbers.set(unusual, None) if unusual.any() else numbers


def _encode_ints(values: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    import polars as pl

    if not len(values):
        return values, np.empty(0, dtype=np.int32)
    low, high = int(values.min()), int(values.max())
    if high - low < len(values) + _TABLE_SLACK:
        shifted = values - low
        seen = np.zeros(high - low + 1, dtype=bool)
        seen[shifted] = True
        codes = np.cumsum(seen, dtype=np.int32) - np.int32(1)
        return np.flatnonzero(seen).astype(np.int64) + low, codes[shifted]
    column = pl.Series(values)
    unique = column.unique().sort()
    return unique.to_numpy(), _positions(column, unique).astype(np.int32)


def _positions(values: pl.Series, among: pl.Series) -> NDArray[np.int64]:
    import polars as pl

    if not len(among) or not len(values):
        return np.full(len(values), -1, dtype=np.int64)
    rows = pl.Series(np.arange(len(among), dtype=np.int64))
    return values.replace_strict(among, rows, default=-1, return_dtype=pl.Int64).to_numpy()


def count_distinct(values: NDArray[np.int64]) -> int:
    """How many different numbers there are."""
    if polars_is_lost():
        return len(np.unique(values))
    import polars as pl

    return int(pl.Series(values).n_unique())
