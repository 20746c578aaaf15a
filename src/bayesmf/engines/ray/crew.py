"""The workers of a run: started, watched, replaced; others stand in for those that do not come.

When a process is lost, what replaces it and how often is decided here, so that it is bounded, told,
and one policy for a process that was killed, a node that is gone and a worker that hangs.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import ray
from ray.exceptions import RayError, RayTaskError

from bayesmf.engines.base import Workload
from bayesmf.engines.ledger import Ledger, payload
from bayesmf.engines.placement import Homes
from bayesmf.engines.ray.actor import BESIDE, Worker
from bayesmf.engines.ray.cluster import Cluster
from bayesmf.engines.ray.joining import check_servers
from bayesmf.engines.ray.scheduling import elsewhere, on_node, strategy
from bayesmf.engines.ray.slots import Call, Process, Slot
from bayesmf.engines.ray.transport import contiguous
from bayesmf.engines.ray.worker import About, check_versions
from bayesmf.errors import EngineError
from bayesmf.model.refs import Ref, tree_map, value_of

TICK = 0.5  # seconds between looks at workers that do not answer
# Others do a lost worker's work after so many seconds, or so many times the longest start so far.
STAND_IN, STARTS = 15.0, 3.0


class Crew:
    """All workers of a run, and where each task is done."""

    def __init__(self, cluster: Cluster, load: Workload, n_workers: int) -> None:
        self.cluster, self.load = cluster, load
        self.homes = Homes(load, n_workers)
        self.run = f"bayesmf-{uuid4().hex[:8]}"
        self.slots = [Slot(k) for k in range(min(n_workers, self.homes.n_workers))]
        self.keeper: Slot | None = None  # of copies, where there is one worker alone
        self.ledger = Ledger("ray", len(self.slots))
        self.working = False
        self._recipes = list(load.recipes) or [None] * len(load.held)
        self._longest_start = 0.0
        self._rehearsal: Any = None

    @property
    def everybody(self) -> list[Slot]:
        return self.slots if self.keeper is None else [*self.slots, self.keeper]

    @property
    def lives(self) -> int:
        """Processes that there have been."""
        return sum(slot.lives for slot in self.everybody)

    # -- start and end --------------------------------------------------------------------------

    def begin(self) -> None:
        """Start all workers, wait for those that come in time, and hand out the ratings."""
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
        # Answered after the ratings have come: the run's clock begins when all can work.
        ray.wait([slot.process.actor.about.remote() for slot in ready if slot.process],
                 num_returns=len(ready), timeout=self.cluster.start_timeout)  # fmt: skip
        self.working = True
        for slot in ready:
            assert slot.process is not None
            slot.process.since = dict.fromkeys((False, True), time.monotonic())

    def end(self) -> None:
        """End all workers."""
        for slot in self.everybody:
            self._end(slot)

    def _open(self, slot: Slot) -> None:
        cluster = self.cluster
        slot.lives += 1
        name = "keeper" if slot.keeper else f"worker-{slot.number}"
        again = f"-{slot.lives}" if slot.lives > 1 else ""  # the name before may still be taken
        as_actor: Any = ray.remote(concurrency_groups={BESIDE: 1})  # type: ignore[call-overload]
        actor = as_actor(Worker).options(
            name=f"{self.run}-{name}{again}",
            namespace=self.run,
            num_cpus=0 if slot.keeper else cluster.cpus_per_worker,
            resources={} if slot.keeper else dict(cluster.resources),
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy=self._where(slot),
        )
        started = actor.remote(f"{self.run}-{name}", [] if slot.keeper else self._rehearsal)
        slot.process = Process(slot.number, started, started.about.remote(), time.monotonic())

    def _where(self, slot: Slot) -> Any:
        if not slot.keeper:
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

    def open_keeper(self) -> Slot:
        """A process for copies; it takes a second to come."""
        if self.keeper is None:
            self.keeper = Slot(len(self.slots), keeper=True)
            self._open(self.keeper)
        return self.keeper

    # -- where tasks are done -------------------------------------------------------------------

    def route(self, chain: int, partition: int) -> Slot:
        """The worker that does a chain's tasks on a partition."""
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
        """Have a worker hold a partition before it is asked for it."""
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
        """Have ratings sent to a worker that could not load them; False if that is not why."""
        if all(self._recipes[partition] is None for partition in partitions):
            return False
        self.ledger.fault(f"{slot} could not load ratings itself ({why}): they are sent")
        for partition in partitions:
            self._recipes[partition] = None
            if slot.process is not None:
                slot.process.holding.discard(partition)
        return True

    # -- calls, and what comes back -------------------------------------------------------------

    def call(
        self, process: Process, method: str, *args: Any, beside: bool = True,
        **what: Callable[..., None],
    ) -> None:  # fmt: skip
        """Ask a process for something, `beside` what it is at; see `Call`."""
        if process.first(beside) is None:
            process.since[beside] = time.monotonic()
        asked = getattr(process.actor, method)
        if beside:
            asked = asked.options(concurrency_group=BESIDE)
        process.running.append(Call(asked.remote(*args), beside, **what))

    def poll(self) -> None:
        """Wait for answers for a moment; look after workers."""
        check_servers()
        calls: dict[Any, tuple[Slot, Process, Call]] = {}
        watched = []
        for slot in self.everybody:
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
            # A process that was lost with one call is lost with all: they are made anew.
            if ref in calls and calls[ref][2] in calls[ref][1].running:
                self._collect(*calls[ref])
        self._look_after()

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

    def _look_after(self) -> None:
        """Take up workers that have started, replace those that hang."""
        now, limit = time.monotonic(), self.cluster.task_timeout
        silent: list[tuple[float, int, Slot]] = []
        for slot in self.everybody:
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
        """Replace the one that was silent first: others may have waited for what it has.

        They have all their time again, so that copies are never lost with several at once.
        """
        self.lost(slot, f"did not answer for {self.cluster.task_timeout:g} s", hung=True)
        for other in self.everybody:
            if other.process is not None:
                other.process.since = dict.fromkeys((False, True), now)

    def _await_start(self, slot: Slot, process: Process, now: float) -> None:
        """See whether a worker has started; others do its work where that takes too long."""
        if ray.wait([process.started], timeout=0)[0]:
            try:
                about: About = ray.get(process.started, timeout=TICK)
            except RayError as error:
                self._start_failed(slot, error)
                return
            check_versions(about)
            if not slot.absent:  # else it waited for room
                self._longest_start = max(self._longest_start, now - process.began)
            late, slot.absent, slot.failures = slot.absent, False, 0
            process.about, process.since = about, dict.fromkeys((False, True), now)
            if late:
                self._take_back(slot)
        elif not slot.absent and now - process.began > (limit := self._patience()):
            slot.absent = True
            if not slot.keeper:
                self.ledger.fault(
                    f"{slot} found no room in the cluster or did not start within {limit:.3g} s: "
                    "others do its work until it comes"
                )
                self._forget_calls(process)

    def _patience(self) -> float:
        """Seconds that a worker is waited for: `start_timeout` at first, less while others work."""
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
        """Return its partitions to a worker that had been absent; those who stood in drop them."""
        if slot.keeper:
            return
        self.ledger.fault(f"{slot} has come, and does its own work again")
        for partition in self.homes.held_by(slot.number):
            for other in self.slots:
                process = other.process
                idle = process is not None and process.about and not process.running
                # Whoever is busy keeps them: it may be asked for them in what it has to do.
                if other is slot or not idle or partition in self.homes.held_by(other.number):
                    continue
                assert process is not None
                if partition in process.holding:
                    process.holding.discard(partition)
                    process.actor.release.remote(partition)

    # -- what does not come back ----------------------------------------------------------------

    def lost(self, slot: Slot, why: str, hung: bool = False) -> None:
        """Replace a process; what it was asked for is asked for again."""
        process = slot.process
        assert process is not None
        self.ledger.fault(f"{slot} {why}: replaced, and its tasks are run again")
        for at_work in (process.first(False), process.first(True)):
            if at_work is not None:
                at_work.blamed(f"{slot} {why}")
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
                f"no worker came within {self.cluster.start_timeout:g} s: look at the cluster (ray "
                "status), ask for fewer workers or resources, or for more time (start_timeout); a "
                "run with a checkpoint can be gone on with (--resume)"
            )


def _with_arrays(task: Any) -> Any:
    """A task of the local engine with its arrays in their places."""
    return tree_map(task, Ref, value_of)


def _end_process(about: About) -> None:
    """End a process that hangs too hard to hear Ray: by a task on its own node."""

    def end(pid: int) -> None:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            if b"ray::" in file.read():  # and not another that got its number since
                os.kill(pid, signal.SIGKILL)

    there = ray.remote(end).options(
        num_cpus=0, max_retries=0, scheduling_strategy=on_node(about.node)
    )
    there.remote(about.pid)
