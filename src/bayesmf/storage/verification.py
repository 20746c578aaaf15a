"""Digests and numbers of a file's arrays, verified at once or in threads beside other work.

An array is read once, for its digest and for the rule of its numbers. hashlib and NumPy release the
interpreter's lock, so arrays are read side by side. Threads hold no lock that a fork could leave
locked, and end before the interpreter does.
"""

from __future__ import annotations

import hashlib
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from io import FileIO
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmf.errors import InputError
from bayesmf.process import cores
from bayesmf.storage.contents import ANY, Rule
from bayesmf.storage.paths import PathLike, as_input_error

_BYTES = 1 << 20  # read at a time, whole numbers of any type
_LARGE = 1 << 20  # bytes of an array that is worth a thread
_PATIENCE = 1.0  # seconds for which an end waits for a disk that does not answer


class Claim(NamedTuple):
    """Digest (None: not compared) of an array, and the rule of its numbers."""

    dtype: np.dtype[Any]
    begin: int
    end: int
    sha256: str | None
    array: NDArray[Any] | None
    """The array, if it is in memory; else its bytes are read from the file."""
    rule: Rule = ANY


class Verification:
    """The arrays of an open file, to be verified before they are used.

    In the child of a fork the threads are gone, and `wait` does the rest of their work.
    Threads stop and the file is closed when the object is deleted, and at the interpreter's end.

    Parameters
    ----------
    path : path-like
        The file, for messages.
    stream : FileIO, optional
        The open file.
    claims : mapping
        Digest and rule of each array.
    damaged : callable
        Makes the error from a text.
    """

    def __init__(
        self,
        path: PathLike = "",
        stream: FileIO | None = None,
        claims: Mapping[str, Claim] | None = None,
        damaged: Callable[[str], InputError] = InputError,
    ) -> None:
        self._shared = _Shared(stream, dict(claims or {}))
        self._path, self._damaged = path, damaged
        self._threads: list[threading.Thread] = []
        self._end = weakref.finalize(self, _stop, self._shared, self._threads)

    def begin(self) -> None:
        """Start threads for large arrays that have not been verified."""
        claims, found = self._shared.claims, self._shared.found
        large = [n for n, c in claims.items() if n not in found and c.end - c.begin >= _LARGE]
        self._shared.todo.extend(large)
        with suppress(RuntimeError):  # no thread can be started: then `wait` does the work
            for _ in range(min(cores(), len(large))):
                thread = threading.Thread(
                    target=self._shared.verify_in_thread, name="bayesmf-verify", daemon=True
                )
                thread.start()
                self._threads.append(thread)

    def wait(self, names: Iterable[str] | None = None) -> None:
        """Return when all arrays, or those named, are sound; InputError names one that is not."""
        shared = self._shared
        for thread in self._threads:
            if thread.is_alive():
                thread.join()
        for name in shared.claims if names is None else names:
            if name not in shared.found:
                self._verify(name)
            if fault := shared.found[name]:
                raise self._damaged(f"the array {name} {fault}")
        if names is None:
            self.close()

    def _verify(self, name: str) -> None:
        """Verify an array, perhaps beside another thread that closes the file when it is done."""
        shared = self._shared
        try:
            with as_input_error(self._path, "read"):
                shared.found.setdefault(name, shared.fault(name))
        except (InputError, ValueError):
            if name not in shared.found:
                raise

    def close(self) -> None:
        """Stop threads, and close the file."""
        self._end()

    def __reduce__(self) -> tuple[Any, ...]:
        self.wait()  # a copy of a model is one of a verified model
        return Verification, ()


class _Shared:
    """State of the threads, which must not keep the Verification alive."""

    def __init__(self, stream: FileIO | None, claims: dict[str, Claim]) -> None:
        self.stream, self.claims = stream, claims
        self.found: dict[str, str] = {}
        self.todo: deque[str] = deque()
        self.stopped = False

    def verify_in_thread(self) -> None:
        # What fails here fails again, and is raised, in `wait`.
        with suppress(Exception):
            while not self.stopped:
                name = self.todo.popleft()
                fault = self.fault(name)
                if not self.stopped:
                    self.found[name] = fault

    def fault(self, name: str) -> str:
        """What is wrong with an array, "" if nothing is."""
        claim, wrong, before, position = self.claims[name], "", None, 0
        digest = None if claim.sha256 is None else hashlib.sha256()
        for piece in self.pieces(claim):
            if digest is not None:
                digest.update(piece.data)
            if not wrong:
                wrong = "" if claim.rule.holds(piece, before, position) else claim.rule.fault
                before, position = piece[-1], position + len(piece)
        # Most wrong files are damaged, so the digest is reported before the number.
        if digest is not None and digest.hexdigest() != claim.sha256:
            return "does not have the digest noted for it"
        return wrong

    def pieces(self, claim: Claim) -> Iterable[NDArray[Any]]:
        at, step = claim.begin, _BYTES // claim.dtype.itemsize
        if claim.array is not None:
            flat = claim.array.reshape(-1)
            yield from (flat[k : k + step] for k in range(0, len(flat), step))
            return
        assert self.stream is not None
        while at < claim.end and not self.stopped:
            piece = np.empty(min(_BYTES, claim.end - at), np.uint8)
            read_into(self.stream, piece, at)
            yield piece.view(claim.dtype)
            at += len(piece)


def read_into(stream: FileIO, array: NDArray[np.uint8], at: int) -> None:
    """Fill an array of bytes from a place in a file."""
    room = array.data
    while len(room):
        # With a position of its own: a forked process shares that of the file.
        got = os.preadv(stream.fileno(), [room], at)
        if not got:
            raise OSError("it has become shorter")
        room, at = room[got:], at + got


def _stop(shared: _Shared, threads: list[threading.Thread]) -> None:
    shared.stopped = True
    for thread in threads:
        if thread.is_alive() and thread is not threading.current_thread():
            thread.join(_PATIENCE)
    if shared.stream is not None:
        shared.stream.close()
