"""External ids (integers or strings) and their row numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.errors import InputError
from bayesmf.ids.columns import id_column
from bayesmf.ids.strings import Strings, as_integer, distinct_integers, inverse
from bayesmf.wording import shown

if TYPE_CHECKING:
    import polars as pl

# Integers are numbered by a table over their range while that is about as small as the data.
_TABLE_SLACK = 1 << 22
# At most this many are sorted, which needs no compiled code.
_SORTED = 1 << 14


class IdMap:
    """The external ids of users or items; the id of row ``k`` is ``ids[k]``.

    Parameters
    ----------
    ids : array-like
        The ids, ascending and without repeats: integers, or strings.

    Attributes
    ----------
    ids : numpy.ndarray
        ``int64`` for integer ids, an object array of ``str`` for string ids.
    kind : {"int", "str"}
        Type of the ids.

    Raises
    ------
    InputError
        If they are not ids, or do not ascend.

    Examples
    --------
    >>> from bayesmf import IdMap
    >>> ids = IdMap(["ann", "bob", "eve"])
    >>> ids
    IdMap(3 str ids: 'ann', 'bob', 'eve')
    >>> ids[1], "eve" in ids, len(ids)
    ('bob', True, 3)
    """

    kind: Literal["int", "str"]

    def __init__(self, ids: Any) -> None:
        column = id_column(ids)
        self._take(column)
        self._check_text()

    def _take(self, column: NDArray[np.int64] | Strings, *, ascends: bool = False) -> None:
        self._ids: NDArray[Any] | None = None
        self._strings: Strings | None = None
        if isinstance(column, np.ndarray):
            self.kind, self._ids = "int", column
            ascends = ascends or bool(np.all(column[1:] > column[:-1]))
        else:
            self.kind, self._strings = "str", column.packed()
            ascends = ascends or self._strings.ascending()
        if not ascends:
            raise InputError(
                "The ids of an IdMap must ascend without repeats; use IdMap.encode for a column"
            )

    def _check_text(self) -> None:
        if self._strings is not None and not self._strings.is_text():
            raise InputError("An id holds half of a surrogate pair, which is not valid text")

    @property
    def ids(self) -> NDArray[Any]:
        """All ids; strings become Python's own on first use."""
        found = self._ids
        if found is None:
            assert self._strings is not None
            found = np.empty(len(self._strings), dtype=object)
            found[:] = self._strings.tolist()
            self._ids = found
        return found

    def __len__(self) -> int:
        return len(self._column)

    @property
    def _column(self) -> NDArray[np.int64] | Strings:
        if self._strings is not None:
            return self._strings
        assert self._ids is not None
        return self._ids

    def __getitem__(self, key: Any) -> Any:
        if self._strings is not None and isinstance(key, int | np.integer):
            if not -len(self) <= key < len(self):
                raise IndexError(f"row {key} of {len(self)} ids")
            return self._strings[key]
        found = self.ids[key]
        return int(found) if isinstance(found, np.integer) else found

    def __contains__(self, id: object) -> bool:
        """Whether an id is known, as :meth:`lookup` finds it; False for what is not an id."""
        try:
            return self.index(id) >= 0
        except InputError:
            return False

    def __iter__(self) -> Iterator[Any]:
        return iter(self.ids.tolist())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IdMap):
            return NotImplemented
        mine, theirs = self._column, other._column
        if isinstance(mine, Strings) and isinstance(theirs, Strings):
            return mine.blob == theirs.blob and np.array_equal(mine.ends, theirs.ends)
        return self.kind == other.kind and np.array_equal(self.ids, other.ids)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(repr(self[k]) for k in range(min(3, len(self))))
        examples = f": {shown}{', ...' if len(self) > 3 else ''}" if shown else ""
        return f"IdMap({len(self):,} {self.kind} ids{examples})"

    @classmethod
    def encode(cls, values: Any, *, what: str = "id") -> tuple[IdMap, NDArray[np.int32]]:
        """The map of the ids in a column, and the row number of every value.

        Parameters
        ----------
        values : array-like
            NumPy array, list, polars, pandas or Arrow column of ids.
        what : str
            Name of a value in error messages.

        Returns
        -------
        map : IdMap
            The ids, ascending.
        rows : numpy.ndarray
            The row number (``int32``) of each value.

        Raises
        ------
        InputError
            If a value is missing or not an id.

        Examples
        --------
        >>> from bayesmf import IdMap
        >>> ids, rows = IdMap.encode(["eve", "ann", "eve"])
        >>> ids
        IdMap(2 str ids: 'ann', 'eve')
        >>> rows.tolist()
        [1, 0, 1]
        """
        column = values if isinstance(values, Strings) else id_column(values, what=what)
        made = cls.__new__(cls)
        if isinstance(column, Strings):
            strings, codes = column.numbered()
            made._take(strings, ascends=True)
            made._check_text()
        else:
            ids, codes = _number_integers(column)
            made._take(ids, ascends=True)
        return made, codes

    def lookup(self, values: Any) -> NDArray[np.int64]:
        """Row numbers of ids.

        Parameters
        ----------
        values : array-like or IdMap
            NumPy array, list, polars, pandas or Arrow column of ids, or another map. The integer
            12 and the text "12" are the same id.

        Returns
        -------
        numpy.ndarray
            Row numbers (``int64``), -1 for an unknown id.

        Raises
        ------
        InputError
            If a value is missing or not an id.

        Examples
        --------
        >>> from bayesmf import IdMap
        >>> IdMap([10, 20, 30]).lookup(["20", "5"]).tolist()
        [1, -1]
        """
        column = column_of(values)
        if self._strings is not None:
            if isinstance(column, np.ndarray):
                column = Strings.from_texts(list(map(str, column.tolist())))
            return self._strings.rows_of(column)
        if isinstance(column, np.ndarray):
            return self._lookup_ints(column)
        numbers, known = column.integers()
        return np.where(known, self._lookup_ints(numbers), np.int64(-1))

    def index(self, id: Any) -> int:
        """Row number of one id, -1 if unknown.

        Parameters
        ----------
        id : int or str
            The id.

        Returns
        -------
        int
            The row number.

        Raises
        ------
        InputError
            If it is not an id.

        Examples
        --------
        >>> from bayesmf import IdMap
        >>> IdMap([10, 20, 30]).index(30)
        2
        """
        value = _scalar(id)
        if self._strings is not None:
            return self._strings.row(str(value))
        number = as_integer(value) if isinstance(value, str) else value
        if number is None or not -(2**63) <= number < 2**63:
            return -1
        at = int(np.searchsorted(self.ids, number))
        return at if at < len(self) and self.ids[at] == number else -1

    def column(self, rows: NDArray[Any]) -> pl.Series:
        """The ids of rows as a polars series (Int64 or String).

        Parameters
        ----------
        rows : numpy.ndarray
            Row numbers.

        Returns
        -------
        polars.Series
            The id of each row.

        Examples
        --------
        >>> import numpy as np
        >>> from bayesmf import IdMap
        >>> IdMap([10, 20, 30]).column(np.array([2, 0])).to_list()
        [30, 10]
        """
        import polars as pl

        if self._strings is not None:
            if len(rows) < len(self):
                return pl.Series(self._strings.take(rows).tolist(), dtype=pl.String)
            return pl.Series(self._strings.tolist(), dtype=pl.String).gather(rows)
        return pl.Series(self.ids[rows])

    def take(self, rows: NDArray[Any]) -> IdMap:
        """The map of some rows.

        Parameters
        ----------
        rows : numpy.ndarray
            Row numbers, ascending.

        Returns
        -------
        IdMap
            Their ids, numbered from 0.

        Raises
        ------
        InputError
            If the rows do not ascend.

        Examples
        --------
        >>> import numpy as np
        >>> from bayesmf import IdMap
        >>> IdMap([10, 20, 30]).take(np.array([0, 2]))
        IdMap(2 int ids: 10, 30)
        """
        made = IdMap.__new__(IdMap)
        column = self._column
        made._take(column.take(rows) if isinstance(column, Strings) else column[rows])
        return made

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The map as plain arrays, for saving.

        Returns
        -------
        dict of str to numpy.ndarray
            ``{"ids": int64}``, or ``{"bytes": uint8, "offsets": int64}`` for strings:
            the UTF-8 text of id ``k`` is ``bytes[offsets[k]:offsets[k + 1]]``.

        Examples
        --------
        >>> from bayesmf import IdMap
        >>> IdMap(["a", "bc"]).to_arrays()["offsets"].tolist()
        [0, 1, 3]
        """
        if self._strings is None:
            return {"ids": self.ids}
        ends = self._strings.ends
        text = np.frombuffer(self._strings.blob, dtype=np.uint8)
        return {"bytes": text, "offsets": np.append(np.int64(0), ends)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], prefix: str = "") -> IdMap:
        """A map from the arrays of :meth:`to_arrays`.

        Parameters
        ----------
        arrays : mapping of str to numpy.ndarray
            The arrays by name, perhaps among others.
        prefix : str
            Prefix of their names.

        Returns
        -------
        IdMap
            The same map.

        Raises
        ------
        InputError
            If they are not the arrays of a map.

        Examples
        --------
        >>> from bayesmf import IdMap
        >>> IdMap.from_arrays(IdMap(["a", "b"]).to_arrays())
        IdMap(2 str ids: 'a', 'b')
        """
        made = cls.__new__(cls)
        arrays = {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
        if "ids" in arrays:
            made._take(np.array(arrays["ids"], dtype=np.int64).reshape(-1))
            return made
        if not {"bytes", "offsets"} <= set(arrays):
            raise InputError("The arrays of an IdMap are 'ids', or 'bytes' and 'offsets'")
        blob = np.asarray(arrays["bytes"], dtype=np.uint8).tobytes()
        strings = Strings.cut(blob, np.array(arrays["offsets"], dtype=np.int64).reshape(-1))
        if strings is None:
            raise InputError(
                "The saved ids are damaged: their offsets do not fit their text, or it is not UTF-8"
            )
        made._take(strings)
        return made

    def _lookup_ints(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        if not len(self):
            return np.full(len(values), -1, dtype=np.int64)
        at = np.searchsorted(self.ids, values).astype(np.int64, copy=False)
        at[at == len(self)] = 0
        at[self.ids[at] != values] = -1
        return at


def _number_integers(
    values: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The distinct integers, ascending, and the position among them of each value."""
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    if high - low < len(values) + _TABLE_SLACK and len(values) > _SORTED:
        shifted = values - low
        seen = np.zeros(high - low + 1, dtype=bool)
        seen[shifted] = True
        codes = np.cumsum(seen, dtype=np.int32) - np.int32(1)
        return np.flatnonzero(seen).astype(np.int64) + low, codes[shifted]
    if len(values) <= _SORTED:
        unique, codes = np.unique(values, return_inverse=True)
        return unique, codes.astype(np.int32)
    firsts, codes = distinct_integers(values)
    unique = values[firsts]
    order = np.argsort(unique)
    return unique[order], inverse(order)[codes]


