"""Arrays that lie with workers: their names, where they lie, and how they came about.

A chain holds a `Name`. Behind it is a `Node`, which knows the task that made the array, and a
`Content`, the array as a process has it. When a process is lost its contents are, and a node has
its task done again. Tasks that nodes remember name other nodes, not contents: so an array is
forgotten by its worker as soon as no chain names it, and can be made anew for as long as something
that is named has come of it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from bayesmf.model.refs import Ref, leaves, tree_map
from bayesmf.worker.tasks import Shared, Task

# Number of the message that had it made, and which of the arrays made there it is.
Key = tuple[int, int]


class Input(NamedTuple):
    """What stands for an array in a message."""

    key: Key


class Export(NamedTuple):
    """Where an array is in the store: Ray's reference to several, and which of them it is."""

    ref: Any
    at: int


class Left(NamedTuple):
    """What stands for an array in an answer: it was left with the worker, and perhaps exported."""

    key: Key
    nbytes: int
    export: Export | None = None


class Content:
    """An array as one process has it; that forgets it once nobody here holds this object.

    `export` is set once it was put into the store; `waiting` are called then. `nodes` of the
    cluster have a copy in theirs.
    """

    __slots__ = ("__weakref__", "export", "key", "nbytes", "nodes", "process", "waiting")

    def __init__(self, key: Key, process: Any, nbytes: int, export: Export | None = None) -> None:
        self.key, self.process, self.nbytes, self.export = key, process, nbytes, export
        self.nodes = {process.node}
        self.waiting: list[Callable[[], None]] = []

    def __del__(self) -> None:
        self.process.dropped.append(self.key)


class Node:
    """How an array came about, and where it is.

    `copies` are the array and a copy of it with another process, both kept for as long as something
    may have to be made anew from it.
    """

    __slots__ = ("__weakref__", "_content", "_name", "copies", "nbytes", "step", "waiting")

    def __init__(self, step: Step, nbytes: int) -> None:
        self.step: Step | None = step  # None once there are copies
        self.nbytes = nbytes
        self.copies: tuple[Content, ...] = ()
        self.waiting: list[Callable[[], None]] = []  # called when it has been made anew
        self._content: Callable[[], Content | None] = lambda: None
        self._name: Callable[[], Name | None] = lambda: None

    def content(self) -> Content | None:
        """Where it lies; None where it has to be made anew."""
        for found in (self._content(), *self.copies):
            if found is not None and found.process.alive:
                return found
        return None

    def lies(self, content: Content) -> None:
        """Note where it lies now; only who names it keeps it there."""
        self._content = weakref.ref(content)
        name = self._name()
        if name is not None:
            name.content = content

    def named(self, content: Content) -> Name:
        """A name for it, which keeps it where it lies."""
        name = Name(self, content)
        self._name = weakref.ref(name)
        self.lies(content)
        return name


class Name(Ref):
    """An array that lies with a worker, as chains have it."""

    __slots__ = ("content", "node")

    def __init__(self, node: Node, content: Content) -> None:
        super().__init__(nbytes=node.nbytes)
        self.node, self.content = node, content


class Step:
    """A task that has left arrays with a worker; `outputs` are their nodes, as long as needed."""

    __slots__ = ("again", "outputs", "phase", "task")

    def __init__(self, task: Task, phase: Phase | None) -> None:
        self.task, self.phase = task, phase
        self.outputs: list[Callable[[], Node | None]] = []
        self.again: Any = None  # while it is done again


class Phase:
    """What tasks of one phase have in common, sent once to a process.

    `sent` is it as it goes out and `number` what processes know it by: another one when its arrays
    lie elsewhere than they did. `nodes` of the cluster have fetched it.
    """

    def __init__(self, value: Shared) -> None:
        self.value = weakref.ref(value)  # it has names, which would keep arrays where they lie
        self.stored = replace(with_nodes(value))
        self.inputs: list[Node] = list(leaves(self.stored, Node))
        self.keys: tuple[Key, ...] | None = None
        self.sent: Any = None
        self.number, self.size, self.by_reference = 0, 0, False
        self.nodes: set[str] = set()

    def forget(self) -> None:
        """Its tasks have been done: it is made again if they have to be."""
        self.sent = None


@dataclass(frozen=True)
class Order:
    """Tasks of one chain for a worker, with their numbers, and what they need besides.

    `phase` is the number of what they have in common. `refs` are arrays that lie elsewhere, by
    key; `dropped` are arrays that nobody will ask for again. With `export`, arrays
    that are read elsewhere are put into the store at once. `patience` is how many seconds an array
    may take to come. With `adds_up`, sums come back for all tasks together. `short` tasks are done
    beside others.
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


def with_nodes(value: Any) -> Any:
    """A task, or a part of one, with nodes in the place of names."""
    return tree_map(value, Name, lambda name: name.node)


def with_inputs(value: Any, contents: Mapping[Node, Content]) -> Any:
    """The same as it goes out: what stands for arrays there are their keys."""
    return tree_map(value, Node, lambda node: Input(contents[node].key))
