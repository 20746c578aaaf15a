"""What workers of a cluster do to pack ratings: functions that write whole files, and tell of it.

They know each other's files by name alone, in a folder that all of them see. A file has one writer
and gets its name when it is complete, so a task may be done again, by anybody, at any time. No two
write to one file: file systems of networks do not promise that neighbouring bytes of two writers
both last.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf import __version__
from bayesmf.errors import InputError
from bayesmf.ids.id_map import IdMap
from bayesmf.packed.contents import LISTS
from bayesmf.packed.sorted_chunks import (
    CodedValues,
    SortedChunks,
    group_by_user,
    read_raw,
    union_ids,
    write_ids,
)
from bayesmf.packed.steps import file_digest, read_id_map
from bayesmf.packed.stretches import sort_items, sort_users
from bayesmf.reading.chunks import AnyFile
from bayesmf.reading.columns import TRIPLE, Columns, find_columns
from bayesmf.reading.table import Table, make_table
from bayesmf.storage.pieces import Aside, Pieces, are_sound
from bayesmf.storage.writer import write_joined

Note = dict[str, Any]
"""What the journal notes of a task, as plain JSON."""

# A part of the files has fewer chunks than that, so that its number tells theirs.
CHUNKS_OF_PART = 10**6
FOLDERS: tuple[str, ...] = ("users", "items", "ids", "counts", "sorted", "joined")
DATASET = "the Ray Dataset"


@dataclass(frozen=True)
class Job:
    """What all tasks of a packing need to know.

    Parameters
    ----------
    folder
        Where they write, seen by all nodes; `FOLDERS` are in it.
    duplicates, chunk
        As for :func:`bayesmf.pack`.
    timed
        Whether timestamps are needed.
    version
        Of bayesmf, where the packing was begun.
    """

    folder: Path
    duplicates: str
    chunk: int
    timed: bool = False
    version: str = __version__

    def writing(self) -> Aside:
        """Who writes the files of a task; InputError where that cannot be on this node."""
        if self.version != __version__:
            raise InputError(
                f"{platform.node()} has bayesmf {__version__}, the process that packs "
                f"{self.version}: install the same version on all nodes"
            )
        if not self.folder.is_dir():
            raise InputError(
                f"{platform.node()} sees no folder {self.folder}: packed ratings must lie on "
                "storage that all nodes mount under the same path"
            )
        return Aside(self.folder)

    def users(self, written: Aside, turned: Iterable[int] = ()) -> SortedChunks:
        """The sorted chunks of the files."""
        found = SortedChunks(self.folder / "users", written, self.timed)
        found.turned = set(turned)
        return found

    def items(self, written: Aside) -> SortedChunks:
        """The sorted chunks of the other side."""
        return SortedChunks(self.folder / "items", written)

    def id_map(self, side: str) -> IdMap:
        """All ids of a side."""
        return read_id_map(self.folder / "joined", side)

    def sorted_file(self, side: str, part: int, what: str) -> Path:
        """An array of a stretch of users or items that is sorted."""
        return self.folder / "sorted" / f"{side}.{part}.{what}"


# -- from files to sorted chunks -------------------------------------------------------------------


def look_at(job: Job, files: Sequence[AnyFile], timed: bool) -> Note:
    """Tell how many rows files have, if that can be told; whether all have times, if `timed`."""
    with job.writing():
        return {
            "rows": [_seen(file).rows() for file in files],
            "timed": timed and all(file.timed() for file in files),
        }


def _seen(file: AnyFile) -> AnyFile:
    """A file, if this node sees it."""
    if isinstance(file.path, Path) and not file.path.exists():
        raise InputError(
            f"{platform.node()} sees no file {file.path}: ratings must lie where all nodes see "
            "them, under the same path"
        )
    return file


def read_file(job: Job, part: int, file: AnyFile, offset: int | None) -> Note:
    """Sort one chunk of a file, from row ``offset`` on; all chunks of it where that is None."""
    chunks = _seen(file).chunks(job.chunk, offset or 0, 0)
    tables = (table for table, *_ in chunks)
    return _read(job, part, tables if offset is None else islice(tables, 1))


def read_block(job: Job, part: int, block: Any, columns: Columns | None) -> Note:
    """Sort the chunks of a block of a dataset: an Arrow table or a pandas data frame."""
    return _read(job, part, _tables(block, part, columns, job.chunk))


def _tables(block: Any, part: int, columns: Columns | None, rows: int) -> Iterator[Table]:
    import polars as pl

    frame = pl.from_pandas(block) if hasattr(block, "iloc") else pl.from_arrow(block)
    assert isinstance(frame, pl.DataFrame)
    if not frame.height:
        return
    names = frame.columns
    found = find_columns(names, len(names), columns, TRIPLE, DATASET)
    for offset in range(0, frame.height, rows):
        some = frame.slice(offset, rows)
        where = partial(_block_row, part, offset)
        yield make_table({role: some[names[at]] for role, at in found.items()}, where=where)


def _block_row(part: int, offset: int, row: int) -> str:
    return f"{DATASET} block {part} row {offset + row} (both counting from 0)"


def _read(job: Job, part: int, tables: Iterable[Table]) -> Note:
    numbers, ratings, pieces = [], [], {}
    with job.writing() as written:
        chunks = job.users(written)
        for k, table in enumerate(tables, part * CHUNKS_OF_PART):
            found = group_by_user(table, job.timed)
            chunks.write(k, found.lists, found.time)
            chunks.write_ids(k, found.users, found.items)
            numbers.append(k)
            ratings.append(len(found.lists))
            pieces.update(written.take())
    return {"chunks": numbers, "ratings": ratings, "pieces": pieces}


# -- numbers of users and items over all chunks ----------------------------------------------------


def merge_ids(job: Job, name: str, files: Sequence[str]) -> Note:
    """Merge files of ids, each ascending, into one."""
    with job.writing() as written:
        found = union_ids([job.folder / file for file in files])
        write_ids(written, job.folder / name, found)
        return {"pieces": written.take()}


def make_map(job: Job, side: str, files: Sequence[str]) -> Note:
    """Merge the last files of ids into the arrays of the result."""
    with job.writing():
        ids = IdMap(union_ids([job.folder / file for file in files]))
        arrays = {}
        for kind, array in ids.to_arrays().items():
            name = f"{side}_id_{kind}"
            joined = job.folder / "joined"
            arrays[name] = write_joined(joined, name, array.dtype, len(array), [array])
    return {"n": len(ids), "arrays": arrays, "pieces": {}}


def number_chunks(job: Job, numbers: Sequence[int]) -> Note:
    """Give chunks the row numbers that their ids have over all chunks."""
    with job.writing() as written:
        chunks = job.users(written)
        maps = {side: job.id_map(side) for side in ("user", "item")}
        entries = sum(chunks.number(k, maps) for k in numbers)
        turned = sorted(chunks.turned)
        return {"turned": turned, "entries": entries, "pieces": written.take()}


def count_rows(job: Job, side: str, shared: Note, name: str, rows: tuple[int, int]) -> Note:
    """Count the ratings of some rows over all chunks of a side."""
    with job.writing() as written:
        chunks = job.users(written, shared["turned"]) if side == "user" else job.items(written)
        counts = np.zeros(rows[1] - rows[0], dtype=np.int64)
        for k in shared["chunks"]:
            chunks.count_rows(k, counts, rows[0])
        written.whole(job.folder / name, counts)
        return {"pieces": written.take()}


# -- the lists by user and by item -----------------------------------------------------------------


def sort_user_part(job: Job, shared: Note, part: int, rows: tuple[int, int]) -> Note:
    """Sort a stretch of users, and make a chunk of the other side."""
    with job.writing() as written:
        users, items = job.users(written, shared["turned"]), job.items(written)
        found = sort_users(
            users, shared["chunks"], rows, shared["n_items"], job.duplicates, job.id_map
        )
        for what in LISTS:
            written.whole(job.sorted_file("user", part, what), getattr(found.lists, what))
        items.write(part, found.by_item)
        items.name_rows(part, found.items)
        return {
            "ratings": len(found.lists),
            "repeats": found.repeats,
            "entries": len(found.items),
            **found.about,
            "pieces": written.take(),
        }


def sort_item_part(job: Job, shared: Note, part: int, rows: tuple[int, int]) -> Note:
    """Sort a stretch of items."""
    with job.writing() as written:
        items, parts = job.items(written), shared["parts"]
        values = CodedValues(lambda p: items.file(p, "value"), parts, shared["levels"])
        lists = sort_items(items, range(len(parts)), rows, shared["n_users"], values)
        for what in LISTS:
            written.whole(job.sorted_file("item", part, what), getattr(lists, what))
        return {"ratings": len(lists), "pieces": written.take()}


def join_parts(job: Job, shared: Note, side: str, what: str, sizes: Sequence[int]) -> Note:
    """Write an array of the result from those of the stretches, which have so many ratings each."""
    levels, n_rows = shared["levels"], shared[f"n_{side}s"]
    value = np.float32 if levels is None else np.uint8
    dtype = {"starts": np.int64, "other": np.int32, "value": value}[what]
    length = n_rows + 1 if what == "starts" else sum(sizes)
    file = partial(job.sorted_file, side, what=what)
    if what == "starts":
        parts = _starts(map(file, range(len(sizes))), sizes)
    elif what == "value" and side == "user":
        values = CodedValues(file, shared["parts"], levels)
        parts = (values(p, 0, n) for p, n in enumerate(sizes))
    else:
        parts = (read_raw(file(p), dtype, 0, n) for p, n in enumerate(sizes))
    with job.writing():
        entry = write_joined(job.folder / "joined", f"by_{side}_{what}", dtype, length, parts)
    if entry["bytes"] != 128 + length * np.dtype(dtype).itemsize:
        raise ValueError("the parts of an array are not what was noted of them")
    return {"arrays": {f"by_{side}_{what}": entry}, "pieces": {}}


def _starts(files: Iterable[Path], sizes: Sequence[int]) -> Iterator[NDArray[np.int64]]:
    offset = 0
    for file, size in zip(files, sizes, strict=True):
        yield np.fromfile(file, dtype=np.int64)[:-1] + offset
        offset += size
    yield np.array([offset], dtype=np.int64)


# -- going on after the process that packs was killed ----------------------------------------------


def check_pieces(job: Job, noted: Sequence[Pieces]) -> Note:
    """Tell whether files are what was noted of them."""
    with job.writing():
        return {"sound": are_sound(job.folder, noted, gone=lambda name: False)}


def check_array(job: Job, file: Path, digest: str) -> Note:
    """Tell whether an array that is complete is what was noted of it."""
    return {"sound": file.exists() and file_digest(file) == digest}
