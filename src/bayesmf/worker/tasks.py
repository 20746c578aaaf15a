"""Tasks as engines see them: each names a partition of the ratings, and executes on it.

A result depends only on the partition and the task, and neither is changed, so a task may be
executed anywhere, in any order, repeatedly. Tasks refer to rows by reference (model/refs.py); new
rows stay on the worker, and only references and statistics are returned. The other modules of this
folder define the tasks, a module for each kind of rounds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from bayesmf.kernels.exact import add_whole
from bayesmf.model.refs import Array, tree_map


class Held(Protocol):
    """A partition of the ratings that a worker holds: a block or a stripe."""

    def __len__(self) -> int:
        """Number of ratings."""


class Result(Protocol):
    """Result of a task: `count` is the number of ratings read."""

    @property
    def count(self) -> int: ...


class Task(Protocol):
    """A frozen dataclass with all that a worker needs besides the ratings it holds."""

    @property
    def chain(self) -> int: ...
    @property
    def partition(self) -> int:
        """Number of the partition that the task reads."""

    # Tasks of milliseconds have `short = True`: they may run beside another task.

    def execute(self, held: Any) -> Result:
        """Do the task with that partition."""


class Recipe(Protocol):
    """How a worker on another machine loads a partition from shared storage."""

    def load(self) -> Held:
        """Load the partition, equal to the driver's to the bit."""


class Shared:
    """Data shared by all tasks of a phase: sent once to a node, prepared once in a process.

    Subclasses are dataclasses; what `prepare` makes of them is the tasks' `shared.ready`.
    """

    _lock = threading.Lock()  # one for all: preparing is short and rare

    def prepare(self) -> Any:
        """The data in the form in which tasks need it."""
        return None

    @property
    def ready(self) -> Any:
        """What `prepare` returned, called once."""
        if "_ready" not in vars(self):
            with Shared._lock:
                if "_ready" not in vars(self):
                    object.__setattr__(self, "_ready", self.prepare())
        return vars(self)["_ready"]


class RemoteResult:
    """A result whose arrays stay on the worker.

    Later tasks on the same worker read the `local_fields`; other workers also read the
    `shared_fields`. Each is an array, None, or a tuple of arrays. With `together`, a field is sent
    at once for all results of a worker in a phase.
    """

    local_fields: tuple[str, ...] = ()
    shared_fields: tuple[str, ...] = ()
    together: bool = False
    adds: tuple[str, ...] = ()  # whole numbers of which only the sum over all results is needed


def with_refs(result: Any, make: Callable[[str, str, Array], Any]) -> Any:
    """Replace the arrays of a `RemoteResult` by references, `make(kind, field, array)`."""
    if not isinstance(result, RemoteResult):
        return result
    changed = {}
    for how in ("local_fields", "shared_fields"):
        for name in getattr(result, how):
            value = getattr(result, name)
            if value is not None:
                changed[name] = tree_map(value, np.ndarray, partial(make, how, name))
    return replace(result, **changed) if changed else result  # type: ignore[type-var]


def added_up(results: Sequence[Any]) -> list[Any]:
    """Results of one worker's tasks of a phase, the first of them with the sums of all.

    Sums are of whole numbers, so it makes no difference where they are added: the server gets the
    same in fewer bytes.
    """
    out: list[Any] = []
    first: dict[type, int] = {}
    for result in results:
        names = getattr(result, "adds", ())
        if not names or type(result) not in first:
            first.setdefault(type(result), len(out))
            out.append(result)
            continue
        at = first[type(result)]
        both = {name: (getattr(out[at], name), getattr(result, name)) for name in names}
        sums = {name: None if b is None else add_whole((a, b)) for name, (a, b) in both.items()}
        out[at] = replace(out[at], **sums)
        out.append(replace(result, **dict.fromkeys(names)))
    return out
