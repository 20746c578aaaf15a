"""A terminal for tests: a command in a pty of some size, and what its screen showed."""

from __future__ import annotations

import fcntl
import os
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyte

ROWS = 200
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class _Screen(pyte.Screen):
    """A screen that counts how often a line was longer than it is wide."""

    wraps = 0

    def draw(self, data: str) -> None:
        for char in data:
            if self.cursor.x == self.columns:
                self.wraps += 1
            super().draw(char)


@dataclass
class Session:
    """How a command ended, and every state of the screen that was seen on the way."""

    columns: int
    status: int = -1
    raw: str = ""
    screens: list[tuple[str, ...]] = field(default_factory=list)
    wraps: int = 0

    @property
    def text(self) -> str:
        """The last screen."""
        return "\n".join(self.screens[-1]).rstrip() if self.screens else ""

    @property
    def lines(self) -> set[str]:
        """All lines that stood on the screen at any time, bars among them."""
        return {line for screen in self.screens for line in screen if line}

    def check(self) -> Session:
        """Nothing wrapped, nothing beyond the edge, no traceback."""
        assert "Traceback" not in self.raw, self.raw
        assert self.wraps == 0, max(re.split(r"[\r\n]+", ESCAPES.sub("", self.raw)), key=len)
        return self


def session(
    args: Sequence[object],
    columns: int,
    env: dict[str, str] | None = None,
    on_screen: Callable[[str], bytes | None] = lambda text: None,
    timeout: float = 120.0,
) -> Session:
    """Run a command in a terminal.

    `on_screen` is shown every state of the screen, and gives what to type, if anything.
    """
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
    process = subprocess.Popen(
        [str(arg) for arg in args], stdin=slave, stdout=slave, stderr=slave,
        env={**os.environ, "TERM": "xterm", "PYTHONIOENCODING": "utf-8", **(env or {})},
        start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(slave)
    screen = _Screen(columns, ROWS)
    stream, found = pyte.ByteStream(screen), Session(columns)
    end, raw = time.monotonic() + timeout, b""
    try:
        while time.monotonic() < end:
            if not select.select([master], [], [], 0.1)[0]:
                continue
            try:
                chunk = os.read(master, 65536)
            except OSError:  # the other side is closed
                break
            if not chunk:
                break
            raw += chunk
            stream.feed(chunk)
            shown = tuple(line.rstrip() for line in screen.display)
            if not found.screens or shown != found.screens[-1]:
                found.screens.append(shown)
            typed = on_screen("\n".join(shown))
            if typed:
                os.write(master, typed)
        found.status = process.wait(max(1.0, end - time.monotonic()))
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(master)
    found.raw, found.wraps = raw.decode(errors="replace"), screen.wraps
    return found


def bayesmf(*args: object, columns: int = 80, **options: Any) -> Session:
    """Run the command line in a terminal, and look for what must never be there."""
    return session([sys.executable, "-m", "bayesmf", *args], columns, **options).check()
