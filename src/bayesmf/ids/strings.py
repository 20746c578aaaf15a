"""Many strings as one piece of UTF-8 bytes, and where each begins and ends.

Ids are stored so on disk and in memory: a tenth of what Python's own strings take, loaded without
looking at each, and looked up without a library whose threads would be gone in a forked process.
"""

from __future__ import annotations

import secrets
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.types import readonly
from bayesmf.process import Pool, parts

Index = NDArray[np.int64]

# So few are found by halving, which needs no table.
_FEW = 64
# Strings that a thread looks up at a stretch: what belongs to them stays in its cache.
_STRETCH = 1 << 11
# Neighbours that begin alike for long are compared one by one, once they are so few.
_RARE = 256
_BETWEEN = "\0"


class Strings(Sequence[str]):
    """Strings, the k-th of which is ``blob[starts[k]:ends[k]]``.

    Parameters
    ----------
    blob : bytes
        UTF-8 text. Half of a surrogate pair, which no text has, stands there as Python writes it.
    starts, ends : ndarray of int64
        Where each string begins and ends.
    """

    def __init__(self, blob: bytes, starts: Index, ends: Index) -> None:
        self.blob, self.starts, self.ends = blob, starts, ends
        self._table: tuple[NDArray[np.uint64], NDArray[np.int32]] | None = None

    @classmethod
    def from_texts(cls, texts: Sequence[str]) -> Self:
        """From strings; TypeError where one of them is none."""
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
    def cut(cls, blob: bytes, offsets: Index) -> Self | None:
        """From bytes and where to cut them; None where that is not text, cut into text."""
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
        return type(self), (self.blob, self.starts, self.ends)  # the table is made anew

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, k: Any) -> Any:
        return self.raw(k).decode("utf-8", "surrogatepass")

    def raw(self, k: int) -> bytes:
        """The bytes of one string."""
        return self.blob[self.starts[k] : self.ends[k]]

    def to_list(self) -> list[str]:
        """All of them as Python's own."""
        spans = zip(self.starts.tolist(), self.ends.tolist(), strict=True)
        if self.blob.isascii():
            text = self.blob.decode("ascii")
            return [text[a:b] for a, b in spans]
        blob = self.blob
        return [blob[a:b].decode("utf-8", "surrogatepass") for a, b in spans]

    def take(self, rows: Any) -> Self:
        """Some of them."""
        return type(self)(self.blob, self.starts[rows], self.ends[rows])

    def packed(self) -> Self:
        """These strings with nothing between them: `blob` and `offsets` alone say it all."""
        lengths = self.ends - self.starts
        offsets = _offsets(lengths)
        if np.array_equal(self.starts, offsets[:-1]) and offsets[-1] == len(self.blob):
            return self
        between = _BETWEEN.encode()
        apart = np.array_equal(self.starts, offsets[:-1] + np.arange(len(self)))
        if (
            apart and self.blob.count(between) == len(self) - 1
        ):  # as `from_texts` puts them together
            blob = self.blob.replace(between, b"")
        else:
            spans = zip(self.starts.tolist(), self.ends.tolist(), strict=True)
            blob = b"".join([self.blob[a:b] for a, b in spans])
        return type(self)(blob, offsets[:-1], offsets[1:])

    def is_text(self) -> bool:
        """Whether all of it is text that can be written: no half of a surrogate pair."""
        try:
            self.blob.decode()
        except UnicodeDecodeError:
            return False
        return True

    # -- looking up -------------------------------------------------------------------------------

    def ascending(self) -> bool:
        """Whether each string is behind the one before it, by code points."""
        # Eight bytes of all pairs of neighbours at once, then of those that are equal so far.
        whole = np.frombuffer(self.blob + bytes(8), np.uint8)
        words = np.ndarray(len(self.blob) + 1, ">u8", whole, strides=(1,))
        rows, at = np.arange(len(self) - 1), 0
        while len(rows) > _RARE:
            one, two = self._words(words, rows, at), self._words(words, rows + 1, at)
            if np.any(one > two):
                return False
            rows, at = rows[one == two], at + 8
            over = np.maximum(self._left(rows, at), self._left(rows + 1, at)) <= 0
            # What is missing counts as zeros, so one of two equal ones may still be longer.
            if np.any(self._left(rows, at)[over] >= self._left(rows + 1, at)[over]):
                return False
            rows = rows[~over]
        return all(self.raw(k) < self.raw(k + 1) for k in rows.tolist())

    def _left(self, rows: Index, at: int) -> Index:
        return self.ends[rows] - self.starts[rows] - at

    def _words(self, words: NDArray[Any], rows: Index, at: int) -> NDArray[np.uint64]:
        """Eight bytes of strings from a position on, zeros behind their end."""
        left = self._left(rows, at)
        some = words[np.minimum(self.starts[rows] + at, len(words) - 1)].astype(np.uint64)
        drop = (8 * (8 - np.clip(left, 1, 8))).astype(np.uint64)
        return np.where(left > 0, some >> drop << drop, np.uint64(0))

    def row(self, text: str) -> int:
        """The number of a string, -1 where it is not here; they must ascend."""
        return self._halved(_encoded(text))

    def _halved(self, key: bytes) -> int:
        at = bisect_left(range(len(self)), key, key=self.raw)
        return at if at < len(self) and self.raw(at) == key else -1

    def rows_of(self, asked: Strings) -> Index:
        """The numbers of many strings, -1 for those that are not here; these must ascend."""
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
        """The strings as 64-bit integers, and which of them are one in its usual form."""
        n = len(self)
        numbers, ok = np.zeros(n, np.int64), np.zeros(n, np.bool_)
        if n > _FEW:
            from bayesmf.kernels.strings import read_integers

            read_integers(*self._arrays(), numbers, ok)
            return numbers, ok
        for k, text in enumerate(self.to_list()):
            value = as_integer(text)
            if value is not None:
                numbers[k], ok[k] = value, True
        return numbers, ok

    def _arrays(self) -> tuple[NDArray[Any], Index, Index]:
        return (
            np.frombuffer(self.blob, np.uint8), readonly(self.starts), readonly(self.ends),
        )  # fmt: skip

    def _made_table(self) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
        """Made when it is first needed; two threads may both do so, and either's will do."""
        made = self._table
        if made is None:
            from bayesmf.kernels.strings import fill_table

            numbers = secrets.randbits(64), secrets.randbits(64) | 1
            secret = np.array(numbers, np.uint64)
            table = np.full((1 << (2 * len(self) - 1).bit_length(), 2), -1, np.int32)
            fill_table(*self._arrays(), readonly(secret), table)
            made = self._table = readonly(secret), readonly(table)
        return made


def as_integer(text: str) -> int | None:
    """Read an integer in its usual form, None where it is none or does not fit into 64 bits."""
    if len(text) > 20:
        return None
    try:
        value = int(text)
    except ValueError:
        return None
    return value if str(value) == text and -(2**63) <= value < 2**63 else None


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _offsets(lengths: Index) -> Index:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
