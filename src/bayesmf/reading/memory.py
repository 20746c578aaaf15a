"""Tables of ratings and of pairs, from what users have in memory."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesmf.errors import InputError, reason_of
from bayesmf.ids.series import to_series
from bayesmf.reading.column_order import check_order
from bayesmf.reading.columns import (
    PAIR,
    ROLES,
    TRIPLE,
    Columns,
    check_columns,
    find_columns,
    may_be_id,
    recognise,
)
from bayesmf.reading.frames import Frame, frame_of, wrong_shape
from bayesmf.reading.table import Table, make_table

if TYPE_CHECKING:
    import polars as pl

__all__ = ["PAIR", "ROLES", "TRIPLE", "Columns", "Table", "pairs_of", "table_of", "table_with"]

_WHERE = "The table"


def table_of(data: Any, columns: Columns | None = None) -> Table | None:
    """Make a table of in-memory ratings, None when they are of no known type.

    Parameters
    ----------
    data
        What `Ratings.from_data` takes, but for paths: a data frame, an Arrow
        table, an array with 3 or 4 columns (or named ones), a sparse matrix, a tuple of columns,
        a dict of columns, a list of rows (tuples or dicts).
    columns
        Column of each role, by name or by position from 0.

    Returns
    -------
    Table or None
        The columns, checked.

    Raises
    ------
    InputError
        If it cannot be told which column is which, or a value cannot be used.

    Examples
    --------
    >>> from bayesmf.reading.memory import table_of
    >>> table_of([("ann", "Alien", 5.0), ("bob", "Alien", 2.0)]).rating.to_list()
    [5.0, 2.0]
    """
    if hasattr(data, "tocoo"):
        refuse_columns(columns, "a sparse matrix")
        rows, cols, values = _cells(data)
        return make_table({"user": rows, "item": cols, "rating": to_series(values, "rating")})
    check_columns(columns)
    frame = frame_of(data, TRIPLE)
    if frame is None:
        return None
    if isinstance(data, np.ndarray) and frame.names is None and frame.width > 4 and not columns:
        raise InputError(wrong_shape(data.shape))
    found = _found(frame, columns, TRIPLE)
    return make_table(_series(frame, found))


def pairs_of(data: Any, columns: Columns | None = None) -> tuple[pl.Series, pl.Series]:
    """Take users and items from whatever holds pairs of them; other columns are left out.

    Parameters
    ----------
    data
        A data frame, an Arrow table, an array with two columns or those of a table of ratings,
        a tuple (users, items), a list of pairs, a dict of columns, a list of dicts, ratings, a
        sparse matrix (its stored cells), or the path of a file.  A list holds rows; a tuple
        holds columns.
    columns
        Column of each role, by name or by position from 0.

    Returns
    -------
    tuple of polars.Series
        The user ids and the item ids, Int64 or String, equally many.

    Raises
    ------
    InputError
        If it cannot be told which column is which, or an id cannot be used.

    Examples
    --------
    >>> from bayesmf.reading.memory import pairs_of
    >>> users, items = pairs_of([("ann", 10), ("bob", 20)])
    >>> users.to_list(), items.to_list()
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
        return data.user_ids.column(data.user_rows), data.item_ids.column(data.item_rows)
    if hasattr(data, "tocoo"):
        refuse_columns(columns, "a sparse matrix")
        cells = data.tocoo(copy=True)
        if len(cells.shape) == 2:
            cells.sum_duplicates()  # a cell is one pair, however often it is stored
        return _cells(cells)[:2]
    frame = _pairs_frame(data, "Pairs")
    table = make_table(_series(frame, _found_pairs(frame, columns)))
    return table.user, table.item


