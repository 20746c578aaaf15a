"""Packing by the workers of a cluster: who does what, and what is noted of it.

The process that packs holds no ratings. It hands out tasks (tasks.py), notes each when its files
are on the disk, and counts: numbers of users and items, and how many ratings each of them has.
Ids are merged by workers in a tree; the last two of its tasks, one a side, hold all ids of a side.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bayesmf.errors import InputError
from bayesmf.packed import tasks
from bayesmf.packed.contents import LISTS, SIDES
from bayesmf.packed.steps import Packing, Progress
from bayesmf.packed.stretches import cut_rows
from bayesmf.packed.values import all_levels
from bayesmf.reading.chunks import AnyFile
from bayesmf.reading.columns import TRIPLE, Columns, find_columns
from bayesmf.storage.journal import Journal
from bayesmf.storage.pieces import HIDDEN

# All that tasks write, in the folder of the job.
WRITTEN = rf"tasks-[0-9a-f]{{12}}/(?:(?:{'|'.join(tasks.FOLDERS)})/(?:(?:{HIDDEN})?[a-z0-9_.]+)?)?"

# Sizes of tasks do not depend on the number of workers, which may be another when one goes on.
_FILES = 64  # looked at by a task
_FAN = 64  # files of ids merged by one
_CHUNKS = 16  # numbered by one, which loads the ids of both sides
_ENTRIES = 1 << 25  # rows of chunks counted by one
_NOTES = 16  # checked by one

Calls = Iterable[tuple[str, Any, Callable[..., tasks.Note], tuple[Any, ...]]]
"""Step, part, function and its arguments behind the first, which is the job."""


class Workers(Protocol):
    """Where tasks are done."""

    def each(
        self, calls: Iterable[tuple[Any, Callable[..., Any], tuple[Any, ...]]]
    ) -> Iterator[tuple[Any, Any]]:
        """Do calls, each with a key of its own; give keys and results as they come.

        A call whose worker is lost is done again. Of errors that calls raise that of the earliest
        is raised, whichever came first.
        """

    def share(self, value: Any) -> Any:
        """Something to give to many calls in the value's place, so that it is sent once a node."""


class Blocks(NamedTuple):
    """Ratings that are no files: blocks on their way through a cluster, in order."""

    names: Sequence[str]
    """Of their columns."""
    columns: Columns | None
    """What the user said of them."""
    refs: Callable[[], Iterator[Any]]
    """Gives what stands for the blocks in the arguments of calls."""


