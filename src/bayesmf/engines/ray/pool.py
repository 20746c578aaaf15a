"""The workers of a run: where Ray starts them, how they are watched, and how they are replaced.

A killed process, a lost node and a hanging worker are handled alike; the number of replacements is
bounded, and each is reported.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util import get_current_placement_group
from ray.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

from bayesmf.engines.base import Ledger, Workload, payload
from bayesmf.engines.placement import Homes
from bayesmf.engines.ray.cluster import Cluster
from bayesmf.engines.ray.lineage import Key
from bayesmf.engines.ray.worker import BESIDE, About, Worker, check_versions, contiguous
from bayesmf.errors import EngineError, InputError
from bayesmf.model.refs import Ref, tree_map, value_of

TICK = 0.5  # seconds between looks at workers that do not answer
# Others do a lost worker's work after STAND_IN seconds, or STARTS times the longest start.
STAND_IN, STARTS = 15.0, 3.0
MOMENT = 2.0  # seconds until a cluster reports released resources


@dataclass(eq=False)
class Call:
    """A call of a process.

    `done` gets the answer, `failed` the error raised in the process. `again` is called if the
    process was lost; `on_loss` gets the reason, if this was the call at work.
    """

    ref: Any
    beside: bool  # in the second thread
    done: Callable[[Any], None]
    again: Callable[[], None]
    failed: Callable[[BaseException], None] | None = None
    on_loss: Callable[[str], None] = lambda why: None


@dataclass(eq=False)
class Process:
    """One process of a worker, from its start to its end.

    `running` are its calls in order; `since` is the time of the last answer, or of the start, of
    each of its two threads. `holding` are its partitions, `knows` the number of the value shared by
    long tasks, by chain, and `dropped` the arrays that it may drop.
    """

    slot: int
    actor: Any
    started: Any  # a call that is answered when the process can work
    began: float
    about: About | None = None
    alive: bool = True
    holding: set[int] = field(default_factory=set)
    knows: dict[int, int] = field(default_factory=dict)
    dropped: list[Key] = field(default_factory=list)
    running: list[Call] = field(default_factory=list)
    since: dict[bool, float] = field(default_factory=dict)  # by `beside` of calls

    @property
    def node(self) -> str:
        return self.about.node if self.about is not None else ""

    def first(self, beside: bool) -> Call | None:
        """The call that a thread executes."""
        return next((call for call in self.running if call.beside == beside), None)

    def take_dropped(self) -> list[Key]:
        """Return and clear the arrays that it may drop."""
        dropped, self.dropped = self.dropped, []
        return dropped


@dataclass(eq=False)
class Slot:
    """A worker, in its current process.

    `outbox` are tasks to be sent. An `absent` worker has not started in time: others do its work
    until it does. A `backup` keeps copies and runs no tasks.
    """

    number: int
    backup: bool = False
    process: Process | None = None
    outbox: list[Any] = field(default_factory=list)
    absent: bool = False
    failures: int = 0
    lives: int = 0

    @property
    def ready(self) -> bool:
        return self.process is not None and self.process.about is not None

    @property
    def load(self) -> int:
        """Number of its unanswered calls and tasks."""
        return len(self.outbox) + (len(self.process.running) if self.process else 0)

    def __str__(self) -> str:
        about = self.process.about if self.process is not None else None
        where = f" (process {about.pid} on {about.host})" if about else ""
        return ("the backup worker" if self.backup else f"worker {self.number}") + where


class WorkerPool:
    """All workers of a run, and which of them runs each task."""

    def __init__(self, cluster: Cluster, load: Workload, n_workers: int) -> None:
        self.cluster, self.load = cluster, load
        self.homes = Homes(load, n_workers)
        self.run = f"bayesmf-{uuid4().hex[:8]}"
        self.slots = [Slot(k) for k in range(min(n_workers, self.homes.n_workers))]
        self.backup: Slot | None = None  # for copies of the only worker's arrays
        self.ledger = Ledger("ray", len(self.slots))
        self.working = False
        self._recipes = list(load.recipes) or [None] * len(load.held)
        self._longest_start = 0.0
        self._rehearsal: Any = None

    @property
    def all_slots(self) -> list[Slot]:
        return self.slots if self.backup is None else [*self.slots, self.backup]

    @property
    def lives(self) -> int:
        """Number of processes so far."""
        return sum(slot.lives for slot in self.all_slots)

    # -- start and end --------------------------------------------------------------------------

    def begin(self) -> None:
        """Start all workers, wait for those that start in time, and send the ratings."""
        self._rehearsal = ray.put(
            [
                (contiguous(held), contiguous(_with_arrays(task)))
                for held, task in self.load.rehearsal
            ]
        )
        for slot in self.slots:
            self._open(slot)
        while not all(slot.ready or slot.absent for slot in self.slots):
            self.poll()
        self._check_any_worker()
        ready = [slot for slot in self.slots if slot.ready]
        for slot in ready:
            for partition in self.homes.held_by(slot.number):
                self.supply(slot, partition)
        # Answered after the ratings have arrived: the run's clock starts then.
        ray.wait([slot.process.actor.about.remote() for slot in ready if slot.process],
                 num_returns=len(ready), timeout=self.cluster.start_timeout)  # fmt: skip
        self.working = True
        for slot in ready:
            assert slot.process is not None
            slot.process.since = dict.fromkeys((False, True), time.monotonic())

    def end(self) -> None:
        """End all workers."""
        for slot in self.all_slots:
            self._end(slot)

    def _open(self, slot: Slot) -> None:
        cluster = self.cluster
        slot.lives += 1
        name = "backup" if slot.backup else f"worker-{slot.number}"
        again = f"-{slot.lives}" if slot.lives > 1 else ""  # the last name may still be in use
        as_actor: Any = ray.remote(concurrency_groups={BESIDE: 1})  # type: ignore[call-overload]
        actor = as_actor(Worker).options(
            name=f"{self.run}-{name}{again}",
            namespace=self.run,
            num_cpus=0 if slot.backup else cluster.cpus_per_worker,
            resources={} if slot.backup else dict(cluster.resources),
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy=self._where(slot),
        )
        started = actor.remote(f"{self.run}-{name}", [] if slot.backup else self._rehearsal)
        slot.process = Process(slot.number, started, started.about.remote(), time.monotonic())

    def _where(self, slot: Slot) -> Any:
        if not slot.backup:
            return strategy(self.cluster)
        return elsewhere({one.process.node for one in self.slots if one.process is not None})

    @staticmethod
    def _end(slot: Slot) -> None:
        process = slot.process
        if process is None:
            return
        process.alive, slot.process = False, None
        if ray.is_initialized():
            ray.kill(process.actor, no_restart=True)

    def open_backup(self) -> Slot:
        """Start a worker for copies, once."""
        if self.backup is None:
            self.backup = Slot(len(self.slots), backup=True)
            self._open(self.backup)
        return self.backup

    # -- where tasks run -------------------------------------------------------------------

    def route(self, chain: int, partition: int) -> Slot:
        """The worker for a chain's tasks on a partition."""
        home = self.slots[self.homes.of(chain, partition)]
        if not home.absent:
            return home
        others = [slot for slot in self.slots if slot.ready] or [
            slot for slot in self.slots if not slot.absent
        ]
        if not others:
            self._check_any_worker()
        holding = [s for s in others if s.process and partition in s.process.holding]
        return min(holding or others, key=lambda slot: (slot.load, slot.number))

    def supply(self, slot: Slot, partition: int) -> None:
        """Send a partition to a worker, or have it read there, before its first task."""
        process = slot.process
        assert process is not None
        if partition in process.holding:
            return
        process.holding.add(partition)
        recipe = self._recipes[partition]
        if recipe is not None:
            process.actor.load.remote(partition, recipe)
            return
        held = contiguous(self.load.held[partition])
        self.ledger.ratings_sent += payload(held)
        process.actor.hold.remote(partition, held)

    def send_ratings(self, slot: Slot, partitions: list[int], why: object) -> bool:
        """Send ratings to a worker that could not read them; False if none were to be read."""
        if all(self._recipes[partition] is None for partition in partitions):
            return False
        self.ledger.fault(f"{slot} could not read ratings itself ({why}): they are sent")
        for partition in partitions:
            self._recipes[partition] = None
            if slot.process is not None:
                slot.process.holding.discard(partition)
        return True

    # -- calls and answers -------------------------------------------------------------

    def call(
        self, process: Process, method: str, *args: Any, beside: bool = True,
        **handlers: Callable[..., None],
    ) -> None:  # fmt: skip
        """Call a method of a process, in its second thread if `beside`; see `Call`."""
        if process.first(beside) is None:
            process.since[beside] = time.monotonic()
        asked = getattr(process.actor, method)
        if beside:
            asked = asked.options(concurrency_group=BESIDE)
        process.running.append(Call(asked.remote(*args), beside, **handlers))

    def poll(self) -> None:
        """Wait for answers for a moment, then check the workers."""
        calls: dict[Any, tuple[Slot, Process, Call]] = {}
        watched = []
        for slot in self.all_slots:
            process = slot.process
            assert process is not None
            if process.about is None:
                watched.append(process.started)
            calls.update((call.ref, (slot, process, call)) for call in process.running)
        watched += calls
        ready, _ = ray.wait(watched, num_returns=1, timeout=TICK)
        if ready and len(watched) > 1:
            ready, _ = ray.wait(watched, num_returns=len(watched), timeout=0)
        for ref in ready:
            # A lost process has lost all of its calls, which have been made again.
            if ref in calls and calls[ref][2] in calls[ref][1].running:
                self._collect(*calls[ref])
        self._check_workers()

    def _collect(self, slot: Slot, process: Process, call: Call) -> None:
        try:
            found = ray.get(call.ref, timeout=self.cluster.task_timeout)
        except RayTaskError as error:
            process.running.remove(call)
            process.since[call.beside] = time.monotonic()
            if call.failed is None:
                call.again()
            else:
                call.failed(getattr(error, "cause", None) or error)
        except RayError as error:
            self.lost(slot, f"was lost ({type(error).__name__})")
        else:
            process.running.remove(call)
            process.since[call.beside] = time.monotonic()
            call.done(found)

    def _check_workers(self) -> None:
        """Note workers that have started, replace those that hang."""
        now, limit = time.monotonic(), self.cluster.task_timeout
        silent: list[tuple[float, int, Slot]] = []
        for slot in self.all_slots:
            process = slot.process
            assert process is not None
            if process.about is None:
                self._await_start(slot, process, now)
                continue
            waits = [process.since[b] for b in (False, True) if process.first(b) is not None]
            if waits and now - min(waits) > limit:
                silent.append((min(waits), slot.number, slot))
        if silent:
            self._replace_hung(min(silent)[-1], now)

    def _replace_hung(self, slot: Slot, now: float) -> None:
        """Replace a worker that hangs; times of others, which may wait for it, start again."""
        self.lost(slot, f"did not answer for {self.cluster.task_timeout:g} s", hung=True)
        for other in self.all_slots:
            if other.process is not None:
                other.process.since = dict.fromkeys((False, True), now)

    def _await_start(self, slot: Slot, process: Process, now: float) -> None:
        """Check whether a worker has started; others do its work if that takes too long."""
        if ray.wait([process.started], timeout=0)[0]:
            try:
                about: About = ray.get(process.started, timeout=TICK)
            except RayError as error:
                self._start_failed(slot, error)
                return
            check_versions(about)
            if not slot.absent:  # else it waited for resources
                self._longest_start = max(self._longest_start, now - process.began)
            late, slot.absent, slot.failures = slot.absent, False, 0
            process.about, process.since = about, dict.fromkeys((False, True), now)
            if late:
                self._take_back(slot)
        elif not slot.absent and now - process.began > (limit := self._patience()):
            slot.absent = True
            if not slot.backup:
                self.ledger.fault(
                    f"{slot} found no room in the cluster or did not start within {limit:.3g} s: "
                    "others do its work until it starts"
                )
                self._forget_calls(process)

    def _patience(self) -> float:
        """Time limit for a start: `start_timeout` at first, less while others work."""
        whole = self.cluster.start_timeout
        others = self.working and any(slot.ready for slot in self.slots)
        return min(whole, max(STAND_IN, STARTS * self._longest_start)) if others else whole

    def _start_failed(self, slot: Slot, error: RayError) -> None:
        slot.failures += 1
        why = str(getattr(error, "cause", None) or error).strip().splitlines()
        if slot.failures > self.cluster.retries:
            raise EngineError(
                f"{slot} could not be started, {slot.failures} times: {why[-1] if why else error!r}"
            )
        self.ledger.fault(f"{slot} could not be started: tried again")
        self._replace(slot)

    def _take_back(self, slot: Slot) -> None:
        """Give its partitions back to a worker that was absent; the others drop them."""
        if slot.backup:
            return
        self.ledger.fault(f"{slot} has started, and does its own work again")
        for partition in self.homes.held_by(slot.number):
            for other in self.slots:
                process = other.process
                idle = process is not None and process.about and not process.running
                # Busy workers keep them, for tasks that they already have.
                if other is slot or not idle or partition in self.homes.held_by(other.number):
                    continue
                assert process is not None
                if partition in process.holding:
                    process.holding.discard(partition)
                    process.actor.release.remote(partition)

    # -- lost workers ----------------------------------------------------------------

    def lost(self, slot: Slot, why: str, hung: bool = False) -> None:
        """Replace a process; its calls are made again."""
        process = slot.process
        assert process is not None
        self.ledger.fault(f"{slot} {why}: replaced, and its tasks are run again")
        for at_work in (process.first(False), process.first(True)):
            if at_work is not None:
                at_work.on_loss(f"{slot} {why}")
        if hung and process.about is not None:
            _end_process(process.about)
        self._replace(slot)

    def _replace(self, slot: Slot) -> None:
        process = slot.process
        assert process is not None
        self._end(slot)
        self._open(slot)
        self._forget_calls(process)

    @staticmethod
    def _forget_calls(process: Process) -> None:
        calls, process.running = process.running, []
        process.knows.clear()
        for call in calls:
            call.again()

    def _check_any_worker(self) -> None:
        if all(slot.absent for slot in self.slots):
            raise EngineError(
                f"no worker started within {self.cluster.start_timeout:g} s: look at the cluster "
                "(ray status), ask for fewer workers or resources, or for more time "
                "(start_timeout); resume a run that has a checkpoint with --resume"
            )


