"""Tables of ratings and of pairs from in-memory data."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.errors import InputError, polars_errors, reason_of
from bayesmf.ids.columns import plain_column, polars_series
from bayesmf.ids.id_map import column_of
from bayesmf.reading.columns import (
    PAIR,
    ROLES,
    TRIPLE,
    Columns,
    check_columns,
    check_order,
    find_columns,
    recognise,
)
from bayesmf.reading.table import Ids, Table, make_table

__all__ = ["PAIR", "ROLES", "TRIPLE", "Columns", "Table", "pairs_of", "table_of", "table_with"]

_CHECKED = 200  # rows that are looked at for signs of another order
_WHERE = "The table"


def table_of(data: Any, columns: Columns | None = None) -> Table | None:
    """Make a table of in-memory ratings; None for an unknown type.

    Parameters
    ----------
    data
        A data frame, an Arrow table, an array with 3 or 4 columns (or named ones), a sparse
        matrix, a tuple of columns, a dict of columns, a list of rows (tuples or dicts).
    columns
        Column of each role, by name or by position from 0.

    Raises
    ------
    InputError
        If a column is not found, or a value cannot be used.

    Examples
    --------
    >>> from bayesmf.reading.memory import table_of
    >>> table_of([("ann", "Alien", 5.0), ("bob", "Alien", 2.0)]).rating.tolist()
    [5.0, 2.0]
    """
    if hasattr(data, "tocoo"):
        refuse_columns(columns, "a sparse matrix")
        rows, cols, values = _cells(data)
        return make_table({"user": rows, "item": cols, "rating": values})
    check_columns(columns)
    frame = frame_of(data, TRIPLE)
    if frame is None:
        return None
    if isinstance(data, np.ndarray) and frame.names is None and frame.width > 4 and not columns:
        raise InputError(wrong_shape(data.shape))
    found = _found(frame, columns, TRIPLE)
    return make_table(_chosen_columns(frame, found))


def pairs_of(data: Any, columns: Columns | None = None) -> tuple[Ids, Ids]:
    """Users and items of pairs; other columns are ignored.

    Parameters
    ----------
    data
        A data frame, an Arrow table, an array with two columns or those of a table of ratings,
        a tuple (users, items), a list of pairs, a dict of columns, a list of dicts, ratings, a
        sparse matrix (its stored cells), or the path of a file.  A list holds rows; a tuple
        holds columns.
    columns
        Column of each role, by name or by position from 0.

    Raises
    ------
    InputError
        If a column is not found, or an id cannot be used.

    Examples
    --------
    >>> from bayesmf.reading.memory import pairs_of
    >>> users, items = pairs_of([("ann", 10), ("bob", 20)])
    >>> list(users), items.tolist()
    (['ann', 'bob'], [10, 20])
    """
    check_columns(columns)
    if isinstance(data, str | os.PathLike):
        from bayesmf.reading.formats import read_pairs

        return read_pairs(data, columns)[:2]
    if _holds_ratings(data):
        refuse_columns(columns, "ratings")
        if not hasattr(data, "user_rows"):
            raise InputError(f"Pairs are not taken from {type(data).__name__}; pass two columns")
        return column_of(data.user_ids)[data.user_rows], column_of(data.item_ids)[data.item_rows]
    if hasattr(data, "tocoo"):
        refuse_columns(columns, "a sparse matrix")
        cells = data.tocoo(copy=True)
        if len(cells.shape) == 2:
            cells.sum_duplicates()  # a cell is one pair, however often it is stored
        return _cells(cells)[:2]
    frame = _pairs_frame(data, "Pairs")
    table = make_table(_chosen_columns(frame, _found(frame, columns, PAIR)))
    return table.user, table.item


def table_with(pairs: Any, ratings: Any, columns: Columns | None = None) -> Table:
    """A table of pairs and their ratings, X and y of scikit-learn.

    Parameters
    ----------
    pairs
        X, as for :func:`pairs_of`, without files and without ratings in it.
    ratings
        y: a column of numbers, as many as there are pairs.
    columns
        Column of user and item in X, by name or by position from 0.

    Raises
    ------
    InputError
        If X has ratings already, the lengths differ, or a value cannot be used.

    Examples
    --------
    >>> from bayesmf.reading.memory import table_with
    >>> table_with([("ann", 10), ("bob", 20)], [4, 2]).rating.tolist()
    [4.0, 2.0]
    """
    columns = check_columns(columns)
    if isinstance(pairs, str | os.PathLike):
        raise InputError(f"X is the path {pairs}, which has ratings of its own: leave y out")
    if _holds_ratings(pairs) or hasattr(pairs, "tocoo"):
        raise InputError(f"X is a {type(pairs).__name__}, which has ratings in it: leave y out")
    frame = _pairs_frame(pairs, "X")
    _refuse_two_ratings(frame, columns)
    found = _found(frame, columns, PAIR)
    if frame.names is not None and columns.get("timestamp", "") is not None:
        times = recognise(frame.names, "timestamp")
        found |= {"timestamp": times[0]} if times else {}
    if hasattr(ratings, "columns"):
        raise InputError("y is a table; pass its column of ratings alone, as y['rating']")
    chosen = _chosen_columns(frame, found) | {"rating": _column(ratings, "rating")}
    if len(chosen["user"]) != len(chosen["rating"]):
        raise InputError(
            f"X has {len(chosen['user']):,} pairs and y {len(chosen['rating']):,} ratings; there"
            " must be a rating for each pair"
        )
    return make_table(chosen)


def refuse_columns(columns: Columns | None, what: str) -> None:
    """Refuse `columns` for data whose columns are known."""
    if columns is not None:
        raise InputError(f"columns does nothing for {what}, whose columns are known: leave it out")


def _holds_ratings(data: Any) -> bool:
    return hasattr(data, "user_ids") and hasattr(data, "item_ids")


def _check_pointers(data: Any) -> None:
    """Raise ValueError for invalid pointers of a compressed matrix, which SciPy may not check."""
    starts = np.asarray(data.indptr)
    if starts.ndim != 1 or not len(starts) or starts[0] != 0 or np.any(starts[1:] < starts[:-1]):
        raise ValueError("its index pointers do not ascend from 0")
    if starts[-1] > min(len(data.indices), len(data.data)):
        raise ValueError("its index pointers exceed its indices")
    copy(data).check_format(full_check=True)


def _cells(data: Any) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any]]:
    """Rows, columns and values of a sparse matrix, as they are stored."""
    if len(data.shape) != 2:
        raise InputError(f"A sparse array of ratings is users x items, not {data.shape}")
    try:
        if hasattr(data, "indptr"):  # compiled code follows the pointers as they are
            _check_pointers(data)
        cells = data.tocoo()
    except (ValueError, TypeError, IndexError, AttributeError, OverflowError) as error:
        raise InputError(f"The sparse matrix is damaged: {reason_of(error)}") from None
    for index, size in zip((cells.row, cells.col), data.shape, strict=True):
        if len(index) and not 0 <= index.min() <= index.max() < size:
            raise InputError(
                f"The sparse matrix of shape {data.shape} has indices outside of it: it is damaged"
            )
    if cells.dtype.kind == "b":  # true twice is true, and not two
        cells = cells.copy()
        cells.sum_duplicates()
    rows, cols = (np.asarray(part, dtype=np.int64) for part in (cells.row, cells.col))
    return rows, cols, np.asarray(cells.data)


def _pairs_frame(data: Any, what: str) -> Frame:
    frame = frame_of(data, PAIR)
    if frame is None:
        raise InputError(
            f"{what} cannot be taken from a {type(data).__name__}; pass a data frame, an array"
            " with the columns user and item, a list of (user, item) tuples, or the columns"
            " (users, items)"
        )
    return frame


def _found(frame: Frame, columns: Columns | None, need: Sequence[str]) -> dict[str, int]:
    shown = ", ".join(frame.rows[0]) if frame.rows else ""
    found = find_columns(frame.names, frame.width, columns, need, _WHERE, shown)
    if frame.names is None and frame.rows and not set(need) & set(columns or ()):
        check_order(frame.rows, frame.width, need, _WHERE)
    return found


def _refuse_two_ratings(frame: Frame, columns: Columns) -> None:
    if frame.names is None:
        held = "a third column, which would be ratings" if frame.width > 2 else ""
    else:
        known = [columns["rating"]] if columns.get("rating") is not None else []
        known += [frame.names[at] for at in recognise(frame.names, "rating")]
        held = f"ratings in column {known[0]!r} already" if known else ""
    if held:
        raise InputError(
            f"X has {held}, and y was given too; leave y out, or pass only the columns user and"
            " item as X"
        )


def _chosen_columns(frame: Frame, found: Mapping[str, int]) -> dict[str, Any]:
    made = {
        role: _column(frame.column(at), f"{role} id" if role in PAIR else role)
        for role, at in found.items()
    }
    lengths = {role: len(column) for role, column in made.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{role} {length:,}" for role, length in lengths.items())
        raise InputError(f"The columns of ratings are not of equal length: {listed}")
    return made


def _column(values: Any, what: str) -> Any:
    """A column with a length, as a series, an array or a list."""
    series = polars_series(values, what)
    return plain_column(values, what) if series is None else series


# -- one view of everything that holds columns -----------------------------------------------------


class Frame(NamedTuple):
    """Columns of in-memory data."""

    names: list[str] | None
    """Their names, None if they have none."""
    width: int
    """Their number."""
    column: Callable[[int], Any]
    """Returns the column at a position."""
    rows: list[list[str]]
    """The first rows as text, where columns are known by their order only."""


def frame_of(data: Any, need: Sequence[str]) -> Frame | None:
    """View in-memory data as columns; None for an unknown type.

    Parameters
    ----------
    data
        As for :func:`table_of`, without sparse matrices.
    need
        The roles that will be looked up.

    Raises
    ------
    InputError
        If rows cannot be distinguished from columns, or there are none.
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
    """Message for an array that is not a table of ratings."""
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
        holds = f"{row}, or {held}" if isinstance(data, list) else f"{held}; {row} go in a list"
        raise InputError(f"A {type(data).__name__} of {_what(need)} holds {holds}")
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
    """Whether lists in a list are columns; tuples are rows. Ambiguous lists are refused."""
    counts = (3, 4) if "rating" in need else (2,)
    widths = range(len(need), 5)
    tuples = any(isinstance(row, tuple) for row in data)
    if len(data) not in counts or tuples:
        return False
    if any(len({isinstance(value, str) for value in row}) == 2 for row in data):
        return False  # a column does not mix text and numbers
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
            f"A dict of {_what(need)} holds columns by name, {{{example}}}, and nothing else"
        )
    names = list(data)
    return Frame(names, len(names), lambda at: data[names[at]], [])


