"""Calls of the system that fail at the k-th time: in Python, and as a library to be preloaded.

Both are used alike: `arm(k)` lets the k-th call from now on fail, `disarm()` returns how many there
were and which one failed. Only calls that concern files below `root` count.
"""

from __future__ import annotations

import builtins
import ctypes
import errno
import io
import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

# Calls that take room on the disk: where it is full these fail from then on, and no others.
GROWING = ("create", "write", "pwrite", "mkdir", "truncate", "ftruncate", "posix_fallocate")
_PATHS = (
    "open", "mkdir", "rmdir", "rename", "replace", "unlink", "remove", "truncate", "link",
    "symlink",
)  # fmt: skip
_HANDLES = ("fsync", "fdatasync", "ftruncate", "posix_fallocate", "write", "pwrite")


class Told(NamedTuple):
    """What became of the calls since a shim was armed."""

    calls: int
    failed: str
    """The name of the first call that failed, nothing if there were fewer than that."""


class Shim(Protocol):
    """One of the two."""

    name: str

    def arm(self, k: int, full: bool) -> None:
        """Let the k-th call fail, with `full` all growing ones from it on; 0 counts alone."""

    def disarm(self) -> Told:
        """Let all calls be as they are."""


class PythonShim:
    """Replaces functions of `os`, and `open`: works anywhere, and sees what Python calls itself."""

    name = "python"

    def __init__(self, root: Path) -> None:
        self._root = os.path.realpath(root)
        self._lock = threading.Lock()
        self._real: dict[str, Callable[..., Any]] = {}
        self._open = io.open

    def arm(self, k: int, full: bool) -> None:
        self._k, self._full, self._calls, self._failed = k, full, 0, ""
        for name in (*_PATHS, *_HANDLES):
            self._real[name] = getattr(os, name)
            setattr(os, name, self._wrapped(name))
        builtins.open = io.open = self._opened  # type: ignore[assignment]

    def disarm(self) -> Told:
        for name, function in self._real.items():
            setattr(os, name, function)
        builtins.open = io.open = self._open
        return Told(self._calls, self._failed)

    def _wrapped(self, name: str) -> Callable[..., Any]:
        real = self._real[name]

        def call(*args: Any, **more: Any) -> Any:
            made = name == "open" and args[1] & os.O_CREAT
            # A name may be relative to an open folder, as those of shutil.rmtree are.
            self.meet("create" if made else name, args[0], more.get("dir_fd"))
            return real(*args, **more)

        return call

    def meet(self, name: str, what: Any, folder: int | None = None) -> None:
        """Count a call, and fail if it is its turn."""
        place = _place(what, folder)
        if not (place == self._root or place.startswith(self._root + os.sep)):
            return
        with self._lock:
            self._calls += 1
            due = self._calls == self._k
            due |= self._full and 0 < self._k < self._calls and name in GROWING
            if due and not self._failed:
                self._failed = name
        if due:
            number = errno.ENOSPC if name in GROWING else errno.EIO
            raise OSError(number, os.strerror(number), place)

    def _opened(self, file: Any, mode: str = "r", *args: Any, **more: Any) -> Any:
        if not isinstance(file, int):
            self.meet("create" if set(mode) & set("wax") else "open", file)
        if not set(mode) & set("wax+") or not _place(file, None).startswith(self._root):
            return self._open(file, mode, *args, **more)
        raw = _Raw(self, file, mode.replace("b", "").replace("t", ""), more.get("closefd", True))
        made: Any = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        if "b" in mode:
            return made
        return io.TextIOWrapper(made, more.get("encoding"), more.get("errors"), more.get("newline"))


class _Raw(io.FileIO):
    """A file whose writes are counted."""

    def __init__(self, shim: PythonShim, file: Any, mode: str, closefd: bool) -> None:
        self._shim = shim
        super().__init__(file, mode, closefd)

    def write(self, data: Any) -> int:
        self._shim.meet("write", self.fileno())
        return super().write(data)

    def truncate(self, size: int | None = None) -> int:
        self._shim.meet("truncate", self.fileno())
        return super().truncate(size)


def _place(what: Any, folder: int | None) -> str:
    """Where a file is, named or open."""
    try:
        if isinstance(what, int):
            return os.readlink(f"/proc/self/fd/{what}")
        name = os.fsdecode(what)
        if folder is not None:
            return os.path.join(os.readlink(f"/proc/self/fd/{folder}"), name)
        # Not of the file itself: a link in the folder is a name in the folder.
        return os.path.join(os.path.realpath(os.path.dirname(name) or "."), os.path.basename(name))
    except (OSError, TypeError, ValueError):
        return ""


class PreloadShim:
    """The library, in a process that was started with it; sees NumPy's and polars' calls too."""

    name = "preload"

    def __init__(self, root: Path) -> None:
        self._library = ctypes.CDLL(os.environ["LD_PRELOAD"])
        self._library.failing_failed.restype = ctypes.c_char_p
        self._root = os.path.realpath(root).encode()

    def arm(self, k: int, full: bool) -> None:
        self._library.failing_arm(ctypes.c_long(k), ctypes.c_int(full), self._root)

    def disarm(self) -> Told:
        calls = self._library.failing_disarm()
        return Told(int(calls), (self._library.failing_failed() or b"").decode())


def compiled(folder: Path) -> Path | None:
    """The library, compiled; None where there is no compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or os.name != "posix":
        return None
    out = folder / "failing.so"
    source = Path(__file__).with_name("failing.c")
    options = ["-shared", "-fPIC", "-O1", "-o", str(out), str(source), "-ldl", "-lpthread"]
    done = subprocess.run([compiler, *options], capture_output=True)
    return out if done.returncode == 0 else None
