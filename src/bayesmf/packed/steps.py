"""The steps by which ratings are packed: chunks by user, users, chunks by item, items."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from bayesmf.data.duplicates import warn_of_repeats
from bayesmf.errors import InputError
from bayesmf.ids.id_map import IdMap
from bayesmf.kernels.csr import RowLists
from bayesmf.packed.sorted_chunks import (
    CodedValues,
    SortedChunks,
    UserChunk,
    group_by_user,
    union_ids,
)
from bayesmf.packed.stretches import UserPart, cut_rows, sort_items, sort_users
from bayesmf.packed.values import all_levels, joint_moments
from bayesmf.reading.chunks import AnyFile, Bookmark, read_chunks
from bayesmf.storage.folders import Folder
from bayesmf.storage.journal import Journal
from bayesmf.storage.manifest import DIGEST, MANIFEST, PACKED
from bayesmf.storage.npy import read_array
from bayesmf.storage.pieces import Written, are_sound, seal
from bayesmf.storage.writer import write_array, write_manifest
from bayesmf.system.foreign import polars_errors

log = logging.getLogger("bayesmf")

# What may come up where notes or files are not what was written.
_DAMAGE = (
    KeyError, ValueError, TypeError, IndexError, AttributeError, OverflowError, FileNotFoundError,
    re.error,
)  # fmt: skip

T = TypeVar("T")
Progress = Callable[[int, int, str], Any]
"""Called with what is done, what there is to do (bytes of the files while they are read, ratings
afterwards), and a word for the stage."""


class Packing:
    """The steps of :func:`bayesmf.packed.pack.pack`; each asks the journal what it has left to do.

    Parameters
    ----------
    files
        The files of ratings.
    journal
        Of the steps that are finished, in the folder where the result is made.
    duplicates, chunk, stretch, progress
        As for :func:`bayesmf.packed.pack.pack`.
    """

    def __init__(
        self,
        files: list[AnyFile],
        journal: Journal,
        duplicates: str,
        chunk: int,
        stretch: int,
        progress: Progress | None,
    ) -> None:
        self.files, self.journal, self.duplicates = files, journal, duplicates
        self.chunk, self.stretch = chunk, stretch
        self.progress = progress or (lambda done, total, stage: None)
        self.result = journal.folder / "result"
        self.written = Written(journal.folder)

    def run(self) -> None:
        """Do what is left to do; all of it, if what is there is not what was noted."""
        if self.journal.finished("finish"):
            return
        if self.journal.notes:
            try:
                if self._is_sound():
                    return self._run()
            except InputError:
                raise
            except polars_errors(*_DAMAGE):
                pass
            log.warning(
                "what a packing that was stopped has left in %s is damaged: all is done again",
                self.journal.folder,
            )
            self.journal.restart()
            self.written = Written(self.journal.folder)
        self._run()

    def _is_sound(self) -> bool:
        """Whether the files are those that were written."""
        numbered, coded = self.journal.finished("number"), bool(self.journal.finished("code"))
        entries = numbered[0]["arrays"] if numbered else {}
        return all(
            file_digest(self.result / f"{name}.npy") == entry["sha256"]
            for name, entry in entries.items()
        ) and are_sound(
            self.journal.folder,
            [note["pieces"] for note in self.journal.notes],
            gone=lambda name: coded and name.startswith(("users/", "value.")),
        )

    def _note(self, step: str, **what: Any) -> None:
        """Note a step, with what was written in it."""
        self.journal.note(step, pieces=self.written.take(), **what)

    def _run(self) -> None:
        self.result.mkdir(exist_ok=True)
        # Times only tell which of several ratings is the last.
        timed = self.duplicates != "error" and all(file.timed() for file in self.files)
        self.user_chunks = SortedChunks(self.journal.folder / "users", self.written, timed)
        self.item_chunks = SortedChunks(self.journal.folder / "items", self.written)
        if not self.journal.finished("number"):
            self.read()
            self.number()
        self.sort_users()
        self.code()
        self.sort_items()
        self.finish()

    # -- from files to sorted chunks ---------------------------------------------------------------

    def read(self) -> None:
        """Sort chunks of the files, whose users and items have numbers of that chunk alone."""
        notes = self.journal.finished("read")
        k = len(notes)
        start = Bookmark(*notes[-1]["place"]) if notes else Bookmark()
        total = sum(file.size for file in self.files)
        for part, bookmark, done in ahead(self._grouped(start)):
            self.user_chunks.write(k, part.lists, part.time)
            self.user_chunks.write_ids(k, part.users, part.items)
            self._note("read", place=bookmark)
            self.progress(done, total, "reading")
            k += 1
        if not k:
            raise InputError(f"{self.files[0].path} has no ratings in it")

    def _grouped(self, start: Bookmark) -> Iterator[tuple[UserChunk, Bookmark, int]]:
        for table, bookmark, done in read_chunks(self.files, self.chunk, start):
            yield group_by_user(table, self.user_chunks.timed), bookmark, done

    def number(self) -> None:
        """Number users and items over all chunks, and cut the users into stretches."""
        chunks, n_chunks = self.user_chunks, len(self.journal.finished("read"))
        arrays: dict[str, Any] = {}
        maps = {}
        for side in ("user", "item"):
            found = union_ids([chunks.file(k, side) for k in range(n_chunks)])
            maps[side] = IdMap(found)
            for name, array in maps[side].to_arrays().items():
                name = f"{side}_id_{name}"
                (self.result / f"{name}.npy").unlink(missing_ok=True)
                arrays[name] = write_array(self.result, name, array)
        counts = np.zeros(len(maps["user"]), dtype=np.int64)
        for k in range(n_chunks):
            chunks.number(k, maps)
            chunks.count_rows(k, counts)
        self._note(
            "number",
            runs=n_chunks,
            turned=sorted(chunks.turned),
            n_users=len(maps["user"]),
            n_items=len(maps["item"]),
            ratings=int(counts.sum()),
            cuts=cut_rows(counts, self.stretch),
            arrays=arrays,
        )

    # -- the list by user --------------------------------------------------------------------------

    def sort_users(self) -> None:
        """Sort stretches of users into the list by user, and make chunks of the other side."""
        (about,) = self.journal.finished("number")
        cuts = about["cuts"]
        self.user_chunks.turned = set(about["turned"])
        begin = len(self.journal.finished("user"))
        for p, part in enumerate(ahead(self._sorted_users(about, begin)), begin):
            first, lists = cuts[p], part.lists
            offset = sum(note["ratings"] for note in self.journal.finished("user"))
            self._write_lists("user", first, offset, lists)
            self.written.whole(self._coded(p), lists.value)
            self.item_chunks.write(p, part.by_item)
            self.item_chunks.name_rows(p, part.items)
            self._note("user", ratings=len(lists), repeats=part.repeats, **part.about)
            self.progress(offset + len(lists), about["ratings"], "sorting by user")

    def _sorted_users(self, about: dict[str, Any], begin: int) -> Iterator[UserPart]:
        chunks, numbers = self.user_chunks, range(about["runs"])
        for rows in pairwise(about["cuts"][begin:]):
            yield sort_users(chunks, numbers, rows, about["n_items"], self.duplicates, self._ids)

    def _coded(self, p: int) -> Path:
        return self.journal.folder / f"value.{p}"

    def _ids(self, side: str) -> IdMap:
        return read_id_map(self.result, side)

    def code(self) -> None:
        """Find the levels of all ratings, write the values by user, cut the items."""
        if not self.journal.finished("code"):
            (about,) = self.journal.finished("number")
            notes = self.journal.finished("user")
            levels = all_levels([note["levels"] for note in notes])
            values = CodedValues(self._coded, notes, levels)
            counts = np.zeros(about["n_items"], dtype=np.int64)
            offset = 0
            for p, note in enumerate(notes):
                value = values(p, 0, note["ratings"])
                self.written.part(self.result / "by_user_value.npy", offset, value)
                self.item_chunks.count_rows(p, counts)
                offset += len(value)
            cuts = cut_rows(counts, self.stretch)
            self._note("code", levels=levels, cuts=cuts, ratings=offset)
            self.progress(0, offset, "sorting by item")
        # From here on nobody reads them.
        self.journal.remove_some(r"users/.*|value\.\d+")

    # -- the list by item --------------------------------------------------------------------------

    def sort_items(self) -> None:
        """Gather stretches of items into the list by item."""
        (coded,) = self.journal.finished("code")
        notes = self.journal.finished("user")
        values = CodedValues(lambda p: self.item_chunks.file(p, "value"), notes, coded["levels"])
        begin = len(self.journal.finished("item"))
        cuts = coded["cuts"][begin:]
        for first, lists in zip(
            cuts, ahead(self._gathered(cuts, len(notes), values)), strict=False
        ):
            offset = sum(note["ratings"] for note in self.journal.finished("item"))
            self._write_lists("item", first, offset, lists)
            self.written.part(self.result / "by_item_value.npy", offset, lists.value)
            self._note("item", ratings=len(lists))
            self.progress(offset + len(lists), coded["ratings"], "sorting by item")

    def _gathered(self, cuts: list[int], n_chunks: int, values: CodedValues) -> Iterator[RowLists]:
        n_users = self.journal.finished("number")[0]["n_users"]
        for rows in pairwise(cuts):
            yield sort_items(self.item_chunks, range(n_chunks), rows, n_users, values)

    def finish(self) -> None:
        """Write the manifest, with which the result is complete."""
        (about,), (coded,) = self.journal.finished("number"), self.journal.finished("code")
        notes, n_ratings = self.journal.finished("user"), coded["ratings"]
        value = np.float32 if coded["levels"] is None else np.uint8
        arrays = dict(about["arrays"])
        arrays |= self._seal("user", about["n_users"], n_ratings, value)
        arrays |= self._seal("item", about["n_items"], n_ratings, value)
        self._complete(arrays, about["n_users"], about["n_items"], coded["levels"], notes)

    def _complete(
        self,
        arrays: dict[str, Any],
        n_users: int,
        n_items: int,
        levels: list[float] | None,
        notes: list[dict[str, Any]],
    ) -> None:
        """Write the manifest of the arrays; `notes` are those of the stretches of users."""
        n_ratings = sum(note["ratings"] for note in notes)
        meta = {
            "n_ratings": n_ratings,
            "n_users": n_users,
            "n_items": n_items,
            "low": min(note["low"] for note in notes),
            "high": max(note["high"] for note in notes),
            **joint_moments(notes),
            "levels": levels,
        }
        for name in (MANIFEST, DIGEST):
            (self.result / name).unlink(missing_ok=True)
        digest = write_manifest(self.result, arrays, meta, PACKED)
        self._note("finish", digest=f"{digest}\n")
        if repeats := sum(note["repeats"] for note in notes):
            warn_of_repeats(repeats, n_ratings + repeats, self.duplicates)
        self.progress(n_ratings, n_ratings, "finished")

    def _write_lists(self, side: str, first: int, offset: int, lists: RowLists) -> None:
        self.written.part(self.result / f"by_{side}_other.npy", offset, lists.other)
        self.written.part(self.result / f"by_{side}_starts.npy", first, lists.starts + offset)

    def _seal(self, side: str, n_rows: int, n_ratings: int, value: Any) -> dict[str, Any]:
        """Complete the arrays of a side; tell what a manifest says of them."""
        shapes = {
            f"by_{side}_starts": (np.dtype(np.int64), n_rows + 1),
            f"by_{side}_other": (np.dtype(np.int32), n_ratings),
            f"by_{side}_value": (np.dtype(value), n_ratings),
        }
        files = [self.result / f"{name}.npy" for name in shapes]
        for file, (dtype, length) in zip(files, shapes.values(), strict=True):
            seal(file, dtype, length)
        with ThreadPoolExecutor(2) as pool:
            digests = list(pool.map(file_digest, files))
        return {
            name: {
                "dtype": dtype.str,
                "shape": [length],
                "bytes": file.stat().st_size,
                "sha256": digest,
            }
            for (name, (dtype, length)), file, digest in zip(
                shapes.items(), files, digests, strict=True
            )
        }


def ahead(found: Iterator[T]) -> Iterator[T]:
    """Make the next one in a thread while the last one is written."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, found, None)
        while (one := coming.result()) is not None:
            coming = pool.submit(next, found, None)
            yield one


def read_id_map(folder: Path, side: str) -> IdMap:
    """The ids of a side, "user" or "item", from the arrays in a folder."""
    found = {}
    with Folder(folder) as opened:
        for name in opened.names():
            if name.startswith(f"{side}_id_"):
                with opened.open(name) as stream:
                    found[name.removesuffix(".npy")] = read_array(stream)
    return IdMap.from_arrays(found, f"{side}_id_")


def file_digest(file: Path) -> str:
    """SHA-256 of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
