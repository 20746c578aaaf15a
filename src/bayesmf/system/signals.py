"""SIGINT and SIGTERM: a wish to end, which a run follows as soon as it safely can.

No exception may be raised while a function is compiled, loaded from the cache or about to be called
by numba: it would come up inside a callback from the compiler, where Python can only ignore it, or
be wrapped in another, or meet C code that goes on as if there were none and crashes. So then a
program ends at once (`leaving`), and a library waits (`deferred`).
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any, NoReturn

from bayesmf.errors import Interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM)
# After a signal that was lost: by then Python is out of where it can only be ignored.
AGAIN_AFTER = 0.05
# Packages through whose C code no exception of ours may go.
COMPILERS = ("numba", "llvmlite")

# What a signal means: an exception to raise, or None where it is noted.
Meaning = Callable[[int], BaseException | None]
# How the program ends, once there is one.
_LEAVE: list[Callable[[BaseException], NoReturn]] = []
# The signal that came last: a library may raise an exception of its own instead of ours.
LAST: list[int] = []


class Ended(KeyboardInterrupt):
    """A program that a signal has ended, with nothing to go on from."""

    def __init__(self, signum: int) -> None:
        self.signum = signum
        super().__init__()


class Interruption:
    """Whether a signal has come, and which."""

    signum: int | None = None

    def _come(self, signum: int) -> BaseException | None:
        if self.signum is not None:  # whoever asks twice does not want to wait
            return Interrupted(signum, "for the second time")
        self.signum = signum
        return None


@contextlib.contextmanager
def awaited() -> Iterator[Interruption]:
    """Note a signal instead of ending at once; a second one ends at once."""
    found = Interruption()
    with _handled_by(found._come):
        yield found


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    """End at a signal, SIGTERM too, by an exception that says which it was."""
    with _handled_by(Interrupted):
        yield


@contextlib.contextmanager
def leaving(leave: Callable[[BaseException], NoReturn]) -> Iterator[None]:
    """End a program by Ctrl-C or SIGTERM, so that it can clear up after itself.

    While it compiles, `leave` is called instead of raising.
    """
    _LEAVE.append(leave)
    LAST.clear()  # one of before is none of this program's
    try:
        with _handled_by(Ended):
            yield
    finally:
        _LEAVE.pop()


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Compile, and end by Ctrl-C as soon as the function under way is compiled.

    Nothing is changed where the caller has a handler of its own.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    come: list[int] = []

    def note(signum: int) -> BaseException | None:
        if not _clock_runs():
            return KeyboardInterrupt()
        come.append(signum)
        return None

    from bayesmf.kernels.jit import CLOCK

    def look() -> None:
        if come and CLOCK.depth <= 1:  # not while one function is compiled for another
            raise KeyboardInterrupt

    CLOCK.observers.append(look)
    try:
        with _handled_by(note, (signal.SIGINT,)):
            yield
    finally:
        CLOCK.observers.remove(look)
    look()


@contextlib.contextmanager
def never_lost(debug: bool = False) -> Iterator[None]:
    """Repeat a signal that came where Python cannot raise, such as in a finalizer.

    There Python prints the exception with a traceback, and goes on as if nobody had asked it to
    end. Other exceptions from there, which have no effect, are shown to someone who debugs.
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


def _clock_runs() -> bool:
    module = sys.modules.get("bayesmf.kernels.jit")
    clock = getattr(module, "CLOCK", None)  # not yet, while it is being imported
    return clock is not None and clock.busy


def _in_compiler(frame: FrameType | None) -> bool:
    """Whether something is compiled now, or this thread is anywhere inside the compiler."""
    if _clock_runs():
        return True
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] in COMPILERS:
            return True
        frame = frame.f_back
    return False


@contextlib.contextmanager
def _handled_by(means: Meaning, signals: Sequence[signal.Signals] = SIGNALS) -> Iterator[None]:
    """Handle signals so in the main thread, the only one that gets them; as before afterwards."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def come(signum: int, frame: FrameType | None) -> None:
        LAST[:] = [signum]
        error = means(signum)
        if error is None:
            return
        if _LEAVE and _in_compiler(frame):
            _LEAVE[-1](error)
        raise error

    before = {}
    try:
        for signum in signals:
            # What the parent has set to be ignored (nohup), or what is not Python's, stays so.
            if signal.getsignal(signum) not in (signal.SIG_IGN, None):
                before[signum] = signal.signal(signum, come)
        yield
    finally:
        for signum, old in before.items():
            signal.signal(signum, old)
