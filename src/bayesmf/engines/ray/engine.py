"""Workers on Ray: actors that hold ratings, and get parameters with their tasks.

Ray starts processes and moves arrays. When a worker is lost, what replaces it and how often a task
is tried again is decided here, so that it is bounded, told, and one policy for a process that was
killed, a node that is gone and a worker that hangs. A task may be done twice: it is a function.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection
from typing import Any

# Before Ray reads them: no second environment under `uv run`, and nothing sent to its makers.
os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import numpy as np
import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from bayesmf.engines.base import Handle, Workload
from bayesmf.engines.ledger import Ledger, WallClock, payload
from bayesmf.engines.placement import spread
from bayesmf.engines.ray.cluster import Cluster
from bayesmf.engines.ray.joining import check_servers, connect, disconnect, room
from bayesmf.engines.ray.slots import Call, Pending, Shared, Slot, bare
from bayesmf.engines.ray.store import store_bytes
from bayesmf.engines.ray.transport import contiguous, unpacked
from bayesmf.engines.ray.worker import About, Holder, NotHeld, check_versions, versions
from bayesmf.errors import EngineError
from bayesmf.worker.row_tasks import RowsTask
from bayesmf.worker.tasks import Task

TICK = 0.5  # seconds between looks at workers that do not answer
_NO_ROWS = np.empty((0, 0), np.float32)
STAND_IN = 15.0  # seconds after which others do a lost worker's work: more than a start takes


class Worker(Holder):
    """The actor."""

    def about(self) -> About:
        """Where it is; the first call that is answered, when the worker has compiled."""
        context = ray.get_runtime_context()
        return About(os.getpid(), context.get_node_id(), ray.util.get_node_ip_address(), versions())


class Ray(WallClock):
    """The engine. One driver keeps the parameters; workers keep the ratings."""

    def __init__(self, cluster: Cluster | None = None) -> None:
        self.cluster = cluster or Cluster()
        self._slots: list[Slot] = []
        self._shared: dict[int, Shared] = {}
        self._number = 0
        self._own_ray = self._running = False

    # -- start and end --------------------------------------------------------------------------

    def start(self, load: Workload) -> None:
        self._own_ray = connect(self.cluster, store_bytes(load))
        try:
            self._load = load
            self._recipes = list(load.recipes) or [None] * len(load.held)
            self.n_workers = self.cluster.n_workers or room(self.cluster)
            self._homes = spread(load, self.n_workers)
            self._ledger = Ledger("ray", self.n_workers)
            self._rehearsal = ray.put([(contiguous(h), contiguous(t)) for h, t in load.rehearsal])
            self._slots = [Slot(k) for k in range(self.n_workers)]
            for slot in self._slots:
                self._open(slot)
            self._until(lambda: all(slot.ready or slot.absent for slot in self._slots))
            self._check_any_worker()
            for partition, home in enumerate(self._homes):
                if self._slots[home].ready:
                    self._supply(self._slots[home], partition)
            # Answered after the ratings have come: the run's clock begins when all can work.
            ready = [slot for slot in self._slots if slot.ready]
            ray.wait([slot.actor.about.remote() for slot in ready], num_returns=len(ready),
                     timeout=self.cluster.start_timeout)  # fmt: skip
        except BaseException:
            self.close()
            raise
        self._ledger.restart()
        self._running = True
        for slot in self._slots:
            slot.since = time.monotonic()

    def close(self) -> None:
        for slot in self._slots:
            self._end(slot)
        self._slots, self._shared, self._running = [], {}, False
        if self._own_ray:
            self._own_ray = False
            disconnect()

    def report(self) -> dict[str, Any]:
        hosts = sorted({slot.about.host for slot in self._slots if slot.about})
        nodes = {slot.about.node for slot in self._slots if slot.about}
        return {**super().report(), "nodes": len(nodes), "hosts": hosts}

    # -- tasks ----------------------------------------------------------------------------------

    def submit(self, task: Task) -> Pending:
        check_servers()
        pending = Pending(task, self._share(task))
        self._send(pending)
        return pending

    def wait(self, handles: Collection[Handle]) -> set[Handle]:
        def done() -> set[Handle]:
            return {h for h in handles if isinstance(h, Pending) and h.done}

        self._until(lambda: bool(done()))
        return done()

    def _share(self, task: Task) -> Shared | None:
        """Put what tasks of one phase have in common into the store, once."""
        if not isinstance(task, RowsTask):
            return None
        known = self._shared.get(task.chain)
        if known is None or known.value is not task.other:
            self._number += 1
            known = Shared(task.other, ray.put(task.other), self._number)
            self._shared[task.chain] = known
        return known

    def _send(self, pending: Pending) -> None:
        """Queue a task for the worker that holds its ratings, or for one that stands in."""
        self._route(pending.task.partition).outbox.append(pending)

    def _flush(self) -> None:
        """Send what is queued: tasks of one chain for one worker in one call, which costs ms."""
        for slot in self._slots:
            while slot.outbox:
                chain = slot.outbox[0].task.chain
                together = [one for one in slot.outbox if one.task.chain == chain]
                slot.outbox = [one for one in slot.outbox if one.task.chain != chain]
                self._call(slot, together)

    def _call(self, slot: Slot, together: list[Pending]) -> None:
        for one in together:
            self._supply(slot, one.task.partition)
        if not slot.running:
            slot.since = time.monotonic()
        tasks, shared = [bare(one.task) for one in together], together[0].shared
        sent = sum(map(payload, tasks))
        if shared is None:
            ref = slot.actor.run.remote(tasks, 0, None)
        else:
            ref = slot.actor.run.remote(tasks, shared.number, shared.ref)
            node = slot.about.node if slot.about else ""
            sent += 0 if node in shared.nodes else payload(shared.value)
            shared.nodes.add(node)
        slot.running.append(Call(together, ref))
        self._ledger.moved(sent=sent)

    def _route(self, partition: int) -> Slot:
        """The worker that does tasks on a partition."""
        home = self._slots[self._homes[partition]]
        if not home.absent:
            return home
        others = [slot for slot in self._slots if slot.ready] or [
            slot for slot in self._slots if not slot.absent
        ]
        if not others:
            self._check_any_worker()
        holding = [slot for slot in others if partition in slot.holding]
        return min(holding or others, key=lambda slot: (len(slot.tasks()), slot.number))

    def _check_any_worker(self) -> None:
        if all(slot.absent for slot in self._slots):
            raise EngineError(
                f"no worker came within {self.cluster.start_timeout:g} s: look at the cluster (ray "
                "status), ask for fewer workers or resources, or for more time (start_timeout); a "
                "run with a checkpoint can be gone on with (--resume)"
            )

    def _supply(self, slot: Slot, partition: int) -> None:
        """Have a worker hold a partition before it is asked for it."""
        if partition in slot.holding:
            return
        slot.holding.add(partition)
        recipe = self._recipes[partition]
        if recipe is not None:
            slot.actor.load.remote(partition, recipe)
            return
        held = contiguous(self._load.held[partition])
        self._ledger.ratings_sent += payload(held)
        slot.actor.hold.remote(partition, held)

    # -- what comes back, and what does not ------------------------------------------------------

    def _until(self, enough: Callable[[], bool]) -> None:
        """Collect results and look after workers until something is true."""
        while not enough():
            check_servers()
            self._flush()
            refs = {call.ref: (slot, call) for slot in self._slots for call in slot.running}
            starting = [slot.started for slot in self._slots if not slot.ready]
            watched = [*refs, *starting]
            ready, _ = ray.wait(watched, num_returns=1, timeout=TICK)
            if ready and len(watched) > 1:
                ready, _ = ray.wait(watched, num_returns=len(watched), timeout=0)
            for ref in ready:
                # A worker that was lost with one call is lost with all: they are made anew.
                if ref in refs and refs[ref][1] in refs[ref][0].running:
                    self._collect(*refs[ref])
            self._look_after()

    def _collect(self, slot: Slot, call: Call) -> None:
        try:
            found = ray.get(call.ref, timeout=self.cluster.task_timeout)
        except RayTaskError as error:
            slot.running.remove(call)
            slot.since = time.monotonic()
            self._failed(slot, call, error)
        except RayError as error:
            self._lost(slot, f"was lost ({type(error).__name__})")
        else:
            slot.running.remove(call)
            slot.since = time.monotonic()
            for one, (value, seconds) in zip(call.pending, found, strict=True):
                one.value = unpacked(value, getattr(one.task, "users", _NO_ROWS).shape[1])
                self._ledger.done(slot.number, one.task.partition, seconds)
                self._ledger.moved(received=payload(value))

    def _failed(self, slot: Slot, call: Call, error: RayTaskError) -> None:
        """Deal with a task that raised: ratings that a worker could not load are sent to it."""
        cause = getattr(error, "cause", None) or error
        partitions = [one.task.partition for one in call.pending]
        if isinstance(cause, NotHeld) and any(self._recipes[p] is not None for p in partitions):
            self._ledger.fault(f"{slot} could not load ratings itself ({cause}): they are sent")
            for partition in partitions:
                self._recipes[partition] = None
                slot.holding.discard(partition)
            for one in call.pending:
                self._send(one)
            return
        for one in call.pending:
            one.error = cause

    def _look_after(self) -> None:
        """Take up workers that have started, replace those that hang."""
        now = time.monotonic()
        for slot in self._slots:
            if not slot.ready:
                self._await_start(slot, now)
            elif slot.running and now - slot.since > self.cluster.task_timeout:
                self._lost(slot, f"did not answer for {self.cluster.task_timeout:g} s", hung=True)

    def _await_start(self, slot: Slot, now: float) -> None:
        """See whether a worker has started; others do its work where that takes too long."""
        if ray.wait([slot.started], timeout=0)[0]:
            try:
                about: About = ray.get(slot.started, timeout=TICK)
            except RayError as error:
                self._start_failed(slot, error)
                return
            check_versions(about)
            late, slot.absent, slot.failures = slot.absent, False, 0
            slot.about, slot.since = about, now
            if late:
                self._take_back(slot)
        elif not slot.absent and now - slot.since > (limit := self._patience()):
            self._ledger.fault(
                f"{slot} found no room in the cluster or did not start within {limit:g} s: others "
                "do its work until it comes"
            )
            slot.absent = True
            self._move(slot)

    def _patience(self) -> float:
        """Seconds that a worker is waited for: `start_timeout` at first, less while others work."""
        whole = self.cluster.start_timeout
        others = self._running and any(slot.ready for slot in self._slots)
        return min(whole, STAND_IN) if others else whole

    def _start_failed(self, slot: Slot, error: RayError) -> None:
        slot.failures += 1
        why = str(getattr(error, "cause", None) or error).strip().splitlines()
        if slot.failures > self.cluster.retries:
            raise EngineError(
                f"{slot} could not be started, {slot.failures} times: {why[-1] if why else error!r}"
            )
        self._ledger.fault(f"{slot} could not be started: tried again")
        self._move(slot)

    def _take_back(self, slot: Slot) -> None:
        """Return its partitions to a worker that had been absent; those who stood in drop them."""
        self._ledger.fault(f"{slot} has come, and does its own work again")
        for partition in (p for p, home in enumerate(self._homes) if home == slot.number):
            for other in self._slots:
                busy = any(one.task.partition == partition for one in other.tasks())
                if other is not slot and partition in other.holding and other.ready and not busy:
                    other.holding.discard(partition)
                    other.actor.drop.remote(partition)

    def _lost(self, slot: Slot, why: str, hung: bool = False) -> None:
        """Replace a worker; its tasks are done again, the first of them counted as tried."""
        self._ledger.fault(f"{slot} {why}: replaced, and its tasks are run again")
        for one in slot.running[0].pending if slot.running else ():
            one.tries += 1
            if one.tries > self.cluster.retries:
                raise EngineError(
                    f"a task of block {one.task.partition} was lost with its worker {one.tries} "
                    f"times, the last time because {slot} {why}: look at the workers' logs and "
                    "memory, then go on from the last checkpoint (--resume)"
                )
        if hung and slot.about is not None:
            _end_process(slot.about)
        self._move(slot)

    def _move(self, slot: Slot) -> None:
        """Open a new actor for a slot; its tasks are sent anew, to others while it is absent."""
        self._end(slot)
        self._open(slot)
        again, slot.running, slot.outbox = slot.tasks(), [], []
        for one in again:
            self._send(one)

    def _open(self, slot: Slot) -> None:
        cluster = self.cluster
        actor = ray.remote(Worker).options(
            num_cpus=cluster.cpus_per_worker,
            resources=dict(cluster.resources),
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy="SPREAD" if cluster.placement == "spread" else "DEFAULT",
        )
        slot.actor = actor.remote(self._rehearsal)
        slot.started = slot.actor.about.remote()
        slot.about, slot.holding, slot.since = None, set(), time.monotonic()

    @staticmethod
    def _end(slot: Slot) -> None:
        if slot.actor is not None and ray.is_initialized():
            ray.kill(slot.actor, no_restart=True)
        slot.actor = None


def _end_process(about: About) -> None:
    """End a process that hangs too hard to hear Ray: by a task on its own node."""

    def end(pid: int) -> None:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            if b"ray::" in file.read():  # and not another that got its number since
                os.kill(pid, signal.SIGKILL)

    node = NodeAffinitySchedulingStrategy(about.node, soft=False)
    ray.remote(end).options(num_cpus=0, max_retries=0, scheduling_strategy=node).remote(about.pid)
