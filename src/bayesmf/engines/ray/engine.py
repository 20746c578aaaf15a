"""The engine `ray`: workers on a Ray cluster hold ratings and rows; the driver gets statistics.

Ray starts processes and moves arrays between nodes. pool.py starts and replaces workers,
dispatch.py sends tasks and arrays, snapshots.py keeps copies of arrays that may be lost.
"""

from __future__ import annotations

import math
import os
import signal
import socket
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

# Read by Ray when it is imported: no second environment under `uv run`, no usage statistics.
os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray
from ray.exceptions import RayError

from bayesmf.engines.base import Handle, WallClock, Workload
from bayesmf.engines.ray.cluster import Cluster
from bayesmf.engines.ray.dispatch import Dispatch, Pending
from bayesmf.engines.ray.lineage import Content, LineageEntry, RemoteRef
from bayesmf.engines.ray.pool import Process, WorkerPool, room
from bayesmf.engines.ray.snapshots import Snapshots
from bayesmf.engines.ray.worker import unpacked
from bayesmf.errors import EngineError, InputError
from bayesmf.model.refs import Array, Ref, value_of
from bayesmf.worker.tasks import Task

CONNECT_TIMEOUT = 10.0  # seconds


class Ray(WallClock):
    """Engine on a Ray cluster; the driver draws the parameters that rows share."""

    def __init__(self, cluster: Cluster | None = None) -> None:
        self.cluster = cluster or Cluster()
        self._pool: WorkerPool | None = None
        self._own_ray = False

    # -- start and end --------------------------------------------------------------------------

    def start(self, load: Workload) -> None:
        self._own_ray = connect(self.cluster)
        try:
            pool = WorkerPool(self.cluster, load, self.cluster.n_workers or room(self.cluster))
            self._pool, self._ledger = pool, pool.ledger
            self.n_workers = len(pool.slots)
            self._dispatch = Dispatch(pool)
            self._snapshots = Snapshots(pool, self._dispatch)
            pool.begin()
        except BaseException:
            self.close()
            raise
        self._ledger.restart()

    def close(self) -> None:
        pool, self._pool = self._pool, None
        try:
            if pool is not None:
                pool.end()
        finally:
            if self._own_ray:
                self._own_ray = False
                disconnect()

    def report(self) -> dict[str, Any]:
        slots = self._pool.slots if self._pool is not None else []
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
        return self._dispatch.submit(task)

    def wait(self, handles: Collection[Handle]) -> set[Handle]:
        def done() -> set[Handle]:
            return {h for h in handles if isinstance(h, Pending) and h.done}

        self._until(lambda: bool(done()))
        return done()

    def settled(self, chain: int, refs: Sequence[Ref]) -> None:
        self._ledger.rounds += 1
        self._snapshots.settled(chain, [ref.entry for ref in refs if isinstance(ref, RemoteRef)])

    def _until(self, enough: Callable[[], bool]) -> None:
        """Send tasks, collect results and watch workers until a condition holds."""
        assert self._pool is not None
        while not enough():
            self._dispatch.flush()
            self._pool.poll()

    # -- arrays for the driver --------------------------------------------------------------------

    def fetch(self, refs: Sequence[Ref]) -> list[Array]:
        entries = [ref.entry for ref in refs if isinstance(ref, RemoteRef)]
        found: dict[LineageEntry, Array] = {}
        for _ in range(self.cluster.retries + 2):
            missing = [entry for entry in dict.fromkeys(entries) if entry not in found]
            if not missing:
                break
            self._bring(missing, found)
        else:
            raise EngineError(
                "rows could not be brought from their workers: look at the workers' logs and "
                "memory, then resume from the last checkpoint (--resume)"
            )
        self._ledger.fetched_bytes += sum(entry.nbytes for entry in found)
        return [found[ref.entry] if isinstance(ref, RemoteRef) else value_of(ref) for ref in refs]

    def _bring(self, entries: list[LineageEntry], found: dict[LineageEntry, Array]) -> None:
        """Fetch what can be fetched: from the object store, or from the process that has it."""
        assert self._pool is not None
        woken = [True]

        def available() -> bool:
            if woken:  # an array has come, or this is the first time
                woken.clear()
                complete, self._found = self._dispatch.available(
                    entries, None, lambda: woken.append(True)
                )
                return complete
            return False

        self._until(available)
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
            for entry in there:
                contents[entry].export = None  # its process is asked the next time
        asked: dict[Process, list[tuple[LineageEntry, Content]]] = {}
        for entry, content in contents.items():
            if entry not in there:
                asked.setdefault(content.process, []).append((entry, content))
        answers = [0]

        def answered(pairs: list[tuple[LineageEntry, Content]], arrays: list[Array]) -> None:
            answers[0] += 1
            found.update(zip((entry for entry, _ in pairs), arrays, strict=False))

        for process, pairs in asked.items():
            self._pool.call(
                process, "fetch", [content.key for _, content in pairs],
                done=lambda arrays, pairs=pairs: answered(pairs, arrays),
                again=lambda pairs=pairs: answered(pairs, []),
            )  # fmt: skip
        self._until(lambda: answers[0] == len(asked))


