"""Ratings larger than memory: from files in any order to lists of each user and each item.

Chunks of the files are sorted by user and wait on the disk.  Stretches of users, small enough to
be sorted in memory, are gathered from all sorted chunks; each becomes a part of the list by user
and, grouped by item, a sorted chunk of the other side.  Stretches of items are gathered from
those.  Every step is noted when its files are on the disk, so that a packing that was killed goes
on from there.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
from pathlib import Path
from typing import Any, NamedTuple

from bayesmf.checks import whole
from bayesmf.data.duplicates import check_duplicates
from bayesmf.errors import EngineError, InputError
from bayesmf.packed.cluster import WRITTEN as BY_WORKERS
from bayesmf.packed.cluster import Blocks, ClusterPacking, Workers
from bayesmf.packed.ratings import PackedRatings, work_folder
from bayesmf.packed.steps import Packing, Progress
from bayesmf.reading.chunks import AnyFile, Sources, rating_files
from bayesmf.reading.memory import Columns
from bayesmf.storage.exchange import FILES, give_name
from bayesmf.storage.folders import Folder, foreign_name
from bayesmf.storage.journal import Journal, only_one, read_notes
from bayesmf.storage.manifest import DIGEST, MOST_DIGEST, PACKED
from bayesmf.storage.paths import as_input_error, check_output, made_parents, real_path

log = logging.getLogger("bayesmf")

CHUNK = 1 << 21
STRETCH = 1 << 22
KIND = "bayesmf-packing"
# All that a packing writes into its folder.
WRITTEN = re.compile(
    r"users/|items/|result/|value\.\d+"
    r"|(?:users|items)/\d+\.(?:starts|other|value|time|rows|others|user|item)(?:\.turned)?"
    rf"|result/(?:{FILES.pattern})|{BY_WORKERS}"
)


def pack(
    source: Sources | Blocks,
    out: str | os.PathLike[str],
    *,
    columns: Columns | None = None,
    format: str = "auto",
    duplicates: str = "last",
    overwrite: bool = False,
    chunk: int = CHUNK,
    stretch: int = STRETCH,
    progress: Progress | None = None,
    workers: Workers | None = None,
) -> PackedRatings:
    """Do what :func:`bayesmf.pack` does, here or by workers.

    Parameters
    ----------
    source
        As there, or the blocks of a dataset.
    out, columns, format, duplicates, overwrite, chunk, stretch, progress
        As there.
    workers
        Who does the work, if not this process.

    Returns
    -------
    PackedRatings
        The ratings, opened.
    """
    asked = check(
        source, out, columns, format, duplicates, overwrite, chunk, stretch, workers is not None
    )
    blocks = source if isinstance(source, Blocks) else None
    files, target, work, job, named = asked
    with (
        as_input_error(out),
        made_parents(target.parent, keep=True),
        only_one(work, KIND, WRITTEN),
    ):
        journal = Journal(work, job, WRITTEN)
        if (
            journal.finished("finish")
            and not named
            and not _is_result(work / "result", journal.notes)
        ):
            journal.restart()  # somebody took the result away before all was cleaned up
        try:
            if workers is None:
                Packing(files, journal, duplicates, chunk, stretch, progress).run()
            else:
                given = blocks or files
                ClusterPacking(given, workers, journal, duplicates, chunk, stretch, progress).run()
        except InputError:
            # The files must change before this can succeed, and then nothing of it is of use.
            journal.remove()
            raise
        except (OSError, KeyboardInterrupt, EngineError):
            log.warning("what is done stays in %s: the same command goes on from there", work)
            raise
        if not named:  # else what is there under the name "result" was replaced by it
            give_name(work / "result", target, lambda: _refuse(target, out, True))
        journal.remove()
    return PackedRatings.open(out)


class Asked(NamedTuple):
    """What was asked for, checked; `named` where it is done but for cleaning up."""

    files: list[AnyFile]
    target: Path
    work: Path
    job: dict[str, Any]
    named: bool


def check(
    source: Any,
    out: str | os.PathLike[str],
    columns: Columns | None,
    format: str,
    duplicates: str,
    overwrite: bool,
    chunk: int,
    stretch: int,
    by_workers: bool,
) -> Asked:
    """Refuse what cannot be packed before anything is begun."""
    check_duplicates(duplicates)
    whole("chunk", chunk)
    whole("stretch", stretch)
    blocks = isinstance(source, Blocks)
    files = [] if blocks else rating_files(source, format, columns)
    target = real_path(out)
    check_output(target.parent)
    work = work_folder(target)
    job = _job(files, duplicates, chunk, stretch)
    if by_workers:
        # A dataset cannot be known again: what was packed of it is of no use to the next call.
        job["workers"] = secrets.token_hex(8) if blocks else True
    with as_input_error(out):
        named = _is_named(work, job, target)
        if not named:
            _refuse(target, out, overwrite)
    return Asked(files, target, work, job, named)


def _job(files: list[AnyFile], duplicates: str, chunk: int, stretch: int) -> dict[str, Any]:
    """Tell all that the result and its steps depend on."""
    told = [file.identity() for file in files]
    settings = {"duplicates": duplicates, "chunk": chunk, "stretch": stretch}
    return {"kind": KIND, "version": PACKED.version, "files": told, **settings}


def _is_named(work: Path, job: dict[str, Any], target: Path) -> bool:
    """Tell whether the result has its name, and only the cleaning up is left to do."""
    notes = read_notes(work)
    if notes[:1] != [job] or notes[-1].get("step") != "finish":
        return False
    return _is_result(target, notes)


def _is_result(folder: Path, notes: list[dict[str, Any]]) -> bool:
    """Tell whether a folder is what a packing that is finished has made."""
    try:
        with Folder(folder) as opened:
            return bool(opened.read(DIGEST, MOST_DIGEST).decode() == notes[-1]["digest"])
    except (OSError, InputError, ValueError, KeyError):
        return False


def _refuse(target: Path, out: str | os.PathLike[str], overwrite: bool) -> None:
    """Refuse a path where something is that may not be replaced."""
    if not os.path.lexists(target):
        return
    if not PackedRatings.is_packed(target):
        raise InputError(f"{out} exists and does not hold packed ratings: choose another path")
    if not overwrite:
        raise InputError(
            f"{out} holds packed ratings already: choose another path, or overwrite=True"
            " (on the command line --overwrite) to replace them"
        )
    if (extra := foreign_name(target, FILES)) is not None:
        raise InputError(
            f"{out} also holds {extra!r}, which is not part of the packed ratings: move that away"
            " or choose another path"
        )
