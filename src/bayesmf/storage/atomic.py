"""Files that appear under their names at once, when all of them is on the disk."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from bayesmf.errors import InputError, as_os_error, polars_errors, reason_of
from bayesmf.storage.paths import PathLike, as_input_error, sync_folder, temporary_name


@contextlib.contextmanager
def replacing(path: PathLike) -> Iterator[BinaryIO]:
    """Write a file beside its path, which it gets when nothing has gone wrong.

    Whoever looks meanwhile, and whoever was killed, finds the old file or all of the new one. A
    link stays a link, and a file that was there keeps its permissions.

    Parameters
    ----------
    path
        The file, which may be there or not; its folder must be.

    Yields
    ------
    file
        To be written in binary; its `name` is the path it has meanwhile.

    Raises
    ------
    InputError
        If the system, or polars, could not write it; nothing is left behind then.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from bayesmf.storage.atomic import replacing
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "a.txt"
    ...     with replacing(path) as file:
    ...         _ = file.write(b"all of it")
    ...     path.read_bytes()
    b'all of it'
    """
    with writing(path):
        target = _target(path)
        part = temporary_name(target)
        file = _created(part)
        try:
            with file:
                _keep_mode(file, target)
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, target)
        except BaseException:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            raise
        sync_folder(target.parent)


def check_replaceable(path: PathLike) -> None:
    """Refuse now what could not be written later; nothing is left behind."""
    with writing(path):
        part = temporary_name(_target(path))
        _created(part).close()
        part.unlink()


@contextlib.contextmanager
def writing(path: PathLike) -> Iterator[None]:
    """Say in a sentence why it could not be written, whoever was told so first."""
    with as_input_error(path):
        try:
            yield
        except polars_errors(OSError) as error:
            system = as_os_error(error)
            if system is not None:
                raise system from None
            raise InputError(f"{path} cannot be written: {reason_of(error)}") from None


def _target(path: PathLike) -> Path:
    """Where a path leads, of which nothing but a plain file may be replaced."""
    if "\0" in os.fspath(path):
        raise InputError(f"{os.fspath(path)!r} is no name of a file: it holds a null character")
    target = Path(os.path.realpath(path))
    try:
        mode = os.lstat(target).st_mode
    except FileNotFoundError:
        return target
    if stat.S_ISLNK(mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if not stat.S_ISREG(mode):
        # A rename onto a device would take the device away.
        raise InputError(f"{path} cannot be written: it is not a plain file, choose another name")
    return target


def _created(part: Path) -> BinaryIO:
    """A file that nobody else has made, or has a link to, with the permissions of a new one."""

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)

    return cast(BinaryIO, open(part, "xb", opener=opener))


def _keep_mode(file: BinaryIO, target: Path) -> None:
    """Give it the permissions of the file that it replaces: what was private stays so."""
    with contextlib.suppress(OSError, AttributeError):  # there may be none, or the system has none
        os.fchmod(file.fileno(), os.stat(target).st_mode & 0o777)
