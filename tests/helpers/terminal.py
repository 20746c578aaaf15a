"""A terminal for tests: a command in a pty of some size, and what its screen showed."""

from __future__ import annotations

import fcntl
import multiprocessing
import multiprocessing.reduction
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyte

ROWS, TIMEOUT = 200, 180.0
_TERMINAL = {"TERM": "xterm", "PYTHONIOENCODING": "utf-8"}
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class _Screen(pyte.Screen):
    """A screen that counts how often a line was longer than it is wide."""

    wraps = 0

    def draw(self, data: str) -> None:
        for char in data:
            if self.cursor.x == self.columns:
                self.wraps += 1
            super().draw(char)

    def line(self, y: int) -> str:
        """What stands on a line; `display` would look at each place of all of them."""
        line = self.buffer[y]
        return "".join(line[x].data for x in range(max(line, default=-1) + 1)).rstrip()


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
    cwd: Path | None = None,
) -> Session:
    """Run a program in a terminal.

    `on_screen` is shown every state of the screen, and gives what to type, if anything.
    """

    def start(slave: int) -> Callable[[], int]:
        process = subprocess.Popen(
            [str(arg) for arg in args], stdin=slave, stdout=slave, stderr=slave, cwd=cwd,
            env={**os.environ, **_TERMINAL, **(env or {})},
            start_new_session=True, preexec_fn=_take_terminal,
        )  # fmt: skip
        return lambda: process.wait(TIMEOUT)

    return _watch(start, columns, on_screen)


def _take_terminal() -> None:
    """In the child: hear its Ctrl-C, which a job in the background has to ignore."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def bayesmf(*args: object, columns: int = 80, **options: Any) -> Session:
    """Run the command line in a terminal, and look for what must never be there."""
    return session([sys.executable, "-m", "bayesmf", *args], columns, **options).check()


# -- the same without the second and a half that importing takes ----------------------------------


_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["bayesmf.cli.fit", "bayesmf.estimator.bayesian_mf", "terminal"])


def forked(
    *args: object,
    columns: int = 80,
    env: dict[str, str] | None = None,
    on_screen: Callable[[str], bytes | None] = lambda text: None,
    cwd: Path | None = None,
    prepare: Callable[[], None] | None = None,
) -> Session:
    """Like `bayesmf`, forked from a process that has imported everything already.

    `prepare` is a function of a module, called before the command.
    """

    def start(slave: int) -> Callable[[], int]:
        told = {**_TERMINAL, **(env or {})}
        fd = multiprocessing.reduction.DupFd(slave)
        work = ([str(arg) for arg in args], fd, told, str(cwd or "."), prepare)
        process = _SERVER.Process(target=_command, args=work)
        process.start()

        def wait() -> int:
            process.join(TIMEOUT)
            assert process.exitcode is not None
            return process.exitcode

        return wait

    return _watch(start, columns, on_screen).check()


def _command(args: list[str], fd: Any, env: dict[str, str], cwd: str, prepare: Any) -> None:
    slave = fd.detach()
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    for stream in (0, 1, 2):
        os.dup2(slave, stream)
    os.close(slave)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
    sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr  # type: ignore[misc]
    os.environ.update(env)
    os.environ.pop("COLUMNS", None)
    os.chdir(cwd)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from bayesmf.cli import main

    if prepare is not None:
        prepare()
    sys.argv = ["bayesmf", *args]
    try:
        status = main()
    except SystemExit as ended:  # -h
        status = int(ended.code or 0)
    sys.stdout.flush()
    os._exit(status)


# -- reading the screen ---------------------------------------------------------------------------


def _watch(
    start: Callable[[int], Callable[[], int]],
    columns: int,
    on_screen: Callable[[str], bytes | None],
) -> Session:
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
    wait = start(slave)
    os.close(slave)
    screen = _Screen(columns, ROWS)
    stream, found, raw = pyte.ByteStream(screen), Session(columns), b""
    lines = [""] * ROWS
    end = time.monotonic() + TIMEOUT
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
            for y in screen.dirty:
                lines[y] = screen.line(y)
            screen.dirty.clear()
            shown = tuple(lines)
            if not found.screens or shown != found.screens[-1]:
                found.screens.append(shown)
            typed = on_screen("\n".join(shown))
            if typed:
                os.write(master, typed)
        found.status = wait()
    finally:
        os.close(master)  # what still runs is hung up
    found.raw, found.wraps = raw.decode(errors="replace"), screen.wraps
    return found
