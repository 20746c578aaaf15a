"""Rating tables from files: Parquet and Arrow here, text in :mod:`bayesmf.reading.delimited`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from bayesmf.errors import InputError
from bayesmf.reading.cells import Table, make_table
from bayesmf.reading.columns import PAIR, TRIPLE, Columns, find_columns
from bayesmf.reading.delimited import read_text
from bayesmf.reading.files import existing_file, open_regular, reading, typed_kind
from bayesmf.system.forks import check_polars

if TYPE_CHECKING:
    import polars as pl


class Pairs(NamedTuple):
    """Pairs of a user and an item."""

    user: pl.Series
    item: pl.Series


def read_table(
    path: str | os.PathLike[str],
    columns: Columns | None = None,
    need: Sequence[str] = TRIPLE,
) -> Table:
    """Read ratings from a text, Parquet or Arrow file.

    Parameters
    ----------
    path
        The file; its first bytes or its suffix say what it is, anything else is delimited
        text (perhaps compressed: ``.gz``, ``.zst``).
    columns
        Column of each role, by name or by position from 0, where it cannot be guessed.
    need
        The roles that must be there.

    Returns
    -------
    Table
        The columns; ``timestamp`` is None where the file has none.
    """
    check_polars(f"reading {path}")
    path = existing_file(path)
    kind = typed_kind(path)
    if kind is not None:
        return read_typed(path, kind, columns, need)
    return read_text(path, columns, need)


def read_pairs(path: str | os.PathLike[str], columns: Columns | None = None) -> Pairs:
    """Read pairs of user and item from a file; other columns are ignored.

    Parameters
    ----------
    path, columns
        As for :func:`read_table`.
    """
    table = read_table(path, columns, PAIR)
    return Pairs(table.user, table.item)


def read_typed(
    path: str | os.PathLike[str],
    kind: str,
    columns: Columns | None = None,
    need: Sequence[str] = TRIPLE,
) -> Table:
    """Read a Parquet or an Arrow file, as ``kind`` says.

    Parameters
    ----------
    path, columns, need
        As for :func:`read_table`.
    kind : {"Parquet", "Arrow"}
        What the file is.
    """
    import polars as pl

    path = existing_file(path)
    reader = pl.read_parquet if kind == "Parquet" else pl.read_ipc
    # Opened here: a name with * or [ in it is a name, not a pattern, and need not be UTF-8.
    with reading(path, f"{kind} data"), open_regular(path) as file:
        names = list(reader(file, n_rows=0).columns)
        found = find_columns(names, len(names), columns, need, str(path))
        file.seek(0)
        frame = reader(file, columns=[names[at] for at in sorted(set(found.values()))])
    if not frame.height:
        raise InputError(f"{path} has no ratings in it")
    return make_table(
        {role: frame[names[at]] for role, at in found.items()},
        where=lambda row: f"{path} row {row} (counting from 0)",
    )
