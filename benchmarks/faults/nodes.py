"""A cluster of this machine with nodes that can be lost: each is a raylet with its own workers."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

# Before Ray reads it: everything listens on the loopback alone, and drivers look for it there.
os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")

# A node that is killed is noticed in about a second and a half, not sixteen: its port refuses at
# once. One that is only slow, on a busy machine, has far longer to answer.
QUICK = {
    # Ray starts workers with the least priority but four: beside processes that compute they would
    # get a thirtieth of a core, where they should get their share.
    "worker_niceness": 0,
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 300,
    "health_check_timeout_ms": 10_000,
    "health_check_failure_threshold": 4,
}
PATIENCE = 120.0  # seconds for a node to join, whatever else this machine does
# Processes of Ray that do no work of ours: waiting, spilling to disk, and its agents.
_RAYS_OWN = re.compile(r"ray::(IDLE|SPILL|RESTORE|DELETE|DashboardAgent|RuntimeEnvAgent)")
Process = tuple[int, str]  # number, and when it started: numbers are used again


def descendants(pid: int) -> list[Process]:
    """All processes that a process has started, and those that these have."""
    children: dict[int, list[Process]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (found := _stat(int(entry))) is not None:
            parent, process = found
            children.setdefault(parent, []).append(process)
    found_all: list[Process] = []
    queue = [pid]
    while queue:
        for process in children.get(queue.pop(), []):
            found_all.append(process)
            queue.append(process[0])
    return found_all


def _stat(pid: int) -> tuple[int, Process] | None:
    """Parent and start of a process; None if it is gone, or waits to be buried."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, parent, *rest = text.rpartition(")")[2].split()
    return None if state == "Z" else (int(parent), (pid, rest[17]))


def alive(process: Process) -> bool:
    """Whether it is still there."""
    found = _stat(process[0])
    return found is not None and found[1] == process


def title(pid: int) -> str:
    """What a process calls itself."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except (OSError, UnicodeDecodeError):
        return ""


def is_worker(pid: int) -> bool:
    """Whether a process is one of an engine's workers, whatever these call themselves."""
    name = title(pid)
    return name.startswith("ray::") and not _RAYS_OWN.match(name)


def gone(process: Process, seconds: float) -> bool:
    """Wait for the end of a process, by the event; whether it came."""
    try:
        handle = os.pidfd_open(process[0])
    except ProcessLookupError:
        return True
    try:
        if alive(process):
            select.select([handle], [], [], seconds)
    finally:
        os.close(handle)
    return not alive(process)


def wait_for(what: Callable[[], Any], seconds: float, every: float = 0.01) -> Any:
    """Ask until the answer is true, or for so long; the last answer."""
    end = time.monotonic() + seconds
    while not (answer := what()) and time.monotonic() < end:
        time.sleep(every)
    return answer


class Nodes:
    """A head without CPUs, where drivers join, and nodes with workers."""

    def __init__(self, n_nodes: int = 2, cpus: int = 2) -> None:
        from ray.cluster_utils import Cluster

        self.cpus, self.n_nodes = cpus, n_nodes
        self._seen: set[Process] = set()
        # Of its own, so that no `address="auto"` finds it; short, for the names of sockets.
        self._folder = tempfile.mkdtemp(prefix="bmf")
        head = {
            "num_cpus": 0, "include_dashboard": False, "_system_config": QUICK,
            "object_store_memory": 100 << 20,
        }  # fmt: skip
        with self._own_folder():
            self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self.address: str = self._cluster.address
        self.nodes: list[Any] = []
        try:
            self.restore()
        except BaseException:
            self.close()
            raise

    @contextmanager
    def _own_folder(self) -> Iterator[None]:
        """Where Ray notes that there is a cluster, and takes the note away; signals stay ours."""
        before, handler = os.environ.get("RAY_TMPDIR"), signal.getsignal(signal.SIGTERM)
        os.environ["RAY_TMPDIR"] = self._folder
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, handler)
            del os.environ["RAY_TMPDIR"]
            if before is not None:
                os.environ["RAY_TMPDIR"] = before

    def add(self) -> Any:
        """One more node, as large as the others; it joins when it has started."""
        with self._own_folder():
            node = self._cluster.add_node(
                wait=False, num_cpus=self.cpus, object_store_memory=100 << 20
            )
        self.nodes.append(node)
        return node

    def restore(self) -> None:
        """Start nodes until there are as many as at first, and wait until all have joined."""
        for node in [one for one in self.nodes if not one.remaining_processes_alive()]:
            self.lose(node)
        while len(self.nodes) < self.n_nodes:
            self.add()
        self._cluster.wait_for_nodes(PATIENCE)

    def _processes(self, node: Any) -> list[Process]:
        """Raylet and workers, and whatever else belongs to a node."""
        own = [info.process.pid for many in node.all_processes.values() for info in many]
        found = [one for pid in own if (one := _stat(pid)) is not None]
        everything = [one[1] for one in found] + [p for pid in own for p in descendants(pid)]
        self._seen.update(everything)
        return everything

    def workers(self) -> list[Process]:
        """Processes of actors of the engine, on all nodes."""
        everyone = [p for node in self.nodes for p in self._processes(node)]
        return [p for p in everyone if is_worker(p[0])]

    def lose(self, node: Any) -> list[Process]:
        """SIGKILL a node, raylet first; its workers."""
        everyone = self._processes(node)
        workers = [p for p in everyone if is_worker(p[0])]
        for pid, _ in everyone:
            kill_process(pid)
        self.nodes.remove(node)
        self._cluster.remove_node(node, allow_graceful=False)
        return workers

    def close(self) -> list[str]:
        """End all; what had to be killed because it would not end, which should be nothing."""
        for node in [*self.nodes, self._cluster.head_node]:
            if node is not None:
                self._processes(node)
        with self._own_folder(), warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # Ray's own pipes
            self._cluster.shutdown()
        end = time.monotonic() + PATIENCE / 4
        for process in self._seen:
            gone(process, max(0.0, end - time.monotonic()))
        left = [f"{p[0]} {title(p[0])}" for p in self._seen if alive(p)]
        for process in filter(alive, self._seen):
            kill_process(process[0])
        wait_for(self._swept, 3, 0.3)
        return left

    def _swept(self) -> bool:
        """Take the folder away; the last of Ray's processes may still have written into it."""
        shutil.rmtree(self._folder, ignore_errors=True)
        return not os.path.exists(self._folder)


@contextmanager
def nodes(n_nodes: int = 2, cpus: int = 2) -> Iterator[Nodes]:
    """A cluster for as long as it is needed."""
    made = Nodes(n_nodes, cpus)
    try:
        yield made
    finally:
        left = made.close()
    assert not left, f"Ray left processes behind: {left}"


def kill_process(pid: int) -> None:
    """SIGKILL, if it is still there."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