def column_of(values: Any) -> NDArray[np.int64] | Strings:
    """The ids of a column or of a map, as integers or strings."""
    if isinstance(values, IdMap):
        return values._column
    return values if isinstance(values, Strings) else id_column(values)


def _scalar(id: Any) -> int | str:
    if isinstance(id, str):
        return str(id)
    if isinstance(id, (int, np.integer)) and not isinstance(id, (bool, np.timedelta64)):
        return int(id)
    if isinstance(id, (float, np.floating)) and float(id).is_integer():
        return int(id)
    raise InputError(f"{shown(id)} is not an id; ids are integers or strings")


# -- ids that come later ------------------------------------------------------------------------


class MergedIds(NamedTuple):
    """The union of two maps; `old` and `new` are the row numbers of their ids in it."""

    ids: IdMap
    old: NDArray[np.int64]
    new: NDArray[np.int64]


def merge_ids(known: IdMap, more: IdMap, side: str) -> MergedIds:
    """Add ids to known ones, converted to their type; `side` is "user" or "item"."""
    rows = known.lookup(more)
    missing = more.ids[rows < 0]
    if not len(missing):
        return MergedIds(known, np.arange(len(known)), rows)
    if known.kind == "str":
        ids = IdMap(sorted({*known.ids.tolist(), *map(str, missing.tolist())}))
    else:
        ids = IdMap(np.union1d(known.ids, _integers(missing, side)))
    return MergedIds(ids, ids.lookup(known), ids.lookup(more))


def _integers(missing: NDArray[np.object_], side: str) -> NDArray[np.int64]:
    """New ids as integers, the type of the known ones."""
    if missing.dtype.kind == "i":
        return missing.astype(np.int64)
    found = IdMap(missing.tolist())
    numbers = []
    for text in found.ids.tolist():
        number = int(text) if text.lstrip("-").isdecimal() and text.isascii() else None
        if number is None or str(number) != text or not -(2**63) <= number < 2**63:
            raise InputError(
                f"the {side} id {shown(text)} is text, but the {side} ids of the model are"
                " integers: pass ids of the type that was passed to fit"
            )
        numbers.append(number)
    return np.array(numbers, np.int64)