class ClusterPacking(Packing):
    """The steps of a packing whose work is done elsewhere.

    Parameters
    ----------
    source
        The files, or blocks.
    workers
        Who does the work.
    journal, duplicates, chunk, stretch, progress
        As for `Packing`.
    """

    def __init__(
        self,
        source: list[AnyFile] | Blocks,
        workers: Workers,
        journal: Journal,
        duplicates: str,
        chunk: int,
        stretch: int,
        progress: Progress | None,
    ) -> None:
        self.blocks = source if isinstance(source, Blocks) else None
        files = [] if isinstance(source, Blocks) else source
        super().__init__(files, journal, duplicates, chunk, stretch, progress)
        self.workers = workers
        self.folder = journal.folder / f"tasks-{journal.key}"
        self.job = tasks.Job(self.folder, duplicates, chunk)

    def _run(self) -> None:
        self.result.mkdir(exist_ok=True)
        self._make_folders()
        self.look()
        self.read()
        self.number()
        self.sort_users()
        self.sort_items()
        self.finish()

    def _make_folders(self) -> None:
        for name in tasks.FOLDERS:
            (self.folder / name).mkdir(parents=True, exist_ok=True)

    def _each(self, calls: Calls) -> Iterator[tuple[str, Any, tasks.Note]]:
        """Have done what is not noted yet; note it."""
        done = {(note["step"], note.get("part")) for note in self.journal.notes}
        todo = (
            ((step, part), function, (self.job, *arguments))
            for step, part, function, arguments in calls
            if (step, part) not in done
        )
        for (step, part), note in self.workers.each(todo):
            yield step, part, self.journal.note(step, part=part, **note)

    def _all(self, calls: Calls) -> None:
        for _ in self._each(calls):
            pass

    def _notes(self, step: str) -> list[tasks.Note]:
        """Notes of a step, by part: they were made in any order."""
        return sorted(self.journal.finished(step), key=lambda note: note["part"])

    def _noted(self, step: str) -> dict[Any, tasks.Note]:
        return {note["part"]: note for note in self.journal.finished(step)}

    def _drop(self, names: str) -> None:
        """Remove files that nobody reads any more."""
        if names not in self._noted("drop"):
            self.journal.note("drop", part=names, pieces={})
        self.journal.remove_some(rf"tasks-[0-9a-f]{{12}}/(?:{names})?")

    # -- from files to sorted chunks ---------------------------------------------------------------

    def look(self) -> None:
        """Find out how many rows files have, and whether timestamps are needed."""
        # Times only tell which of several ratings is the last.
        wanted = self.duplicates != "error"
        if self.blocks is not None:
            names, columns = self.blocks.names, self.blocks.columns
            found = find_columns(names, len(names), columns, TRIPLE, tasks.DATASET)
            self.job = replace(self.job, timed=wanted and "timestamp" in found)
            return
        self._all(
            ("look", b, tasks.look_at, (files, wanted))
            for b, files in enumerate(_batches(self.files, _FILES))
        )
        timed = all(note["timed"] for note in self._notes("look"))
        self.job = replace(self.job, timed=timed)

    def read(self) -> None:
        """Sort chunks of the files, whose users and items have numbers of that chunk alone."""
        if self.blocks is None:
            parts = list(self._parts())
            sizes = [size for _, _, size in parts]
            calls: Calls = (
                ("read", p, tasks.read_file, (p, file, offset))
                for p, (file, offset, _) in enumerate(parts)
            )
        else:
            sizes = []
            calls = self._block_calls(sizes)
        done = sum(sizes[note["part"]] for note in self.journal.finished("read"))
        for _, part, _ in self._each(calls):
            done += sizes[part]
            self.progress(done, max(done, sum(sizes)), "reading")
        if not any(note["chunks"] for note in self.journal.finished("read")):
            name = tasks.DATASET if self.blocks else self.files[0].path
            raise InputError(f"{name} has no ratings in it")

    def _parts(self) -> Iterator[tuple[AnyFile, int | None, int]]:
        """Parts of the files for a task each: file, first row (None for all of it), bytes."""
        rows = [n for note in self._notes("look") for n in note["rows"]]
        for file, n in zip(self.files, rows, strict=True):
            size = file.size
            if n is None:
                yield file, None, size
                continue
            for offset in range(0, n, self.chunk):
                yield file, offset, size * min(self.chunk, n - offset) // n

    def _block_calls(self, sizes: list[int]) -> Calls:
        assert self.blocks is not None
        for p, (block, size) in enumerate(self.blocks.refs()):
            sizes.append(size)
            yield "read", p, tasks.read_block, (p, block, self.blocks.columns)

    # -- numbers of users and items ----------------------------------------------------------------

    def number(self) -> None:
        """Number users and items over all chunks, and cut the users into stretches."""
        read = self._notes("read")
        self.chunks = [k for note in read for k in note["chunks"]]
        files = {side: [f"users/{k}.{side}" for k in self.chunks] for side in SIDES}
        level = 0
        while max(map(len, files.values())) > _FAN:
            files = self._merged(files, level)
            level += 1
        self._all(("map", side, tasks.make_map, (side, files[side])) for side in SIDES)
        maps = self._noted("map")
        self.n_users, self.n_items = maps["user"]["n"], maps["item"]["n"]
        numbered = _batches(self.chunks, _CHUNKS)
        self._all(("number", b, tasks.number_chunks, (some,)) for b, some in enumerate(numbered))
        notes = self._notes("number")
        turned = [k for note in notes for k in note["turned"]]
        about = {"chunks": self.chunks, "turned": turned, "n_items": self.n_items}
        self.of_chunks = self.workers.share(about)
        entries = sum(note["entries"] for note in notes)
        self._cut("user", self.n_users, entries, self.of_chunks)

    def _merged(self, files: dict[str, list[str]], level: int) -> dict[str, list[str]]:
        """Merge files of ids, some at a time; the names of the merged ones."""
        merged = {
            side: {f"{side}.{level}.{g}": some for g, some in enumerate(_batches(names, _FAN))}
            for side, names in files.items()
        }
        self._all(
            ("merge", name, tasks.merge_ids, (f"ids/{name}", some))
            for groups in merged.values()
            for name, some in groups.items()
        )
        return {side: [f"ids/{name}" for name in groups] for side, groups in merged.items()}

    def _cut(self, side: str, n_rows: int, entries: int, about: Any) -> None:
        """Count the ratings of the rows of a side, and cut them into stretches."""
        if side in self._noted("cut"):
            return
        ranges = min(n_rows, max(1, -(-entries // _ENTRIES)))
        edges = [n_rows * g // ranges for g in range(ranges + 1)]
        names = [f"counts/{side}.{g}" for g in range(ranges)]
        self._all(
            ("count", name, tasks.count_rows, (side, about, name, rows))
            for name, rows in zip(names, pairwise(edges), strict=True)
        )
        counts: NDArray[np.int64] = np.concatenate(
            [np.fromfile(self.folder / name, np.int64) for name in names]
        )
        if len(counts) != n_rows:
            raise ValueError("the counts of rows are not what was noted of them")
        cuts = cut_rows(counts, self.stretch)
        self.journal.note("cut", part=side, cuts=cuts, ratings=int(counts.sum()), pieces={})

    # -- the lists ---------------------------------------------------------------------------------

    def sort_users(self) -> None:
        """Sort stretches of users, and make chunks of the other side."""
        cut = self._noted("cut")["user"]
        calls = (
            ("user", p, tasks.sort_user_part, (self.of_chunks, p, rows))
            for p, rows in enumerate(pairwise(cut["cuts"]))
        )
        done = sum(note["ratings"] + note["repeats"] for note in self.journal.finished("user"))
        for _, _, note in self._each(calls):
            done += note["ratings"] + note["repeats"]
            self.progress(done, cut["ratings"], "sorting by user")
        self._drop("users/.*|ids/.*")

    def sort_items(self) -> None:
        """Sort stretches of items, while the arrays by user are put together."""
        notes = self._notes("user")
        self.levels = all_levels([note["levels"] for note in notes])
        about = self.workers.share({"chunks": list(range(len(notes))), "turned": []})
        self._cut("item", self.n_items, sum(note["entries"] for note in notes), about)
        cut = self._noted("cut")["item"]
        about = {
            "parts": [{"levels": note["levels"]} for note in notes],
            "levels": self.levels,
            "n_users": self.n_users,
            "n_items": self.n_items,
        }
        shared = self.workers.share(about)
        items = [
            ("item", q, tasks.sort_item_part, (shared, q, rows))
            for q, rows in enumerate(pairwise(cut["cuts"]))
        ]
        done = sum(note["ratings"] for note in self.journal.finished("item"))
        self.progress(done, cut["ratings"], "sorting by item")
        for step, _, note in self._each([*self._joins("user", shared), *items]):
            if step == "item":
                done += note["ratings"]
                self.progress(done, cut["ratings"], "sorting by item")
        self._drop(r"items/.*|sorted/(?:user\..*)?")
        self._all(self._joins("item", shared))

    def _joins(self, side: str, shared: Any) -> list[Any]:
        """Calls that put the arrays of a side together."""
        sizes = [note["ratings"] for note in self._notes(side)]
        return [
            ("join", f"{side}_{what}", tasks.join_parts, (shared, side, what, sizes))
            for what in LISTS
        ]

    def finish(self) -> None:
        """Write the manifest, with which the result is complete."""
        arrays = self._arrays()
        for name in arrays:
            made = self.folder / "joined" / f"{name}.npy"
            if made.exists():  # else it was moved before a kill
                os.replace(made, self.result / made.name)
        self._complete(arrays, self.n_users, self.n_items, self.levels, self._notes("user"))

    def _arrays(self) -> dict[str, Any]:
        """What a manifest says of the arrays that are complete."""
        maps, joined = self._noted("map"), self._noted("join")
        notes = [maps.get(side) for side in SIDES]
        notes += [joined.get(f"{side}_{what}") for side in SIDES for what in LISTS]
        return {name: entry for note in notes if note for name, entry in note["arrays"].items()}

    # -- going on ----------------------------------------------------------------------------------

    def _is_sound(self) -> bool:
        """Whether the files are those that were written: asked of workers."""
        self._make_folders()
        dropped = [re.compile(names) for names in self._noted("drop")]
        noted = [
            {
                name: pieces
                for name, pieces in note["pieces"].items()
                if not any(names.fullmatch(name) for names in dropped)
            }
            for note in self.journal.notes
            if note["step"] not in ("drop", "look")
        ]
        calls: list[tuple[Any, Callable[..., Any], tuple[Any, ...]]] = [
            (b, tasks.check_pieces, (self.job, some))
            for b, some in enumerate(_batches(noted, _NOTES))
        ]
        for name, entry in self._arrays().items():
            moved = self.result / f"{name}.npy"
            file = moved if moved.exists() else self.folder / "joined" / moved.name
            calls.append((name, tasks.check_array, (self.job, file, entry["sha256"])))
        return all(note["sound"] for _, note in self.workers.each(calls))


def _batches(whole: Sequence[Any], size: int) -> list[Any]:
    """Cut a list into shorter ones."""
    return [whole[lo : lo + size] for lo in range(0, len(whole), size)]
