"""Columns of ids as NumPy's integers or as strings, without polars: for answers, whoever asks.

What may come is what `series` takes; the sentences for what is no id are the same.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.errors import InputError
from bayesmf.ids.series import (
    Where,
    explanation,
    from_pandas,
    memory_row,
    refuse_no_column,
    to_series,
)
from bayesmf.ids.strings import Strings

Integers = NDArray[np.int64]
_INT64 = np.iinfo(np.int64)


def id_column(values: Any, *, what: str = "id", where: Where = memory_row) -> Integers | Strings:
    """Bring a column of ids to integers or strings.

    Parameters
    ----------
    values
        NumPy array, list, polars, pandas or Arrow column of integers or strings; floats are taken
        when they are whole numbers (pandas makes them of integers).
    what
        What to call a value in error messages.
    where
        Says where a row is in error messages.

    Returns
    -------
    numpy.ndarray or Strings
        An ``int64`` array, or strings.

    Raises
    ------
    InputError
        If a value is missing or no id, or they are not of one kind.
    """
    found = plain_column(values, what)
    if isinstance(found, np.ndarray):
        return _of_array(found, what, where)
    return _of_list(found, what, where)


def plain_column(values: Any, what: str) -> NDArray[Any] | Sequence[Any]:
    """What holds a column, as a NumPy array of numbers or times, or as a list.

    Parameters
    ----------
    values
        What :func:`bayesmf.ids.series.to_series` takes.
    what
        What to call a value in error messages.
    """
    polars = sys.modules.get("polars")  # whoever has such a column has imported it
    if polars is not None and isinstance(values, polars.Series):
        # No more than is asked of polars here works without its threads.
        found: NDArray[Any] | list[Any]
        found = values.to_list() if _needs_list(values) else values.to_numpy()
        return found
    refuse_no_column(values, what)
    values = from_pandas(values, what)
    if isinstance(values, np.ndarray):
        listed = isinstance(values, np.ma.MaskedArray) or values.dtype.kind in "OUT"
        return values.tolist() if listed else values
    if isinstance(values, list | tuple | range):
        return values
    arrow = hasattr(values, "__arrow_c_array__") or hasattr(values, "__arrow_c_stream__")
    if arrow or not isinstance(values, Iterable):
        return plain_column(to_series(values, what), what)
    return list(values)


def _needs_list(series: Any) -> bool:
    return bool(series.null_count()) or not series.dtype.is_numeric() or series.dtype.is_decimal()


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
                f"The {what} {values[row]:.0f} at {where(row)} is a float, which cannot tell"
                f" integers above {whole:.0f} apart: pass ids as integers or as text"
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
        except TypeError:  # a value is no string
            pass
    kinds = set(map(type, values))
    if all(issubclass(kind, _WHOLE) and not issubclass(kind, _NO_NUMBERS) for kind in kinds):
        try:
            return np.array(values, np.int64)
        except OverflowError:
            pass
    for row, value in enumerate(values):
        if value is None or type(value).__name__ in ("NAType", "NaTType") or _is_nan(value):
            raise InputError(f"The {what} at {where(row)} is missing")
    no_numbers = (*_TRUTH, *_NO_NUMBERS)
    if all(issubclass(kind, _NUMBERS) and not issubclass(kind, no_numbers) for kind in kinds):
        return np.array([_whole(v, what, where, row) for row, v in enumerate(values)], np.int64)
    if len(kinds) == 1 or all(issubclass(kind, _TRUTH) for kind in kinds):
        raise InputError(_no_ids(kinds.pop().__name__, what, where))
    raise InputError(explanation(values, what))


_TRUTH = (bool, np.bool_)
_WHOLE = (int, np.integer)
_NO_NUMBERS = (bool, np.timedelta64)  # which are integers to Python and NumPy
_NUMBERS = (int, float, np.integer, np.floating)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float | np.floating) and bool(value != value)


def _whole(value: Any, what: str, where: Where, row: int) -> int:
    """One by one, where integers and floats are mixed: an array of floats would lose digits."""
    if isinstance(value, int | np.integer) or float(value).is_integer():
        number = int(value)
        if _INT64.min <= number <= _INT64.max:
            return number
    raise InputError(_no_integer(value, what, where(row)))


def _no_integer(value: Any, what: str, where: str) -> str:
    return f"The {what} {value} at {where} is not a 64-bit integer; ids are integers or strings"


def _no_ids(kind: str, what: str, where: Where) -> str:
    return f"The {what} column holds {kind} values from {where(0)} on; ids are integers or strings"
