"""Folders of ours, opened: regular files alone, found where the folder is and not by its name.

A folder that was opened stays the same one when its name is given to another meanwhile. Nothing in
it is followed elsewhere, and nothing in it can make a reader wait (a pipe) or read without end (a
device).
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any

from bayesmf.errors import InputError

# Windows has neither: there names are all that can be gone by.
_BY_HANDLE = os.open in os.supports_dir_fd and os.listdir in os.supports_fd
_READ = (
    os.O_RDONLY
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_BINARY", 0)
)


class NotRegular(InputError):
    """There is something in a folder that is no regular file."""


class Folder:
    """A folder, open; use it in a ``with``.

    Parameters
    ----------
    path : path-like
        The folder; its name may be a link, what is in it may not.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        flags = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
        self._handle = os.open(path, flags) if _BY_HANDLE else None

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: Any) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def is_current(self) -> bool:
        """Whether the name still stands for this folder."""
        if self._handle is None:
            return True
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._handle))
        except OSError:
            return False

    def names(self) -> list[str]:
        """What is in it."""
        return os.listdir(self.path if self._handle is None else self._handle)

    def open(self, name: str) -> FileIO:
        """Open a regular file for reading; NotRegular for anything else."""
        place = str(self.path / name) if self._handle is None else name
        try:
            handle = os.open(place, _READ, dir_fd=self._handle)
        except OSError as error:
            # A link, a socket, a device without a driver.
            if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO, errno.EISDIR):
                raise self._not_regular(name) from None
            error.filename = name
            raise
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise self._not_regular(name)
        return FileIO(handle)

    def read(self, name: str, most: int) -> bytes:
        """All bytes of a small file; InputError if there are more than `most`."""
        with self.open(name) as stream:
            found = b""
            while piece := stream.read(most + 1 - len(found)):
                found += piece
        if len(found) > most:
            raise InputError(f"{self.path / name} is larger than such a file can be: check it.")
        return found

    def _not_regular(self, name: str) -> NotRegular:
        return NotRegular(
            f"{self.path / name} is not a regular file, and nothing else is read: check the folder."
        )


def is_real_folder(path: Path) -> bool:
    """Tell whether a path is a folder, and no link to one."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def foreign_name(path: Path, known: re.Pattern[str]) -> str | None:
    """Name something in a folder that is not ours: a name or a kind of file we do not write.

    Parameters
    ----------
    path : pathlib.Path
        The folder.
    known : re.Pattern
        What names of ours look like; that of a folder ends in a slash, and what is in it follows.
    """
    for name, entry in _walk(path):
        try:
            mode = entry.stat(follow_symlinks=False).st_mode
        except FileNotFoundError:  # somebody who may has just removed it
            continue
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)) or not known.fullmatch(name):
            return name
    return None


def remove_known(path: Path, known: re.Pattern[str], last: str = "") -> None:
    """Remove what is ours in a folder, and the folder if nothing is left.

    Parameters
    ----------
    path, known
        As for `foreign_name`.
    last : str
        A file that goes after all others.
    """
    if not is_real_folder(path):
        return
    found = []
    with contextlib.suppress(OSError):
        found = [(name, entry) for name, entry in _walk(path) if known.fullmatch(name)]
    found.reverse()  # from the inside to the outside
    found.sort(key=lambda one: one[0] == last)
    for _, entry in found:
        with contextlib.suppress(OSError):
            if entry.is_dir(follow_symlinks=False):
                os.rmdir(entry.path)
            else:
                os.unlink(entry.path)
    with contextlib.suppress(OSError):
        os.rmdir(path)


def _walk(path: Path, inside: str = "") -> Iterator[tuple[str, os.DirEntry[str]]]:
    """All that is in a folder, by names from there; links are not followed."""
    with os.scandir(path) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            yield f"{inside}{entry.name}/", entry
            yield from _walk(Path(entry.path), f"{inside}{entry.name}/")
        else:
            yield f"{inside}{entry.name}", entry
