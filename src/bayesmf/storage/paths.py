"""Paths on the disk: what the system refuses, in a sentence; parents, names, syncing."""

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from bayesmf.errors import InputError

PathLike = str | os.PathLike[str]

# Files that a model and packed ratings have.
_OURS = ("manifest.json", "manifest.sha256")
_REASONS = {
    (errno.ENOSPC, errno.EDQUOT): "the disk is full, free some space or choose another path",
    (errno.EACCES, errno.EPERM):
        "permission is denied, choose another path or change its permissions",
    (errno.EROFS,): "the file system is read-only, choose another path",
    (errno.ENOTDIR, errno.EEXIST):
        "a part of that path is a file and not a folder, choose another path",
}  # fmt: skip


def real_path(path: PathLike) -> Path:
    """Return the path behind links: a link to a model stays one when the model is replaced."""
    folder = as_folder(path)
    with as_input_error(path):
        real = Path(os.path.realpath(folder))
    with contextlib.suppress(OSError):  # somebody may have removed it
        if real == Path(os.getcwd()):
            raise InputError(f"{path} is the folder this process is in: give a folder in it")
    return real


def as_path(path: PathLike, what: str = "a file") -> Path:
    """The path, once it is known that it can be one."""
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise InputError(f"{path!r} is not a path: give the name of {what}, as text or a Path")
    text = os.fspath(path)
    if "\0" in text:
        raise InputError(f"{text!r} cannot be the name of {what}: it holds a null character")
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise InputError(f"{text!r} cannot be the name of {what}: it is not text") from None
    refuse_tilde(Path(text))
    return Path(text)


def as_folder(path: PathLike) -> Path:
    """Give a path that can be one."""
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise InputError(f"{path!r} is no path: give the name of a folder, as text or a Path")
    text = os.fspath(path)
    if "\0" in text:
        raise InputError(f"{text!r} cannot be a folder: its name holds a null character")
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise InputError(f"{text!r} cannot be a folder: its name is no text") from None
    refuse_tilde(Path(text))
    return Path(text)


def refuse_tilde(path: Path) -> None:
    """Refuse what a shell would have read as the home folder, had it seen it."""
    if path.parts[:1] == ("~",) and not os.path.lexists("~"):
        raise InputError(
            f"{path}: '~' is not read as your home folder; write {os.path.expanduser(path)}"
        )


def check_output(path: Path) -> None:
    """Refuse to write into a folder of ours: a file too many there, and it is refused."""
    refuse_tilde(path)
    if "\0" in str(path):
        raise InputError(f"{str(path)!r} is no name of a file: it holds a null character")
    with as_input_error(path):
        real = Path(os.path.realpath(path))
        for folder in (real, *real.parents):
            if all((folder / name).is_file() for name in _OURS):
                raise InputError(
                    f"{path} is in {folder}, a model or packed ratings, which nothing else belongs "
                    "into: choose another path"
                )


def temporary_name(target: Path) -> Path:
    """Give a name beside a path that nobody else has."""
    return target.parent / f".bayesmf-{os.getpid()}-{secrets.token_hex(6)}"


@contextlib.contextmanager
def as_input_error(path: PathLike, verb: str = "written") -> Iterator[None]:
    """Say in a sentence what the system refused."""
    try:
        yield
    except OSError as error:
        known = (said for numbers, said in _REASONS.items() if error.errno in numbers)
        unknown = f"the system says {error.strerror or error!s}, check the path and the disk"
        raise InputError(f"{path} cannot be {verb}: {next(known, unknown)}") from None


@contextlib.contextmanager
def made_parents(parent: Path, keep: bool) -> Iterator[None]:
    """Make missing parents, and remove them again after a failure or if not to be kept."""
    missing = []
    folder = parent
    while not os.path.lexists(folder):
        missing.append(folder)
        folder = folder.parent
    stay = False
    try:
        if missing:
            os.makedirs(parent, exist_ok=True)
        yield
        stay = keep
    finally:
        if not stay:
            with contextlib.suppress(OSError):
                for folder in missing:
                    os.rmdir(folder)


def check_room(folder: Path, need: int, path: PathLike) -> None:
    """Refuse to begin what needs more room than there is, about, where the system tells."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return
    if need > free:
        raise InputError(
            f"{path} cannot be written: it takes at least {need / 1e6:,.1f} MB and there are "
            f"{free / 1e6:,.1f} MB free, free some space or choose another path"
        )


def sync_folder(folder: Path) -> None:
    """Bring a folder's list of names to the disk."""
    # Some systems cannot open or sync a folder; the files themselves are synced already.
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