def table_with(pairs: Any, ratings: Any, columns: Columns | None = None) -> Table:
    """Put pairs and their ratings together, as X and y of scikit-learn.

    Parameters
    ----------
    pairs
        X: what :func:`pairs_of` takes, but for files and for what has ratings in it.
    ratings
        y: a column of numbers, as many as there are pairs.
    columns
        Column of user and item in X, by name or by position from 0.

    Returns
    -------
    Table
        Users, items and ratings; timestamps where X has a column of that name.

    Raises
    ------
    InputError
        If X has ratings already, the lengths differ, or a value cannot be used.

    Examples
    --------
    >>> from bayesmf.reading.memory import table_with
    >>> table_with([("ann", 10), ("bob", 20)], [4, 2]).rating.to_list()
    [4.0, 2.0]
    """
    columns = check_columns(columns)
    if isinstance(pairs, str | os.PathLike):
        raise InputError(f"X is the path {pairs}, which has ratings of its own: leave y out")
    if _holds_ratings(pairs) or hasattr(pairs, "tocoo"):
        raise InputError(f"X is a {type(pairs).__name__}, which has ratings in it: leave y out")
    frame = _pairs_frame(pairs, "X")
    _refuse_two_ratings(frame, columns)
    found = _found_pairs(frame, columns)
    if frame.names is not None and columns.get("timestamp", "") is not None:
        times = recognise(frame.names, "timestamp")
        found |= {"timestamp": times[0]} if times else {}
    if hasattr(ratings, "columns"):
        raise InputError("y is a table; pass its column of ratings alone, as y['rating']")
    chosen = _series(frame, found) | {"rating": to_series(ratings, "rating")}
    if len(chosen["user"]) != len(chosen["rating"]):
        raise InputError(
            f"X has {len(chosen['user']):,} pairs and y {len(chosen['rating']):,} ratings; there"
            " must be a rating for each pair"
        )
    return make_table(chosen)


def refuse_columns(columns: Columns | None, what: str) -> None:
    """Refuse names of columns for what has none to choose from."""
    if columns is not None:
        raise InputError(
            f"columns does nothing for {what}, where it is known what is what: leave it out"
        )


def _holds_ratings(data: Any) -> bool:
    return hasattr(data, "user_ids") and hasattr(data, "item_ids")


def _check_pointers(data: Any) -> None:
    """Raise ValueError where pointers of a compressed matrix lead nowhere; SciPy may not see it."""
    starts = np.asarray(data.indptr)
    if starts.ndim != 1 or not len(starts) or starts[0] != 0 or np.any(starts[1:] < starts[:-1]):
        raise ValueError("its index pointers do not ascend from 0")
    if starts[-1] > min(len(data.indices), len(data.data)):
        raise ValueError("its index pointers lead beyond its indices")
    copy(data).check_format(full_check=True)


def _cells(data: Any) -> tuple[pl.Series, pl.Series, np.ndarray[Any, Any]]:
    """Give rows, columns and values of a sparse matrix, as they are stored."""
    import polars as pl

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
                f"The sparse matrix of shape {data.shape} has cells outside of it: its indices"
                " are damaged"
            )
    if cells.dtype.kind == "b":  # true twice is true, and not two
        cells = cells.copy()
        cells.sum_duplicates()
    rows, cols = (np.asarray(part, dtype=np.int64) for part in (cells.row, cells.col))
    return pl.Series(rows), pl.Series(cols), np.asarray(cells.data)


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
    try:
        found = find_columns(frame.names, frame.width, columns, need, _WHERE, shown)
    except InputError as error:
        raise InputError(f"{error}{frame.advice}") from None
    if frame.names is None and frame.rows and not set(need) & set(columns or ()):
        check_order(frame.rows, frame.width, need, _WHERE)
    return found


def _found_pairs(frame: Frame, columns: Columns | None) -> dict[str, int]:
    """Find user and item; of two columns the one that is not known is the other."""
    names = frame.names
    if names is not None and len(names) == 2 and not set(PAIR) & set(columns or ()):
        known = {role: recognise(names, role) for role in PAIR}
        for role, other in (PAIR, PAIR[::-1]):
            if len(known[role]) == 1 and not known[other]:
                at = known[role][0]
                if may_be_id(names[1 - at]):
                    return {role: at, other: 1 - at}
    return _found(frame, columns, PAIR)


def _refuse_two_ratings(frame: Frame, columns: Columns) -> None:
    if frame.names is not None:
        said = [columns["rating"]] if columns.get("rating") is not None else []
        known = [*said, *(frame.names[at] for at in recognise(frame.names, "rating"))]
        if known:
            raise InputError(
                f"X has ratings in column {known[0]!r} already, and y was given too; leave y out,"
                " or take that column out of X"
            )
    elif frame.width > 2:
        raise InputError(
            f"X has {frame.width} columns, the third of which would be ratings, and y was given"
            " too; leave y out, or pass the two columns user and item as X"
        )


def _series(frame: Frame, found: Mapping[str, int]) -> dict[str, pl.Series]:
    told = {role: f"{role} id" if role in PAIR else role for role in found}
    made = {role: to_series(frame.column(at), told[role]) for role, at in found.items()}
    lengths = {role: len(column) for role, column in made.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{role} {length:,}" for role, length in lengths.items())
        raise InputError(f"The columns of ratings are not of equal length: {listed}")
    return made
