"""Files that appear under their names in one step, when they are on the disk."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from bayesmf.errors import InputError, as_os_error, polars_errors, reason_of
from bayesmf.storage.paths import PathLike, as_input_error, as_path


@contextlib.contextmanager
def replacing(path: PathLike) -> Iterator[BinaryIO]:
    """Write a file under a temporary name beside its path, and rename it at the end.

    Other processes see the old file or all of the new one, and so they do after a kill, which may
    leave the temporary file. A link stays a link; permissions of the old file are kept.

    Parameters
    ----------
    path
        The file; its folder must exist.

    Yields
    ------
    file
        A binary file, for writing; its `name` is the temporary one.

    Raises
    ------
    InputError
        If the system, or polars, could not write it; then nothing is left behind.

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
        _sync_folder(target.parent)


def check_replaceable(path: PathLike) -> None:
    """Raise now if the file could not be written later; nothing is left behind."""
    with writing(path):
        part = temporary_name(_target(path))
        _created(part).close()
        part.unlink()


@contextlib.contextmanager
def writing(path: PathLike) -> Iterator[None]:
    """Turn errors of the system and of polars into an InputError of one sentence."""
    with as_input_error(path):
        try:
            yield
        except polars_errors(OSError) as error:
            system = as_os_error(error)
            if system is not None:
                raise system from None
            raise InputError(f"{path} cannot be written: {reason_of(error)}") from None


def _target(path: PathLike) -> Path:
    """Where a path leads; refused if anything but a regular file is there."""
    target = Path(os.path.realpath(as_path(path)))
    try:
        mode = os.lstat(target).st_mode
    except FileNotFoundError:
        return target
    if stat.S_ISLNK(mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if not stat.S_ISREG(mode):
        # A rename would replace the device by a file.
        raise InputError(f"{path} cannot be written: it is not a regular file, choose another name")
    return target


def _created(part: Path) -> BinaryIO:
    """A new file, with the permissions of one."""

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)

    return cast(BinaryIO, open(part, "xb", opener=opener))


def _keep_mode(file: BinaryIO, target: Path) -> None:
    """Copy the permissions of the replaced file: a private file stays private."""
    with contextlib.suppress(OSError):
        os.fchmod(file.fileno(), os.stat(target).st_mode & 0o777)


def temporary_name(target: Path) -> Path:
    """A name beside a path that no other process uses."""
    return target.parent / f".bayesmf-{os.getpid()}-{secrets.token_hex(6)}"


def _sync_folder(folder: Path) -> None:
    """Write a folder's list of names to the disk."""
    # Some file systems cannot open or sync a folder; the files themselves are synced already.
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
