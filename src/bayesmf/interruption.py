"""SIGINT and SIGTERM: a wish to end, which a run follows at its next good place."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from bayesmf.errors import Interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """Whether a signal has come, and which."""

    signum: int | None = None

    def _come(self, signum: int, frame: FrameType | None) -> None:
        if self.signum is not None:  # whoever asks twice does not want to wait
            raise Interrupted(signum, "for the second time")
        self.signum = signum


@contextlib.contextmanager
def awaited() -> Iterator[Interruption]:
    """Note a signal instead of ending at once; a second one ends at once."""
    found = Interruption()
    with _handled_by(found._come):
        yield found


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    """End at a signal, SIGTERM too, by an exception that says which it was."""

    def come(signum: int, frame: FrameType | None) -> None:
        raise Interrupted(signum)

    with _handled_by(come):
        yield


@contextlib.contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle signals so in the main thread, the only one that gets them; as before afterwards."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {}
    try:
        for signum in SIGNALS:
            # What the parent has set to be ignored (nohup), or what is not Python's, stays so.
            if signal.getsignal(signum) not in (signal.SIG_IGN, None):
                before[signum] = signal.signal(signum, handler)
        yield
    finally:
        for signum, old in before.items():
            signal.signal(signum, old)
