"""Columns of any kind as polars series, or a sentence that says which value is in the way."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Set
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.errors import InputError, polars_errors
from bayesmf.wording import cut

if TYPE_CHECKING:
    import polars as pl

Where = Callable[[int], str]
"""Says where a row is, for error messages: ``where(16)`` may be ``"a.csv line 17"``."""


# Units of NumPy's dates that are longer than a microsecond.
_WIDE_UNITS = ("Y", "M", "W", "D", "h", "m", "s", "ms")


_NO_VALUES = (list, tuple, dict, set, frozenset, np.ndarray)


def memory_row(row: int) -> str:
    """Say where a row of in-memory data is."""
    return f"row {row} (counting from 0)"


def to_series(values: Any, what: str) -> pl.Series:
    """Make a polars series of any one-dimensional column.

    Parameters
    ----------
    values
        A list, tuple or range, a NumPy array, a pandas series, index or array, an Arrow array or
        a polars series.
    what
        What to call a value in error messages.

    Returns
    -------
    polars.Series
        The values; null where one is missing.

    Raises
    ------
    InputError
        If it is no column, or its values are not of one type.

    Examples
    --------
    >>> from bayesmf.ids.series import to_series
    >>> to_series(range(3), "user id").to_list()
    [0, 1, 2]
    """
    import polars as pl

    if isinstance(values, pl.Series):
        return refuse_odd(values, what)
    refuse_no_column(values, what)
    values = from_pandas(values, what)
    if isinstance(values, list | tuple):
        values = _unmasked(values)
    try:
        if isinstance(values, np.ndarray):
            made = _from_numpy(values, what)
        else:
            if isinstance(values, list | tuple):
                _refuse_mixture(values, what)
            made = _from_values(values)
    except InputError:
        raise
    except polars_errors(TypeError, ValueError, OverflowError, AttributeError, IndexError):
        listed = values.tolist() if isinstance(values, np.ndarray) else values
        raise InputError(explanation(listed, what)) from None
    return refuse_odd(made, what)


def first_true(mask: pl.Series) -> int:
    """Give the position of the first true value."""
    return int(mask.fill_null(False).arg_max() or 0)


def refuse_no_column(values: Any, what: str) -> None:
    # polars would take a string for the name of an empty column, and a set has no order.
    if values is None or isinstance(values, str | bytes | bytearray | Set | Mapping):
        raise InputError(
            f"The {what} column is a {type(values).__name__}, not a column of values; pass a list,"
            " a NumPy array or a series"
        )
    if isinstance(values, np.ndarray) and values.ndim != 1:
        mend = "; pass array.ravel()" if values.size == max(values.shape, default=0) else ""
        raise InputError(
            f"The {what} column is an array of shape {values.shape}, not a column with one"
            f" dimension{mend if values.ndim else ''}"
        )
    if hasattr(values, "columns"):
        raise InputError(
            f"The {what} column is a table with {len(values.columns)} columns; pass one column"
            " of it"
        )


def refuse_odd(column: pl.Series, what: str, where: Where = memory_row) -> pl.Series:
    """Refuse what is neither a number, text, a truth value nor a time: lists, bytes, objects."""
    import polars as pl

    kind = column.dtype
    plain = kind in (pl.Boolean, pl.String, pl.Categorical, pl.Enum, pl.Null)
    if plain or kind.is_numeric() or kind.is_temporal() or not len(column):
        return column
    row = first_true(column.is_not_null())
    told = type(column[row]).__name__ if kind == pl.Object else str(kind)
    raise InputError(
        f"The {what} column holds {cut(told, 60)} values, as at {where(row)}; pass a column of"
        " numbers or of text"
    )


def _unmasked(values: list[Any] | tuple[Any, ...]) -> list[Any] | tuple[Any, ...]:
    """Put None where NumPy's mark of a masked value stands, which is a zero to others."""
    if type(np.ma.masked) in set(map(type, values)):
        return [None if value is np.ma.masked else value for value in values]
    return values


