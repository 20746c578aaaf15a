"""Signal handlers stay as they are while Ray is started and shut down.

Ray sets its own for SIGTERM, which end the process without a word: by way of Python at the start of
`ray.init`, and below Python, where nobody sees it, at its end. `ray.shutdown` then takes away what
stands below, though Python still believes in its own. So whoever had a handler, this package or
its user, would have none.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

# SIGBREAK is what Ray takes for SIGTERM on Windows.
NAMES = ("SIGINT", "SIGTERM", "SIGBREAK")
SIGNALS = tuple(getattr(signal, name) for name in NAMES if hasattr(signal, name))
AGAIN = 0.01  # seconds in which a handler may be missing
ACTION = 1024  # bytes for what the system knows of a handler, 152 on Linux

Handlers = dict[signal.Signals, Any]


@contextlib.contextmanager
def unchanged() -> Iterator[None]:
    """Context in which nobody can set a handler; those that were there are set anew at its end.

    What Ray sets below Python, which prints a stack and aborts, is replaced as soon as Ray lets
    another thread run: on a busy machine that may be a second or two.
    """
    ours, real = _now(), signal.signal
    if not ours:
        yield
        return

    def others_only(signum: Any, handler: Any) -> Any:
        return ours[signum] if signum in ours else real(signum, handler)

    with _set_below(signal.SIGTERM):
        signal.signal = others_only  # type: ignore[assignment]
        try:
            yield
        finally:
            signal.signal = real
            _set(ours)


def unchanged_during(call: Callable[[], object]) -> None:
    """Make a call that takes handlers away and then lasts a second or two, such as `ray.shutdown`.

    It is made in another thread, while this one sets the handlers again and again. Signals that
    come meanwhile are handled when the call has ended: half a shutdown would leave processes.
    """
    ours = _now()
    if not ours:
        call()
        return
    come: list[int] = []
    noting = dict.fromkeys(ours, lambda signum, frame: come.append(signum))
    try:
        _set(noting)
        with ThreadPoolExecutor(1) as pool:
            called = pool.submit(call)
            while not called.done():
                wait([called], AGAIN)
                _set(noting)
    finally:
        _set(ours)
    for signum in come:
        signal.raise_signal(signum)
    called.result()


@contextlib.contextmanager
def _set_below(signum: signal.Signals) -> Iterator[None]:
    """Context in which what the system calls at a signal is what it called before, again and again.

    Python's own way to set it is for the main thread, which is busy.
    """
    if os.name != "posix":
        yield
        return
    system, action = ctypes.CDLL(None), ctypes.create_string_buffer(ACTION)
    system.sigaction(int(signum), None, action)
    ended = threading.Event()

    def keep() -> None:
        while not ended.wait(AGAIN):
            system.sigaction(int(signum), action, None)

    thread = threading.Thread(target=keep, name="bayesmf-handlers", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _now() -> Handlers:
    """Python's handlers; none in another thread than the main one, where none can be set."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    found = {signum: signal.getsignal(signum) for signum in SIGNALS}
    return {signum: handler for signum, handler in found.items() if handler is not None}


def _set(handlers: Handlers) -> None:
    for signum, handler in handlers.items():
        signal.signal(signum, handler)
