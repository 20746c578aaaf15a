"""Many strings as one piece of UTF-8 bytes, and where each begins and ends.

Ids are stored in this form on disk and in memory: a tenth of the size of Python's own strings.
"""

from __future__ import annotations

import secrets
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.types import readonly
from bayesmf.process import Pool, parts

Index = NDArray[np.int64]

# At most this many strings are looked up by bisection, which needs no table.
_FEW = 64
# At most this many are numbered and copied without compiled code.
_SMALL = 1 << 14
# Strings in a piece of work: their data fit into a core's cache.
_STRETCH = 1 << 11
# At most this many strings with long common prefixes are compared one by one.
_RARE = 256
_PIECE = 1 << 20
_BETWEEN = "\0"


class Strings(Sequence[str]):
    """Strings; the k-th is ``blob[starts[k]:ends[k]]``.

    Parameters
    ----------
    blob : bytes
        UTF-8 text; half of a surrogate pair as Python's "surrogatepass" encodes it.
    starts, ends : ndarray of int64
        Where each string begins and ends.
    """

    ndim = 1

    def __init__(self, blob: bytes, starts: Index, ends: Index) -> None:
        self.blob, self.starts, self.ends = blob, starts, ends
        self._table: tuple[NDArray[np.uint64], NDArray[np.int32]] | None = None

    @classmethod
    def from_texts(cls, texts: Sequence[str]) -> Self:
        """From strings; TypeError where a value is not a string."""
        n = len(texts)
        if not n:
            return cls(b"", np.zeros(0, np.int64), np.zeros(0, np.int64))
        blob = _encoded(_BETWEEN.join(texts))
        cuts = np.flatnonzero(np.frombuffer(blob, np.uint8) == ord(_BETWEEN))
        if len(cuts) == n - 1:  # no string has that character
            return cls(blob, np.append(0, cuts + 1), np.append(cuts, len(blob)))
        pieces = [_encoded(text) for text in texts]
        offsets = _offsets(np.fromiter(map(len, pieces), np.int64, n))
        return cls(b"".join(pieces), offsets[:-1], offsets[1:])

    @classmethod
    def from_series(cls, series: Any) -> Self:
        """From a polars series of text without nulls."""
        if len(series) <= _SMALL:
            return cls.from_texts(series.to_list())
        # polars joins strings into one of at most 4 GB.
        pieces = (series.slice(k, _PIECE) for k in range(0, len(series), _PIECE))
        blob = b"".join([piece.str.join("").item().encode() for piece in pieces])
        offsets = _offsets(series.str.len_bytes().to_numpy())
        return cls(blob, offsets[:-1], offsets[1:])

    @classmethod
    def concat(cls, parts: Sequence[Strings]) -> Self:
        """Concatenate several."""
        shifts = np.cumsum([0, *(len(part.blob) for part in parts[:-1])])
        starts = [part.starts + shift for part, shift in zip(parts, shifts, strict=True)]
        ends = [part.ends + shift for part, shift in zip(parts, shifts, strict=True)]
        blob = b"".join([part.blob for part in parts])
        return cls(blob, np.concatenate(starts), np.concatenate(ends))

    @classmethod
    def cut(cls, blob: bytes, offsets: Index) -> Self | None:
        """From bytes and offsets; None where they are not valid UTF-8 strings."""
        if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(blob):
            return None
        if np.any(offsets[1:] < offsets[:-1]):
            return None
        try:
            blob.decode()
        except UnicodeDecodeError:
            return None
        inside = np.frombuffer(blob, np.uint8)[offsets[offsets < len(blob)]] & 0xC0 == 0x80
        return None if inside.any() else cls(blob, offsets[:-1], offsets[1:])

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.blob, self.starts, self.ends)  # without the table

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, k: Any) -> Any:
        if isinstance(k, int | np.integer):
            return self.raw(int(k)).decode("utf-8", "surrogatepass")
        return self.take(k)

    def __iter__(self) -> Iterator[str]:
        return iter(self.tolist())

    def raw(self, k: int) -> bytes:
        """The bytes of one string."""
        return self.blob[self.starts[k] : self.ends[k]]

    def tolist(self) -> list[str]:
        """All of them as a list of `str`."""
        spans = zip(self.starts.tolist(), self.ends.tolist(), strict=True)
        if self.blob.isascii():
            text = self.blob.decode("ascii")
            return [text[a:b] for a, b in spans]
        blob = self.blob
        return [blob[a:b].decode("utf-8", "surrogatepass") for a, b in spans]

    def take(self, rows: Any) -> Self:
        """Some of the strings."""
        return type(self)(self.blob, self.starts[rows], self.ends[rows])

    def packed(self) -> Self:
        """The same strings with no gaps between them."""
        lengths = self.ends - self.starts
        offsets = _offsets(lengths)
        if np.array_equal(self.starts, offsets[:-1]) and offsets[-1] == len(self.blob):
            return self
        if len(self) <= _SMALL:
            spans = zip(self.starts.tolist(), self.ends.tolist(), strict=True)
            blob = b"".join([self.blob[a:b] for a, b in spans])
        else:
            from bayesmf.kernels.strings import copy_strings

            made = np.empty(offsets[-1], np.uint8)
            copy_strings(*self._arrays(), made)
            blob = made.tobytes()
        return type(self)(blob, offsets[:-1], offsets[1:])

    def is_text(self) -> bool:
        """Whether all of it is valid UTF-8, without halves of surrogate pairs."""
        try:
            self.blob.decode()
        except UnicodeDecodeError:
            return False
        return True

    # -- order ------------------------------------------------------------------------------------

    def ascending(self) -> bool:
        """Whether the strings ascend by code points, without repeats."""
        if len(self) <= _SMALL:
            return all(self.raw(k) < self.raw(k + 1) for k in range(len(self) - 1))
        from bayesmf.kernels.strings import ascend

        return bool(ascend(*self._arrays()))

    def _all_words(self) -> NDArray[Any]:
        """The eight bytes from each byte on, as integers that compare as text does."""
        whole = np.frombuffer(self.blob + bytes(8), np.uint8)
        return np.ndarray(len(self.blob) + 1, ">u8", whole, strides=(1,))

    def _left(self, rows: Index, at: int) -> Index:
        return self.ends[rows] - self.starts[rows] - at

    def _words(self, words: NDArray[Any], rows: Index, at: int) -> NDArray[np.uint64]:
        """Eight bytes of strings from a position on, zeros after their end."""
        left = self._left(rows, at)
        some = words[np.minimum(self.starts[rows] + at, len(words) - 1)].astype(np.uint64)
        drop = (8 * (8 - np.clip(left, 1, 8))).astype(np.uint64)
        return np.where(left > 0, some >> drop << drop, np.uint64(0))

    # -- numbering --------------------------------------------------------------------------------

    def numbered(self) -> tuple[Self, NDArray[np.int32]]:
        """The distinct strings, ascending, and the position among them of each."""
        if len(self) <= _SMALL:
            texts = self.tolist()
            unique = sorted(set(texts))
            code = {text: k for k, text in enumerate(unique)}
            codes = np.fromiter(map(code.__getitem__, texts), np.int32, len(texts))
            return self.from_texts(unique).packed(), codes
        distinct, codes = self._distinct()
        order = distinct._order()
        return distinct.take(order).packed(), inverse(order)[codes]

    def _distinct(self) -> tuple[Self, NDArray[np.int32]]:
        """The distinct strings in the order in which they first occur, and the codes of all."""
        found = None
        while found is None:  # until no two strings have the same hash
            found = self._distinct_hashes(new_secret())
        return found

    def _distinct_hashes(self, secret: NDArray[np.uint64]) -> tuple[Self, NDArray[np.int32]] | None:
        from bayesmf.kernels.strings import all_equal, hash_strings

        text, starts, ends = self._arrays()
        hashes, pieces = np.empty(len(self), np.int64), parts(len(self), _SMALL)
        same: list[bool] = []

        def hash_piece(part: slice) -> None:
            hash_strings(text, starts[part], ends[part], secret, hashes[part])

        def compare_piece(part: slice) -> None:
            same.append(all_equal(text, starts[part], ends[part], codes[part], *first))

        with Pool() as pool:
            pool.each(hash_piece, pieces)
            firsts, codes = distinct_integers(hashes)
            distinct = self.take(firsts).packed()
            first = distinct._arrays()
            pool.each(compare_piece, pieces)
        return (distinct, codes) if all(same) else None

    def _order(self) -> Index:
        """Row numbers of distinct strings in ascending order."""
        words, order, at = self._all_words(), np.arange(len(self)), 0
        places, group = np.arange(len(self)), np.zeros(len(self), np.int64)
        # Eight bytes at a time of the rows that are equal so far, which share a group.
        while len(places) > _RARE:
            rows = order[places]
            word, left = self._words(words, rows, at), np.clip(self._left(rows, at), 0, 9)
            by = np.lexsort((left, word, group[places]))
            order[places], word, left = rows[by], word[by], left[by]
            new = (np.diff(word) != 0) | (np.diff(left) != 0) | (np.diff(group[places]) != 0)
            new = np.concatenate([[True], new, [True]])
            begin = np.maximum.accumulate(np.where(new[:-1], np.arange(len(rows)), 0))
            group[places] = places[begin]
            places, at = places[~(new[:-1] & new[1:])], at + 8
        rows = order[places]
        keys = [
            (g, self.raw(row), row) for g, row in zip(group[places], rows.tolist(), strict=True)
        ]
        order[places] = [row for *_, row in sorted(keys)]
        return order

    # -- looking up -------------------------------------------------------------------------------

    def row(self, text: str) -> int:
        """The number of a string, -1 if absent; the strings must ascend."""
        return self._halved(_encoded(text))

    def _halved(self, key: bytes) -> int:
        at = bisect_left(range(len(self)), key, key=self.raw)
        return at if at < len(self) and self.raw(at) == key else -1

    def rows_of(self, asked: Strings) -> Index:
        """The numbers of many strings, -1 if absent; these strings must ascend."""
        if not len(self):
            return np.full(len(asked), -1, np.int64)
        if len(asked) <= _FEW:
            return np.array([self._halved(asked.raw(k)) for k in range(len(asked))], np.int64)
        from bayesmf.kernels.strings import find_rows

        secret, table = self._made_table()
        own, theirs = self._arrays(), asked._arrays()
        out = np.empty(len(asked), np.int64)

        def find(part: slice) -> None:
            spans = theirs[1][part], theirs[2][part]
            find_rows(*own, secret, table, theirs[0], *spans, out[part])

        with Pool() as pool:
            pool.each(find, parts(len(asked), _STRETCH))
        return out

    def integers(self) -> tuple[Index, NDArray[np.bool_]]:
        """The strings as 64-bit integers, and which of them are integers in their usual form."""
        n = len(self)
        numbers, ok = np.zeros(n, np.int64), np.zeros(n, np.bool_)
        if n > _FEW:
            from bayesmf.kernels.strings import read_integers

            read_integers(*self._arrays(), numbers, ok)
            return numbers, ok
        for k, text in enumerate(self.tolist()):
            value = as_integer(text)
            if value is not None:
                numbers[k], ok[k] = value, True
        return numbers, ok

    def _arrays(self) -> tuple[NDArray[Any], Index, Index]:
        return np.frombuffer(self.blob, np.uint8), readonly(self.starts), readonly(self.ends)

    def _made_table(self) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
        """The table, made on first use; two threads may both make it."""
        made = self._table
        if made is None:
            from bayesmf.kernels.strings import fill_table

            secret = new_secret()
            table = np.full((1 << (2 * len(self) - 1).bit_length(), 2), -1, np.int32)
            fill_table(*self._arrays(), secret, table)
            made = self._table = secret, readonly(table)
        return made


