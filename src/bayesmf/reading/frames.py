"""One view of all that holds columns in memory: their names, if any, and each by position."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bayesmf.errors import InputError, polars_errors, reason_of
from bayesmf.reading.columns import recognise
from bayesmf.system.forks import check_polars

_CHECKED = 200  # rows that are looked at for signs of another order


class Frame(NamedTuple):
    """Columns, whatever holds them."""

    names: list[str] | None
    """Their names, None where they have none."""
    width: int
    """How many there are."""
    column: Callable[[int], Any]
    """Gives the one at a position."""
    rows: list[list[str]]
    """The first rows as text, where nobody has said which column is which by giving them apart."""
    advice: str = ""
    """What to do where a column is not found."""


def frame_of(data: Any, need: Sequence[str]) -> Frame | None:
    """Look at in-memory data as columns, None when they are of no known type.

    Parameters
    ----------
    data
        What :func:`bayesmf.reading.memory.table_of` takes, but for sparse matrices.
    need
        The roles that will be looked for, which tell how many columns to expect.

    Raises
    ------
    InputError
        If rows cannot be told from columns, or there are none.
    """
    if isinstance(data, Iterator) and not isinstance(data, io.IOBase):
        data = list(data)
    if isinstance(data, np.ndarray):
        return _of_array(data, need)
    if isinstance(data, tuple):
        return _of_columns(data, need)
    if isinstance(data, list):
        return _of_list(data, need)
    if isinstance(data, Mapping):
        return _of_mapping(data, need)
    if hasattr(data, "iloc"):
        return _of_pandas(data, need)
    return _of_arrow(data)


def _what(need: Sequence[str]) -> str:
    return "ratings" if "rating" in need else "pairs"


def _of_array(data: np.ndarray[Any, Any], need: Sequence[str]) -> Frame:
    if data.dtype.names is not None and data.ndim == 1:
        names = list(data.dtype.names)
        return Frame(names, len(names), lambda at: data[names[at]], [])
    if data.ndim != 2 or data.shape[1] < len(need):
        if "rating" not in need:
            raise InputError(
                f"An array of shape {data.shape} is not a table of pairs; pass an array with the"
                " 2 columns user, item"
            )
        raise InputError(wrong_shape(data.shape))
    # A masked array stays one, so that what is masked is missing.
    table = data if isinstance(data, np.ma.MaskedArray) else np.asarray(data)
    return Frame(None, table.shape[1], lambda at: table[:, at], _texts(table[:_CHECKED].tolist()))


def wrong_shape(shape: tuple[int, ...]) -> str:
    """Say that an array is no table of ratings."""
    return (
        f"An array of shape {shape} is not a table of ratings; pass an array with the"
        " 3 or 4 columns user, item, rating (and timestamp), name the columns of a wider one by"
        " position with columns=, or pass a SciPy sparse matrix of users x items, where an absent"
        " cell is not a rating"
    )


def _texts(rows: Sequence[Sequence[Any]]) -> list[list[str]]:
    return [["" if value is None else str(value) for value in row] for row in rows]


def _of_columns(data: Sequence[Any], need: Sequence[str]) -> Frame:
    if len(data) == 4 and data[3] is None:
        data = data[:3]
    sized = all(hasattr(column, "__len__") and not isinstance(column, str) for column in data)
    if not len(need) <= len(data) <= 4 or not sized:
        held = (
            "3 or 4 columns of equal length: users, items, ratings and perhaps timestamps"
            if "rating" in need
            else "the columns users and items"
        )
        row = f"rows ({', '.join(need)})"
        told = f"{row}, or {held}" if isinstance(data, list) else f"{held}; {row} go in a list"
        raise InputError(f"A {type(data).__name__} of {_what(need)} holds {told}")
    return Frame(None, len(data), lambda at: data[at], [])


def _of_list(data: list[Any], need: Sequence[str]) -> Frame:
    if not data:
        return Frame(None, len(need), lambda at: [], [])
    if all(isinstance(row, Mapping) for row in data):
        names = list(dict.fromkeys(str(name) for row in data for name in row))
        return Frame(names, len(names), lambda at: [row.get(names[at]) for row in data], [])
    if not all(isinstance(row, tuple | list) for row in data):
        return _of_columns(data, need)
    fields = getattr(data[0], "_fields", None)
    if fields is None and _are_columns(data, need):
        return _of_columns(data, need)
    width = len(data[0])
    short = next((k for k, row in enumerate(data) if len(row) != width), None)
    if short is not None:
        raise InputError(
            f"Row {short} (counting from 0) has {len(data[short])} values, row 0 has {width}"
        )
    if width < len(need):
        raise InputError(
            f"The rows of the list have {width} values; a row of {_what(need)} is"
            f" ({', '.join(need)})"
        )
    named = None if fields is None else list(fields)
    return Frame(named, width, lambda at: [row[at] for row in data], _texts(data[:_CHECKED]))


def _are_columns(data: list[Any], need: Sequence[str]) -> bool:
    """Tell whether lists in a list are columns; tuples are rows. Refuse where it may be both."""
    counts = (3, 4) if "rating" in need else (2,)
    widths = range(len(need), 5)
    tuples = any(isinstance(row, tuple) for row in data)
    if len(data) not in counts or tuples:
        return False
    if any(len({isinstance(value, str) for value in row}) == 2 for row in data):
        return False  # text and numbers together are no column
    if all(len(row) in widths for row in data):
        n, what = len(data), _what(need)
        raise InputError(
            f"A list of {n} {type(data[0]).__name__}s of {len(data[0])} may be {n} rows or {n}"
            f" columns of {what}; pass columns as a tuple of lists, rows as a list of tuples"
        )
    return True


def _of_mapping(data: Mapping[Any, Any], need: Sequence[str]) -> Frame:
    named = all(isinstance(name, str) for name in data)
    if not named or not data or any(isinstance(column, Mapping) for column in data.values()):
        example = ", ".join(f"'{role}': [...]" for role in need)
        raise InputError(
            f"A dict of {_what(need)} holds columns by their names, {{{example}}}, and nothing else"
        )
    names = list(data)
    return Frame(names, len(names), lambda at: data[names[at]], [])


def _of_pandas(data: Any, need: Sequence[str]) -> Frame:
    if not hasattr(data, "columns"):
        raise InputError(
            f"A pandas {type(data).__name__} is one column, not a table of {_what(need)}; pass a"
            " data frame, for example with reset_index()"
        )
    # Columns that pandas itself numbered have no names.
    numbered = list(data.columns) == list(range(data.shape[1]))
    named = any(recognise([str(name) for name in data.columns], role) for role in need)
    if data.columns.name is not None and not named:
        raise InputError(
            "The data frame has a row for each user and a column for each item; turn it into rows"
            " of user, item and rating, for example with stack() and reset_index()"
        )
    names = None if numbered else [str(name) for name in data.columns]
    rows = _texts(data.head(_CHECKED).to_numpy(dtype=object).tolist()) if numbered else []
    index = [str(name) for name in data.index.names if name is not None]
    aside = [name for name in index if any(recognise([name], role) for role in need)]
    advice = f"; the index has {', '.join(aside)}: reset_index() makes columns of it"
    return Frame(names, data.shape[1], lambda at: data.iloc[:, at], rows, advice if aside else "")


def _of_arrow(data: Any) -> Frame | None:
    import polars as pl

    if isinstance(data, pl.Series):
        raise InputError("A polars Series is one column; pass a data frame")
    try:
        if isinstance(data, pl.LazyFrame):
            check_polars("collecting a lazy frame")
            data = data.collect()
        elif hasattr(data, "__arrow_c_stream__") and not isinstance(data, pl.DataFrame):
            data = _streamed(data)
    except polars_errors(TypeError, ValueError) as error:
        raise InputError(f"The {type(data).__name__} cannot be read: {reason_of(error)}") from None
    if not isinstance(data, pl.DataFrame):
        return None
    return Frame(data.columns, data.width, data.to_series, [])


def _streamed(data: Any) -> Any:
    """Read a table of another library, whose query may run only now: any error of it counts."""
    import polars as pl

    try:
        return pl.DataFrame(data)
    except MemoryError:
        raise
    except Exception as error:
        raise ValueError(reason_of(error)) from None
