"""What engines know of tasks: they name a partition of the ratings, and do something with it.

A result depends on the partition and on the task alone, and neither is changed: so a task may be
executed anywhere, in any order, twice. The tasks themselves are in the modules beside this one, a
module for each kind of rounds.
"""

from __future__ import annotations

from typing import Any, Protocol


class Held(Protocol):
    """A partition of the ratings that a worker holds: a block or a stripe."""

    def __len__(self) -> int:
        """Number of ratings."""


class Result(Protocol):
    """What all results tell: squared errors, summed over `count` ratings."""

    @property
    def sse(self) -> float: ...
    @property
    def count(self) -> int: ...


class Task(Protocol):
    """A frozen dataclass with all that a worker needs besides the ratings it holds."""

    @property
    def chain(self) -> int: ...
    @property
    def partition(self) -> int:
        """Number of the partition that the task reads."""

    def execute(self, held: Any) -> Result:
        """Do the task with that partition."""


class Recipe(Protocol):
    """How a worker elsewhere gets a partition from storage that it can reach itself."""

    def load(self) -> Held:
        """Read what the driver holds, to the bit."""


def run_task(held: Held, task: Task) -> Result:
    """Do a task with the partition it names."""
    return task.execute(held)
