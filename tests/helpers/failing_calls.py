"""Calls of the system that fail, one after the other, below a folder."""

import builtins
import errno
import io
import os

PATHS = ("open", "mkdir", "rename", "replace", "unlink", "rmdir", "listdir")
HANDLES = ("fsync", "write", "pwrite", "ftruncate", "pread", "preadv")
GROWING = ("create", "write", "pwrite", "mkdir", "ftruncate")


class FailingCalls:
    """In a `with`, the k-th call below `root` fails; with `full` all that need room from then on.

    `calls` is their number, `failed` the name of the first that failed.
    """

    def __init__(self, root, k, full=False):
        self.root, self.k, self.full = os.path.realpath(root), k, full
        self.calls, self.failed = 0, ""

    def __enter__(self):
        self.real = {name: getattr(os, name) for name in (*PATHS, *HANDLES)}
        self.open = io.open
        for name in self.real:
            setattr(os, name, self.wrapped(name))
        builtins.open = io.open = self.opened
        return self

    def __exit__(self, *_):
        for name, function in self.real.items():
            setattr(os, name, function)
        builtins.open = io.open = self.open

    def wrapped(self, name):
        def call(what, *args, **more):
            made = name == "open" and args and args[0] & os.O_CREAT
            self.meet("create" if made else name, what)
            return self.real[name](what, *args, **more)

        return call

    def meet(self, name, what):
        path = f"/proc/self/fd/{what}" if isinstance(what, int) else what
        if not os.path.realpath(path).startswith(self.root):
            return
        self.calls += 1
        if self.calls == self.k or (self.full and self.calls > self.k and name in GROWING):
            self.failed = self.failed or name
            number = errno.ENOSPC if name in GROWING else errno.EIO
            raise OSError(number, os.strerror(number), str(path))

    def opened(self, file, mode="r", *args, **more):
        if not set(mode) & set("wax+") or "b" not in mode or isinstance(file, int):
            return self.open(file, mode, *args, **more)
        self.meet("create", file)
        raw = Raw(file, mode.replace("b", ""), opener=more.get("opener"))
        raw.met = self.meet
        return io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)


class Raw(io.FileIO):
    """A file whose writes are counted."""

    def write(self, data):
        self.met("write", self.fileno())
        return super().write(data)


def each_call(root, full=False, stride=1):
    """A `FailingCalls` for each call in turn, until there is none left that could fail."""
    k = 1
    while True:
        shim = FailingCalls(root, k, full)
        yield shim
        if not shim.failed:
            return
        k += stride
