"""Machines in one: network namespaces with a card each, wired to a switch. Root on Linux.

    with Wires(3, Link(rate="1gbit", latency=1e-3)) as wires:
        subprocess.run([*wires.inside(0), "ping", "-c1", wires.address(2)])
        with wires.cut(2):
            ...

The switch is a bridge in a namespace of its own: nothing is added to this machine's network, and
addresses are in nobody's way. Cards are shaped by `tc` in both directions. Latency is netem's where
the kernel has it, and else that of a small relay (`netns_cable`).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from types import FrameType

from benchmarks.faults_nodes import kill_process, wait_for
from benchmarks.faults_runs import ROOT

CARD, BRIDGE = "eth0", "bridge"
NOBODY = "02:00:00:00:ff:ff"  # a card that there is not
PREFIX = "bmf"


@dataclass(frozen=True)
class Link:
    """What a card can do: `rate` in the words of tc, seconds of latency to another one."""

    rate: str | None = None
    latency: float = 0.0


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
    if shutil.which("ip") is None or shutil.which("tc") is None:
        return "network namespaces need the commands ip and tc (iproute2)"
    try:
        with Wires(1):
            return ""
    except OSError as error:
        return f"no network namespace can be made here ({error})"


class Wires:
    """Namespaces by number from 0, each with a card that is wired to all others'."""

    def __init__(self, n: int, link: Link | None = None) -> None:
        self.n, self.link = n, link or Link()
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
            self.relayed = self.link.latency > 0 and not self._has_netem()
            self._relay() if self.relayed else self._pairs()
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

    def _pairs(self) -> None:
        """Virtual cards, joined two by two."""
        for k in range(self.n):
            words = ("type", "veth", "peer", f"port{k}", "netns", self.name("hub"))
            ip("link", "add", CARD, "netns", self.name(k), *words)

    def _relay(self) -> None:
        """Cards whose packets go through a process, which holds them for a while."""
        name = f"{PREFIX}{os.getpid()}"
        command = [sys.executable, "-m", "benchmarks.netns_cable", name, str(self.n)]
        relay = subprocess.Popen(
            [*command, str(self.link.latency / 2)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        self._stack.callback(relay.wait)
        self._stack.callback(relay.kill)
        assert relay.stdout is not None
        with relay.stdout:
            if relay.stdout.readline().strip() != "ready":
                raise OSError("the relay between namespaces did not start: is there /dev/net/tun?")
        for k in range(self.n):
            for end, where, new in (("n", self.name(k), CARD), ("h", self.name("hub"), f"port{k}")):
                ip("link", "set", f"{name}{end}{k}", "netns", where, "name", new)

    def _wire(self, k: int) -> None:
        """Plug a card in, with its address and its speed."""
        port, hub = f"port{k}", self.name("hub")
        ip("-n", self.name(k), "link", "set", CARD, "address", self._hardware(k))
        ip("-n", self.name(k), "address", "add", f"{self.address(k)}/24", "dev", CARD)
        ip("-n", hub, "link", "set", port, "master", BRIDGE)
        for where, card in ((hub, port), (self.name(k), CARD)):
            ip("-n", where, "link", "set", card, "up")
            self._shape(where, card)

    def _shape(self, where: str, card: str) -> None:
        """Half of the latency at each end of a wire: a message passes two ends that send."""
        tc = ("ip", "netns", "exec", where, "tc", "qdisc", "add", "dev", card)
        above: tuple[str, ...] = ("root", "handle", "1:")
        if self.link.rate is not None:
            _call(*tc, *above, "tbf", "rate", self.link.rate, "burst", "256kb", "latency", "100ms")
            above = ("parent", "1:1", "handle", "10:")
        if self.link.latency > 0 and not self.relayed:
            late = f"{1e6 * self.link.latency / 2:.0f}us"
            _call(*tc, *above, "netem", "delay", late, "limit", "10000")

    def _has_netem(self) -> bool:
        where = (*self.inside("hub"), "tc", "qdisc")
        try:
            _call(*where, "add", "dev", BRIDGE, "root", "netem", "delay", "1ms")
            _call(*where, "del", "dev", BRIDGE, "root")
        except OSError:
            return False
        return True

    # -- what goes over them, or does not ---------------------------------------------------------

    def counters(self, k: int) -> tuple[int, int]:
        """Bytes that a card has sent and received."""
        (card,) = json.loads(ip("-j", "-s", "-n", self.name(k), "link", "show", "dev", CARD))
        return card["stats64"]["tx"]["bytes"], card["stats64"]["rx"]["bytes"]

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
