"""SIGHUP, which asks for the model to be loaded anew: kept waiting until somebody can heed it.

Before that it would end the process, as it does any that has said nothing about it. It also comes
when the terminal is closed that the service was started from; then it does end it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Iterator

_STDIN = 0
_BEGAN_AT_A_TERMINAL = os.isatty(_STDIN)


def hold() -> None:
    """Keep it waiting, for this thread and for processes that it starts."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})


def let() -> None:
    """Let it come, one that has waited too."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})


def terminal_is_gone() -> bool:
    """Whether the terminal has been closed that this process was started from."""
    return _BEGAN_AT_A_TERMINAL and not os.isatty(_STDIN)


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Keep it waiting meanwhile."""
    hold()
    try:
        yield
    finally:
        let()


def heed(loop: asyncio.AbstractEventLoop, wanted: asyncio.Event) -> bool:
    """Take it for a wish to load the model anew, where signals can be had."""
    if threading.current_thread() is not threading.main_thread():
        return False

    def came() -> None:
        if terminal_is_gone():
            signal.raise_signal(signal.SIGTERM)
        else:
            wanted.set()

    try:
        loop.add_signal_handler(signal.SIGHUP, came)
    except (NotImplementedError, RuntimeError, ValueError):
        return False
    let()
    return True
