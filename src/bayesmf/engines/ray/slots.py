"""Workers and their tasks, as the driver of a cluster keeps track of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bayesmf.engines.ray.contents import Content, Key, Node, Phase, Step, with_nodes
from bayesmf.engines.ray.worker import About
from bayesmf.model.refs import leaves
from bayesmf.worker.tasks import Result, Shared, Task


@dataclass(eq=False)
class Pending:
    """A task under way; `contents` are where what it reads lies, as far as that is known.

    With `replayed` it was done before: what it left with a worker was lost. A `short` one is done
    beside what the worker is at.
    """

    task: Task  # with nodes for arrays, and without what it shares with others
    phase: Phase | None
    replayed: Step | None = None
    contents: dict[Node, Content] = field(default_factory=dict)
    ripe: bool = False  # to be looked at before anything is sent
    sent: bool = False
    tries: int = 0
    value: Result | None = None
    error: BaseException | None = None

    def __post_init__(self) -> None:
        self.short = getattr(self.task, "short", False)
        shared = self.phase.inputs if self.phase is not None else []
        self.own = list(dict.fromkeys(leaves(self.task, Node)))
        self.inputs = list(dict.fromkeys([*self.own, *shared]))

    @property
    def done(self) -> bool:
        return self.value is not None or self.error is not None

    def result(self) -> Result:
        if self.error is not None:
            raise self.error
        assert self.value is not None
        return self.value


def bare(task: Task) -> Task:
    """A task without what all of its phase have in common, and with nodes for arrays."""
    shared = getattr(task, "shared", None)
    if isinstance(shared, Shared):
        # By hand: `replace` would look at every field's default, for each of many tasks.
        new = object.__new__(type(task))
        vars(new).update(vars(task))
        object.__setattr__(new, "shared", None)
        task = new
    return with_nodes(task)  # type: ignore[no-any-return]


@dataclass(eq=False)
class Call:
    """Something that a process was asked for.

    `done` gets the answer. `failed` is told what was raised in the process, `again` that the
    process was lost with it; `blamed`, why, if it was the first of its calls.
    """

    ref: Any
    beside: bool  # in the thread for what does not wait
    done: Callable[[Any], None]
    again: Callable[[], None]
    failed: Callable[[BaseException], None] | None = None
    blamed: Callable[[str], None] = lambda why: None


@dataclass(eq=False)
class Process:
    """A worker's process, from its start to its end.

    `running` are its calls in the order in which they were made; `since` is when each of its two
    threads last gave a sign of life, or it was started. `holding` are the partitions it has,
    `knows` what long tasks share, by chain, and `dropped` arrays that it may forget.
    """

    slot: int
    actor: Any
    started: Any  # the call that is answered when it can work
    began: float
    about: About | None = None
    alive: bool = True
    holding: set[int] = field(default_factory=set)
    knows: dict[int, int] = field(default_factory=dict)
    dropped: list[Key] = field(default_factory=list)
    running: list[Call] = field(default_factory=list)

    since: dict[bool, float] = field(default_factory=dict)  # by whether beside

    @property
    def node(self) -> str:
        return self.about.node if self.about is not None else ""

    def first(self, beside: bool) -> Call | None:
        """The call that a thread is at."""
        return next((call for call in self.running if call.beside == beside), None)

    def forget(self) -> list[Key]:
        """What it may forget, to be told it now."""
        dropped, self.dropped = self.dropped, []
        return dropped


@dataclass(eq=False)
class Slot:
    """One of the workers, whatever process it is at the moment.

    `outbox` are tasks that go to it next, with all they need. An `absent` worker has not come in
    time: others do its work until then. A `keeper` does no tasks: it keeps copies alone.
    """

    number: int
    keeper: bool = False
    process: Process | None = None
    outbox: list[Pending] = field(default_factory=list)
    absent: bool = False
    failures: int = 0
    lives: int = 0

    @property
    def ready(self) -> bool:
        return self.process is not None and self.process.about is not None

    @property
    def load(self) -> int:
        """Calls and tasks that it has not answered."""
        return len(self.outbox) + (len(self.process.running) if self.process else 0)

    def __str__(self) -> str:
        about = self.process.about if self.process is not None else None
        where = f" (process {about.pid} on {about.host})" if about else ""
        return ("the keeper of copies" if self.keeper else f"worker {self.number}") + where
