"""Machines in one: network namespaces with a card each, wired to a switch. Root on Linux.

    with Wires(3) as wires:
        subprocess.run([*wires.inside(0), "ping", "-c1", wires.address(2)])
        with wires.cut(2):
            ...

The switch is a bridge in a namespace of its own: nothing is added to this machine's network, and
addresses are in nobody's way.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType

from benchmarks.faults.nodes import kill_process, wait_for

CARD, BRIDGE = "eth0", "bridge"
NOBODY = "02:00:00:00:ff:ff"  # a card that there is not
PREFIX = "bmf"


def ip(*words: str) -> str:
    """Call `ip` of iproute2 and return what it prints."""
    return _call("ip", *words)


def _call(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def why_not() -> str:
    """Why there can be no namespaces here; empty where there can."""
    if sys.platform != "linux":
        return "network namespaces need Linux"
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need the command ip (iproute2)"
    try:
        with Wires(1):
            return ""
    except OSError as error:
        return f"no network namespace can be made here ({error})"


class Wires:
    """Namespaces by number from 0, each with a card that is wired to all others'."""

    def __init__(self, n: int) -> None:
        self.n = n
        self._stack = ExitStack()

    def name(self, k: int | str) -> str:
        """Of a namespace; that of the switch is "hub". The process's number keeps runs apart."""
        return f"{PREFIX}{os.getpid()}-{k}"

    @staticmethod
    def address(k: int) -> str:
        return f"10.77.0.{k + 1}"

    @staticmethod
    def _hardware(k: int) -> str:
        return f"02:00:00:00:00:{k + 1:02x}"

    def inside(self, k: int | str) -> list[str]:
        """What makes a command run in a namespace."""
        return ["ip", "netns", "exec", self.name(k)]

    def __enter__(self) -> Wires:
        sweep()
        try:
            for k in ("hub", *range(self.n)):
                ip("netns", "add", self.name(k))
                self._stack.callback(remove, self.name(k))
                ip("-n", self.name(k), "link", "set", "lo", "up")
            ip("-n", self.name("hub"), "link", "add", BRIDGE, "type", "bridge")
            ip("-n", self.name("hub"), "link", "set", BRIDGE, "up")
            for k in range(self.n):
                self._wire(k)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is left, whatever has been done by then."""
        self._stack.close()

    # -- cards ------------------------------------------------------------------------------------

    def _wire(self, k: int) -> None:
        """Make a pair of virtual cards, and plug one in with its address."""
        port, hub = f"port{k}", self.name("hub")
        ip("link", "add", CARD, "netns", self.name(k), "type", "veth", "peer", port, "netns", hub)
        ip("-n", self.name(k), "link", "set", CARD, "address", self._hardware(k))
        ip("-n", self.name(k), "address", "add", f"{self.address(k)}/24", "dev", CARD)
        ip("-n", hub, "link", "set", port, "master", BRIDGE)
        for where, card in ((hub, port), (self.name(k), CARD)):
            ip("-n", where, "link", "set", card, "up")

    # -- what goes over them, or does not ---------------------------------------------------------

    @contextmanager
    def cut(self, k: int) -> Iterator[None]:
        """Context in which a card's cable is out."""
        ip("-n", self.name("hub"), "link", "set", f"port{k}", "down")
        try:
            yield
        finally:
            ip("-n", self.name("hub"), "link", "set", f"port{k}", "up")

    @contextmanager
    def parted(self, one: int, other: int) -> Iterator[None]:
        """Context in which two of them do not reach each other, and all others both."""
        for here, there in ((one, other), (other, one)):
            self._neighbour(here, there, NOBODY)
        try:
            yield
        finally:
            for here, there in ((one, other), (other, one)):
                self._neighbour(here, there, self._hardware(there))

    def _neighbour(self, here: int, there: int, hardware: str) -> None:
        what = ("neigh", "replace", self.address(there), "lladdr", hardware, "dev", CARD)
        ip("-n", self.name(here), *what, "nud", "permanent")


def remove(name: str) -> None:
    """A namespace, and what still runs in it: nobody else can."""
    with suppress(OSError):
        for pid in map(int, ip("netns", "pids", name).split()):
            kill_process(pid)
        wait_for(lambda: not ip("netns", "pids", name).split(), 10)
        ip("netns", "del", name)


def sweep() -> None:
    """Remove what a run has left that was killed."""
    for line in ip("netns", "list").splitlines():
        name = line.split()[0]
        owner = name.removeprefix(PREFIX).partition("-")[0]
        if name.startswith(PREFIX) and owner.isdigit() and not os.path.exists(f"/proc/{owner}"):
            remove(name)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Context in which SIGTERM and SIGHUP end the process as Ctrl-C does: all is cleared away."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {one: signal.signal(one, interrupt) for one in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
