"""Folders that get their names in one step, whoever else writes or reads there.

A new folder is filled under a hidden name. A lock on it says that somebody is at work: one without
is what a process left that was killed, and is swept. The name is then exchanged with that of the
folder it replaces, so that at every moment there is a whole one under the name; where the system
cannot exchange names the old one steps aside first.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import logging
import os
import re
import secrets
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from bayesmf.errors import InputError
from bayesmf.folders import foreign_name, is_real_folder, remove_known
from bayesmf.places import sync_folder, temporary_name

log = logging.getLogger("bayesmf")

# Files of a folder that is being written, and the hidden names of such folders.
FILES = re.compile(r"[a-z0-9_]+\.npy|manifest\.json|manifest\.sha256")
HIDDEN = re.compile(r"\.bayesmf-\d+-[0-9a-f]{12}")
# Seconds for which another process is waited for: it does nothing here but make or rename a folder.
PATIENCE = 60.0

_AT_FDCWD, _RENAME_EXCHANGE, _RENAME_SWAP = -100, 2, 2
_CANNOT = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM)


@contextlib.contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Make a hidden folder beside a place, and remove what is left of it in the end."""
    temporary = temporary_name(target)
    with contextlib.ExitStack() as held:
        with one_writer(target.parent):
            sweep(target.parent)
            os.mkdir(temporary)
            # From here on, so that nothing can come between making and removing.
            held.callback(_clear, temporary)
            handle = _handle(temporary)
            if handle is not None:
                held.callback(os.close, handle)
                _lock(handle)
        yield temporary


def _clear(temporary: Path) -> None:
    """Remove what has that name now: what was not finished, or what was replaced."""
    # Nobody sweeps meanwhile. Should somebody else not let us in, it is swept later.
    with contextlib.suppress(InputError, OSError), one_writer(temporary.parent):
        remove_known(temporary, FILES)


def put_in_place(temporary: Path, target: Path, allowed: Callable[[], None]) -> None:
    """Give a folder its name; what was there is then under the other name, or gone.

    Parameters
    ----------
    temporary, target : pathlib.Path
        The folder and its place, in the same folder.
    allowed : callable
        Raises if what is at the place may not be replaced: asked when nobody else writes there.
    """
    with one_writer(target.parent):
        allowed()
        if not os.path.lexists(target):
            os.replace(temporary, target)
        elif not exchange(temporary, target):
            _step_aside(temporary, target)
        sync_folder(target.parent)


def exchange(one: Path, other: Path) -> bool:
    """Let two names stand for each other's folders from one moment on; False if that cannot be."""
    flag = _RENAME_SWAP if sys.platform == "darwin" else _RENAME_EXCHANGE
    name = "renamex_np" if sys.platform == "darwin" else "renameat2"
    call = getattr(_libc(), name, None)
    if call is None:
        return False
    first, second = os.fsencode(one), os.fsencode(other)
    if sys.platform == "darwin":
        failed = call(first, second, ctypes.c_uint(flag))
    else:
        failed = call(_AT_FDCWD, first, _AT_FDCWD, second, ctypes.c_uint(flag))
    if not failed:
        return True
    number = ctypes.get_errno()
    if number in _CANNOT:
        return False
    raise OSError(number, os.strerror(number), str(other))


def _libc() -> ctypes.CDLL | None:
    if sys.platform == "win32":
        return None
    return ctypes.CDLL(None, use_errno=True)


def _step_aside(temporary: Path, target: Path) -> None:
    """Rename twice; put the old one back if the second fails."""
    # Not a name that is swept: killed here, it is the only one there is.
    aside = target.parent / f".bayesmf-old-{secrets.token_hex(6)}"
    os.replace(target, aside)
    try:
        os.replace(temporary, target)
    except BaseException:
        _put_back(aside, target)
        raise
    remove_known(aside, FILES)


def _put_back(aside: Path, target: Path) -> None:
    try:
        os.replace(aside, target)
    except OSError:
        raise InputError(
            f"The new folder could not be put at {target} and the old one not be put back: "
            f"rename {aside} to {target} by hand."
        ) from None


@contextlib.contextmanager
def one_writer(folder: Path) -> Iterator[None]:
    """Keep other writers out of a folder for a moment; where folders have no locks, nobody is."""
    handle = _handle(folder)
    if handle is None:
        yield
        return
    try:
        end = time.monotonic() + PATIENCE
        while _lock(handle) is False:
            if time.monotonic() > end:
                raise InputError(
                    f"Another process has kept {folder} locked for {PATIENCE:g} s: wait for it to "
                    "end, or end it."
                )
            time.sleep(0.002)
        yield
    finally:
        os.close(handle)


def sweep(folder: Path) -> None:
    """Remove unfinished files and folders of processes that are no more, and say so."""
    left = [path for path in folder.glob(".bayesmf-*") if HIDDEN.fullmatch(path.name)]
    removed = sum(map(_removed_if_left, left))
    if removed:
        what = "something unfinished" if removed == 1 else f"{removed} unfinished things"
        log.warning("removed %s that a process which was killed had left in %s", what, folder)


def _removed_if_left(path: Path) -> bool:
    """Remove what nobody has locked; a folder that holds something else may be anybody's."""
    with contextlib.suppress(OSError):
        handle = _handle(path, folder=is_real_folder(path))
        if handle is None:
            return False
        try:
            if not _lock(handle):
                return False
            if stat.S_ISREG(os.fstat(handle).st_mode):
                os.unlink(path)
            elif foreign_name(path, FILES) is None:
                remove_known(path, FILES)
        finally:
            os.close(handle)
    return not os.path.lexists(path)


def keep_from_sweeping(file: BinaryIO) -> None:
    """Say that somebody is at work on a file with a hidden name, until it is closed."""
    with contextlib.suppress(ImportError):  # Windows, where nothing is swept
        _lock(file.fileno())


def _handle(path: Path, folder: bool = True) -> int | None:
    """A folder (or a file), open, where there are locks and it may be opened."""
    try:
        import fcntl  # noqa: F401
    except ImportError:  # Windows
        return None
    try:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        return os.open(path, flags | (os.O_DIRECTORY if folder else 0))
    except PermissionError:  # one may be allowed to write where one may not look
        return None


def _lock(handle: int) -> bool | None:
    """Lock an open folder until it is closed: False if another process has, None if none can."""
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # some shared file systems have no locks for folders
        return None
    return True
