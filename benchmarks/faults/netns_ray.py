"""A Ray cluster over network namespaces: a head without CPUs, where drivers run, and nodes."""

from __future__ import annotations

import json
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.faults.netns import Wires
from benchmarks.faults.nodes import (
    FAIR,
    PATIENCE,
    QUICK,
    Process,
    alive,
    descendants,
    gone,
    is_worker,
    kill_process,
    title,
)  # fmt: skip

PORT = 6399
STARTED = "runtime started"
# A node that nobody reaches is taken for lost within some four seconds, not in a minute.
UNREACHED = {**QUICK, "health_check_timeout_ms": 1000, "health_check_failure_threshold": 3}


@dataclass(eq=False)
class NetNode:
    """A node: the process of `ray start`, which lives as long as it, and its namespace."""

    process: subprocess.Popen[str]
    number: int

    def everyone(self) -> list[Process]:
        """All processes of the node, but for that of `ray start`."""
        return descendants(self.process.pid)


class NetNodes:
    """The head in namespace 0, nodes with workers in the others; as `Nodes`, for faults.

    Parameters
    ----------
    n_nodes, cpus : int
        Nodes with workers, and room on each.
    impatient : bool
        Whether a node is taken for lost that is not reached for some four seconds.
    store : int
        Bytes of each node's object store.
    """

    def __init__(
        self, n_nodes: int = 2, cpus: int = 2, *,
        impatient: bool = False, store: int = 150 << 20,
    ) -> None:  # fmt: skip
        self.n_nodes, self.cpus, self._store = n_nodes, cpus, store
        self._config = UNREACHED if impatient else FAIR
        self.wires = Wires(n_nodes + 1)
        self.address = f"{self.wires.address(0)}:{PORT}"
        self.prefix = tuple(self.wires.inside(0))
        # Nodes and driver know each other by a word of their own. They are machines: Ray shall not
        # keep to the loopback.
        self.environment: Mapping[str, str | None] = {
            "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": None, "RAY_USAGE_STATS_ENABLED": "0",
        }  # fmt: skip
        self.nodes: list[NetNode] = []
        self._seen: set[Process] = set()
        self._stack = ExitStack()
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="bmf"))  # short, for the names of sockets
        self._stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
        self._stack.enter_context(self.wires)
        words = ["--head", f"--port={PORT}", "--include-dashboard=false"]
        words += [f"--temp-dir={self._folder}", "--num-cpus=0"]
        words.append(f"--system-config={json.dumps(self._config)}")
        self.head = self._start(0, words)
        self._until_started(self.head)
        self.restore()

    # -- nodes ------------------------------------------------------------------------------------

    def _start(self, k: int, words: list[str]) -> NetNode:
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *words]
        command += [f"--node-ip-address={self.wires.address(k)}", "--disable-usage-stats"]
        command += [f"--object-store-memory={self._store}"]
        changed = {**os.environ, **self.environment, "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(
            [*self.wires.inside(k), *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL, text=True,
            env={name: value for name, value in changed.items() if value is not None},
        )  # fmt: skip
        node = NetNode(process, k)
        self._stack.callback(self._end, node)
        return node

    @staticmethod
    def _until_started(node: NetNode) -> None:
        """Wait until it has said so."""
        pipe, said, end = node.process.stdout, "", time.monotonic() + PATIENCE
        assert pipe is not None
        os.set_blocking(pipe.fileno(), False)
        while STARTED not in said:
            ready, _, _ = select.select([pipe], [], [], max(0.0, end - time.monotonic()))
            more = pipe.read() if ready else ""
            if not more:
                raise OSError(f"a node of Ray did not start: {said.strip()[-300:]}")
            said += more

    def add(self) -> NetNode:
        """One more node, in a namespace that has none; it joins when it has started."""
        free = set(range(1, self.n_nodes + 1)) - {node.number for node in self.nodes}
        words = [f"--address={self.address}", f"--num-cpus={self.cpus}"]
        node = self._start(min(free), words)
        self.nodes.append(node)
        return node

    def restore(self) -> None:
        """As many nodes as at first: those are replaced that have ended, or are taken for lost."""
        for node in [one for one in self.nodes if one.process.poll() is not None]:
            self.lose(node)
        # One by one: they choose names of sockets in one folder, by looking which are taken.
        while len(self.nodes) < self.n_nodes:
            self._until_started(self.add())

    def workers(self) -> list[Process]:
        """Processes of actors of the engine, on all nodes."""
        return [p for node in self.nodes for p in node.everyone() if is_worker(p[0])]

    def lose(self, node: NetNode) -> list[Process]:
        """SIGKILL a node; its workers."""
        everyone = node.everyone()
        workers = [p for p in everyone if is_worker(p[0])]
        for pid, _ in everyone:
            kill_process(pid)
        node.process.kill()
        node.process.wait()
        self.nodes.remove(node)
        return workers

    def _end(self, node: NetNode) -> None:
        """Ask it to end, and see to it that nothing is left."""
        everyone = node.everyone()
        self._seen.update(everyone)
        node.process.send_signal(signal.SIGTERM)
        end = time.monotonic() + PATIENCE / 4
        for process in everyone:
            gone(process, max(0.0, end - time.monotonic()))
        node.process.kill()
        node.process.wait()
        if node.process.stdout is not None:
            node.process.stdout.close()

    def close(self) -> list[str]:
        """End all; what had to be killed because it would not end, which should be nothing."""
        left: list[str] = []
        try:
            for node in self.nodes:  # before those that have nobody to talk to any more
                self._end(node)
            left = [f"{p[0]} {title(p[0])}" for p in self._seen if alive(p)]
        finally:
            for process in filter(alive, self._seen):
                kill_process(process[0])
            self._stack.close()
        return left
