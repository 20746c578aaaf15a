"""SIGHUP, which asks for the model to be loaded anew: kept waiting until somebody can heed it.

Before that it would end the process, as it does any that has said nothing about it.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Iterator


def hold() -> None:
    """Keep it waiting, for this thread and for processes that it starts."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})


def let() -> None:
    """Let it come, one that has waited too."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})


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
    if not hasattr(signal, "SIGHUP") or threading.current_thread() is not threading.main_thread():
        return False
    try:
        loop.add_signal_handler(signal.SIGHUP, wanted.set)
    except (NotImplementedError, RuntimeError, ValueError):
        return False
    let()
    return True