# -- joining and leaving --------------------------------------------------------------------------


def connect(cluster: Cluster) -> bool:
    """Join a cluster, or start one on this machine; False if this process is in one already.

    Without an address RAY_ADDRESS is used, which Ray sets for jobs.
    """
    if ray.is_initialized():
        return False
    address = cluster.address or os.environ.get("RAY_ADDRESS") or "local"
    options: dict[str, Any] = {"logging_level": 40, "log_to_driver": False}
    try:
        with _handlers_restored():
            if address == "local":
                options |= {"include_dashboard": False, **_local_resources(cluster)}
            else:
                _check_listening(address)
            ray.init(address=address, **options)
    except (OSError, ValueError, RuntimeError, RayError) as error:
        disconnect()  # from what was started
        raise _refusal(address, error) from None
    except BaseException:
        disconnect()
        raise
    return True


def disconnect() -> None:
    """Leave a cluster, and end it if it was started here."""
    with _handlers_restored():
        ray.shutdown()


@contextmanager
def _handlers_restored() -> Iterator[None]:
    """Set signal handlers again that Ray replaces when it starts and when it ends."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for signum, handler in before.items():
            if handler is not None:
                signal.signal(signum, handler)


def _local_resources(cluster: Cluster) -> dict[str, Any]:
    n = cluster.n_workers
    found: dict[str, Any] = {
        "resources": {name: need * (n or 1) for name, need in cluster.resources.items()}
    }
    if n is not None:
        found["num_cpus"] = max(1, math.ceil(n * cluster.cpus_per_worker))
    return found


def _check_listening(address: str) -> None:
    """Raise OSError if nothing listens at an address: Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        return
    hosts = [host.strip("[]")]
    if hosts[0] in ("localhost", "127.0.0.1", "::1"):  # Ray reads it as the network's address
        hosts.append(ray.util.get_node_ip_address())
    for name in hosts:
        try:
            socket.create_connection((name, int(port)), CONNECT_TIMEOUT).close()
            return
        except OSError:
            if name == hosts[-1]:
                raise


def _refusal(address: str, error: BaseException) -> Exception:
    lines = str(error).strip().splitlines()
    why = lines[0][:200] if lines else type(error).__name__
    if address == "local":
        return EngineError(
            f"Ray could not be started on this machine ({why}): check that HOME and the temporary "
            "folder can be written to"
        )
    if wants_token(error):
        return InputError(
            f"the Ray cluster at {address!r} wants a token, and this process has none or another: "
            "set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN_PATH to a file with the token, as on its "
            "nodes"
        )
    return InputError(
        f"no Ray cluster answers at {address!r} ({why}): start one with `ray start --head`, or "
        "leave the address out"
    )


def wants_token(error: BaseException | None) -> bool:
    """Whether a cluster refused for lack of a token, from the texts of an error and its causes."""
    while error is not None:
        if any("AuthenticationError" in text for text in (type(error).__name__, str(error))):
            return True
        error = error.__cause__ or error.__context__
    return False
