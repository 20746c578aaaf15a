"""Tasks on their way: what they read is found, exported or made anew before they are sent.

A task may be done twice: it is a function. So arrays that were lost are made anew by the tasks that
made them, back to those that are still there.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import ray

from bayesmf.engines.ledger import payload
from bayesmf.engines.ray.contents import (
    Content,
    Export,
    Key,
    Left,
    Name,
    Node,
    Order,
    Phase,
    Step,
    with_inputs,
)
from bayesmf.engines.ray.crew import Crew
from bayesmf.engines.ray.slots import Pending, Process, Slot, bare
from bayesmf.engines.ray.worker import NotFetched, NotHeld
from bayesmf.errors import EngineError
from bayesmf.model.refs import tree_map
from bayesmf.worker.tasks import Result, Shared, Task

INLINE = 64 << 10  # bytes that go with a message itself: a reference costs more

Again = Callable[[], None]


class Dispatch:
    """Sends tasks to workers, and takes their results."""

    def __init__(self, crew: Crew) -> None:
        self._crew, self._ledger = crew, crew.ledger
        self._ripe: list[Pending] = []
        self._exports: dict[Process, list[Content]] = {}
        self._phases: dict[int, Phase] = {}
        self._fresh: list[Content] = []
        self._last = 0
        self.steps: dict[int, int] = {}  # of each chain, since all that it names was copied
        self.replayed = 0

    def number(self) -> int:
        """One that was not used before."""
        self._last += 1
        return self._last

    def submit(self, task: Task) -> Pending:
        """Begin a task; it is sent by `flush`."""
        pending = Pending(bare(task), self._phase(task))
        self._wake(pending)
        return pending

    def _phase(self, task: Task) -> Phase | None:
        shared = getattr(task, "shared", None)
        if not isinstance(shared, Shared):
            return None
        known = self._phases.get(task.chain)
        if known is None or known.value() is not shared:
            if known is not None:
                known.forget()
            known = self._phases[task.chain] = Phase(shared)
        return known

    # -- what a task needs ----------------------------------------------------------------------

    def _wake(self, pending: Pending) -> None:
        """Have a task looked at before anything is sent."""
        if not (pending.ripe or pending.sent or pending.done):
            pending.ripe = True
            self._ripe.append(pending)

    def at_hand(
        self, nodes: Sequence[Node], reader: Process | None, again: Again
    ) -> tuple[bool, dict[Node, Content]]:
        """Whether a process can read some arrays now; where those lie that are anywhere.

        If not, `again` is called when some of what is missing has come: arrays that were lost are
        made anew, and those that lie with another process alone are exported.
        """
        found: dict[Node, Content] = {}
        missing = False
        for node in nodes:
            content = node.content()
            if content is None:
                self._make_anew(node)
                node.waiting.append(again)
                missing = True
                continue
            found[node] = content
            if reader is not None and content.process is not reader and content.export is None:
                if not content.waiting:
                    self._exports.setdefault(content.process, []).append(content)
                content.waiting.append(again)
                missing = True
        return not missing, found

    def _make_anew(self, node: Node) -> None:
        step = node.step
        if step is None:
            raise EngineError(
                "rows were lost with their worker, and so was the copy of them: go on from the "
                "last checkpoint (--resume)"
            )
        if step.again is None:
            step.again = Pending(step.task, step.phase, replayed=step)
            self._wake(step.again)

    # -- sending --------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send what can be sent: tasks of one phase for one worker in one call, which costs ms."""
        while self._ripe:
            ripe, self._ripe = self._ripe, []
            for pending in ripe:
                pending.ripe = False
                self._look_at(pending)
        self._fresh.clear()
        exports, self._exports = self._exports, {}
        for process, contents in exports.items():
            self._export(process, contents)
        for slot in self._crew.slots:
            while slot.outbox:
                kind = _kind(slot.outbox[0])
                both = [(one, _kind(one) == kind) for one in slot.outbox]
                slot.outbox = [one for one, same in both if not same]
                self._send(slot, [one for one, same in both if same])

    def _look_at(self, pending: Pending) -> None:
        slot = self._crew.route(pending.task.chain, pending.task.partition)
        again = partial(self._wake, pending)
        # What there is, is held until the rest has come.
        complete, pending.contents = self.at_hand(pending.inputs, slot.process, again)
        if complete:
            pending.sent = True
            slot.outbox.append(pending)

    def _export(self, process: Process, contents: list[Content]) -> None:
        def woken() -> None:
            for content in contents:
                waiting, content.waiting = content.waiting, []
                for again in waiting:
                    again()

        def exported(exports: list[Export]) -> None:
            for content, export in zip(contents, exports, strict=True):
                content.export = export
            woken()

        if not process.alive:
            woken()
            return
        keys = [content.key for content in contents]
        self._crew.call(process, "export", keys, done=exported, again=woken, failed=_raise)

    def _send(self, slot: Slot, together: list[Pending]) -> None:
        process, crew = slot.process, self._crew
        assert process is not None
        contents: dict[Node, Content] = {}
        for one in together:
            crew.supply(slot, one.task.partition)
            contents.update(one.contents)
        chain, phase, short = _kind(together[0])
        nodes = [node for one in together for node in one.own]
        shared, number, sent = None, 0, 0
        if phase is not None:
            number = self._numbered(phase, contents)
            if short or process.knows.get(chain) != number:
                shared = phase.sent
                if not short:  # it keeps what long tasks share alone
                    process.knows[chain] = number
                nodes += phase.inputs
                sent += phase.size if process.node not in phase.nodes else 0
                if phase.by_reference:
                    phase.nodes.add(process.node)
        tasks = [(self.number(), with_inputs(one.task, contents)) for one in together]
        refs = self._refs(process, [contents[node] for node in nodes])
        sent += sum(payload(task) for _, task in tasks)
        order = Order(
            chain, tasks, number, refs, process.forget(), len(crew.slots) > 1,
            crew.cluster.task_timeout / 2,
            # What is done again has told its sums already.
            all(one.replayed is None for one in together), short,
        )  # fmt: skip
        self._ledger.moved(sent=sent)
        crew.call(
            process, "run", order, shared, beside=short,
            done=partial(self._done, process, together),
            again=partial(self._again, together),
            failed=partial(self._failed, slot, process, together),
            blamed=partial(self._blamed, together),
        )  # fmt: skip

    def _refs(self, process: Process, contents: Sequence[Content]) -> dict[Key, Export]:
        """References to what lies elsewhere; what a node has to fetch for it is counted once."""
        refs = {}
        for content in contents:
            if content.process is not process:
                assert content.export is not None
                refs[content.key] = content.export
                self.fetched_by(process, content)
        return refs

    def fetched_by(self, process: Process, content: Content) -> None:
        """Note that a node gets an array from another."""
        if process.node not in content.nodes:
            content.nodes.add(process.node)
            self._ledger.peer_bytes += content.nbytes

    def _numbered(self, phase: Phase, contents: dict[Node, Content]) -> int:
        """The number of what tasks share, as it is now; large ones go into the store, once."""
        keys = tuple(contents[node].key for node in phase.inputs)
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
            self._ledger.moved(received=payload(value))
            if one.replayed is not None:
                self._made_anew(one.replayed, value, process)
            one.value = value if one.replayed is not None else self._named(one, value, process)
            one.contents = {}

    def _named(self, one: Pending, value: Result, process: Process) -> Any:
        """A result with names for what was left with the worker."""
        step = Step(one.task, one.phase)

        def name(left: Left) -> Name:
            node = Node(step, left.nbytes)
            step.outputs.append(weakref.ref(node))
            return node.named(Content(left.key, process, left.nbytes, left.export))

        result = tree_map(value, Left, name)
        if step.outputs:
            self.steps[one.task.chain] = self.steps.get(one.task.chain, 0) + 1
        return result

    def _made_anew(self, step: Step, value: Result, process: Process) -> None:
        """Note where arrays that were lost are now, and go on with who waits for them."""
        step.again = None
        self.replayed += 1
        made: list[Left] = []
        tree_map(value, Left, made.append)
        for left, output in zip(made, step.outputs, strict=True):
            content, node = Content(left.key, process, left.nbytes, left.export), output()
            if node is None or node.content() is not None:
                continue
            node.lies(content)
            self._fresh.append(content)  # for those who wait, until they have looked at it
            waiting, node.waiting = node.waiting, []
            for again in waiting:
                again()

    def _again(self, together: list[Pending]) -> None:
        for one in together:
            one.sent = False
            self._wake(one)

    def _failed(
        self, slot: Slot, process: Process, together: list[Pending], error: BaseException
    ) -> None:
        """Deal with a task that raised: what a worker lacks is sent to it."""
        partitions = [one.task.partition for one in together]
        chain, _, short = _kind(together[0])
        if isinstance(error, NotHeld) and short:  # they may be on their way: it waits for them
            for one in together:
                one.short = False
            self._again(together)
        elif isinstance(error, NotHeld) and self._crew.send_ratings(slot, partitions, error):
            process.knows.pop(chain, None)
            self._again(together)
        elif isinstance(error, NotFetched):
            process.knows.pop(chain, None)
            for one in together:
                for content in one.contents.values():
                    if content.key in error.args:
                        content.export = None  # whoever has it is asked, and found out if lost
            self._blamed(together, f"{slot} could not fetch rows from where they lie")
            self._again(together)
        else:
            for one in together:
                one.error = error
                if one.replayed is not None:
                    raise error

    def _blamed(self, together: list[Pending], why: str) -> None:
        """Count a try of tasks that were lost; end the run after too many."""
        for one in together:
            one.tries += 1
            if one.tries > self._crew.cluster.retries:
                raise EngineError(
                    f"a task of block {one.task.partition} was lost with its worker {one.tries} "
                    f"times, the last time because {why}: look at the workers' logs and "
                    "memory, then go on from the last checkpoint (--resume)"
                )


def _kind(one: Pending) -> tuple[int, Phase | None, bool]:
    """Tasks for which this is the same go in one call."""
    return one.task.chain, one.phase, one.short


def _raise(error: BaseException) -> None:
    raise error
