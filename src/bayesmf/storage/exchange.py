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
from collections.abc import Callable, Iterator
from pathlib import Path

from bayesmf.errors import InputError
from bayesmf.storage.folders import foreign_name, is_real_folder, remove_known
from bayesmf.storage.lock import one_writer, open_for_lock, release, try_lock
from bayesmf.storage.paths import sync_folder, temporary_name

log = logging.getLogger("bayesmf")

# Files of a folder that is being written, and the hidden names of such folders.
FILES = re.compile(r"[a-z0-9_]+\.npy|manifest\.json|manifest\.sha256")
HIDDEN = re.compile(r"\.bayesmf-\d+-[0-9a-f]{12}")
# Names of what had to step aside, before a random one and its own.
ASIDE = ".bayesmf-old-"

_AT_FDCWD = -100
_SWAP = 2  # RENAME_EXCHANGE of Linux, RENAME_SWAP of macOS
_CANNOT = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM)


@contextlib.contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Make a hidden folder beside its path, and remove what is left of it in the end."""
    temporary = temporary_name(target)
    with contextlib.ExitStack() as held:
        with one_writer(target.parent) as alone:
            if alone:
                sweep(target.parent)
            os.mkdir(temporary)
            # From here on, so that nothing can come between making and removing.
            held.callback(_clear, temporary)
            handle = open_for_lock(temporary)
            if handle is not None:
                held.callback(release, handle)
                try_lock(handle)
        yield temporary


def _clear(temporary: Path) -> None:
    """Remove what was not finished; there is nothing left of what was."""
    if not os.path.lexists(temporary):
        return
    with contextlib.suppress(OSError), one_writer(temporary.parent):  # nobody sweeps meanwhile
        remove_known(temporary, FILES)


def give_name(temporary: Path, target: Path, allowed: Callable[[], None]) -> None:
    """Give a folder its name; what was there is removed.

    Parameters
    ----------
    temporary, target : pathlib.Path
        The folder and its name to be, in the same folder.
    allowed : callable
        Raises if what has that name may not be replaced: asked when nobody else writes there.
    """
    with one_writer(target.parent):
        allowed()
        _keep_modes(temporary, target)
        if not os.path.lexists(target):
            os.replace(temporary, target)
        elif not exchange(temporary, target):
            _step_aside(temporary, target)
        sync_folder(target.parent)
        remove_known(temporary, FILES)  # what was there: here, where nobody sweeps it


def _keep_modes(temporary: Path, target: Path) -> None:
    """Give a new folder the permissions of the one it replaces: what was private stays so."""
    with contextlib.suppress(OSError):
        files = stat.S_IMODE(os.lstat(target / "manifest.json").st_mode)
        for path in temporary.iterdir():
            path.chmod(files)
        temporary.chmod(stat.S_IMODE(os.lstat(target).st_mode))


def exchange(one: Path, other: Path) -> bool:
    """Let two names stand for each other's folders from one moment on; False if that cannot be."""
    darwin = sys.platform == "darwin"
    call = getattr(_libc(), "renamex_np" if darwin else "renameat2", None)
    if call is None:
        return False
    first, second = os.fsencode(one), os.fsencode(other)
    paths = (first, second) if darwin else (_AT_FDCWD, first, _AT_FDCWD, second)
    if not call(*paths, ctypes.c_uint(_SWAP)):
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
    aside = target.parent / f"{ASIDE}{secrets.token_hex(6)}-{target.name}"
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
            f"rename {aside} to {target} by hand"
        ) from None


def old_one(target: Path) -> Path | None:
    """The folder that had a name before a process was killed while it stepped aside."""
    with contextlib.suppress(OSError):
        for path in target.parent.glob(f"{ASIDE}*-*"):
            if path.name.split("-", 3)[3:] == [target.name] and is_real_folder(path):
                return path
    return None


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
        handle = open_for_lock(path, folder=is_real_folder(path))
        if handle is None:
            return False
        try:
            # Its writer may have let go of it just now, because it has its own name.
            if not try_lock(handle) or not os.path.samestat(os.lstat(path), os.fstat(handle)):
                return False
            if stat.S_ISREG(os.fstat(handle).st_mode):
                os.unlink(path)
            elif foreign_name(path, FILES, handle) is None:
                remove_known(path, FILES, handle=handle)
            return not os.path.lexists(path)
        finally:
            os.close(handle)
    return False
