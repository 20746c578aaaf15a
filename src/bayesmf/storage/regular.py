"""Regular files, opened: nothing that makes a reader wait (a pipe) or never ends (a device)."""

from __future__ import annotations

import errno
import os
import stat

from bayesmf.errors import InputError

_ALWAYS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
# What the system says of a link that may not be followed, of a socket, of a device without driver.
_ODD = (errno.ELOOP, errno.EMLINK, errno.ENXIO, errno.EISDIR)


class NotRegular(InputError):
    """There is something under a name that is no regular file."""


def open_handle(
    path: str | os.PathLike[str],
    flags: int = os.O_RDONLY,
    *,
    follow: bool = False,
    folder: int | None = None,
) -> int:
    """Open a regular file.

    Parameters
    ----------
    path : path-like
        The file.
    flags : int
        How to open it, as for `os.open`.
    follow : bool
        Whether it may be a link to one.
    folder : int, optional
        The folder that it is in, open: what the folder's name stands for by now does not matter.

    Returns
    -------
    int
        The file, open.

    Raises
    ------
    NotRegular
        If it is something else.
    OSError
        If the system cannot open it.
    """
    name = path if folder is None else os.path.basename(path)
    try:
        handle = os.open(name, flags | _ALWAYS | (0 if follow else _NO_LINK), 0o666, dir_fd=folder)
    except OSError as error:
        if error.errno in _ODD and not follow:
            raise _not_regular(path) from None
        error.filename = os.fspath(path)
        raise
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return handle
    os.close(handle)
    if follow and stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    raise _not_regular(path)


def _not_regular(path: str | os.PathLike[str]) -> NotRegular:
    return NotRegular(f"{path} is not a regular file, and nothing else is opened: move it away")
