"""External ids (integers or strings) and the row numbers that stand for them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from bayesmf.checks import shown
from bayesmf.errors import InputError
from bayesmf.series import Place, first_true, row_place, to_series

if TYPE_CHECKING:
    import polars as pl

# A lookup table over the whole range of integer ids beats hashing while it stays about as
# small as the data; ids spread over a wider range go through polars' hash tables.
_TABLE_SLACK = 1 << 22


class IdMap:
    """The external ids of users or items; the id of row ``k`` is ``ids[k]``.

    Parameters
    ----------
    ids
        The ids, ascending and without repeats: integers, or strings.

    Attributes
    ----------
    ids : numpy.ndarray
        ``int64`` for integer ids, an object array of ``str`` for string ids.
    kind : {"int", "str"}
        What the ids are.
    """

    ids: NDArray[Any]
    kind: Literal["int", "str"]

    def __init__(self, ids: Any) -> None:
        self._take(as_ids(ids))

    def _take(self, column: NDArray[np.int64] | pl.Series) -> None:
        if isinstance(column, np.ndarray):
            self.kind, self.ids, self._strings = "int", column, None
            ascending = bool(np.all(column[1:] > column[:-1]))
        else:
            # rechunk: one contiguous block makes every later lookup quicker
            self.kind, self._strings = "str", column.rechunk()
            self.ids = np.array(column.to_list(), dtype=object)
            ascending = bool((column.slice(1) > column.slice(0, max(len(column) - 1, 0))).all())
        if not ascending:
            raise InputError(
                "The ids of an IdMap must ascend without repeats; use IdMap.encode for a column."
            )

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, key: Any) -> Any:
        found = self.ids[key]
        return int(found) if isinstance(found, np.integer) else found

    def __contains__(self, id: object) -> bool:
        """Tell whether an id is known, as :meth:`lookup` does; what is no id is not."""
        try:
            return self.index(id) >= 0
        except InputError:
            return False

    def __iter__(self) -> Iterator[Any]:
        return iter(self.ids.tolist())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IdMap):
            return NotImplemented
        return self.kind == other.kind and np.array_equal(self.ids, other.ids)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(repr(self[k]) for k in range(min(3, len(self))))
        return f"IdMap({len(self):,} {self.kind} ids: {shown}{', ...' if len(self) > 3 else ''})"

    @classmethod
    def encode(cls, values: Any, *, what: str = "id") -> tuple[IdMap, NDArray[np.int32]]:
        """Build the map of a column's ids, and the row number of every value.

        Parameters
        ----------
        values
            A column of ids: NumPy array, list, polars, pandas or Arrow column.
        what
            What to call a value in error messages.

        Returns
        -------
        tuple of IdMap and numpy.ndarray
            The map, its ids in ascending order, and the ``int32`` row numbers.
        """
        ids, codes = encode_ids(as_ids(values, what=what))
        return cls(ids), codes

    def lookup(self, values: Any) -> NDArray[np.int64]:
        """Find the row numbers of ids.

        Parameters
        ----------
        values
            Ids: NumPy array, list, polars, pandas or Arrow column.  Strings are matched
            to integer ids when they are their decimal text, and the other way round.

        Returns
        -------
        numpy.ndarray
            Row numbers (``int64``), -1 for an unknown id.
        """
        column = as_ids(values)
        if self._strings is not None:
            strings = _texts(column) if isinstance(column, np.ndarray) else column
            return _positions(strings, self._strings)
        if isinstance(column, np.ndarray):
            return self._lookup_ints(column)
        numbers = canonical_ints(column)
        known = numbers.is_not_null().to_numpy()
        rows = self._lookup_ints(numbers.fill_null(0).to_numpy())
        return np.where(known, rows, np.int64(-1))

    def index(self, id: Any) -> int:
        """Find the row number of one id, -1 when it is unknown."""
        value = _scalar(id)
        if self.kind == "str":
            value = str(value)
        elif isinstance(value, str):
            if not _is_canonical(value):
                return -1
            value = int(value)
        at = int(np.searchsorted(self.ids, value)) if _fits(value) else len(self)
        return at if at < len(self) and self.ids[at] == value else -1

    def column(self, rows: NDArray[Any]) -> pl.Series:
        """Give the ids of rows as a polars series (Int64 or String)."""
        import polars as pl

        if self._strings is not None:
            return self._strings.gather(rows)
        return pl.Series(self.ids[rows])

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Give the map as plain arrays, for saving without pickle.

        Returns
        -------
        dict
            ``{"ids": int64}``, or ``{"bytes": uint8, "offsets": int64}`` for strings:
            the UTF-8 text of id ``k`` is ``bytes[offsets[k]:offsets[k + 1]]``.
        """
        if self.kind == "int":
            return {"ids": self.ids}
        texts = [text.encode() for text in self.ids]
        offsets = np.zeros(len(texts) + 1, dtype=np.int64)
        np.cumsum([len(text) for text in texts], out=offsets[1:])
        return {"bytes": np.frombuffer(b"".join(texts), dtype=np.uint8), "offsets": offsets}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> IdMap:
        """Rebuild a map from what :meth:`to_arrays` gave."""
        if "ids" in arrays:
            # Known to be integers: a model is loaded without waiting for polars.
            made = cls.__new__(cls)
            made._take(np.array(arrays["ids"], dtype=np.int64).reshape(-1))
            return made
        if not {"bytes", "offsets"} <= set(arrays):
            raise InputError("The arrays of an IdMap are 'ids', or 'bytes' and 'offsets'.")
        blob = np.asarray(arrays["bytes"], dtype=np.uint8).tobytes()
        offsets = np.asarray(arrays["offsets"], dtype=np.int64)
        whole = len(offsets) > 0 and offsets[0] == 0 and offsets[-1] == len(blob)
        if not whole or np.any(np.diff(offsets) < 0):
            raise InputError("The saved ids are damaged: their offsets do not fit their text.")
        ends = offsets.tolist()
        try:
            texts = [blob[a:b].decode() for a, b in pairwise(ends)]
        except UnicodeDecodeError:
            raise InputError("The saved ids are damaged: their text is not UTF-8.") from None
        return cls(np.array(texts, dtype=object) if texts else np.array([], dtype=str))

    def _lookup_ints(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        if not len(self):
            return np.full(len(values), -1, dtype=np.int64)
        at = np.searchsorted(self.ids, values).astype(np.int64, copy=False)
        at[at == len(self)] = 0
        at[self.ids[at] != values] = -1
        return at


def as_ids(
    values: Any, *, what: str = "id", place: Place = row_place
) -> NDArray[np.int64] | pl.Series:
    """Bring a column of ids to one of the two forms used here.

    Parameters
    ----------
    values
        NumPy array, list, polars, pandas or Arrow column of integers or strings; floats
        are taken when they are whole numbers (pandas makes them of integers).
    what
        What to call a value in error messages.
    place
        Says where a row is in error messages.

    Returns
    -------
    numpy.ndarray or polars.Series
        An ``int64`` array, or a series of strings.
    """
    import polars as pl

    column = to_series(values, what)
    dtype = column.dtype
    if dtype.is_float():
        column = column.fill_nan(None)
    if column.null_count():
        raise InputError(f"The {what} at {place(first_true(column.is_null()))} is missing.")
    if dtype.is_integer() or dtype.is_float():
        numbers = column.cast(pl.Int64, strict=False)
        bad = numbers.is_null()
        if dtype.is_float():
            bad |= column != column.floor()
        if bad.any():
            row = first_true(bad)
            raise InputError(
                f"The {what} {column[row]} at {place(row)} is not a 64-bit integer;"
                " ids are integers or strings."
            )
        return numbers.to_numpy()
    if dtype in (pl.String, pl.Categorical, pl.Enum):
        return column.cast(pl.String)
    if not len(column):
        return np.empty(0, dtype=np.int64)
    raise InputError(
        f"The {what} column holds {dtype} values from {place(0)} on; ids are integers or strings."
    )


def encode_ids(
    column: NDArray[np.int64] | pl.Series,
) -> tuple[NDArray[np.int64] | pl.Series, NDArray[np.int32]]:
    """Give the distinct ids, ascending, and the position among them of every value.

    Parameters
    ----------
    column
        What :func:`as_ids` gave.
    """
    if isinstance(column, np.ndarray):
        return _encode_ints(column)
    unique = column.unique().sort()
    return unique, _positions(column, unique).astype(np.int32)


def canonical_ints(texts: pl.Series) -> pl.Series:
    """Read strings as integers; null where the text is not an integer's usual form."""
    import polars as pl

    numbers = texts.cast(pl.Int64, strict=False)
    # What was read as an integer but does not look like one: "007", "+7", "-0".
    padded = texts.str.starts_with("0") & (texts.str.len_bytes() > 1)
    unusual = padded | texts.str.starts_with("+") | texts.str.starts_with("-0")
    return numbers.set(unusual, None) if unusual.any() else numbers


def _encode_ints(values: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    import polars as pl

    if not len(values):
        return values, np.empty(0, dtype=np.int32)
    low, high = int(values.min()), int(values.max())
    if high - low < len(values) + _TABLE_SLACK:
        shifted = values - low
        seen = np.zeros(high - low + 1, dtype=bool)
        seen[shifted] = True
        codes = np.cumsum(seen, dtype=np.int32) - np.int32(1)
        return np.flatnonzero(seen).astype(np.int64) + low, codes[shifted]
    column = pl.Series(values)
    unique = column.unique().sort()
    return unique.to_numpy(), _positions(column, unique).astype(np.int32)


def _positions(values: pl.Series, among: pl.Series) -> NDArray[np.int64]:
    import polars as pl

    if not len(among) or not len(values):
        return np.full(len(values), -1, dtype=np.int64)
    rows = pl.Series(np.arange(len(among), dtype=np.int64))
    return values.replace_strict(among, rows, default=-1, return_dtype=pl.Int64).to_numpy()


def _texts(values: NDArray[np.int64]) -> pl.Series:
    import polars as pl

    return pl.Series(values).cast(pl.String)


def _scalar(id: Any) -> int | str:
    if isinstance(id, str):
        return str(id)
    if isinstance(id, (int, np.integer)) and not isinstance(id, bool):
        return int(id)
    if isinstance(id, (float, np.floating)) and float(id).is_integer():
        return int(id)
    raise InputError(f"{shown(id)} is not an id; ids are integers or strings.")


def _is_canonical(text: str) -> bool:
    try:
        return str(int(text)) == text
    except ValueError:
        return False


def _fits(value: int | str) -> bool:
    return isinstance(value, str) or -(2**63) <= value < 2**63
