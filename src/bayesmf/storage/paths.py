"""Paths: valid names, regular files, and messages for errors of the system."""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from bayesmf.errors import InputError

PathLike = str | os.PathLike[str]

_REASONS = {
    (errno.ENOSPC, errno.EDQUOT): "the disk is full, free some space or choose another path",
    (errno.EACCES, errno.EPERM):
        "permission is denied, choose another path or change its permissions",
    (errno.EROFS,): "the file system is read-only, choose another path",
    (errno.ENOTDIR, errno.EEXIST):
        "a part of that path is a file and not a folder, choose another path",
}  # fmt: skip
# O_NONBLOCK: a pipe must not make a reader wait.
_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)


class NotRegular(InputError):
    """A pipe, a device or a socket in the place of a file."""


def as_path(path: PathLike) -> Path:
    """Check that a value can be a path, and return it as one."""
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise InputError(f"{path!r} is not a path: give a name, as text or a Path")
    text = os.fspath(path)
    if "\0" in text:
        raise InputError(f"{text!r} cannot be a path: it holds a null character")
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise InputError(f"{text!r} cannot be a path: it is not text") from None
    found = Path(text)
    if found.parts[:1] == ("~",) and not os.path.lexists("~"):
        raise InputError(
            f"{text}: '~' is not read as your home folder; write {os.path.expanduser(text)}"
        )
    return found


def open_handle(path: PathLike) -> int:
    """Open a regular file, or a link to one; NotRegular for a pipe or a device.

    It does not wait for a pipe; OSError is raised as the system does, for a folder too.
    """
    try:
        handle = os.open(path, _FLAGS)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket, a device without driver
            raise _not_regular(path) from None
        error.filename = os.fspath(path)
        raise
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return handle
    os.close(handle)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    raise _not_regular(path)


def _not_regular(path: PathLike) -> NotRegular:
    return NotRegular(f"{path} is not a regular file, and nothing else is read: give a file")


@contextlib.contextmanager
def as_input_error(path: PathLike, verb: str = "written") -> Iterator[None]:
    """Turn an error of the system into an InputError of one sentence."""
    try:
        yield
    except OSError as error:
        known = (said for numbers, said in _REASONS.items() if error.errno in numbers)
        unknown = f"the system says {error.strerror or error!s}, check the path and the disk"
        raise InputError(f"{path} cannot be {verb}: {next(known, unknown)}") from None