def _with_arrays(task: Any) -> Any:
    """Replace the references in a task of a local engine by their arrays."""
    return tree_map(task, Ref, value_of)


def _end_process(about: About) -> None:
    """Kill a process that does not answer Ray, by a task on its node."""

    def end(pid: int) -> None:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            if b"ray::" in file.read():  # not another process with the same number
                os.kill(pid, signal.SIGKILL)

    there = ray.remote(end).options(
        num_cpus=0, max_retries=0, scheduling_strategy=on_node(about.node)
    )
    there.remote(about.pid)


# -- where Ray starts workers ---


def group_of(cluster: Cluster) -> Any:
    """The placement group for workers: that of the settings, or that of the driver."""
    return cluster.placement_group or get_current_placement_group()


def strategy(cluster: Cluster) -> Any:
    """Scheduling strategy for a worker."""
    group = group_of(cluster)
    if group is not None:
        return PlacementGroupSchedulingStrategy(group)
    return "SPREAD" if cluster.placement == "spread" else "DEFAULT"


def on_node(node: str) -> Any:
    """Scheduling strategy: this node."""
    return NodeAffinitySchedulingStrategy(node, soft=False)


def elsewhere(nodes: Collection[str]) -> Any:
    """Scheduling strategy: another node than these, if there is one."""
    others = [n["NodeID"] for n in ray.nodes() if n["Alive"] and n["NodeID"] not in nodes]
    return NodeAffinitySchedulingStrategy(others[0], soft=True) if others else "DEFAULT"


