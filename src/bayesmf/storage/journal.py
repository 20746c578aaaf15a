"""What a long job has finished, noted on the disk so that it can go on after a crash.

The notes are in the job's own folder. Nothing is touched in a folder that is not one, and in one
nothing but what the job writes: a folder may have any name, and anything may be behind a name.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bayesmf.errors import InputError
from bayesmf.storage import lock
from bayesmf.storage.folders import Folder, foreign_name, is_real_folder, remove_known
from bayesmf.storage.paths import sync_folder
from bayesmf.storage.regular import open_handle

log = logging.getLogger("bayesmf")

_NAME = "journal"
_LOCK = "lock"
_PART = "journal.part"
# Some hundred bytes for each chunk of millions of ratings.
_MOST_BYTES = 1 << 28


class Journal:
    """Notes of the finished steps of a job, one line each, in the job's own folder.

    The folder is emptied when it belongs to another job of the same kind.

    Parameters
    ----------
    folder
        The folder of the job, which is there and is ours (`only_one`).
    job
        All that the result depends on, as plain JSON; ``kind`` says what kind of a job it is.
    known
        What names of files the job writes, as for `bayesmf.storage.folders.foreign_name`.
    """

    def __init__(self, folder: Path, job: dict[str, Any], known: re.Pattern[str]) -> None:
        self.folder, self._path, self._known = folder, folder / _NAME, _with_own(known)
        self._job: dict[str, Any] = json.loads(json.dumps(job))
        lines = read_notes(folder)
        self.notes: list[dict[str, Any]] = lines[1:]
        if lines[:1] != [self._job]:
            if lines:
                log.warning(
                    "removed what another job, which was not finished, had left in %s", folder
                )
            self.restart()
        else:
            # A line that was cut short by a crash must not be continued.
            self._write(lines)

    @property
    def key(self) -> str:
        """A name for the job, which another job does not have."""
        told = json.dumps(self._job, sort_keys=True).encode()
        return hashlib.sha256(told).hexdigest()[:12]

    def restart(self) -> None:
        """Forget what is finished, and remove it."""
        remove_known(self.folder, self._without(_LOCK, _NAME))
        self.notes = []
        self._write([self._job])

    def remove(self) -> None:
        """Remove the folder; the journal goes last, so that this too can be done again."""
        remove_known(self.folder, self._without(_LOCK), last=_NAME)
        remove_known(self.folder, self._known)

    def remove_some(self, names: str) -> None:
        """Remove those files of the job whose names match; others stay."""
        remove_known(self.folder, re.compile(f"(?=(?:{names})$)(?:{self._known.pattern})"))

    def _without(self, *names: str) -> re.Pattern[str]:
        others = "|".join(map(re.escape, names))
        return re.compile(f"(?!(?:{others})$)(?:{self._known.pattern})")

    def finished(self, step: str) -> list[dict[str, Any]]:
        """Give the notes of a step, in the order in which they were made."""
        return [note for note in self.notes if note["step"] == step]

    def note(self, step: str, **what: Any) -> dict[str, Any]:
        """Note that a step is finished: on the disk when this returns.

        Parameters
        ----------
        step
            Name of the step, whose files are on the disk.
        what
            What else is to know of it, as plain JSON.
        """
        # The names of new files are not on the disk with their bytes.
        for folder in (self.folder, *filter(Path.is_dir, self.folder.iterdir())):
            sync_folder(folder)
        found: dict[str, Any] = json.loads(json.dumps({"step": step, **what}))
        with _open_own(self._path, os.O_WRONLY | os.O_APPEND) as stream:
            stream.write(_line(found))
            stream.flush()
            os.fsync(stream.fileno())
        self.notes.append(found)
        return found

    def _write(self, lines: list[dict[str, Any]]) -> None:
        part = self.folder / _PART
        part.unlink(missing_ok=True)  # it may be a link by now
        with _open_own(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as stream:
            stream.write(b"".join(map(_line, lines)))
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, self._path)
        sync_folder(self.folder)


@contextlib.contextmanager
def only_one(
    folder: Path, kind: str | None = None, known: re.Pattern[str] | None = None
) -> Iterator[None]:
    """Make a job's folder and keep other processes out of it; a crash lets them in again.

    Parameters
    ----------
    folder
        The folder of the job.
    kind, known
        If given, a folder that is there must have a journal of that kind, and nothing but what
        such a job writes; InputError says what else there is, and nothing is touched.
    """
    if known is not None and kind is not None:
        with lock.one_writer(folder.parent):
            _check_own(folder, kind, _with_own(known))
            folder.mkdir(exist_ok=True)
    else:
        folder.mkdir(parents=True, exist_ok=True)
    if not lock.EXIST:
        log.warning("this system has no locks: let no other process write to %s meanwhile", folder)
        yield
        return
    while True:
        with _open_own(folder / _LOCK, os.O_RDWR | os.O_CREAT) as stream:
            if not lock.try_lock(stream.fileno()):
                raise InputError(
                    f"Another process is at work in {folder}: wait for it to end, or end it"
                )
            if not _is_at(stream, folder / _LOCK):
                continue  # whoever had it has just removed it with all the rest
            try:
                yield
            finally:
                lock.unlock(stream.fileno())
            return


def _is_at(stream: Any, path: Path) -> bool:
    """Whether an open file still has its name."""
    try:
        return os.path.samestat(os.fstat(stream.fileno()), os.lstat(path))
    except FileNotFoundError:
        return False


def _check_own(folder: Path, kind: str, known: re.Pattern[str]) -> None:
    """Refuse a folder that is there and is not that of such a job, or holds something else."""
    if not os.path.lexists(folder):
        return
    if not is_real_folder(folder):
        raise InputError(
            f"{folder} is a link or a file, where a folder for unfinished work belongs: move it"
            " away"
        )
    foreign, names = foreign_name(folder, known), set(os.listdir(folder))
    begun = names <= {_LOCK, _PART}  # killed before its first note
    if foreign is None and (begun or [note["kind"] for note in read_notes(folder)[:1]] == [kind]):
        return
    what = "no notes of unfinished work" if foreign is None else repr(foreign)
    if foreign is None and _is_older(folder):
        raise InputError(f"{folder} holds unfinished work of an older bayesmf: remove it")
    raise InputError(
        f"{folder} holds {what}, so it is not ours alone and nothing in it is touched: move it"
        " away, or choose another path for the result"
    )


def _is_older(folder: Path) -> bool:
    """Whether there is a job of the time before jobs told their kind."""
    with (
        contextlib.suppress(OSError, ValueError, InputError, RecursionError),
        Folder(folder) as own,
    ):
        job = json.loads(own.read(_NAME, _MOST_BYTES).split(b"\n")[0])
        return isinstance(job, dict) and {"version", "files", "chunk", "stretch"} <= set(job)
    return False


def _with_own(known: re.Pattern[str]) -> re.Pattern[str]:
    return re.compile(f"{_LOCK}|{_NAME}|{re.escape(_PART)}|{known.pattern}")


def _open_own(path: Path, flags: int) -> Any:
    """Open a regular file of a job, never what a link or a pipe of that name leads to."""
    mode = "ab" if flags & os.O_APPEND else "r+b" if flags & os.O_RDWR else "wb"
    return os.fdopen(open_handle(path, flags), mode)


def _line(note: dict[str, Any]) -> bytes:
    return (json.dumps(note, allow_nan=False) + "\n").encode()


def read_notes(folder: Path) -> list[dict[str, Any]]:
    """Read what is noted in a job's folder: the job, then its finished steps."""
    if not is_real_folder(folder):
        return []
    try:
        with Folder(folder) as opened:
            *lines, _ = opened.read(_NAME, _MOST_BYTES).split(b"\n")
    except FileNotFoundError:
        return []
    found: list[dict[str, Any]] = []
    for line in lines:
        try:
            note = json.loads(line)
        except (ValueError, RecursionError):
            break
        if not isinstance(note, dict) or not isinstance(note.get("step" if found else "kind"), str):
            break
        found.append(note)
    return found