def _refuse_mixture(values: list[Any] | tuple[Any, ...], what: str) -> None:
    """Refuse lists and the like, and truth among numbers, which polars takes for ones and zeros."""
    types = set(map(type, values)) - {type(None)}
    mixed = types & {bool, np.bool_} and types - {bool, np.bool_}
    # polars would take some of these, and break on others of them.
    if mixed or any(issubclass(kind, _NO_VALUES) for kind in types):
        raise InputError(explanation(values, what))


def from_pandas(values: Any, what: str) -> Any:
    """What pandas holds, as a list or a NumPy array; anything else as it is."""
    pandas = sys.modules.get("pandas")  # whoever has such a column has imported it
    if pandas is None:
        return values
    if isinstance(values, pandas.MultiIndex):
        raise InputError(f"The {what} column is a pandas MultiIndex; pass one of its levels")
    if isinstance(values, pandas.Index | pandas.api.extensions.ExtensionArray):
        values = pandas.Series(values)
    if not isinstance(values, pandas.Series):
        return values
    try:
        missing = values.isna()
    except (TypeError, ValueError):  # of what it holds pandas cannot say so
        raise InputError(explanation(values.tolist(), what)) from None
    if getattr(values.dtype, "tz", None) is not None:
        values = values.dt.tz_convert("UTC").dt.tz_localize(None)
    if missing.any() and (not isinstance(values.dtype, np.dtype) or values.dtype.kind == "O"):
        # pandas has several marks for a missing value; polars knows only None.
        return values.astype(object).where(~missing, None).tolist()
    return values.to_numpy()


def _from_numpy(values: NDArray[Any], what: str) -> pl.Series:
    import polars as pl

    if values.dtype.kind in "OUT":
        listed = _unmasked(values.tolist())  # None where a value is masked
        _refuse_mixture(listed, what)
        return _from_values(listed)
    if isinstance(values, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(values)
        return _from_numpy(values.data, what).set(pl.Series(mask), None)
    if values.dtype.kind == "c":
        raise InputError(f"The {what} column holds complex numbers; pass real ones, as x.real")
    if values.dtype.kind in "mM":
        return _from_times(values, what)
    if values.dtype.kind == "f" and values.dtype.itemsize not in (4, 8):
        values = values.astype(np.float64)
    elif not values.dtype.isnative:
        values = values.astype(values.dtype.newbyteorder("="))
    return pl.Series(np.ascontiguousarray(values))


def _from_times(values: NDArray[Any], what: str) -> pl.Series:
    """Dates in microseconds: polars knows few of NumPy's units."""
    import polars as pl

    if values.dtype.kind == "m":
        raise InputError(f"The {what} column holds durations; pass numbers, or dates for times")
    made = values.astype("datetime64[us]")
    wide = np.datetime_data(values.dtype)[0] in _WIDE_UNITS
    # NumPy does not say so where a date does not fit.
    if wide and np.any((made.astype(values.dtype) != values) & ~np.isnat(values)):
        raise InputError(f"The {what} column holds dates that are too far away to be stored")
    return pl.Series(np.ascontiguousarray(made))


def _from_values(values: Any) -> pl.Series:
    import polars as pl

    try:
        return pl.Series(values)
    except TypeError:
        # [4, 3.5]: integers and floats together are floats.
        return pl.Series(values, dtype=pl.Float64)


def explanation(values: Any, what: str) -> str:
    """Say which value prevents a column from being of one type."""
    kind = ""
    for row, value in enumerate(values if isinstance(values, Iterable) else ()):
        found = _kind(value)
        if found == "missing":
            return f"The {what} at {memory_row(row)} is missing"
        if kind and found != kind:
            return (
                f"The {what} column mixes {kind} and {found}: {cut(repr(value), 40)} at"
                f" {memory_row(row)}; make them all numbers or all text"
            )
        kind = found
    if kind not in ("", "text", "numbers"):
        return f"The {what} column holds {kind} from {memory_row(0)} on; pass numbers or text"
    return (
        f"The {what} column is not a one-dimensional column of values of one type;"
        " pass a list, a NumPy array or a series of numbers or strings"
    )


def _kind(value: Any) -> str:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return "missing"
    if isinstance(value, bool | np.bool_):
        return "true or false"
    if isinstance(value, int | float | np.number):
        return "missing" if value != value else "numbers"
    return "text" if isinstance(value, str) else f"{type(value).__name__} values"
