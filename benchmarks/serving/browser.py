"""A Chromium of this machine, and a service for it to look at: for screenshots, and for tests."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Iterator
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
# It asks nobody for anything on its own.
ARGUMENTS = (
    "--headless", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
STARTS_WITHIN = 60.0  # seconds


def chromium() -> str | None:
    """Path of a Chromium, from BAYESMF_CHROMIUM or where commands are; None where there is none."""
    named = os.environ.get("BAYESMF_CHROMIUM")
    return named or next(filter(None, map(shutil.which, NAMES)), None)


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """Chromium without a window, until the block ends."""
    from playwright.sync_api import sync_playwright

    as_root = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as player:
        opened = player.chromium.launch(
            executable_path=chromium(), args=[*ARGUMENTS, *as_root], chromium_sandbox=not as_root
        )
        yield opened
        opened.close()


@contextlib.contextmanager
def served(app: Any) -> Iterator[str]:
    """Address of an application that is served from a thread, on a free port of this machine."""
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    end = time.monotonic() + STARTS_WITHIN
    while not server.started:
        if not thread.is_alive() or time.monotonic() > end:
            raise RuntimeError("the service did not start")
        time.sleep(0.01)
    (socket,) = server.servers[0].sockets
    try:
        yield f"http://127.0.0.1:{socket.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
