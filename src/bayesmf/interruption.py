"""SIGINT and SIGTERM: a wish to end, which a run follows at its next good place."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from bayesmf.errors import Interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM)
# After a signal that was lost: by then Python is out of where it can only be ignored.
AGAIN_AFTER = 0.05


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
def never_lost(debug: bool = False) -> Iterator[None]:
    """Repeat a signal that came where Python cannot raise, such as in a callback from C.

    The compiler has such callbacks, and so have finalizers: Python prints the exception with a
    traceback, and goes on as if nobody had asked it to end. Other exceptions from there, which
    have no effect, are shown to someone who debugs.
    """

    def lost(told: Any) -> None:
        if isinstance(told.exc_value, KeyboardInterrupt):
            signum = getattr(told.exc_value, "signum", signal.SIGINT)
            timer = threading.Timer(AGAIN_AFTER, _send_to_main, (signum,))
            timer.daemon = True
            timer.start()
        elif debug:
            sys.__unraisablehook__(told)

    before, sys.unraisablehook = sys.unraisablehook, lost
    try:
        yield
    finally:
        sys.unraisablehook = before


def _send_to_main(signum: int) -> None:
    main = threading.main_thread().ident
    if hasattr(signal, "pthread_kill") and main is not None:
        signal.pthread_kill(main, signum)  # it may sleep: this wakes it
    else:
        signal.raise_signal(signum)


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
