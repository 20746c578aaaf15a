"""Training ratings: from files, tables and arrays, and back."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bayesmf.checks import number_array
from bayesmf.data.duplicates import (
    check_duplicates,
    drop_repeats,
    repeat_error,
    warn_of_repeats,
)
from bayesmf.data.split import Splitting
from bayesmf.data.tabular import SHOWN_ROWS, Tabular
from bayesmf.errors import InputError
from bayesmf.ids.id_map import IdMap
from bayesmf.reading.memory import Columns, Table, refuse_columns, table_of, table_with
from bayesmf.storage.atomic import replacing
from bayesmf.storage.paths import as_path
from bayesmf.wording import count

if TYPE_CHECKING:
    import polars as pl


class Ratings(Splitting, Tabular):
    """Ratings of items by users.

    Iteration gives a named tuple for each rating; `pandas.DataFrame(ratings)` and
    `polars.DataFrame(ratings)` work, too.

    Parameters
    ----------
    users, items : array-like
        External ids, integers or strings, one per rating.
    ratings : array-like
        Finite numbers.
    timestamps : array-like, optional
        Integers, datetimes or ISO dates (which become epoch seconds).
    duplicates : {"last", "mean", "error"}
        Repeated ratings of a user and an item: ``"last"`` keeps the latest (by timestamp, else
        by position), ``"mean"`` their mean, ``"error"`` refuses.

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

    Raises
    ------
    InputError
        If a column cannot be used; the message names the row.

    Examples
    --------
    >>> from bayesmf import Ratings
    >>> ratings = Ratings(["ann", "ann", "bob"], [10, 20, 10], [4, 3.5, 5])
    >>> ratings
    Ratings(3 ratings of 2 items by 2 users, 3.5 to 5, mean 4.167)
    >>> ratings.users.tolist(), ratings.user_rows.tolist()
    (['ann', 'ann', 'bob'], [0, 0, 1])
    >>> next(iter(ratings))
    Row(user='ann', item=10, rating=4.0)
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
        path : str or path-like
            Delimited text (perhaps compressed), Parquet or Arrow file, or a folder of a
            known format.
        format : {"auto", "csv", "parquet", "arrow", "movielens", "netflix", "yahoo-r2"}
            Format; ``"auto"`` detects it.
        columns : mapping, optional
            The column of each role by name or by position from 0, if it cannot be guessed:
            ``{"user": "customer", "item": "sku", "rating": "stars"}``; None for ``"timestamp"``
            leaves the timestamps out.
        duplicates : {"last", "mean", "error"}
            Repeated ratings, as for `Ratings`.

        Returns
        -------
        Ratings
            All of them, in the order of the file.

        Raises
        ------
        InputError
            If there is no such file, or it is not a table of ratings; the message names the line.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> from bayesmf import Ratings
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "stars.csv"
        ...     _ = path.write_text("customer,sku,stars\\n1,a,5\\n2,a,3\\n")
        ...     Ratings.read(path)
        Ratings(2 ratings of 1 item by 2 users, 3 to 5, mean 4)
        """
        from bayesmf.reading.formats import read_ratings

        if not isinstance(path, str | os.PathLike):
            raise InputError(
                f"{type(path).__name__} is not a path: Ratings.read reads files,"
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
        """Make ratings from a file, a table or arrays.

        Parameters
        ----------
        data : object
            Ratings (returned as they are), a path, a pandas or polars data frame, an Arrow table,
            a SciPy sparse matrix of users x items (stored zeros are ratings; a cell that is stored
            twice is the sum), a tuple of 3 or 4 columns, an array with 3 or 4 columns or with named
            ones, a dict of columns, or a list of rows (tuples or dicts).
        format : str
            Format of a file, as for :meth:`read`.
        columns : mapping, optional
            Which column is which, as for :meth:`read`.
        duplicates : {"last", "mean", "error"}
            Repeated ratings, as for `Ratings`.

        Returns
        -------
        Ratings
            All of them, in the order of the data.

        Raises
        ------
        InputError
            If a column cannot be found, or a value cannot be used.

        Examples
        --------
        >>> from bayesmf import Ratings
        >>> Ratings.from_data([("ann", 10, 4.0), ("bob", 10, 2.0)])
        Ratings(2 ratings of 1 item by 2 users, 2 to 4, mean 3)
        >>> Ratings.from_data({"user": [1, 2], "item": [7, 8], "rating": [3, 5]}).items.tolist()
        [7, 8]
        """
        if isinstance(data, cls):
            refuse_columns(columns, "ratings")
            return data
        if isinstance(data, (str, os.PathLike)):
            return cls.read(data, format=format, columns=columns, duplicates=duplicates)
        check_duplicates(duplicates)
        _refuse_dataset(data)
        if hasattr(data, "tocoo"):
            # SciPy adds up cells that are stored several times.
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
        """Make ratings from pairs of user and item and their ratings: scikit-learn's X and y.

        Parameters
        ----------
        pairs : array-like
            A table or an array of two columns, or a list of tuples.
        ratings : array-like
            One number for each pair.
        columns : mapping, optional
            Columns of the user and the item in a table, if they cannot be guessed.
        duplicates : {"last", "mean", "error"}
            Repeated ratings, as for `Ratings`.

        Returns
        -------
        Ratings
            A rating for each pair, but for repeats.

        Raises
        ------
        InputError
            If the pairs have ratings of their own, or lengths differ, or a value cannot be used.

        Examples
        --------
        >>> from bayesmf import Ratings
        >>> Ratings.from_pairs([("ann", "tea"), ("bob", "tea")], [5, 3])
        Ratings(2 ratings of 1 item by 2 users, 3 to 5, mean 4)
        """
        check_duplicates(duplicates)
        return cls._from_table(table_with(pairs, ratings, columns), duplicates)

    @classmethod
    def _from_table(cls, table: Table, duplicates: str) -> Ratings:
        self = cls.__new__(cls)
        self._fill(table, duplicates)
        return self

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
        """Make ratings from valid row numbers, without checks.

        Parameters
        ----------
        user_rows, item_rows : numpy.ndarray
            Row numbers of each rating's user and item; no pair may occur twice.
        rating : numpy.ndarray
            The ratings.
        timestamp : numpy.ndarray or None
            The timestamps.
        user_ids, item_ids : IdMap
            The external ids of the row numbers.

        Returns
        -------
        Ratings
            The ratings, in this order.

        Raises
        ------
        InputError
            If an array does not hold numbers.

        Examples
        --------
        >>> import numpy as np
        >>> from bayesmf import Ratings
        >>> ids = Ratings([1, 2], [7, 8], [3, 5])
        >>> rows = np.array([1, 0])
        >>> Ratings.from_arrays(rows, rows, rows, None, ids.user_ids, ids.item_ids).users.tolist()
        [2, 1]
        """
        self = cls.__new__(cls)
        self.user_rows = np.ascontiguousarray(number_array("user_rows", user_rows), dtype=np.int32)
        self.item_rows = np.ascontiguousarray(number_array("item_rows", item_rows), dtype=np.int32)
        self.rating = np.ascontiguousarray(number_array("rating", rating), dtype=np.float32)
        times = None if timestamp is None else number_array("timestamp", timestamp)
        self.timestamp = None if times is None else np.ascontiguousarray(times, dtype=np.int64)
        self.user_ids, self.item_ids = user_ids, item_ids
        return self

    def _fill(self, table: Table, duplicates: str) -> None:
        assert table.rating is not None
        if not len(table.rating):
            raise InputError("There are no ratings: the data are empty")
        self.user_ids, self.user_rows = IdMap.encode(table.user, what="user id")
        self.item_ids, self.item_rows = IdMap.encode(table.item, what="item id")
        self.rating = table.rating.astype(np.float32)
        self.timestamp = None if table.timestamp is None else table.timestamp.copy()
        self._drop_duplicates(duplicates)

    @property
    def n_users(self) -> int:
        """Number of users, those without a rating included."""
        return len(self.user_ids)

    @property
    def n_items(self) -> int:
        """Number of items, those without a rating included."""
        return len(self.item_ids)

    @property
    def users(self) -> NDArray[Any]:
        """External id of each rating's user."""
        return self.user_ids.ids[self.user_rows]

    @property
    def items(self) -> NDArray[Any]:
        """External id of each rating's item."""
        return self.item_ids.ids[self.item_rows]

    def __len__(self) -> int:
        return len(self.rating)

    def __repr__(self) -> str:
        return f"Ratings({self._title()})"

    def _title(self) -> str:
        items, users = count(self.n_items, "item"), count(self.n_users, "user")
        size = f"{count(len(self), 'rating')} of {items} by {users}"
        if not len(self):
            return size
        low, high = self.range()
        timed = ", timestamps" if self.timestamp is not None else ""
        return f"{size}, {low:.4g} to {high:.4g}, mean {self.mean():.4g}{timed}"

    def mean(self) -> float:
        """Return the mean of the ratings.

        Returns
        -------
        float
            Their mean.

        Raises
        ------
        InputError
            If there are none.

        Examples
        --------
        >>> from bayesmf import Ratings
        >>> Ratings([1, 2], [7, 8], [3, 5]).mean()
        4.0
        """
        self._need(1)
        return float(self.rating.mean(dtype=np.float64))

    def range(self) -> tuple[float, float]:
        """Return the lowest and the highest rating.

        Returns
        -------
        tuple of float
            Lowest and highest.

        Raises
        ------
        InputError
            If there are none.

        Examples
        --------
        >>> from bayesmf import Ratings
        >>> Ratings([1, 2], [7, 8], [3, 5]).range()
        (3.0, 5.0)
        """
        self._need(1)
        return float(self.rating.min()), float(self.rating.max())

    def take(self, index: ArrayLike) -> Ratings:
        """Select ratings, with the same id maps.

        Parameters
        ----------
        index : array-like
            Positions, or a boolean mask.

        Returns
        -------
        Ratings
            The selected ratings; users and items keep their row numbers.

        Raises
        ------
        InputError
            If a position is out of range, or the mask of another length.

        Examples
        --------
        >>> from bayesmf import Ratings
        >>> ratings = Ratings([1, 1, 2], [7, 8, 8], [3, 5, 1])
        >>> ratings.take(ratings.rating > 2).items.tolist()
        [7, 8]
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
        """Drop ids without a rating.

        Returns
        -------
        Ratings
            The same ratings, with new row numbers.

        Examples
        --------
        >>> from bayesmf import Ratings
        >>> some = Ratings([1, 2], [7, 8], [3, 5]).take([1])
        >>> some.n_users, some.compact().n_users
        (2, 1)
        """
        user_ids, user = _compact(self.user_ids, self.user_rows)
        item_ids, item = _compact(self.item_ids, self.item_rows)
        return Ratings.from_arrays(user, item, self.rating, self.timestamp, user_ids, item_ids)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the ratings to a CSV or a Parquet file, by its suffix.

        Parameters
        ----------
        path : str or path-like
            Ends in ``.csv``, ``.parquet`` or ``.pq``; an existing file is replaced.

        Raises
        ------
        InputError
            If the file cannot be written; an existing one is unchanged then.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> from bayesmf import Ratings
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "ratings.csv"
        ...     Ratings([1, 2], [7, 8], [3, 5]).write(path)
        ...     print(path.read_text())
        user,item,rating
        1,7,3.0
        2,8,5.0
        <BLANKLINE>
        """
        path = Path(path)
        suffix = path.suffix.lower()
        if suffix not in (".csv", ".parquet", ".pq"):
            raise InputError(f"{path}: ratings are written to .csv or .parquet files")
        as_path(path)
        with replacing(path) as file:
            if suffix == ".csv":
                self.to_polars().write_csv(file)
            else:
                self.to_polars().write_parquet(file)

    def _columns(self) -> Mapping[str, Any]:
        names = {"user": self.users, "item": self.items, "rating": self.rating}
        return names if self.timestamp is None else {**names, "timestamp": self.timestamp}

    def _top(self) -> tuple[Mapping[str, Any], int]:
        # Not of all ratings: there may be millions of ids.
        return self.take(np.arange(min(len(self), SHOWN_ROWS)))._columns(), len(self)

    def to_polars(self) -> pl.DataFrame:
        """Return the ratings as a polars data frame.

        Returns
        -------
        polars.DataFrame
            With columns user, item, rating and, if there are any, timestamp.

        Examples
        --------
        >>> from bayesmf import Ratings
        >>> Ratings(["ann"], [7], [3]).to_polars().to_dicts()
        [{'user': 'ann', 'item': 7, 'rating': 3.0}]
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

    def _need(self, n: int) -> None:
        if len(self) < n:
            raise InputError(f"This needs {n} ratings or more; there are {len(self)}")

    def _drop_duplicates(self, duplicates: str) -> None:
        key = self.user_rows.astype(np.int64) * self.n_items + self.item_rows
        ordered = np.sort(key)
        repeats = ordered[1:][ordered[1:] == ordered[:-1]]
        if not len(repeats):
            return
        twice = np.unique(repeats)
        if duplicates == "error":
            firsts = np.unique(key, return_index=True)[1]
            row = np.setdiff1d(np.arange(len(key)), firsts)[0]
            user, item = self.user_ids[self.user_rows[row]], self.item_ids[self.item_rows[row]]
            raise repeat_error(user, item)
        left = drop_repeats(key, twice, self.rating, self.timestamp, duplicates)
        if duplicates != "sum":
            warn_of_repeats(len(repeats), len(key), duplicates)
        self.user_rows, self.item_rows = self.user_rows[left], self.item_rows[left]
        self.rating = self.rating[left]
        self.timestamp = None if self.timestamp is None else self.timestamp[left]


def _compact(ids: IdMap, rows: NDArray[np.int32]) -> tuple[IdMap, NDArray[np.int32]]:
    """The ids that have ratings, and the rows among them."""
    used = np.zeros(len(ids), np.bool_)
    used[rows] = True
    if used.all():
        return ids, rows
    number = np.cumsum(used, dtype=np.int32) - np.int32(1)
    return ids.take(np.flatnonzero(used)), number[rows]


def _refuse_dataset(data: Any) -> None:
    """Say what to do with a `ray.data.Dataset`, which may be larger than memory."""
    ray_data = sys.modules.get("ray.data")
    if ray_data is not None and isinstance(data, ray_data.Dataset):
        raise InputError(
            "a Ray Dataset is not read: write it with dataset.write_parquet(folder) and give the"
            " folder to bayesmf.pack"
        )
