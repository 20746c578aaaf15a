"""The ratings that a model learns from, held compactly, and how they are split."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bayesmf.checks import number_array
from bayesmf.data.duplicates import (
    check_duplicates,
    is_among,
    last_of_repeats,
    repeat_error,
    warn_of_repeats,
)
from bayesmf.data.split import Splitting
from bayesmf.data.tabular import Tabular
from bayesmf.errors import InputError
from bayesmf.ids.id_map import IdMap, count_distinct
from bayesmf.ids.unknown import warn_of_twins
from bayesmf.reading.memory import Columns, Table, refuse_columns, table_of, table_with
from bayesmf.storage.atomic import replacing
from bayesmf.storage.paths import check_output
from bayesmf.system.forks import check_polars

if TYPE_CHECKING:
    import polars as pl


class Ratings(Splitting, Tabular):
    """Ratings of items by users.

    Parameters
    ----------
    users, items
        External ids, integers or strings, one per rating.
    ratings
        Finite numbers.
    timestamps
        Integers, datetimes or ISO dates (which become epoch seconds); None for none.
    duplicates
        What to do when a user rated an item more than once: ``"last"`` keeps the latest
        (by timestamp, else by position), ``"mean"`` their mean, ``"error"`` refuses.

    Attributes
    ----------
    user_rows, item_rows : numpy.ndarray
        Row numbers (``int32``) of each rating's user and item.
    rating : numpy.ndarray
        The ratings (``float32``).
    timestamp : numpy.ndarray or None
        The timestamps (``int64``).
    user_ids, item_ids : IdMap
        The external ids of the row numbers.
    """

    user_rows: NDArray[np.int32]
    item_rows: NDArray[np.int32]
    rating: NDArray[np.float32]
    timestamp: NDArray[np.int64] | None
    user_ids: IdMap
    item_ids: IdMap

    def __init__(
        self,
        users: Any,
        items: Any,
        ratings: Any,
        timestamps: Any = None,
        *,
        duplicates: str = "last",
    ) -> None:
        check_duplicates(duplicates)
        table = table_of((users, items, ratings, timestamps))
        assert table is not None
        self._fill(table, duplicates)

    @classmethod
    def read(
        cls,
        path: str | os.PathLike[str],
        *,
        format: str = "auto",
        columns: Columns | None = None,
        duplicates: str = "last",
    ) -> Ratings:
        """Read ratings from a file or a folder.

        Parameters
        ----------
        path
            Delimited text (perhaps compressed), Parquet or Arrow file, or a folder of a
            known format.
        format
            ``"auto"``, ``"csv"``, ``"parquet"``, ``"arrow"``, ``"movielens"``,
            ``"netflix"`` or ``"yahoo-r2"``.
        columns
            Where it cannot be guessed, the column of each role by name or by position
            from 0: ``{"user": "customer", "item": "sku", "rating": "stars"}``; None for
            ``"timestamp"`` leaves the timestamps out.
        duplicates
            As for :class:`Ratings`.
        """
        from bayesmf.reading.formats import read_ratings

        if not isinstance(path, str | os.PathLike):
            raise InputError(
                f"{type(path).__name__} is no path: Ratings.read reads files,"
                " Ratings.from_data takes tables and arrays"
            )
        check_duplicates(duplicates)
        return cls._from_table(read_ratings(path, format, columns), duplicates)

    @classmethod
    def from_data(
        cls,
        data: Any,
        *,
        format: str = "auto",
        columns: Columns | None = None,
        duplicates: str = "last",
    ) -> Ratings:
        """Take ratings from whatever holds them.

        Parameters
        ----------
        data
            Ratings (returned as they are), a path, a pandas or polars data frame, an
            Arrow table, a SciPy sparse matrix of users x items (stored zeros are ratings,
            absent cells are not, a cell that is stored twice is the sum), a tuple of 3 or 4
            columns, an array with 3 or 4 columns or with named ones, a dict of columns, or a
            list of rows (tuples or dicts).
        format, columns, duplicates
            As for :meth:`read`.
        """
        if isinstance(data, Ratings):
            refuse_columns(columns, "ratings")
            return data
        if isinstance(data, (str, os.PathLike)):
            return cls.read(data, format=format, columns=columns, duplicates=duplicates)
        check_duplicates(duplicates)
        if hasattr(data, "tocoo"):
            # One cell, and one rating, however often it is stored: to SciPy it is their sum.
            duplicates = "sum"
        table = table_of(data, columns)
        if table is None:
            raise InputError(
                f"Ratings cannot be taken from a {type(data).__name__}; pass a path, a pandas or"
                " polars data frame, an Arrow table, a SciPy sparse matrix, a list of rows, or"
                " the columns (users, items, ratings)"
            )
        return cls._from_table(table, duplicates)

    @classmethod
    def from_pairs(
        cls,
        pairs: Any,
        ratings: Any,
        columns: Columns | None = None,
        *,
        duplicates: str = "last",
    ) -> Ratings:
        """Take ratings from pairs of user and item, and their ratings: scikit-learn's X and y.

        Parameters
        ----------
        pairs
            A table or an array of two columns, or a list of tuples.
        ratings
            One number for each pair.
        columns
            Which column of a table is the user and which the item, where names do not tell.
        duplicates
            As for :class:`Ratings`.

        Returns
        -------
        Ratings
            As many as there are pairs, less what `duplicates` leaves out.

        Examples
        --------
        >>> from bayesmf import Ratings
        >>> Ratings.from_pairs([("ann", "tea"), ("bob", "tea")], [5, 3])
        Ratings(2 ratings of 1 items by 2 users, 3 to 5, mean 4)
        """
        check_duplicates(duplicates)
        return cls._from_table(table_with(pairs, ratings, columns), duplicates)

    @classmethod
    def from_arrays(
        cls,
        user_rows: NDArray[Any],
        item_rows: NDArray[Any],
        rating: NDArray[Any],
        timestamp: NDArray[Any] | None,
        user_ids: IdMap,
        item_ids: IdMap,
    ) -> Ratings:
        """Make ratings of row numbers that are known to be right, without checking them.

        Parameters
        ----------
        user_rows, item_rows, rating, timestamp, user_ids, item_ids
            The attributes of the ratings; no pair of user and item may occur twice.
        """
        self = cls.__new__(cls)
        self.user_rows = np.ascontiguousarray(number_array("user_rows", user_rows), dtype=np.int32)
        self.item_rows = np.ascontiguousarray(number_array("item_rows", item_rows), dtype=np.int32)
        self.rating = np.ascontiguousarray(number_array("rating", rating), dtype=np.float32)
        self.timestamp = None
        if timestamp is not None:
            times = number_array("timestamp", timestamp)
            self.timestamp = np.ascontiguousarray(times, dtype=np.int64)
        self.user_ids, self.item_ids = user_ids, item_ids
        return self

    @classmethod
    def _from_table(cls, table: Table, duplicates: str) -> Ratings:
        self = cls.__new__(cls)
        self._fill(table, duplicates)
        return self

    def _fill(self, table: Table, duplicates: str) -> None:
        assert table.rating is not None
        if not len(table.rating):
            raise InputError("There are no ratings: the data are empty")
        self.user_ids, self.user_rows = IdMap.encode(table.user, what="user id")
        self.item_ids, self.item_rows = IdMap.encode(table.item, what="item id")
        self.rating = table.rating.to_numpy().astype(np.float32)
        self.timestamp = None if table.timestamp is None else table.timestamp.to_numpy().copy()
        for side, ids in (("user", self.user_ids), ("item", self.item_ids)):
            warn_of_twins(side, ids)
        self._drop_duplicates(duplicates)

    @property
    def n_users(self) -> int:
        """Number of users."""
        return len(self.user_ids)

    @property
    def n_items(self) -> int:
        """Number of items."""
        return len(self.item_ids)

    @property
    def users(self) -> NDArray[Any]:
        """External user id of each rating."""
        return self.user_ids.ids[self.user_rows]

    @property
    def items(self) -> NDArray[Any]:
        """External item id of each rating."""
        return self.item_ids.ids[self.item_rows]

    def __len__(self) -> int:
        return len(self.rating)

    def __repr__(self) -> str:
        size = f"{len(self):,} ratings of {self.n_items:,} items by {self.n_users:,} users"
        if not len(self):
            return f"Ratings({size})"
        low, high = self.range()
        timed = ", timestamps" if self.timestamp is not None else ""
        return f"Ratings({size}, {low:.4g} to {high:.4g}, mean {self.mean():.4g}{timed})"

    def mean(self) -> float:
        """Give the mean of the ratings."""
        self._need(1)
        return float(self.rating.mean(dtype=np.float64))

    def range(self) -> tuple[float, float]:
        """Give the lowest and the highest rating."""
        self._need(1)
        return float(self.rating.min()), float(self.rating.max())

    def take(self, index: ArrayLike) -> Ratings:
        """Take some of the ratings, with the same id maps.

        Parameters
        ----------
        index
            Positions, or a boolean mask.
        """
        at = np.asarray(index)
        if at.size == 0 and at.dtype.kind != "b":
            at = at.astype(np.int64)
        try:
            self.user_rows[at]
        except IndexError as error:
            raise InputError(
                f"take needs positions below {len(self)} or a mask of {len(self)}: {error}"
            ) from None
        return Ratings.from_arrays(
            self.user_rows[at],
            self.item_rows[at],
            self.rating[at],
            None if self.timestamp is None else self.timestamp[at],
            self.user_ids,
            self.item_ids,
        )

    def compact(self) -> Ratings:
        """Drop the ids without any rating."""
        user_ids, user = _compact(self.user_ids, self.user_rows)
        item_ids, item = _compact(self.item_ids, self.item_rows)
        return Ratings.from_arrays(user, item, self.rating, self.timestamp, user_ids, item_ids)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the ratings to a CSV or a Parquet file, as the suffix says.

        Parameters
        ----------
        path
            Ends in ``.csv``, ``.parquet`` or ``.pq``; an existing file is replaced, at once.
        """
        path = Path(path)
        suffix = path.suffix.lower()
        if suffix not in (".csv", ".parquet", ".pq"):
            raise InputError(f"{path}: ratings are written to .csv or .parquet files")
        check_output(path)
        check_polars(f"writing {path}")
        with replacing(path) as file:
            if suffix == ".csv":
                self.to_polars().write_csv(file)
            else:
                self.to_polars().write_parquet(file)

    def _columns(self) -> Mapping[str, Any]:
        names = {"user": self.users, "item": self.items, "rating": self.rating}
        return names if self.timestamp is None else {**names, "timestamp": self.timestamp}

    def to_polars(self) -> pl.DataFrame:
        """Give the ratings as a polars data frame.

        Returns
        -------
        polars.DataFrame
            With columns user, item, rating and, if there are any, timestamp.
        """
        import polars as pl

        columns = {
            "user": self.user_ids.column(self.user_rows),
            "item": self.item_ids.column(self.item_rows),
        }
        columns["rating"] = pl.Series(self.rating)
        if self.timestamp is not None:
            columns["timestamp"] = pl.Series(self.timestamp)
        return pl.DataFrame(columns)

    def _need(self, count: int) -> None:
        if len(self) < count:
            raise InputError(f"This needs {count} ratings or more; there are {len(self)}")

    def _drop_duplicates(self, duplicates: str) -> None:
        key = self.user_rows.astype(np.int64) * self.n_items + self.item_rows
        extra = len(key) - count_distinct(key)
        if not extra:
            return
        ordered = np.sort(key)
        twice = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
        repeated = is_among(key, twice)
        order = np.flatnonzero(repeated)
        if duplicates == "error":
            raise self._first_duplicate(order, key[order])
        times = None if self.timestamp is None else self.timestamp[order]
        last, value = last_of_repeats(key[order], self.rating[order], times, duplicates)
        last = order[last]
        self.rating[last] = value
        if duplicates != "sum":
            warn_of_repeats(extra, len(key), duplicates)
        keep = ~repeated
        keep[last] = True
        self.user_rows, self.item_rows, self.rating = (
            self.user_rows[keep],
            self.item_rows[keep],
            self.rating[keep],
        )
        self.timestamp = None if self.timestamp is None else self.timestamp[keep]

    def _first_duplicate(self, rows: NDArray[np.int64], key: NDArray[np.int64]) -> InputError:
        firsts = np.unique(key, return_index=True)[1]
        row = np.delete(rows, firsts)[0]
        user, item = self.user_ids[self.user_rows[row]], self.item_ids[self.item_rows[row]]
        return repeat_error(user, item)


def _compact(ids: IdMap, rows: NDArray[np.int32]) -> tuple[IdMap, NDArray[np.int32]]:
    kept, new = np.unique(rows, return_inverse=True)
    return ids.take(kept), new.astype(np.int32)
