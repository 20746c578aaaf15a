"""Files whose bytes and numbers must be what is said of them: looked at once, or beside other work.

A file is read once, for its digest and for the rule of its numbers. hashlib and NumPy release the
interpreter's lock, so several files are read side by side. Threads hold no lock that a fork could
leave locked, and have ended before the interpreter does.
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

import numpy as np

from bayesmf.errors import InputError
from bayesmf.process import cores
from bayesmf.storage.contents import ANY, Rule
from bayesmf.storage.npy import Header
from bayesmf.storage.paths import as_input_error

# Read at a time: what is left to do when there is no more need to. Whole numbers of any type.
_BYTES = 1 << 20
# How long an end waits for a disk that does not answer.
_PATIENCE = 1.0


class Claim(NamedTuple):
    """What is said of an array file, which is open, and what to tell the user if it is not so."""

    folder: Path
    name: str
    stream: FileIO
    header: Header
    refuse: Callable[[str], InputError]
    sha256: str | None
    """None where the digest is not to be compared."""
    rule: Rule = ANY


def verify_one(claim: Claim) -> None:
    """Read a file; InputError if its digest or a number in it is wrong."""
    with as_input_error(claim.folder, "read"):
        said = _read_through(claim, lambda: False)
    if said:
        raise claim.refuse(said)


def close_all(claims: Iterable[Claim]) -> None:
    """Close the files of claims that nobody is to check."""
    for claim in claims:
        claim.stream.close()


def verify_all(claims: Iterable[Claim]) -> None:
    """Read files, large ones side by side; InputError names one that is wrong. Closes them."""
    claims = list(claims)
    try:
        for claim in claims:
            if claim.header.size < _BYTES:
                verify_one(claim)
        large = Verification(claim for claim in claims if claim.header.size >= _BYTES)
        try:
            large.wait()
        finally:
            large.close()
    finally:
        close_all(claims)


def _read_through(claim: Claim, given_up: Callable[[], bool]) -> str:
    """Say what is wrong with a file, "" if nothing is (or if it was given up)."""
    digest = None if claim.sha256 is None else hashlib.sha256()
    head, dtype = claim.header.offset, claim.header.dtype
    at, rest, before, wrong = 0, b"", None, ""
    position = 0
    while not given_up() and (
        piece := _read(claim.stream, at, _BYTES if at >= head else head - at)
    ):
        if digest is not None:
            digest.update(piece)
        if at >= head and not wrong:
            # A system may give less than was asked for, and half a number with it.
            whole = rest + piece if rest else piece
            numbers = np.frombuffer(whole, dtype, len(whole) // dtype.itemsize)
            rest = whole[numbers.nbytes :]
            if len(numbers):
                wrong = "" if claim.rule.holds(numbers, before, position) else claim.rule.said
                before, position = numbers[-1], position + len(numbers)
        at += len(piece)
    if given_up():
        return ""
    # Most files that are wrong were damaged, and then it matters little which number it was.
    if digest is not None and digest.hexdigest() != claim.sha256:
        return f"{claim.name}.npy does not have the digest noted in manifest.json"
    return f"{claim.name}.npy {wrong}" if wrong else ""


def _read(stream: FileIO, at: int, count: int) -> bytes:
    if hasattr(os, "pread"):  # a position of one's own: a forked process shares the file's
        return os.pread(stream.fileno(), count, at)
    stream.seek(at)
    return stream.read(count)


class _Claims:
    """What threads share. They know nothing of the Verification, which may be forgotten earlier."""

    def __init__(self, claims: Iterable[Claim]) -> None:
        self.claims = list(claims)
        self.todo = deque(self.claims)
        self.found: dict[str, str] = {}
        self.given_up = False

    def verify_in_thread(self) -> None:
        """In a thread: claims, until there are no more."""
        # What goes wrong here goes wrong again, and is told, where the end is waited for.
        with suppress(Exception):
            while not self.given_up:
                claim = self.todo.popleft()
                said = _read_through(claim, lambda: self.given_up)
                if not self.given_up:
                    self.found[claim.name] = said

    def verify_rest(self) -> None:
        """InputError if a file is wrong; those that no thread has read are read here."""
        for claim in self.claims:
            if claim.name not in self.found:
                with as_input_error(claim.folder, "read"):
                    self.found[claim.name] = _read_through(claim, lambda: False)
            if said := self.found[claim.name]:
                raise claim.refuse(said)


class Verification:
    """Files looked at by threads, from now on; `wait` says how it ended.

    In the child of a fork there are no such threads: what they had not ended is done by `wait`.
    Forgotten, or at the interpreter's end, they stop.
    """

    def __init__(self, claims: Iterable[Claim]) -> None:
        self._claims, self._by_threads = _Claims(claims), True
        self._threads = [
            threading.Thread(
                target=self._claims.verify_in_thread, name="bayesmf-verify", daemon=True
            )
            for _ in range(min(cores(), len(self._claims.claims)))
        ]
        self._end = weakref.finalize(self, _give_up, self._claims, self._threads)
        with suppress(RuntimeError):  # no thread can be started: then `wait` does the work
            for thread in self._threads:
                thread.start()

    def wait(self) -> None:
        """Return when all files were found good; InputError names one that is not."""
        for thread in self._threads:
            if thread.is_alive():
                thread.join()
        # Where threads did not do all of it, whoever waits reads too, and so may another.
        self._by_threads = self._by_threads and len(self._claims.found) == len(self._claims.claims)
        self._claims.verify_rest()
        if self._by_threads:
            close_all(self._claims.claims)

    def close(self) -> None:
        """Stop, and let go of all files."""
        self._end()

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy of a model, perhaps in another process, is one of a verified model.
        self.wait()
        return Verification, ((),)


def _give_up(shared: _Claims, threads: list[threading.Thread]) -> None:
    shared.given_up = True
    for thread in threads:
        if thread.is_alive() and thread is not threading.current_thread():
            thread.join(_PATIENCE)
    close_all(shared.claims)
