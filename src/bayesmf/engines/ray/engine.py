"""Workers on Ray: actors that hold ratings and rows; the driver names rows, and gets statistics.

Ray starts processes and moves arrays from node to node. Who does what is decided in crew.py, what
has to be where in dispatch.py; what is copied, in case it is lost, in snapshots.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from typing import Any

# Before Ray reads them: no second environment under `uv run`, and nothing sent to its makers.
os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray
from ray.exceptions import RayError

from bayesmf.engines.base import Handle, Workload
from bayesmf.engines.ledger import WallClock
from bayesmf.engines.ray.cluster import Cluster
from bayesmf.engines.ray.contents import Content, Name, Node
from bayesmf.engines.ray.crew import Crew
from bayesmf.engines.ray.dispatch import Dispatch
from bayesmf.engines.ray.joining import check_servers, connect, disconnect
from bayesmf.engines.ray.scheduling import room
from bayesmf.engines.ray.slots import Pending, Process
from bayesmf.engines.ray.snapshots import Snapshots
from bayesmf.engines.ray.store import store_bytes
from bayesmf.engines.ray.transport import unpacked
from bayesmf.errors import EngineError
from bayesmf.model.refs import Array, Ref, value_of
from bayesmf.worker.tasks import Task


class Ray(WallClock):
    """The engine. Workers keep the ratings and the rows; one driver draws what is above them."""

    def __init__(self, cluster: Cluster | None = None) -> None:
        self.cluster = cluster or Cluster()
        self._crew: Crew | None = None
        self._own_ray = False

    # -- start and end --------------------------------------------------------------------------

    def start(self, load: Workload) -> None:
        self._own_ray = connect(self.cluster, store_bytes(load))
        try:
            crew = Crew(self.cluster, load, self.cluster.n_workers or room(self.cluster))
            self._crew, self._ledger = crew, crew.ledger
            self.n_workers = len(crew.slots)
            self._dispatch = Dispatch(crew)
            self._snapshots = Snapshots(crew, self._dispatch)
            crew.begin()
        except BaseException:
            self.close()
            raise
        self._ledger.restart()

    def close(self) -> None:
        crew, self._crew = self._crew, None
        try:
            if crew is not None:
                crew.end()
        finally:
            if self._own_ray:
                self._own_ray = False
                disconnect()

    def report(self) -> dict[str, Any]:
        slots = self._crew.slots if self._crew is not None else []
        about = [slot.process.about for slot in slots if slot.process and slot.process.about]
        return {
            **super().report(),
            "nodes": len({one.node for one in about}),
            "hosts": sorted({one.host for one in about}),
            "copies": self._snapshots.taken,
            "tasks_done_again": self._dispatch.replayed,
        }

    # -- tasks ----------------------------------------------------------------------------------

    def submit(self, task: Task) -> Pending:
        check_servers()
        return self._dispatch.submit(task)

    def wait(self, handles: Collection[Handle]) -> set[Handle]:
        def done() -> set[Handle]:
            return {h for h in handles if isinstance(h, Pending) and h.done}

        self._until(lambda: bool(done()))
        return done()

    def settled(self, chain: int, refs: Sequence[Ref]) -> None:
        self._ledger.rounds += 1
        self._snapshots.settled(chain, [ref.node for ref in refs if isinstance(ref, Name)])

    def _until(self, enough: Callable[[], bool]) -> None:
        """Send tasks, collect results and look after workers until something is true."""
        assert self._crew is not None
        while not enough():
            self._dispatch.flush()
            self._crew.poll()

    # -- arrays brought here --------------------------------------------------------------------

    def fetch(self, refs: Sequence[Ref]) -> list[Array]:
        nodes = [ref.node for ref in refs if isinstance(ref, Name)]
        found: dict[Node, Array] = {}
        for _ in range(self.cluster.retries + 2):
            missing = [node for node in dict.fromkeys(nodes) if node not in found]
            if not missing:
                break
            self._bring(missing, found)
        else:
            raise EngineError(
                "rows could not be brought from their workers: look at the workers' logs and "
                "memory, then go on from the last checkpoint (--resume)"
            )
        self._ledger.fetched_bytes += sum(node.nbytes for node in found)
        return [found[ref.node] if isinstance(ref, Name) else value_of(ref) for ref in refs]

    def _bring(self, nodes: list[Node], found: dict[Node, Array]) -> None:
        """Bring what can be brought: from the store, or by asking whoever has it."""
        assert self._crew is not None
        woken = [True]

        def at_hand() -> bool:
            if woken:  # looked at again when something has come
                woken.clear()
                complete, self._found = self._dispatch.at_hand(
                    nodes, None, lambda: woken.append(True)
                )
                return complete
            return False

        self._until(at_hand)
        contents, self._found = self._found, {}
        there = {n: c.export for n, c in contents.items() if c.export is not None}
        try:
            refs = list(dict.fromkeys(export.ref for export in there.values()))
            values = ray.get(refs, timeout=self.cluster.task_timeout / 2)
            arrays = dict(zip(refs, values, strict=True))
            found.update(
                {n: unpacked(arrays[export.ref][export.at]) for n, export in there.items()}
            )
        except RayError:
            for node in there:
                contents[node].export = None  # whoever has it is asked the next time
        asked: dict[Process, list[tuple[Node, Content]]] = {}
        for node, content in contents.items():
            if node not in there:
                asked.setdefault(content.process, []).append((node, content))
        answers = [0]

        def answered(pairs: list[tuple[Node, Content]], arrays: list[Array]) -> None:
            answers[0] += 1
            found.update(zip((node for node, _ in pairs), arrays, strict=False))

        for process, pairs in asked.items():
            self._crew.call(
                process, "give", [content.key for _, content in pairs],
                done=lambda arrays, pairs=pairs: answered(pairs, arrays),
                again=lambda pairs=pairs: answered(pairs, []),
            )  # fmt: skip
        self._until(lambda: answers[0] == len(asked))
