"""The history of a fit as one array, for model folders."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.chains.callbacks import Event
from bayesmf.errors import InputError

HISTORY_COLUMNS = tuple(field.name for field in fields(Event))


def history_array(events: Sequence[Mapping[str, Any]]) -> NDArray[np.float64]:
    """Events as rows, their fields as columns; None is NaN.

    Doubles keep every field as it is: counts stay far below 2^53.
    """
    rows = [[math.nan if e[name] is None else e[name] for name in HISTORY_COLUMNS] for e in events]
    return np.array(rows, np.float64).reshape(len(rows), len(HISTORY_COLUMNS))


def history_events(columns: Sequence[str], array: NDArray[np.float64]) -> list[dict[str, Any]]:
    """Events from an array. A folder of another version may have other columns."""
    if array.ndim != 2 or array.shape[1] != len(columns):
        raise InputError("the history does not fit its columns: fit again")
    readers = [_READERS.get(_TYPES.get(name, ""), _number) for name in columns]
    try:
        return [
            {name: read(value) for name, read, value in zip(columns, readers, row, strict=True)}
            for row in array.tolist()
        ]
    except (ValueError, OverflowError):  # no whole number
        raise InputError("the history holds a count that is none: fit again") from None


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


_TYPES = {field.name: str(field.type) for field in fields(Event)}
_READERS: dict[str, Callable[[float], Any]] = {"int": int, "bool": bool, "float": float}
