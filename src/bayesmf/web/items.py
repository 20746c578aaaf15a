"""Titles and other columns of items by row number, and a search by name."""

from __future__ import annotations

import os
import unicodedata
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.errors import DataWarning, InputError, warn
from bayesmf.ids.id_map import IdMap
from bayesmf.reading.item_info import read_item_info

if TYPE_CHECKING:
    import polars as pl

Index = NDArray[np.int64]


class ItemTable:
    """Titles, other columns and popularity of a model's items, in the order of its rows.

    `counts` are training ratings of each; `frame` is a table as returned by `read_item_info`, whose
    unknown items are left out.

    Examples
    --------
    >>> import numpy as np
    >>> import polars as pl
    >>> from bayesmf import IdMap
    >>> from bayesmf.web.items import ItemTable
    >>> frame = pl.DataFrame({"item": ["7", "8"], "title": ["Café Noir", "The Sea"]})
    >>> items = ItemTable(IdMap([7, 8, 9]), np.array([3, 2, 1]), frame)
    >>> items.title(2), items.search("cafe", 5).tolist(), items.search("", 2).tolist()
    (None, [0], [0, 1])
    """

    def __init__(self, ids: IdMap, counts: NDArray[Any], frame: pl.DataFrame | None = None) -> None:
        import polars as pl

        self.ids, self.counts = ids, np.asarray(counts, np.int64)
        self._at = np.full(len(ids), -1)
        self._frame = pl.DataFrame() if frame is None else frame
        if frame is not None:
            rows = ids.lookup(frame["item"].to_numpy())
            if not (rows >= 0).any():
                raise InputError(
                    f"none of the {frame.height:,} ids of the table of items, such as "
                    f"{frame[0, 'item']!r}, is an item of the model, such as {ids[0]!r}: check "
                    "its column of ids"
                )
            self._at[rows[rows >= 0]] = np.flatnonzero(rows >= 0)
            if missing := int((self._at < 0).sum()):
                warn(
                    f"{missing:,} of the model's {len(ids):,} items "
                    f"{'is' if missing == 1 else 'are'} not in the table of items: ids are shown "
                    "instead",
                    DataWarning,
                )
        self._titles: list[str | None] = [None] * len(ids)
        if self.has_titles:
            given = self._frame["title"].to_list()
            self._titles = [given[at] or None if at >= 0 else None for at in self._at.tolist()]
        self._by_count = np.lexsort((np.arange(len(ids)), -self.counts))
        names = (title or str(id) for title, id in zip(self._titles, ids.ids.tolist(), strict=True))
        self._plain = pl.Series([_plain(name) for name in names], dtype=pl.String)

    @classmethod
    def read(
        cls, ids: IdMap, counts: NDArray[Any], path: str | os.PathLike[str] | None
    ) -> ItemTable:
        """Read a table from a file, if there is one."""
        return cls(ids, counts, None if path is None else read_item_info(path))

    @property
    def has_titles(self) -> bool:
        """Whether the table has titles."""
        return "title" in self._frame.columns

    @property
    def columns(self) -> list[str]:
        """Other columns of the table."""
        return [name for name in self._frame.columns if name not in ("item", "title")]

    def title(self, row: int) -> str | None:
        """Title of an item by row number, or None."""
        return self._titles[row]

    def info(self, row: int) -> dict[str, Any]:
        """Other columns of an item by row number; empty if it is not in the table."""
        at = int(self._at[row])
        if at < 0 or not self.columns:
            return {}
        found = self._frame.select(self.columns).row(at, named=True)
        return {name: _json(value) for name, value in found.items()}

    def search(self, query: str, n: int) -> Index:
        """Row numbers of items whose name contains all words of the query, best match first.

        First the item whose id is the query, then names equal to it, names that begin with it,
        names with a word that does, and others; ties by number of ratings. An empty query finds
        the items with most ratings.
        """
        import polars as pl

        words = _plain(query).split()
        if not words:
            return self._by_count[:n]
        plain, whole = self._plain, " ".join(words)
        mask = pl.Series([True]).new_from_index(0, len(plain))
        for word in words:
            mask &= plain.str.contains(word, literal=True)
        rows = np.flatnonzero(mask.to_numpy())
        own = self._row_of(query.strip())
        if own >= 0:
            rows = np.union1d(rows, [own])
        some = plain.gather(rows.astype(np.uint32))
        merit = np.zeros(len(rows), np.int64)
        merit += (" " + some).str.contains(f" {whole}", literal=True).to_numpy()
        merit += some.str.starts_with(whole).to_numpy()
        merit += (some == whole).to_numpy()
        merit += 4 * (rows == own)
        return np.asarray(rows[np.lexsort((rows, -self.counts[rows], -merit))][:n])

    def _row_of(self, text: str) -> int:
        try:
            return self.ids.index(text)
        except InputError:
            return -1


def _plain(text: str) -> str:
    """Text without case, accents and punctuation."""
    found = unicodedata.normalize("NFKD", text.casefold())
    kept = (c if c.isalnum() else " " for c in found if not unicodedata.combining(c))
    return " ".join("".join(kept).split())


def _json(value: Any) -> Any:
    """A value for JSON: finite numbers and text; everything else as text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return str(value)
