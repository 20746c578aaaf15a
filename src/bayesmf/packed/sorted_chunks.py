"""Sorted chunks of ratings on disk, each in the order of its rows.

A sorted chunk is a chunk of ratings grouped by row. The ratings of neighbouring rows are one slice
of each chunk, so they are read without the others.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.ids.id_map import IdMap, column_of
from bayesmf.kernels.csr import RowLists, group_rows
from bayesmf.reading.table import Table, join_ids

_TYPES = {"starts": np.int64, "other": np.int32, "value": np.float32}
# Ids of chunks are merged when there are this many.
_MERGE_IDS = 1 << 22

Values = Callable[[int, int, int], NDArray[Any]]
"""Returns the values of chunk ``k`` from ``begin`` to ``end - 1``."""


class UserChunk(NamedTuple):
    """A chunk of the files, grouped by user."""

    lists: RowLists
    time: NDArray[np.int64] | None
    users: IdMap
    """Ids of the rows."""
    items: IdMap


class Stretch(NamedTuple):
    """The ratings of neighbouring rows, in the order in which they were read."""

    row: NDArray[np.int32]
    """Row numbers, counted from the first row of the stretch."""
    other: NDArray[np.int32]
    value: NDArray[Any]
    time: NDArray[np.int64] | None


def group_by_user(table: Table, timed: bool) -> UserChunk:
    """Group a table by user, with ids numbered inside the table alone."""
    assert table.rating is not None
    users, user = IdMap.encode(table.user)
    items, item = IdMap.encode(table.item)
    lists = group_rows(user, item, table.rating.astype(np.float32), len(users))
    time = None
    if timed:
        assert table.timestamp is not None
        time = group_rows(user, item, table.timestamp, len(users)).value
    return UserChunk(lists, time, users, items)


class SortedChunks:
    """The sorted chunks in a new folder; `timed` if the ratings have timestamps."""

    def __init__(self, folder: Path, timed: bool = False) -> None:
        self.folder, self.timed = folder, timed
        folder.mkdir()

    def file(self, k: int, what: str) -> Path:
        """Return the path of one array of chunk ``k``."""
        return self.folder / f"{k}.{what}"

    def write(self, k: int, lists: RowLists, time: NDArray[np.int64] | None = None) -> None:
        """Write a chunk of rows that all have ratings; :meth:`name_rows` writes which rows."""
        for name, array in vars(lists).items():
            write_raw(self.file(k, name), array)
        if time is not None:
            write_raw(self.file(k, "time"), time)

    def write_ids(self, k: int, users: IdMap, items: IdMap) -> None:
        """Write which ids the numbers of a chunk stand for."""
        write_ids(self.file(k, "user"), users)
        write_ids(self.file(k, "item"), items)

    def number(self, k: int, maps: Mapping[str, IdMap]) -> None:
        """Give a chunk the row numbers that its ids have over all chunks."""
        user, item = (
            maps[side].lookup(read_ids(self.file(k, side))).astype(np.int32)
            for side in ("user", "item")
        )
        self.name_rows(k, user, item)

    def name_rows(
        self, k: int, rows: NDArray[np.int32], others: NDArray[np.int32] | None = None
    ) -> None:
        """Write which rows a chunk has and what its other numbers stand for.

        Parameters
        ----------
        k
            Number of the chunk.
        rows
            The row numbers of its lists; where they do not ascend the chunk is put in their order.
        others
            Numbers on the other side by the numbers that the chunk has; None for the same.
        """
        order = np.argsort(rows)
        if np.any(order[1:] < order[:-1]):
            self._reorder(k, order)
        write_raw(self.file(k, "rows"), rows[order])
        if others is not None:
            write_raw(self.file(k, "others"), others)

    def _reorder(self, k: int, order: NDArray[np.int64]) -> None:
        found = {name: np.fromfile(self.file(k, name), dtype) for name, dtype in _TYPES.items()}
        position = np.empty(len(order), dtype=np.int32)
        position[order] = np.arange(len(order), dtype=np.int32)
        row = np.repeat(position, np.diff(found["starts"]))
        lists = group_rows(row, found["other"], found["value"], len(order))
        time = None
        if self.timed:
            time = np.fromfile(self.file(k, "time"), dtype=np.int64)
            time = group_rows(row, found["other"], time, len(order)).value
        self.write(k, lists, time)

    def count_rows(self, k: int, counts: NDArray[np.int64]) -> None:
        """Add the number of ratings of each row in a chunk."""
        rows, starts = self._span(k, 0, len(counts))
        counts[rows] += starts[1:] - starts[:-1]

    def gather(self, chunks: Sequence[int], first: int, stop: int, values: Values) -> Stretch:
        """Read the ratings of rows ``first`` to ``stop - 1`` from chunks, in their order."""
        spans = [self._span(k, first, stop) for k in chunks]
        ends = np.cumsum([starts[-1] - starts[0] for _, starts in spans])
        row, other = (np.empty(ends[-1], dtype=np.int32) for _ in range(2))
        value = np.empty(ends[-1], dtype=values(chunks[0], 0, 0).dtype)
        time = np.empty(ends[-1], dtype=np.int64) if self.timed else None
        for k, (rows, starts), stop_at in zip(chunks, spans, ends.tolist(), strict=True):
            begin, end = int(starts[0]), int(starts[-1])
            at = slice(stop_at - (end - begin), stop_at)
            row[at] = np.repeat(rows, np.diff(starts))
            other[at] = self._others(k, begin, end)
            value[at] = values(k, begin, end)
            if time is not None:
                time[at] = read_raw(self.file(k, "time"), np.int64, begin, end)
        return Stretch(row, other, value, time)

    def ratings(self, k: int, begin: int, end: int) -> NDArray[np.float32]:
        """Return some values of a chunk that holds ratings, not codes."""
        return read_raw(self.file(k, "value"), np.float32, begin, end)

    def _span(self, k: int, first: int, stop: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        # Mapped, because finding two numbers looks at few pages.
        rows = np.memmap(self.file(k, "rows"), dtype=np.int32, mode="r")
        low, high = np.searchsorted(rows, [first, stop]).tolist()
        starts = read_raw(self.file(k, "starts"), np.int64, low, high + 1)
        return np.asarray(rows[low:high]) - np.int32(first), starts

    def _others(self, k: int, begin: int, end: int) -> NDArray[np.int32]:
        other = read_raw(self.file(k, "other"), np.int32, begin, end)
        names = self.file(k, "others")
        if not len(other) or not names.exists():
            return other
        return np.asarray(np.memmap(names, dtype=np.int32, mode="r")[other])


class CodedValues:
    """Values of parts, from codes among a part's own levels to codes among all levels.

    Parameters
    ----------
    file
        Returns the file of a part's values.
    own
        Levels of each part; None where the file holds the ratings themselves.
    levels
        All levels, None where there are too many: then the values are the ratings.
    """

    def __init__(
        self,
        file: Callable[[int], Path],
        own: Iterable[list[float] | None],
        levels: list[float] | None,
    ) -> None:
        self.file = file
        self.tables: list[NDArray[Any] | None] = []
        for some in own:
            table = None if some is None else np.array(some, dtype=np.float32)
            if table is not None and levels is not None:
                table = np.searchsorted(np.array(levels, dtype=np.float32), table).astype(np.uint8)
            self.tables.append(table)

    def __call__(self, p: int, begin: int, end: int) -> NDArray[Any]:
        table = self.tables[p]
        if table is None:
            return read_raw(self.file(p), np.float32, begin, end)
        return np.take(table, read_raw(self.file(p), np.uint8, begin, end))


def write_raw(file: Path, array: NDArray[Any]) -> None:
    """Write an array without a header."""
    with file.open("wb") as stream:
        stream.write(np.ascontiguousarray(array).view(np.uint8).data)


def read_raw(file: Path, dtype: Any, start: int, stop: int) -> NDArray[Any]:
    """Read some elements of an array without a header."""
    offset = start * np.dtype(dtype).itemsize
    return np.fromfile(file, dtype=dtype, count=stop - start, offset=offset)


def write_ids(file: Path, ids: IdMap) -> None:
    """Write ids, integers or strings."""
    raw = io.BytesIO()
    np.savez(raw, **ids.to_arrays())  # type: ignore[arg-type]
    file.write_bytes(raw.getbuffer())


def read_ids(file: Path) -> IdMap:
    """Read what :func:`write_ids` wrote."""
    with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
        return IdMap.from_arrays(dict(arrays))


def union_ids(files: Iterable[Path]) -> IdMap:
    """Return the ids of all files; strings where not all are integers."""
    waiting: list[IdMap] = []
    count = most = 0
    for file in files:
        waiting.append(read_ids(file))
        count += len(waiting[-1])
        # Merged less often the more there are, so that the work stays nearly linear.
        if count > max(_MERGE_IDS, 2 * most):
            waiting = [_merged(waiting)]
            count = most = len(waiting[0])
    return _merged(waiting)


def _merged(maps: list[IdMap]) -> IdMap:
    return IdMap.encode(join_ids([column_of(ids) for ids in maps]))[0]
