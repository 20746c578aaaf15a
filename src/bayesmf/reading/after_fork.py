"""A table of ratings where polars has lost its threads (system/forks.py): checked with NumPy alone.

Slower, and dates that are text are refused; all else is as `table` has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.checks import refuse_lost_digits
from bayesmf.errors import InputError
from bayesmf.ids.plain import id_column, plain_column
from bayesmf.ids.series import Where
from bayesmf.ids.strings import Strings
from bayesmf.system.forks import check_polars


def checked_columns(found: Mapping[str, Any], where: Where) -> dict[str, Any]:
    """The columns of a table by role: ids whole, ratings finite, times in seconds."""
    made: dict[str, Any] = {}
    for role, column in found.items():
        if role == "rating":
            made[role] = _ratings(column, where)
        elif role == "timestamp":
            made[role] = _seconds(column, where)
        else:
            ids = id_column(column, what=f"{role} id", where=where)
            made[role] = ids.to_list() if isinstance(ids, Strings) else ids
    return made


def _ratings(column: Any, where: Where) -> NDArray[np.float64]:
    values = plain_column(column, "rating")
    if isinstance(values, np.ndarray) and values.dtype.kind not in "iufb" and len(values):
        raise InputError(
            f"{where(0)}: the rating {str(values[0])!r} is {values.dtype}, not a number; is the"
            " rating in another column?"
        )
    if isinstance(values, np.ndarray) and values.dtype.kind in "iufb":
        numbers = values.astype(np.float64)
    else:
        numbers = np.array([_number(value) for value in values], np.float64)
    with np.errstate(over="ignore"):
        bad = ~np.isfinite(numbers.astype(np.float32))
    if bad.any():
        row = int(bad.argmax())
        if values[row] is None or values[row] == "":
            raise InputError(f"{where(row)}: the rating is missing")
        if np.isfinite(numbers[row]):
            raise InputError(
                f"{where(row)}: rating {values[row]!r} is too large for single precision;"
                " divide all ratings by a number"
            )
        raise InputError(
            f"{where(row)}: rating {values[row]!r} is not a number that can be used; ratings are"
            " finite numbers"
        )
    if len(numbers):
        refuse_lost_digits(float(numbers.min()), float(numbers.max()))
    return numbers


def _number(value: Any) -> float:
    try:
        return float("nan" if value is None or "_" in str(value) else value)
    except (TypeError, ValueError, OverflowError):
        return float("nan")


def _seconds(column: Any, where: Where) -> NDArray[np.int64]:
    values = plain_column(column, "timestamp")
    if not isinstance(values, np.ndarray) and all(type(value) is int for value in values):
        values = np.array(values, np.int64)
    if not isinstance(values, np.ndarray):
        check_polars("reading times that are no numbers")
    values = np.asarray(values)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise InputError(
            f"{where(int((~np.isfinite(values)).argmax()))}: the timestamp is missing; leave"
            " timestamps out with columns={'timestamp': None}"
        )
    far = values.dtype.kind in "uf" and len(values) and float(np.abs(values).max()) >= 2.0**63
    if far or values.dtype.kind not in "iufM":
        raise InputError(
            f"{where(0)}: the timestamps are no numbers of seconds that can be stored; leave them"
            " out with columns={'timestamp': None}"
        )
    if values.dtype.kind == "M":
        values = values.astype("datetime64[s]")
    return values.astype(np.int64)
