"""Folders of ours, opened: regular files alone, found where the folder is and not by its name.

A folder that was opened stays the same one when its name is given to another meanwhile. Nothing in
it is followed elsewhere, and nothing in it can make a reader wait (a pipe) or read without end (a
device).
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any

from bayesmf.errors import InputError
from bayesmf.storage.regular import open_handle

# Windows has neither: there names are all that can be gone by.
_BY_HANDLE = os.open in os.supports_dir_fd and os.listdir in os.supports_fd
_FOLDER = (
    os.O_RDONLY
    | getattr(os, "O_DIRECTORY", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOFOLLOW", 0)
)


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
        return FileIO(open_handle(self.path / name, folder=self._handle))

    def read(self, name: str, most: int) -> bytes:
        """All bytes of a small file; InputError if there are more than `most`."""
        with self.open(name) as stream:
            found = b""
            while piece := stream.read(most + 1 - len(found)):
                found += piece
        if len(found) > most:
            raise InputError(f"{self.path / name} is larger than such a file can be: check it")
        return found


def is_real_folder(path: Path) -> bool:
    """Tell whether a path is a folder, and no link to one."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def foreign_name(
    path: Path,
    known: re.Pattern[str],
    handle: int | None = None,
    before: str = "",
    parent: int | Path | None = None,
) -> str | None:
    """Name something in a folder that is not ours: a name or a kind of file we do not write.

    Parameters
    ----------
    path : pathlib.Path
        The folder.
    known : re.Pattern
        What names of ours look like; that of a folder ends in a slash, and what is in it follows.
    handle : int, optional
        The same folder, open: what its name stands for by now does not matter then.
    before : str
        Names of the folders that this one is in.
    parent : int or pathlib.Path, optional
        The folder that it is in, open, where it was met in one.
    """
    with _opened(path, handle, parent) as folder:
        for name, entry in _entries(folder):
            try:
                mode = entry.stat(follow_symlinks=False).st_mode
            except FileNotFoundError:  # somebody who may has just removed it
                continue
            own = f"{before}{name}/" if stat.S_ISDIR(mode) else before + name
            if not known.fullmatch(own) or not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
                return own
            if stat.S_ISDIR(mode):
                with contextlib.suppress(FileNotFoundError):
                    odd = foreign_name(path / name, known, before=own, parent=folder)
                    if odd is not None:
                        return odd
    return None


def remove_known(
    path: Path,
    known: re.Pattern[str],
    last: str = "",
    handle: int | None = None,
    before: str = "",
    parent: int | Path | None = None,
) -> None:
    """Remove what is ours in a folder, and the folder if nothing is left.

    Parameters
    ----------
    path, known, handle, before, parent
        As for `foreign_name`.
    last : str
        A file that goes after all others.
    """
    with contextlib.suppress(OSError):
        if handle is None and parent is None and not is_real_folder(path):
            return
        with _opened(path, handle, parent) as folder:
            for name, entry in sorted(_entries(folder), key=lambda one: one[0] == last):
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        if known.fullmatch(own := f"{before}{name}/"):
                            remove_known(path / name, known, before=own, parent=folder)
                    elif known.fullmatch(before + name):
                        at = folder if isinstance(folder, int) else None
                        os.unlink(path / name if at is None else name, dir_fd=at)
        os.rmdir(path)  # of what is not empty, or no folder by now, nothing is removed


@contextlib.contextmanager
def _opened(path: Path, handle: int | None, parent: int | Path | None) -> Iterator[int | Path]:
    """A folder by its handle; by its name where the system knows no handles of folders."""
    if handle is not None or not _BY_HANDLE:
        yield path if handle is None else handle
        return
    at = parent if isinstance(parent, int) else None
    own = os.open(path if at is None else path.name, _FOLDER, dir_fd=at)
    try:
        yield own
    finally:
        os.close(own)


def _entries(folder: int | Path) -> list[tuple[str, os.DirEntry[str]]]:
    with os.scandir(folder) as entries:
        return sorted(((entry.name, entry) for entry in entries), key=lambda one: one[0])