def _of_pandas(data: Any, need: Sequence[str]) -> Frame:
    if not hasattr(data, "columns"):
        raise InputError(
            f"A pandas {type(data).__name__} is one column, not a table of {_what(need)}; pass a"
            " data frame, for example with reset_index()"
        )
    # Default column numbers of pandas are not names.
    numbered = list(data.columns) == list(range(data.shape[1]))
    named = any(recognise([str(name) for name in data.columns], role) for role in need)
    if data.columns.name is not None and not named:
        raise InputError(
            "The data frame has a row for each user and a column for each item; turn it into rows"
            " of user, item and rating, for example with stack() and reset_index()"
        )
    names = None if numbered else [str(name) for name in data.columns]
    rows = _texts(data.head(_CHECKED).to_numpy(dtype=object).tolist()) if numbered else []
    return Frame(names, data.shape[1], lambda at: data.iloc[:, at], rows)


def _of_arrow(data: Any) -> Frame | None:
    polars = sys.modules.get("polars")
    if hasattr(data, "__arrow_c_stream__"):
        import polars
    if polars is None:
        return None
    if isinstance(data, polars.Series):
        raise InputError("A polars Series is one column; pass a data frame")
    try:
        if isinstance(data, polars.LazyFrame):
            data = data.collect()
        elif hasattr(data, "__arrow_c_stream__") and not isinstance(data, polars.DataFrame):
            data = _streamed(data)
    except polars_errors(TypeError, ValueError) as error:
        raise InputError(f"The {type(data).__name__} cannot be read: {reason_of(error)}") from None
    if not isinstance(data, polars.DataFrame):
        return None
    return Frame(data.columns, data.width, data.to_series, [])


def _streamed(data: Any) -> Any:
    """Read a table of another library; its query may run only now, so any error is caught."""
    import polars as pl

    try:
        return pl.DataFrame(data)
    except MemoryError:
        raise
    except Exception as error:
        raise ValueError(reason_of(error)) from None