def room(cluster: Cluster) -> int:
    """Number of workers that fit now into the cluster or the placement group."""
    needs = {"CPU": cluster.cpus_per_worker, **cluster.resources}
    group = group_of(cluster)
    # A worker needs one bundle: what is left of two does not add up.
    places = [ray.cluster_resources()] if group is None else group.bundle_specs
    n = _fitting(needs, places, _own_resources())
    if n < 1:
        asked = ", ".join(f"{need:g} {name}" for name, need in needs.items())
        where = "the cluster" if group is None else "the placement group"
        raise InputError(
            f"{where} has no room for a worker, which needs {asked}: lower cpus_per_worker or "
            "resources, or add nodes"
        )
    return n if group is not None else _free_now(needs, n)


def _free_now(needs: Mapping[str, float], most: int) -> int:
    """Number of workers, of at most `most`, that fit beside others; at least one, which waits.

    Resources that were just released take a moment to be reported as free.
    """
    end = time.monotonic() + MOMENT
    while (n := _fitting(needs, [ray.available_resources()], {})) < most:
        if time.monotonic() > end:
            return max(1, n)
        time.sleep(MOMENT / 20)
    return most


def _fitting(
    needs: Mapping[str, float], places: Sequence[Mapping[str, float]], own: Mapping[str, float]
) -> int:
    """How often needs fit into places, one of which already holds `own`."""
    n = 0
    for have in places:
        taken = own if all(have.get(name, 0.0) >= x for name, x in own.items()) else {}
        own = {} if taken else own
        left = {name: have.get(name, 0.0) - taken.get(name, 0.0) for name in needs}
        n += min(int(left[name] / need + 1e-9) for name, need in needs.items() if need > 0)
    return n


def _own_resources() -> Mapping[str, float]:
    """Resources of this process, if it is a task or an actor of Ray."""
    try:
        found = ray.get_runtime_context().get_assigned_resources()
    except (AssertionError, RuntimeError):  # a driver has none
        return {}
    return {name: float(x) for name, x in found.items() if "_group_" not in name}
