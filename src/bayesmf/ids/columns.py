"""Conversion of columns of any kind to arrays, lists or strings; errors name the bad value.

polars is not imported here: a caller with a column of polars or Arrow has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from bayesmf.errors import InputError, polars_errors
from bayesmf.ids.strings import Strings
from bayesmf.wording import cut

Integers = NDArray[np.int64]
Where = Callable[[int], str]
"""Position of a row, for error messages: ``where(16)`` may be ``"a.csv line 17"``."""

_INT64 = np.iinfo(np.int64)
_PLAIN_INTEGERS = ("Int8", "Int16", "Int32", "Int64")
_TRUTH = (bool, np.bool_)
_WHOLE = (int, np.integer)
_NO_NUMBERS = (bool, np.timedelta64)  # integers to Python and to NumPy
_NUMBERS = (int, float, np.integer, np.floating)


def memory_row(row: int) -> str:
    """Position of a row of in-memory data."""
    return f"row {row} (counting from 0)"


def id_column(values: Any, *, what: str = "id", where: Where = memory_row) -> Integers | Strings:
    """Convert a column of ids to integers or strings.

    Parameters
    ----------
    values
        NumPy array, list, polars, pandas or Arrow column of integers or strings; floats
        are taken when they are whole numbers (pandas makes them of integers).
    what
        Name of a value in error messages.
    where
        Position of a row in error messages.

    Raises
    ------
    InputError
        If a value is missing or not an id, or the values are not of one kind.
    """
    if isinstance(values, Strings):
        return values
    series = polars_series(values, what)
    if series is not None and len(series) and _is_text(series):
        return text_column(series, what, where)
    found = plain_column(values if series is None else series, what)
    if isinstance(found, np.ndarray):
        return _of_array(found, what, where)
    return _of_list(found, what, where)


def text_column(series: Any, what: str, where: Where) -> Strings:
    """Strings of a polars series of text."""
    series = series.cast(sys.modules["polars"].String)
    if series.null_count():
        raise InputError(f"The {what} at {where(int(series.is_null().arg_max()))} is missing")
    return Strings.from_series(series)


def plain_column(values: Any, what: str) -> NDArray[Any] | Sequence[Any]:
    """A column as a NumPy array of numbers or times, or as a list; None for a missing value.

    Parameters
    ----------
    values
        NumPy array, list, polars, pandas or Arrow column.
    what
        Name of a value in error messages.

    Raises
    ------
    InputError
        If it is not a column.
    """
    series = polars_series(values, what)
    if series is not None:
        plain = series.dtype.is_float() or str(series.dtype).removeprefix("U") in _PLAIN_INTEGERS
        listed = series.null_count() or not plain
        return cast("NDArray[Any] | list[Any]", series.to_list() if listed else series.to_numpy())
    _refuse_no_column(values, what)
    values = _from_pandas(values, what)
    if isinstance(values, np.ndarray):
        if not isinstance(values, np.ma.MaskedArray) and values.dtype.kind not in "OUT":
            return values
        values = values.tolist()
    if not isinstance(values, Iterable):
        raise InputError(explanation(values, what))
    made: Sequence[Any] = values if isinstance(values, list | tuple | range) else list(values)
    if not isinstance(made, range) and type(np.ma.masked) in set(map(type, made)):
        return [None if value is np.ma.masked else value for value in made]
    return made


def polars_series(values: Any, what: str) -> Any:
    """A polars series of a polars or an Arrow column, None of any other."""
    polars = sys.modules.get("polars")
    if polars is not None and isinstance(values, polars.Series):
        return values
    pandas = sys.modules.get("pandas")
    if isinstance(values, np.ndarray | list | tuple) or hasattr(values, "columns"):
        return None
    if pandas is not None and isinstance(values, pandas.Series | pandas.Index):
        return None
    if not (hasattr(values, "__arrow_c_array__") or hasattr(values, "__arrow_c_stream__")):
        return None
    import polars as pl

    try:
        return pl.Series(values)
    except polars_errors(TypeError, ValueError, OverflowError):
        raise InputError(explanation(values, what)) from None


def explanation(values: Any, what: str) -> str:
    """Sentence on the value that prevents a column from being of one type."""
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


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, or the mark of pandas for a missing one."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and bool(value != value)


def _kind(value: Any) -> str:
    if is_missing(value):
        return "missing"
    if isinstance(value, _TRUTH):
        return "true or false"
    if isinstance(value, int | float | np.number) and not isinstance(value, np.timedelta64):
        return "numbers"
    return "text" if isinstance(value, str) else f"{type(value).__name__} values"


def _is_text(series: Any) -> bool:
    polars = sys.modules["polars"]
    return series.dtype in (polars.String, polars.Categorical, polars.Enum)


def _refuse_no_column(values: Any, what: str) -> None:
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


def _from_pandas(values: Any, what: str) -> Any:
    """A pandas column as a list or a NumPy array; anything else unchanged."""
    pandas = sys.modules.get("pandas")
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
    except (TypeError, ValueError):  # raised by isna for some objects
        raise InputError(explanation(values.tolist(), what)) from None
    if getattr(values.dtype, "tz", None) is not None:
        values = values.dt.tz_convert("UTC").dt.tz_localize(None)
    if missing.any() and (not isinstance(values.dtype, np.dtype) or values.dtype.kind == "O"):
        return values.astype(object).where(~missing, None).tolist()
    return values.to_numpy()


def _of_array(values: NDArray[Any], what: str, where: Where) -> Integers:
    kind = values.dtype.kind
    if kind == "i" or (kind == "u" and values.dtype.itemsize < 8) or not len(values):
        return values.astype(np.int64, copy=False)
    if kind not in "uf":
        raise InputError(_no_ids(str(values.dtype), what, where))
    if kind == "u":
        bad = values > np.uint64(_INT64.max)
    else:
        whole = 2.0 ** (np.finfo(values.dtype).nmant + 1)
        values = values.astype(np.float64, copy=False)
        if (missing := np.isnan(values)).any():
            raise InputError(f"The {what} at {where(int(missing.argmax()))} is missing")
        if (far := np.isfinite(values) & (np.abs(values) > whole)).any():
            row = int(far.argmax())
            raise InputError(
                f"The {what} {values[row]:.0f} at {where(row)} is a float, which cannot hold"
                f" all integers above {whole:.0f}: pass ids as integers or as text"
            )
        bad = (values != np.floor(values)) | (values >= 2.0**63) | (values < -(2.0**63))
    if bad.any():
        row = int(bad.argmax())
        raise InputError(_no_integer(values[row], what, where(row)))
    return values.astype(np.int64)


def _of_list(values: Sequence[Any], what: str, where: Where) -> Integers | Strings:
    if not len(values):
        return np.empty(0, np.int64)
    if isinstance(values[0], str):
        try:
            return Strings.from_texts(values)
        except TypeError:  # a value is not a string
            pass
    kinds = set(map(type, values))
    if all(issubclass(kind, _WHOLE) and not issubclass(kind, _NO_NUMBERS) for kind in kinds):
        try:
            return np.array(values, np.int64)
        except OverflowError:
            pass
    for row, value in enumerate(values):
        if is_missing(value):
            raise InputError(f"The {what} at {where(row)} is missing")
    no_numbers = (*_TRUTH, *_NO_NUMBERS)
    if all(issubclass(kind, _NUMBERS) and not issubclass(kind, no_numbers) for kind in kinds):
        return np.array([_whole(v, what, where, row) for row, v in enumerate(values)], np.int64)
    if len(kinds) == 1 or all(issubclass(kind, _TRUTH) for kind in kinds):
        raise InputError(_no_ids(kinds.pop().__name__, what, where))
    raise InputError(explanation(values, what))


def _whole(value: Any, what: str, where: Where, row: int) -> int:
    """One value of a list that mixes integers and floats; an array of floats would lose digits."""
    if isinstance(value, int | np.integer) or float(value).is_integer():
        number = int(value)
        if _INT64.min <= number <= _INT64.max:
            return number
    raise InputError(_no_integer(value, what, where(row)))


def _no_integer(value: Any, what: str, where: str) -> str:
    return f"The {what} {value} at {where} is not a 64-bit integer; ids are integers or strings"


def _no_ids(kind: str, what: str, where: Where) -> str:
    return f"The {what} column holds {kind} values from {where(0)} on; ids are integers or strings"