def as_integer(text: str) -> int | None:
    """An integer in its usual form; None for other text, or more than 64 bits."""
    if len(text) > 20:
        return None
    try:
        value = int(text)
    except ValueError:
        return None
    return value if str(value) == text and -(2**63) <= value < 2**63 else None


def distinct_integers(values: Index) -> tuple[Index, NDArray[np.int32]]:
    """Where each distinct integer first occurs, and the number of each value among these."""
    from bayesmf.kernels.strings import fill_integers, number_integers

    secret, values = new_secret(), readonly(values)
    codes, firsts = np.empty(len(values), np.int32), np.empty(len(values), np.int64)
    size, done, found = _SMALL, 0, 0
    while done < len(values):
        keys, table = np.empty(size, np.int64), np.full(size, -1, np.int32)
        fill_integers(readonly(values[firsts[:found]]), secret, keys, table)
        done, found = number_integers(values, secret, keys, table, codes, firsts, done, found)
        size *= 4
    return firsts[:found], codes


def inverse(order: Index) -> NDArray[np.int32]:
    """The rank of each row, from the rows in their order."""
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return rank


def new_secret() -> NDArray[np.uint64]:
    """Two random numbers that a table is hashed with."""
    return readonly(np.array([secrets.randbits(64), secrets.randbits(64) | 1], np.uint64))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _offsets(lengths: Index) -> Index:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
