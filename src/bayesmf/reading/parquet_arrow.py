"""Parquet and Arrow files, whose columns have names and types."""

from __future__ import annotations

import os
from collections.abc import Sequence

from bayesmf.errors import InputError
from bayesmf.reading.columns import TRIPLE, Columns, find_columns
from bayesmf.reading.files import existing_file, open_regular, reading
from bayesmf.reading.table import Table, make_table


def read_typed(
    path: str | os.PathLike[str],
    kind: str,
    columns: Columns | None = None,
    need: Sequence[str] = TRIPLE,
) -> Table:
    """Read a Parquet or an Arrow file, as ``kind`` says.

    Parameters
    ----------
    path
        The file.
    kind : {"Parquet", "Arrow"}
        What it is.
    columns
        Column of each role, by name or by position from 0, where it cannot be guessed.
    need
        The roles that must be there.
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
