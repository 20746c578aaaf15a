"""Files that a long job writes piece by piece, and what it notes of them to know them again.

A job that goes on from what is on the disk must not go on from what a disk has damaged: ratings
would be others, and nobody would know. Each piece has a checksum in the note of its step.
"""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bayesmf.storage.folders import Folder
from bayesmf.storage.npy import header_bytes
from bayesmf.storage.paths import sync_folder
from bayesmf.storage.regular import open_handle

# An .npy file of one dimension begins with this many bytes, however long it is.
HEADER = 128

# What stands before a file's name until the file is complete.
HIDDEN = r"\.[0-9a-f]{12}\."

_BYTES = 1 << 22

# Of a file's name in the job's folder: first byte, number of bytes and checksum of each piece.
Pieces = dict[str, list[list[int]]]


class Written:
    """Writes the files of a job; what it writes is on the disk when a call returns.

    Parameters
    ----------
    folder
        The folder of the job.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._new: Pieces = {}

    def take(self) -> Pieces:
        """Give what was written since the last time, for a note."""
        found, self._new = self._new, {}
        return found

    def whole(self, file: Path, array: NDArray[Any]) -> None:
        """Write an array without a header, as all of a file."""
        self.raw(file, _bytes_of(array))

    def raw(self, file: Path, data: Any) -> None:
        """Write bytes as all of a file."""
        self._write(file, 0, data, os.O_TRUNC)
        self._new[self._name(file)] = [[0, len(data), zlib.crc32(data)]]

    def part(self, file: Path, start: int, array: NDArray[Any]) -> None:
        """Write elements of an .npy file from ``start`` on; :func:`seal` must follow at the end."""
        data = _bytes_of(array)
        at = HEADER + start * array.dtype.itemsize
        self._write(file, at, data, 0)
        piece = [at, len(data), zlib.crc32(data)]
        self._new.setdefault(self._name(file), []).append(piece)

    def _write(self, file: Path, at: int, data: Any, flags: int) -> None:
        with os.fdopen(open_handle(file, os.O_RDWR | os.O_CREAT | flags), "r+b") as stream:
            stream.seek(at)
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())

    def _name(self, file: Path) -> str:
        return file.relative_to(self._folder).as_posix()


class Aside(Written):
    """Writes files under hidden names, and gives them their own when all of a task are complete.

    So that nobody sees half a file, and a task may be done twice at the same time: by a worker
    that was given up but is still at it, and by the one in its place. Use it in a ``with``.

    Parameters
    ----------
    folder
        The folder of the job.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._waiting: dict[Path, Path] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *ended: object) -> None:
        for hidden in self._waiting.values():
            with contextlib.suppress(OSError):
                hidden.unlink()

    def take(self) -> Pieces:
        """Give the files their names, and tell what was written, for a note."""
        for file, hidden in self._waiting.items():
            os.replace(hidden, file)
        for folder in {file.parent for file in self._waiting}:
            sync_folder(folder)
        self._waiting = {}
        return super().take()

    def part(self, file: Path, start: int, array: NDArray[Any]) -> None:
        """Files that wait for their names are written as a whole."""
        raise NotImplementedError

    def _write(self, file: Path, at: int, data: Any, flags: int) -> None:
        self._waiting[file] = hidden = hidden_name(file)
        super()._write(hidden, at, data, os.O_EXCL)


def hidden_name(file: Path) -> Path:
    """A name beside a file's own that nobody else has; :data:`HIDDEN` stands before it."""
    return file.with_name(f".{secrets.token_hex(6)}.{file.name}")


def _bytes_of(array: NDArray[Any]) -> Any:
    """The bytes of an array, where they lie."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def are_sound(folder: Path, noted: Iterable[Pieces], gone: Callable[[str], bool]) -> bool:
    """Tell whether the files of a job are what was noted of them.

    Parameters
    ----------
    folder
        The folder of the job.
    noted
        What :meth:`Written.take` gave for each note, in order.
    gone
        Tells whether a file is no longer needed, and may have been removed.
    """
    last: dict[str, Mapping[int, list[int]]] = {}
    for pieces in noted:
        for name, found in pieces.items():
            # A file that was written again as a whole is what it was written as last.
            before = {} if found[0][0] == 0 else last.get(name, {})
            last[name] = {**before, **{piece[0]: piece for piece in found}}
    return all(
        _is_sound(folder / name, list(pieces.values()))
        for name, pieces in last.items()
        if not gone(name)
    )


def _is_sound(file: Path, pieces: list[list[int]]) -> bool:
    try:
        with Folder(file.parent) as folder, folder.open(file.name) as stream:
            # Of a file that was written as a whole nothing may follow.
            if pieces[0][0] == 0 and os.fstat(stream.fileno()).st_size != pieces[0][1]:
                return False
            return all(_checksum(stream, at, size) == noted for at, size, noted in pieces)
    except (OSError, ValueError, TypeError):
        return False


def _checksum(stream: io.FileIO, at: int, size: int) -> int:
    """The checksum of a piece; one that no piece has if the file ends before."""
    stream.seek(at)
    found = 0
    while size > 0:
        piece = stream.read(min(size, _BYTES))
        if not piece:
            return -1
        found, size = zlib.crc32(piece, found), size - len(piece)
    return found


def seal(file: Path, dtype: Any, length: int) -> None:
    """Make an .npy file of what was written in parts."""
    header = header_bytes(dtype, (length,))
    assert len(header) == HEADER
    with os.fdopen(open_handle(file, os.O_RDWR), "r+b") as stream:
        stream.write(header)
        stream.truncate(HEADER + length * np.dtype(dtype).itemsize)
        stream.flush()
        os.fsync(stream.fileno())
