"""Files that must have the digests noted of them: compared at once, or beside other work.

hashlib releases the interpreter's lock, so several files are read side by side. Threads hold no
lock that a fork could leave locked, and have ended before the interpreter does.
"""

from __future__ import annotations

import hashlib
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple

from bayesmf.errors import InputError
from bayesmf.parallel import cores
from bayesmf.places import as_input_error

# Read at a time: what is left to do when there is no more need to.
_BYTES = 1 << 20
# How long an end waits for a disk that does not answer.
_PATIENCE = 1.0


class Claim(NamedTuple):
    """What is said of a file, and what to tell the user if it is not so."""

    folder: Path
    file: Path
    sha256: str
    refusal: str


def check(claim: Claim) -> None:
    """Read a file; InputError if its digest is another."""
    with as_input_error(claim.folder, "read"), FileIO(claim.file) as stream:
        found = _digest(stream, lambda: False)
    if found != claim.sha256:
        raise InputError(claim.refusal)


def _digest(stream: FileIO, given_up: Callable[[], bool]) -> str:
    """Of all of a file, or of its beginning where it was given up."""
    digest, at = hashlib.sha256(), 0
    while not given_up() and (piece := _read(stream, at)):
        digest.update(piece)
        at += len(piece)
    return digest.hexdigest()


def _read(stream: FileIO, at: int) -> bytes:
    if hasattr(os, "pread"):  # a position of one's own: a forked process shares the file's
        return os.pread(stream.fileno(), _BYTES, at)
    stream.seek(at)
    return stream.read(_BYTES)


class _Work:
    """What threads share. They know nothing of the Verification, which may be forgotten earlier."""

    def __init__(self, claims: Iterable[Claim]) -> None:
        self.claims = list(claims)
        self.todo = deque(self.claims)
        self.sound: dict[Path, bool] = {}
        self.streams: dict[Path, FileIO] = {}
        self.given_up = False
        with suppress(OSError):  # told where the end is waited for
            # Opened now: what is saved in the same place later has the names, not these files.
            for claim in self.claims:
                self.streams[claim.file] = FileIO(claim.file)

    def run(self) -> None:
        """In a thread: claims, until there are no more."""
        # What goes wrong here goes wrong again, and is told, where the end is waited for.
        with suppress(Exception):
            while not self.given_up:
                claim = self.todo.popleft()
                found = _digest(self.streams[claim.file], lambda: self.given_up)
                if not self.given_up:
                    self.sound[claim.file] = found == claim.sha256

    def check(self) -> None:
        """InputError if a file is not sound; those that no thread has read are read here."""
        for claim in self.claims:
            if claim.file not in self.sound:
                stream = self.streams.get(claim.file)
                if stream is None or stream.closed:
                    check(claim)
                    continue
                with as_input_error(claim.folder, "read"):
                    found = _digest(stream, lambda: False)
                self.sound[claim.file] = found == claim.sha256
            if not self.sound[claim.file]:
                raise InputError(claim.refusal)

    def close(self) -> None:
        """Let go of all files."""
        for stream in self.streams.values():
            stream.close()


class Verification:
    """Digests of files compared by threads, from now on; `wait` says how it ended.

    In the child of a fork there are no such threads: what they had not ended is done by `wait`.
    Forgotten, or at the interpreter's end, they stop.
    """

    def __init__(self, claims: Iterable[Claim]) -> None:
        self._work, self._by_threads = _Work(claims), True
        self._threads = [
            threading.Thread(target=self._work.run, name="bayesmf-verify", daemon=True)
            for _ in range(min(cores(), len(self._work.claims)))
        ]
        weakref.finalize(self, _give_up, self._work, self._threads)
        with suppress(RuntimeError):  # no thread can be started: then `wait` does the work
            for thread in self._threads:
                thread.start()

    def wait(self) -> None:
        """Return when all files were found good; InputError names one that is not."""
        for thread in self._threads:
            if thread.is_alive():
                thread.join()
        # Where threads did not do all of it, whoever waits reads too, and so may another.
        self._by_threads = self._by_threads and len(self._work.sound) == len(self._work.claims)
        self._work.check()
        if self._by_threads:
            self._work.close()

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy of a model, perhaps in another process, is one of a verified model.
        self.wait()
        return Verification, ((),)


def _give_up(work: _Work, threads: list[threading.Thread]) -> None:
    work.given_up = True
    for thread in threads:
        if thread.is_alive() and thread is not threading.current_thread():
            thread.join(_PATIENCE)
    work.close()
