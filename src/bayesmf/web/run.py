"""`bayesmf serve`: the server process, or several that share a socket, until a signal ends them."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import webbrowser
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import bayesmf.web.hangup as hangup
import bayesmf.web.worker as worker
from bayesmf.errors import BayesMFError, InputError
from bayesmf.process import cores, is_terminal
from bayesmf.web.environment import METRICS_FOLDER
from bayesmf.web.worker import BACKLOG, GRACE, Settings

# A process that ends sooner than this after its start may well do so again: each time the next
# one waits twice as long, and after some the service ends where no other process answers.
_TOO_SOON = 10.0
_TRIES, _LONGEST_PAUSE = 3, 30.0
_LOOK_EVERY = 0.2
# What counts of one process take on the disk, at the most.
_METRICS_BYTES = 16 << 20


@dataclass(frozen=True)
class Address:
    """Where the service listens."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def url(self) -> str:
        """What a browser is told."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}/"

    def names(self) -> list[str]:
        """Names under which this machine asks for it, health checks for example."""
        return ["127.0.0.1", "localhost", "[::1]", self.host]


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; a sentence where that is not possible."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        sock = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, UnicodeError, OverflowError) as error:
        number = getattr(error, "errno", None)
        # Python adds the address to what the system says.
        reason = os.strerror(number) if number and number > 0 else str(error)
        hint = "a port from 1024 on" if number == errno.EACCES else "another port"
        raise InputError(
            f"nothing can listen at {host}, port {port} ({reason.lower()}): give {hint} "
            "(--port, 0 for any that is free) or another address (--host)"
        ) from None
    # Accepted connections inherit it: small answers are sent at once, not when the last was heard.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.set_inheritable(True)
    return sock


def serve(
    settings: Settings,
    sock: socket.socket,
    workers: int,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Answer until a signal ends it: in this process, or in several that share the socket.

    Raises
    ------
    BayesMFError
        If processes end again and again.
    """
    hangup.hold()
    if workers == 1:
        ready()
        with _ends_quietly():
            worker.serve(replace(settings, threads=cores()), sock)
        return
    try:
        shared = tempfile.mkdtemp(prefix="bayesmf-metrics-")
        _need_room(shared, workers)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(
            f"several processes need a folder for what they count ({reason}): set TMPDIR to one "
            "that can be written to, or serve with --workers 1"
        ) from None
    try:
        each = replace(settings, threads=max(1, cores() // workers))
        Processes(each, sock, workers, {METRICS_FOLDER: shared}).run(ready)
    finally:
        shutil.rmtree(shared, ignore_errors=True)


def _need_room(folder: str, workers: int) -> None:
    """Refuse a disk that is nearly full: files that are mapped end who writes beyond it."""
    if shutil.disk_usage(folder).free < workers * _METRICS_BYTES:
        shutil.rmtree(folder, ignore_errors=True)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextlib.contextmanager
def _ends_quietly() -> Iterator[None]:
    """Let a signal end the service as it should: that is how services end."""
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        sys.stdout.flush()
        worker.leave_what_is_computed()


def open_browser(url: str) -> bool:
    """Show the page where there is a screen: a browser of text would take the terminal."""
    here = sys.platform == "darwin" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    return bool(here) and is_terminal(sys.stdout) and webbrowser.open(url)


class Processes:
    """Processes that answer on one socket: replaced when one dies, ended and told of signals."""

    def __init__(
        self, settings: Settings, sock: socket.socket, n: int, environment: dict[str, str]
    ) -> None:
        self.settings, self.sock, self.n = settings, sock, n
        self.environment = os.environ | environment
        self.running: list[tuple[subprocess.Popen[bytes], float]] = []
        self.ending = False
        self._soon, self._not_before = 0, 0.0

    def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Start all, keep them running, and return when a signal has ended them."""
        before = {
            signum: signal.signal(signum, self._heed)
            for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        }
        hangup.let()
        try:
            self._replace_dead()
            ready()
            while not self.ending:
                self._replace_dead()
                time.sleep(_LOOK_EVERY)
        finally:
            self._end()
            for signum, handler in before.items():
                signal.signal(signum, handler)

    def _start(self) -> None:
        command = [sys.executable, "-m", "bayesmf.web.worker", str(self.sock.fileno())]
        if folder := self.environment.get(METRICS_FOLDER):
            os.makedirs(folder, exist_ok=True)  # who cleans /tmp may have removed it
        with hangup.held():  # inherited: it would end a process that cannot heed it yet
            made = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                pass_fds=[self.sock.fileno()],
                env=self.environment,
                start_new_session=True,  # Ctrl-C is for the parent, which ends them in order
            )
        assert made.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            made.stdin.write(self.settings.to_json() + b"\n")
            made.stdin.flush()
        self.running.append((made, time.monotonic()))

    def _heed(self, signum: int, frame: object) -> None:
        if signum == signal.SIGHUP and not hangup.terminal_is_gone():
            self._tell(signal.SIGHUP)
        else:
            self.ending = True

    def _tell(self, signum: int) -> None:
        for process, _ in self.running:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signum)

    def _replace_dead(self) -> None:
        now = time.monotonic()
        for process, began in list(self.running):
            if process.poll() is not None:
                self.running.remove((process, began))
                _close(process)
                ended = f"A process of the service has ended ({process.returncode})"
                self._wait(ended, now, now - began)
        while len(self.running) < self.n and now >= self._not_before:
            try:
                self._start()
            except OSError as error:
                reason = (error.strerror or str(error)).lower()
                self._wait(f"A process of the service cannot be started ({reason})", now, 0.0)

    def _wait(self, said: str, now: float, lived: float) -> None:
        """Tell what has happened, and find out how long to wait before another is started."""
        self._soon = self._soon + 1 if lived < _TOO_SOON else 0
        others = any(now - began >= _TOO_SOON for _, began in self.running)
        if self._soon >= _TRIES and not others:
            raise BayesMFError(f"{said}, and others before it: see what they printed above")
        pause = min(2.0 ** min(self._soon - 1, 10), _LONGEST_PAUSE) if self._soon else 0.0
        self._not_before = now + pause
        when = f" in {pause:g} s" if pause else ""
        with contextlib.suppress(OSError):  # nobody may read it any more
            print(f"{said}: another is started{when}", file=sys.stderr, flush=True)

    def _end(self) -> None:
        """End all, and wait until they have answered what is under way."""
        self._tell(signal.SIGTERM)
        until = time.monotonic() + GRACE + 5
        for process, _ in self.running:
            try:
                process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            _close(process)


def _close(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
