"""What a long job has finished, noted on the disk so that it can go on after a crash."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bayesmf.errors import InputError
from bayesmf.places import sync_folder

_NAME = "journal"
_LOCK = "lock"


class Journal:
    """Notes of the finished steps of a job, one line each, in the job's own folder.

    The folder is emptied when it belongs to another job.

    Parameters
    ----------
    folder
        The folder of the job; made where it is missing.
    job
        All that the result depends on, as plain JSON.
    """

    def __init__(self, folder: Path, job: dict[str, Any]) -> None:
        self.folder, self._path = folder, folder / _NAME
        self._job: dict[str, Any] = json.loads(json.dumps(job))
        lines = read_notes(folder)
        self.notes: list[dict[str, Any]] = lines[1:]
        if lines[:1] != [self._job]:
            self.restart()
        else:
            # A line that was cut short by a crash must not be continued.
            self._write(lines)

    def restart(self) -> None:
        """Forget what is finished, and remove it."""
        _empty(self.folder)
        self.notes = []
        self._write([self._job])

    def of(self, step: str) -> list[dict[str, Any]]:
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
        with self._path.open("ab") as stream:
            stream.write(_line(found))
            stream.flush()
            os.fsync(stream.fileno())
        self.notes.append(found)
        return found

    def _write(self, lines: list[dict[str, Any]]) -> None:
        part = self._path.with_suffix(".part")
        with part.open("wb") as stream:
            stream.write(b"".join(map(_line, lines)))
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, self._path)
        sync_folder(self.folder)


@contextlib.contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Make a job's folder and keep other processes out of it; a crash lets them in again.

    Parameters
    ----------
    folder
        The folder of the job.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    with (folder / _LOCK).open("ab") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(
                f"Another process is at work in {folder}: wait for it to end, or end it."
            ) from None
        yield


def _line(note: dict[str, Any]) -> bytes:
    return (json.dumps(note, allow_nan=False) + "\n").encode()


def read_notes(folder: Path) -> list[dict[str, Any]]:
    """Read what is noted in a job's folder: the job, then its finished steps."""
    try:
        *lines, _ = (folder / _NAME).read_bytes().split(b"\n")
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = []
    for line in lines:
        try:
            found.append(json.loads(line))
        except ValueError:
            break
    return found


def remove(folder: Path) -> None:
    """Remove a job's folder; the journal goes last, so that this too can be done again."""
    with contextlib.suppress(OSError):
        _empty(folder, but=(_LOCK, _NAME))
    shutil.rmtree(folder, ignore_errors=True)


def _empty(folder: Path, but: tuple[str, ...] = (_LOCK,)) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name not in but:
            path.unlink()
