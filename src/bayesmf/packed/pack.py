"""Packing: an external sort of ratings from files into lists of each user and each item.

Chunks of the files are sorted by user and kept on disk. Stretches of users, small enough to be
sorted in memory, are gathered from all sorted chunks; each becomes a part of the list by user and,
grouped by item, a sorted chunk of the other side. Stretches of items are gathered from those.
Temporary files are in a scratch folder beside the result, which is removed at the end or on error.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bayesmf.checks import whole
from bayesmf.data.duplicates import check_duplicates, warn_of_repeats
from bayesmf.errors import InputError
from bayesmf.ids.id_map import IdMap
from bayesmf.kernels.csr import RowLists
from bayesmf.packed.ratings import SIDES, PackedRatings
from bayesmf.packed.sorted_chunks import (
    CodedValues,
    SortedChunks,
    UserChunk,
    group_by_user,
    read_raw,
    union_ids,
    write_raw,
)
from bayesmf.packed.stretches import (
    UserPart,
    ValueStats,
    cut_rows,
    joint_stats,
    sort_items,
    sort_users,
)
from bayesmf.reading.chunks import AnyFile, Sources, rating_files, read_chunks
from bayesmf.reading.memory import Columns
from bayesmf.storage.artefact import PACKED, Streamed, write_file
from bayesmf.storage.paths import as_input_error, as_path

CHUNK = 1 << 21
STRETCH = 1 << 22

T = TypeVar("T")
Progress = Callable[[int, int, str], Any]
"""Called with the work done, all work (bytes of the files while they are read, ratings
afterwards), and the name of the stage."""


def pack(
    source: Sources,
    out: str | os.PathLike[str],
    *,
    columns: Columns | None = None,
    format: str = "auto",
    duplicates: str = "last",
    overwrite: bool = False,
    chunk: int = CHUNK,
    stretch: int = STRETCH,
    progress: Progress | None = None,
) -> PackedRatings:
    """Pack ratings, perhaps more than fit in memory, for `fit` to read in place.

    Memory is bounded by `chunk` and `stretch`. Temporary files are in a hidden folder beside
    `out`, which is removed at the end; with the result they take about 25 bytes per rating (33 with
    timestamps).

    Parameters
    ----------
    source : path-like or sequence of path-like
        A file, a folder of a known format or of files of one kind, a pattern such as
        ``"part-*.parquet"``, a URI of Parquet files as pyarrow takes it (``s3://``, ``gs://``,
        ``hdfs://``, ``file://``), or several of these.
    out : str or path-like
        The file to write; it appears when it is complete.
    columns : mapping, optional
        Which column is which, as for :meth:`Ratings.read`.
    format : str
        Format of the files, as for :meth:`Ratings.read`.
    duplicates : {"last", "mean", "error"}
        What to do when a user rated an item more than once, as for `Ratings`.
    overwrite : bool
        Whether to replace packed ratings at ``out``.
    chunk : int
        Ratings read at a time.
    stretch : int
        Ratings sorted at a time; a user or an item with more is sorted at once.
    progress : callable, optional
        Called as ``progress(done, total, stage)`` after each step.

    Returns
    -------
    PackedRatings
        The ratings, opened.

    Raises
    ------
    InputError
        If the files cannot be read, or something else is at ``out``.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from bayesmf import pack
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder)
    ...     _ = (path / "a.csv").write_text("user,item,rating\\n1,7,4\\n2,7,5\\n")
    ...     print(pack(path / "a.csv", path / "packed"))
    PackedRatings(2 ratings of 1 item by 2 users, 4 to 5, mean 4.500)
    """
    check_duplicates(duplicates)
    whole("chunk", chunk)
    whole("stretch", stretch)
    files = rating_files(source, format, columns)
    _refuse_taken(out, overwrite)
    as_path(out)
    with as_input_error(out):
        folder = Path(os.path.realpath(out)).parent
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            prefix=".bayesmf-packing-", dir=folder, ignore_cleanup_errors=True
        ) as scratch:
            packing = _Packing(files, Path(scratch), duplicates, chunk, stretch, progress)
            write_file(out, PACKED, *packing.run())
    packing.warn()
    return PackedRatings.open(out)


def _refuse_taken(out: str | os.PathLike[str], overwrite: bool) -> None:
    """Refuse an existing path that may not be replaced."""
    if not os.path.lexists(as_path(out)):
        return
    if not PackedRatings.is_packed(out):
        raise InputError(f"{out} exists and does not hold packed ratings: choose another path")
    if not overwrite:
        raise InputError(
            f"{out} holds packed ratings already: choose another path, or overwrite=True"
            " (on the command line --overwrite) to replace them"
        )


class _Packing:
    """The steps of :func:`pack`, which takes the same arguments, in a scratch folder."""

    def __init__(
        self,
        files: list[AnyFile],
        scratch: Path,
        duplicates: str,
        chunk: int,
        stretch: int,
        progress: Progress | None,
    ) -> None:
        self.files, self.scratch, self.duplicates = files, scratch, duplicates
        self.chunk, self.stretch = chunk, stretch
        self.progress = progress or (lambda done, total, stage: None)
        # Times only decide which of several ratings is the last.
        timed = duplicates != "error" and all(file.timed() for file in files)
        self.user_chunks = SortedChunks(scratch / "users", timed)
        self.item_chunks = SortedChunks(scratch / "items")
        self.written = 0

    def run(self) -> tuple[dict[str, NDArray[Any] | Streamed], dict[str, Any]]:
        """Sort; return the arrays and the metadata of packed ratings."""
        n_chunks = self._read()
        self.ids = {side: self._union(side, n_chunks) for side in SIDES}
        user_sizes = self._sort_users(n_chunks)
        shutil.rmtree(self.user_chunks.folder)
        item_sizes = self._sort_items()
        shutil.rmtree(self.item_chunks.folder)
        return self._arrays(user_sizes, item_sizes), {
            "n_ratings": self.about.n,
            "n_users": len(self.ids["user"]),
            "n_items": len(self.ids["item"]),
            **self.about.as_meta(),
        }

    def warn(self) -> None:
        """Log how many repeats were left out."""
        if self.repeats:
            warn_of_repeats(self.repeats, self.about.n + self.repeats, self.duplicates)

    def _read(self) -> int:
        """Sort chunks of the files, whose users and items have numbers of that chunk alone."""
        k, total = 0, sum(file.size for file in self.files)
        for part, done in ahead(self._grouped()):
            self.user_chunks.write(k, part.lists, part.time)
            self.user_chunks.write_ids(k, part.users, part.items)
            self.progress(done, total, "reading")
            k += 1
        if not k:
            raise InputError(f"{self.files[0].path} has no ratings in it")
        return k

    def _grouped(self) -> Iterator[tuple[UserChunk, int]]:
        for table, done in read_chunks(self.files, self.chunk):
            yield group_by_user(table, self.user_chunks.timed), done

    def _union(self, side: str, n_chunks: int) -> IdMap:
        return union_ids(self.user_chunks.file(k, side) for k in range(n_chunks))

    def _sort_users(self, n_chunks: int) -> list[int]:
        """Sort stretches of users, and make chunks of the other side; the ratings of each."""
        counts = np.zeros(len(self.ids["user"]), dtype=np.int64)
        for k in range(n_chunks):
            self.user_chunks.number(k, self.ids)
            self.user_chunks.count_rows(k, counts)
        total, done = int(counts.sum()), 0
        cuts = cut_rows(counts, self.stretch)
        self.stats: list[ValueStats] = []
        self.repeats = 0
        for p, part in enumerate(ahead(self._user_parts(range(n_chunks), cuts))):
            self._write_part("user", p, part.lists)
            self.item_chunks.write(p, part.by_item)
            self.item_chunks.name_rows(p, part.items)
            self.stats.append(part.stats)
            self.repeats += part.repeats
            done += len(part.lists)
            self.progress(done, total, "sorting by user")
        return [part.n for part in self.stats]

    def _user_parts(self, chunks: range, cuts: list[int]) -> Iterator[UserPart]:
        for rows in pairwise(cuts):
            yield sort_users(self.user_chunks, chunks, rows, self.duplicates, self.ids)

    def _sort_items(self) -> list[int]:
        """Gather stretches of items; the ratings of each."""
        counts = np.zeros(len(self.ids["item"]), dtype=np.int64)
        for k in range(len(self.stats)):
            self.item_chunks.count_rows(k, counts)
        total = int(counts.sum())
        self.progress(0, total, "sorting by item")
        self.about = joint_stats(self.stats)
        values = self._coded(lambda k: self.item_chunks.file(k, "value"))
        sizes: list[int] = []
        for q, lists in enumerate(ahead(self._item_parts(cut_rows(counts, self.stretch), values))):
            self._write_part("item", q, lists)
            sizes.append(len(lists))
            self.progress(sum(sizes), total, "sorting by item")
        return sizes

    def _item_parts(self, cuts: list[int], values: CodedValues) -> Iterator[RowLists]:
        chunks, n_users = range(len(self.stats)), len(self.ids["user"])
        for rows in pairwise(cuts):
            yield sort_items(self.item_chunks, chunks, rows, n_users, values)

    def _coded(self, file: Callable[[int], Path]) -> CodedValues:
        return CodedValues(file, [part.levels for part in self.stats], self.about.levels)

    # -- sorted parts and the arrays made of them ----------------------------------------------

    def _part(self, side: str, p: int, what: str) -> Path:
        return self.scratch / f"{side}.{p}.{what}"

    def _write_part(self, side: str, p: int, lists: RowLists) -> None:
        for what, array in vars(lists).items():
            write_raw(self._part(side, p, what), array)

    def _arrays(
        self, user_sizes: list[int], item_sizes: list[int]
    ) -> dict[str, NDArray[Any] | Streamed]:
        n, dtype = self.about.n, np.float32 if self.about.levels is None else np.uint8
        coded = self._coded(lambda p: self._part("user", p, "value"))
        values = {
            "user": (coded(p, 0, size) for p, size in enumerate(user_sizes)),
            "item": self._raw("item", item_sizes, "value", dtype),
        }
        arrays: dict[str, NDArray[Any] | Streamed] = {}
        for side, sizes in zip(SIDES, (user_sizes, item_sizes), strict=True):
            for name, array in self.ids[side].to_arrays().items():
                arrays[f"{side}_id_{name}"] = array
            shape = (len(self.ids[side]) + 1,)
            arrays[f"by_{side}_starts"] = Streamed(np.int64, shape, self._starts(side, sizes))
            others = self._raw(side, sizes, "other", np.int32)
            arrays[f"by_{side}_other"] = Streamed(np.int32, (n,), self._shown(others))
            arrays[f"by_{side}_value"] = Streamed(dtype, (n,), self._shown(values[side]))
        return arrays

    def _shown(self, pieces: Iterator[NDArray[Any]]) -> Iterator[NDArray[Any]]:
        """Report progress; each rating is written four times, a quarter of it each time."""
        for piece in pieces:
            yield piece
            self.written += len(piece)
            self.progress(self.written // 4, self.about.n, "writing")

    def _raw(
        self, side: str, sizes: Iterable[int], what: str, dtype: Any
    ) -> Iterator[NDArray[Any]]:
        for p, size in enumerate(sizes):
            yield read_raw(self._part(side, p, what), dtype, 0, size)

    def _starts(self, side: str, sizes: Iterable[int]) -> Iterator[NDArray[np.int64]]:
        offset = 0
        for p, size in enumerate(sizes):
            yield np.fromfile(self._part(side, p, "starts"), dtype=np.int64)[:-1] + offset
            offset += size
        yield np.array([offset], dtype=np.int64)


def ahead(values: Iterator[T]) -> Iterator[T]:
    """Compute the next value in a thread while the last one is used."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, values, None)
        while (value := coming.result()) is not None:
            coming = pool.submit(next, values, None)
            yield value
