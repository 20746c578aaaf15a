"""Export of results: pandas, polars, Arrow, HTML in notebooks."""

from __future__ import annotations

import html
from collections import namedtuple
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesmf.errors import InputError
from bayesmf.wording import short

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

Columns = Mapping[str, Any]
SHOWN_ROWS = 10


class Tabular:
    """Base of results with rows and named columns.

    `_columns` is the source of `to_pandas()`, `to_polars()`, `to_arrow()`, iteration over rows as
    named tuples (for `pandas.DataFrame(result)`), Arrow's stream protocol (for
    `polars.DataFrame(result)`) and a small table in notebooks.
    """

    def _columns(self) -> Columns:
        """Arrays or lists of one length, by name."""
        raise NotImplementedError

    def _title(self) -> str:
        """Text above the table in a notebook."""
        return ""

    def to_polars(self) -> pl.DataFrame:
        """Return the result as a polars data frame.

        Returns
        -------
        polars.DataFrame
            A row for each row of the result.

        Examples
        --------
        >>> from bayesmf import Ratings
        >>> Ratings([1, 2], [7, 8], [3, 5]).to_polars().shape
        (2, 3)
        """
        import polars as pl

        return pl.DataFrame({name: _series(name, c) for name, c in self._columns().items()})

    def to_pandas(self) -> pd.DataFrame:
        """Return the result as a pandas data frame.

        Returns
        -------
        pandas.DataFrame
            A row for each row of the result.

        Raises
        ------
        InputError
            If pandas is not installed.

        Examples
        --------
        >>> from bayesmf import Ratings
        >>> Ratings([1, 2], [7, 8], [3, 5]).to_pandas()
           user  item  rating
        0     1     7     3.0
        1     2     8     5.0
        """
        pandas = _needed("pandas")
        return pandas.DataFrame({name: _plain(c) for name, c in self._columns().items()})

    def to_arrow(self) -> pa.Table:
        """Return the result as an Arrow table.

        Returns
        -------
        pyarrow.Table
            A row for each row of the result.

        Raises
        ------
        InputError
            If pyarrow is not installed.

        Examples
        --------
        >>> from bayesmf import Ratings
        >>> Ratings([1, 2], [7, 8], [3, 5]).to_arrow().column_names
        ['user', 'item', 'rating']
        """
        _needed("pyarrow")
        return self.to_polars().to_arrow()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Arrow's protocol for tables, which many libraries read."""
        return self.to_polars().__arrow_c_stream__(requested_schema)

    def __iter__(self) -> Iterator[Any]:
        """Rows, as named tuples."""
        columns = {name: _plain(column) for name, column in self._columns().items()}
        row = namedtuple("Row", columns)  # type: ignore[misc]
        lists = (c.tolist() if isinstance(c, np.ndarray) else list(c) for c in columns.values())
        return map(row._make, zip(*lists, strict=True))

    def _top(self) -> tuple[Columns, int]:
        """Columns of the first rows, or of all, for a notebook; and the number of rows."""
        columns = self._columns()
        return columns, len(next(iter(columns.values())))

    def _repr_html_(self) -> str:
        found, n = self._top()
        columns = {name: _plain(column) for name, column in found.items()}
        rows = [[cell(c[k]) for c in columns.values()] for k in range(min(n, SHOWN_ROWS))]
        more = f"{n - SHOWN_ROWS:,} more rows" if n > SHOWN_ROWS else ""
        return html_table(list(columns), rows, self._title(), more)


def html_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], title: str = "", below: str = ""
) -> str:
    """A plain HTML table for a notebook, with text above and below; text is escaped."""
    parts = [f"<p>{html.escape(title)}</p>"] if title else []
    parts.append("<table><thead>" + _html_row("th", head) + "</thead><tbody>")
    parts += [_html_row("td", row) for row in rows]
    parts.append("</tbody></table>")
    parts += [f"<p>{html.escape(below)}</p>"] if below else []
    return "".join(parts)


def _html_row(tag: str, cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in cells) + "</tr>"


def cell(value: Any) -> str:
    """Text of a value: numbers with four digits, nothing for None."""
    if value is None:
        return ""
    if isinstance(value, float | np.floating):
        return short(float(value))
    return str(value)


def _series(name: str, column: Any) -> pl.Series:
    import polars as pl

    values = _plain(column)
    try:
        return pl.Series(name, values.tolist() if _is_object(values) else values)
    except UnicodeEncodeError:  # half of a character, in an unknown id
        texts = [str(value).encode("utf-8", "backslashreplace").decode() for value in values]
        return pl.Series(name, texts)


def _plain(column: Any) -> Any:
    return column if isinstance(column, np.ndarray) else list(column)


def _is_object(column: Any) -> bool:
    return isinstance(column, np.ndarray) and column.dtype.kind == "O"


def _needed(name: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError:
        raise InputError(
            f"{name} is not installed: pip install {name}, or use to_polars()"
        ) from None
