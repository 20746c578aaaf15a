"""Arrays held by workers: references to them, where they are, and how to compute them again.

A chain holds a `RemoteRef`. It refers to a `LineageEntry`, which knows the task that made the
array, and to a `Content`, the array in one process. When a process is lost its contents are too,
and the task of the entry runs again. Tasks in entries refer to other entries, not to contents: a
worker drops an array as soon as no chain refers to it, and the array can be computed again for as
long as something that is referred to depends on it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from bayesmf.model.refs import Ref, leaves, tree_map
from bayesmf.worker.tasks import Shared, Task

# Number of the task that made an array, and the array's position among its results.
Key = tuple[int, int]


class Input(NamedTuple):
    """Placeholder of an array in a task that is sent."""

    key: Key


class Export(NamedTuple):
    """Place of an array in the object store: Ray's reference to a list, and the position in it."""

    ref: Any
    at: int


class ResultRef(NamedTuple):
    """Placeholder in a result of an array that the worker keeps, and has perhaps exported."""

    key: Key
    nbytes: int
    export: Export | None = None


class Content:
    """An array held by one process, which drops it once this object is gone.

    `export` is set once the array was put into the object store; `waiting` are called then.
    `nodes` are the nodes of the cluster whose store has a copy.
    """

    __slots__ = ("__weakref__", "export", "key", "nbytes", "nodes", "process", "waiting")

    def __init__(self, key: Key, process: Any, nbytes: int, export: Export | None = None) -> None:
        self.key, self.process, self.nbytes, self.export = key, process, nbytes, export
        self.nodes = {process.node}
        self.waiting: list[Callable[[], None]] = []

    def __del__(self) -> None:
        self.process.dropped.append(self.key)


class LineageEntry:
    """How an array was made, and where it is.

    `copies` are the array and a copy in another process, both kept for as long as something may
    have to be computed again from it.
    """

    __slots__ = ("__weakref__", "_content", "_ref", "copies", "nbytes", "step", "waiting")

    def __init__(self, step: Step, nbytes: int) -> None:
        self.step: Step | None = step  # None once there are copies
        self.nbytes = nbytes
        self.copies: tuple[Content, ...] = ()
        self.waiting: list[Callable[[], None]] = []  # called when it was computed again
        self._content: Callable[[], Content | None] = lambda: None
        self._ref: Callable[[], RemoteRef | None] = lambda: None

    def content(self) -> Content | None:
        """Where the array is; None if it has to be computed again."""
        for found in (self._content(), *self.copies):
            if found is not None and found.process.alive:
                return found
        return None

    def move_to(self, content: Content) -> None:
        """Note where the array is now; only a reference to it keeps it there."""
        self._content = weakref.ref(content)
        ref = self._ref()
        if ref is not None:
            ref.content = content

    def ref_to(self, content: Content) -> RemoteRef:
        """Return a reference, which keeps the array where it is."""
        ref = RemoteRef(self, content)
        self._ref = weakref.ref(ref)
        self.move_to(content)
        return ref


class RemoteRef(Ref):
    """A chain's reference to an array held by a worker."""

    __slots__ = ("content", "entry")

    def __init__(self, entry: LineageEntry, content: Content) -> None:
        super().__init__(nbytes=entry.nbytes)
        self.entry, self.content = entry, content


class Step:
    """A task whose results are held by a worker; `outputs` are their entries, while needed."""

    __slots__ = ("again", "outputs", "phase", "task")

    def __init__(self, task: Task, phase: TaskPhase | None) -> None:
        self.task, self.phase = task, phase
        self.outputs: list[Callable[[], LineageEntry | None]] = []
        self.again: Any = None  # the task, while it runs again


class TaskPhase:
    """The value shared by the tasks of one phase, sent once to a process.

    `sent` is the value with placeholders, and `number` its name in processes; both change when an
    array has moved. `nodes` are the nodes of the cluster that have fetched it.
    """

    def __init__(self, value: Shared) -> None:
        self.value = weakref.ref(value)  # its references would keep arrays where they are
        self.stored = replace(with_entries(value))
        self.inputs: list[LineageEntry] = list(leaves(self.stored, LineageEntry))
        self.keys: tuple[Key, ...] | None = None
        self.sent: Any = None
        self.number, self.size, self.by_reference = 0, 0, False
        self.nodes: set[str] = set()

    def forget(self) -> None:
        """Drop the sent value after its tasks; it is made again if they have to be."""
        self.sent = None


@dataclass(frozen=True)
class Order:
    """Tasks of one chain for a worker, with their numbers.

    `phase` is the number of the value that they share. `refs` are arrays of other processes, by
    key; `dropped` are arrays that are not needed any more. With `export`, arrays that others read
    are put into the object store at once. `patience` is the time limit in seconds for an array to
    arrive. With `adds_up`, sums are returned for all tasks together. `short` tasks run beside
    others.
    """

    chain: int
    tasks: list[tuple[int, Task]]
    phase: int
    refs: dict[Key, Export]
    dropped: list[Key]
    export: bool
    patience: float
    adds_up: bool = False
    short: bool = False


def with_entries(value: Any) -> Any:
    """Replace the references in a task, or in a part of one, by entries."""
    return tree_map(value, RemoteRef, lambda ref: ref.entry)


def with_inputs(value: Any, contents: Mapping[LineageEntry, Content]) -> Any:
    """Replace the entries in a task by placeholders, for sending."""
    return tree_map(value, LineageEntry, lambda entry: Input(contents[entry].key))
