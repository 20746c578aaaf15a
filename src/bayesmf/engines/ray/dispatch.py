"""Dispatch of tasks; arrays that they read are located, exported or computed again first.

Tasks are pure functions, so arrays that were lost are computed again by the tasks that made them,
back to arrays that are still there.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import ray

from bayesmf.engines.base import payload
from bayesmf.engines.ray.lineage import (
    Content,
    Export,
    Key,
    LineageEntry,
    Order,
    RemoteRef,
    ResultRef,
    Step,
    TaskPhase,
    with_entries,
    with_inputs,
)
from bayesmf.engines.ray.pool import Process, Slot, WorkerPool
from bayesmf.engines.ray.worker import NotFetched, NotHeld
from bayesmf.errors import EngineError
from bayesmf.model.refs import leaves, tree_map
from bayesmf.worker.tasks import Result, Shared, Task

INLINE = 64 << 10  # bytes sent with a message itself: a reference costs more

Again = Callable[[], None]


@dataclass(eq=False)
class Pending:
    """A submitted task; `contents` are the places of the arrays that it reads, as far as known.

    With `replayed` it has run before, and its results were lost. A `short` task runs beside the
    worker's current one.
    """

    task: Task  # with entries for arrays, and without the value shared with others
    phase: TaskPhase | None
    replayed: Step | None = None
    contents: dict[LineageEntry, Content] = field(default_factory=dict)
    ready: bool = False  # to be checked by the next `flush`
    sent: bool = False
    tries: int = 0
    value: Result | None = None
    error: BaseException | None = None

    def __post_init__(self) -> None:
        self.short = getattr(self.task, "short", False)
        shared = self.phase.inputs if self.phase is not None else []
        self.own = list(dict.fromkeys(leaves(self.task, LineageEntry)))
        self.inputs = list(dict.fromkeys([*self.own, *shared]))

    @property
    def done(self) -> bool:
        return self.value is not None or self.error is not None

    def result(self) -> Result:
        if self.error is not None:
            raise self.error
        assert self.value is not None
        return self.value


def _bare(task: Task) -> Task:
    """A task without the value shared by its phase, and with entries for arrays."""
    shared = getattr(task, "shared", None)
    if isinstance(shared, Shared):
        # `dataclasses.replace` takes longer, and there are many tasks.
        new = object.__new__(type(task))
        vars(new).update(vars(task))
        object.__setattr__(new, "shared", None)
        task = new
    return with_entries(task)  # type: ignore[no-any-return]


class Dispatch:
    """Sends tasks to workers, and receives their results."""

    def __init__(self, pool: WorkerPool) -> None:
        self._pool, self._ledger = pool, pool.ledger
        self._ready: list[Pending] = []
        self._exports: dict[Process, list[Content]] = {}
        self._phases: dict[int, TaskPhase] = {}
        self._fresh: list[Content] = []
        self._last = 0
        self.steps: dict[int, int] = {}  # of each chain, since its last snapshot
        self.replayed = 0

    def number(self) -> int:
        """Return a number that was not used before."""
        self._last += 1
        return self._last

    def submit(self, task: Task) -> Pending:
        """Begin a task; it is sent by `flush`."""
        pending = Pending(_bare(task), self._phase(task))
        self._wake(pending)
        return pending

    def _phase(self, task: Task) -> TaskPhase | None:
        shared = getattr(task, "shared", None)
        if not isinstance(shared, Shared):
            return None
        known = self._phases.get(task.chain)
        if known is None or known.value() is not shared:
            if known is not None:
                known.forget()
            known = self._phases[task.chain] = TaskPhase(shared)
        return known

    # -- what a task needs ----------------------------------------------------------------------

    def _wake(self, pending: Pending) -> None:
        """Have a task checked by the next `flush`."""
        if not (pending.ready or pending.sent or pending.done):
            pending.ready = True
            self._ready.append(pending)

    def available(
        self, entries: Sequence[LineageEntry], reader: Process | None, again: Again
    ) -> tuple[bool, dict[LineageEntry, Content]]:
        """Whether a process can read arrays now, and the places of those that exist.

        If not, lost arrays are computed again, arrays in other processes are exported, and `again`
        is called when one of them is there.
        """
        found: dict[LineageEntry, Content] = {}
        missing = False
        for entry in entries:
            content = entry.content()
            if content is None:
                self._recompute(entry)
                entry.waiting.append(again)
                missing = True
                continue
            found[entry] = content
            if reader is not None and content.process is not reader and content.export is None:
                if not content.waiting:
                    self._exports.setdefault(content.process, []).append(content)
                content.waiting.append(again)
                missing = True
        return not missing, found

    def _recompute(self, entry: LineageEntry) -> None:
        step = entry.step
        if step is None:
            raise EngineError(
                "rows were lost with their worker, and so was their copy: resume from the last "
                "checkpoint (--resume)"
            )
        if step.again is None:
            step.again = Pending(step.task, step.phase, replayed=step)
            self._wake(step.again)

    # -- sending --------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send all tasks that can be sent; those of one phase for one worker go in one call."""
        while self._ready:
            ready, self._ready = self._ready, []
            for pending in ready:
                pending.ready = False
                self._check(pending)
        self._fresh.clear()
        exports, self._exports = self._exports, {}
        for process, contents in exports.items():
            self._export(process, contents)
        for slot in self._pool.slots:
            while slot.outbox:
                kind = _kind(slot.outbox[0])
                both = [(one, _kind(one) == kind) for one in slot.outbox]
                slot.outbox = [one for one, same in both if not same]
                self._send(slot, [one for one, same in both if same])

    def _check(self, pending: Pending) -> None:
        slot = self._pool.route(pending.task.chain, pending.task.partition)
        again = partial(self._wake, pending)
        # `contents` keep the arrays that are there until the others are.
        complete, pending.contents = self.available(pending.inputs, slot.process, again)
        if complete:
            pending.sent = True
            slot.outbox.append(pending)

    def _export(self, process: Process, contents: list[Content]) -> None:
        def wake() -> None:
            for content in contents:
                waiting, content.waiting = content.waiting, []
                for again in waiting:
                    again()

        def exported(exports: list[Export]) -> None:
            for content, export in zip(contents, exports, strict=True):
                content.export = export
            wake()

        if not process.alive:
            wake()
            return
        keys = [content.key for content in contents]
        self._pool.call(process, "export", keys, done=exported, again=wake, failed=_raise)

    def _send(self, slot: Slot, together: list[Pending]) -> None:
        process, pool = slot.process, self._pool
        assert process is not None
        contents: dict[LineageEntry, Content] = {}
        for one in together:
            pool.supply(slot, one.task.partition)
            contents.update(one.contents)
        chain, phase, short = _kind(together[0])
        entries = [entry for one in together for entry in one.own]
        shared, number, sent = None, 0, 0
        if phase is not None:
            number = self._numbered(phase, contents)
            if short or process.knows.get(chain) != number:
                shared = phase.sent
                if not short:  # processes keep the value of long tasks alone
                    process.knows[chain] = number
                entries += phase.inputs
                sent += phase.size if process.node not in phase.nodes else 0
                if phase.by_reference:
                    phase.nodes.add(process.node)
        tasks = [(self.number(), with_inputs(one.task, contents)) for one in together]
        refs = self._refs(process, [contents[entry] for entry in entries])
        sent += sum(payload(task) for _, task in tasks)
        order = Order(
            chain, tasks, number, refs, process.take_dropped(), len(pool.slots) > 1,
            pool.cluster.task_timeout / 2,
            # Sums of tasks that run again were returned before.
            all(one.replayed is None for one in together), short,
        )  # fmt: skip
        self._ledger.bytes_sent += sent
        pool.call(
            process, "run", order, shared, beside=short,
            done=partial(self._done, process, together),
            again=partial(self._again, together),
            failed=partial(self._failed, slot, process, together),
            on_loss=partial(self._count_try, together),
        )  # fmt: skip

    def _refs(self, process: Process, contents: Sequence[Content]) -> dict[Key, Export]:
        """Exports of arrays in other processes; each is counted once for a node."""
        refs = {}
        for content in contents:
            if content.process is not process:
                assert content.export is not None
                refs[content.key] = content.export
                self.fetched_by(process, content)
        return refs

    def fetched_by(self, process: Process, content: Content) -> None:
        """Count the bytes of an array that a node gets from another."""
        if process.node not in content.nodes:
            content.nodes.add(process.node)
            self._ledger.peer_bytes += content.nbytes

    def _numbered(self, phase: TaskPhase, contents: dict[LineageEntry, Content]) -> int:
        """Number of the value that tasks share; large ones are put into the object store once."""
        keys = tuple(contents[entry].key for entry in phase.inputs)
        if phase.sent is None or keys != phase.keys:
            value = with_inputs(phase.stored, contents)
            phase.keys, phase.number, phase.size = keys, self.number(), payload(value)
            phase.by_reference, phase.nodes = phase.size > INLINE, set()
            phase.sent = ray.put(value) if phase.by_reference else value
        return phase.number

    # -- what comes back ------------------------------------------------------------------------

    def _done(
        self, process: Process, together: list[Pending], found: list[tuple[Result, float]]
    ) -> None:
        for one, (value, seconds) in zip(together, found, strict=True):
            self._ledger.done(process.slot, one.task.partition, seconds)
            self._ledger.bytes_received += payload(value)
            if one.replayed is not None:
                self._recomputed(one.replayed, value, process)
            one.value = value if one.replayed is not None else self._with_refs(one, value, process)
            one.contents = {}

    def _with_refs(self, one: Pending, value: Result, process: Process) -> Any:
        """A result with references to the arrays that the worker keeps."""
        step = Step(one.task, one.phase)

        def refer(made: ResultRef) -> RemoteRef:
            entry = LineageEntry(step, made.nbytes)
            step.outputs.append(weakref.ref(entry))
            return entry.ref_to(Content(made.key, process, made.nbytes, made.export))

        result = tree_map(value, ResultRef, refer)
        if step.outputs:
            self.steps[one.task.chain] = self.steps.get(one.task.chain, 0) + 1
        return result

    def _recomputed(self, step: Step, value: Result, process: Process) -> None:
        """Note where arrays that were lost are now, and wake the tasks that wait for them."""
        step.again = None
        self.replayed += 1
        refs: list[ResultRef] = []
        tree_map(value, ResultRef, refs.append)
        for made, output in zip(refs, step.outputs, strict=True):
            content, entry = Content(made.key, process, made.nbytes, made.export), output()
            if entry is None or entry.content() is not None:
                continue
            entry.move_to(content)
            self._fresh.append(content)  # kept until waiting tasks have been checked
            waiting, entry.waiting = entry.waiting, []
            for again in waiting:
                again()

    def _again(self, together: list[Pending]) -> None:
        for one in together:
            one.sent = False
            self._wake(one)

    def _failed(
        self, slot: Slot, process: Process, together: list[Pending], error: BaseException
    ) -> None:
        """Handle an error of tasks: a worker is sent the ratings or arrays that it lacks."""
        partitions = [one.task.partition for one in together]
        chain, _, short = _kind(together[0])
        if isinstance(error, NotHeld) and short:  # they may be on their way: run it after them
            for one in together:
                one.short = False
            self._again(together)
        elif isinstance(error, NotHeld) and self._pool.send_ratings(slot, partitions, error):
            process.knows.pop(chain, None)
            self._again(together)
        elif isinstance(error, NotFetched):
            process.knows.pop(chain, None)
            for one in together:
                for content in one.contents.values():
                    if content.key in error.args:
                        content.export = None  # to be exported again
            self._count_try(together, f"{slot} could not fetch rows from other nodes")
            self._again(together)
        else:
            for one in together:
                one.error = error
                if one.replayed is not None:
                    raise error

    def _count_try(self, together: list[Pending], why: str) -> None:
        """Count a failed try of tasks; end the run after too many."""
        for one in together:
            one.tries += 1
            if one.tries > self._pool.cluster.retries:
                raise EngineError(
                    f"a task of block {one.task.partition} was lost with its worker {one.tries} "
                    f"times, the last time because {why}: look at the workers' logs and "
                    "memory, then resume from the last checkpoint (--resume)"
                )


def _kind(one: Pending) -> tuple[int, TaskPhase | None, bool]:
    """Tasks of the same kind are sent in one call."""
    return one.task.chain, one.phase, one.short


def _raise(error: BaseException) -> None:
    raise error
