"""Where ratings come from: files, tables, arrays, pairs."""

from __future__ import annotations

import os
import sys
from typing import Any, Self

from bayesmf.data.duplicates import check_duplicates
from bayesmf.errors import InputError
from bayesmf.reading.memory import Columns, Table, refuse_columns, table_of, table_with


class Sources:
    """The part of `Ratings` that takes them from what users have."""

    def _fill(self, table: Table, duplicates: str) -> None:
        raise NotImplementedError

    @classmethod
    def read(
        cls,
        path: str | os.PathLike[str],
        *,
        format: str = "auto",
        columns: Columns | None = None,
        duplicates: str = "last",
    ) -> Self:
        """Read ratings from a file or a folder.

        Parameters
        ----------
        path : str or path-like
            Delimited text (perhaps compressed), Parquet or Arrow file, or a folder of a
            known format.
        format : {"auto", "csv", "parquet", "arrow", "movielens", "netflix", "yahoo-r2"}
            What it is; ``"auto"`` looks.
        columns : mapping, optional
            Where it cannot be guessed, the column of each role by name or by position
            from 0: ``{"user": "customer", "item": "sku", "rating": "stars"}``; None for
            ``"timestamp"`` leaves the timestamps out.
        duplicates : {"last", "mean", "error"}
            What to do when a user rated an item more than once, as for `Ratings`.

        Returns
        -------
        Ratings
            All of them, in the order of the file.

        Raises
        ------
        InputError
            If there is no such file, or it is no table of ratings; the message names the line.

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
    ) -> Self:
        """Take ratings from whatever holds them.

        Parameters
        ----------
        data : object
            Ratings (returned as they are), a path, a pandas or polars data frame, an
            Arrow table, a SciPy sparse matrix of users x items (stored zeros are ratings,
            absent cells are not, a cell that is stored twice is the sum), a tuple of 3 or 4
            columns, an array with 3 or 4 columns or with named ones, a dict of columns, or a
            list of rows (tuples or dicts).
        format : str
            What a file is, as for :meth:`read`.
        columns : mapping, optional
            Which column is which, as for :meth:`read`.
        duplicates : {"last", "mean", "error"}
            What to do when a user rated an item more than once, as for `Ratings`.

        Returns
        -------
        Ratings
            All of them, in the order of the data.

        Raises
        ------
        InputError
            If it cannot be told which column is which, or a value cannot be used.

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
    ) -> Self:
        """Take ratings from pairs of user and item, and their ratings: scikit-learn's X and y.

        Parameters
        ----------
        pairs : array-like
            A table or an array of two columns, or a list of tuples.
        ratings : array-like
            One number for each pair.
        columns : mapping, optional
            Which column of a table is the user and which the item, where names do not tell.
        duplicates : {"last", "mean", "error"}
            What to do when a user rated an item more than once, as for `Ratings`.

        Returns
        -------
        Ratings
            As many as there are pairs, less what `duplicates` leaves out.

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
    def _from_table(cls, table: Table, duplicates: str) -> Self:
        self = cls.__new__(cls)
        self._fill(table, duplicates)
        return self


def _refuse_dataset(data: Any) -> None:
    """Say what to do with a `ray.data.Dataset`, which may be larger than memory."""
    ray_data = sys.modules.get("ray.data")
    if ray_data is not None and isinstance(data, ray_data.Dataset):
        raise InputError(
            "a Ray Dataset is not read: write it with dataset.write_parquet(folder) and give the"
            " folder to bayesmf.pack"
        )
