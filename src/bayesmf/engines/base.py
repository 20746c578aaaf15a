"""What an engine is: somewhere to keep ratings, and hands to do tasks with them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from bayesmf.worker.tasks import Held, Recipe, Result, Task


class Handle(Protocol):
    """A task under way."""

    def result(self) -> Result:
        """What came of it; raises what the task raised."""


@dataclass(frozen=True)
class Workload:
    """What an engine is started with.

    `held` are the ratings of every place. `together` are the places whose tasks run at the same
    time: each of these lists should be spread over all workers. `recipes`, by place, say where
    ratings need not be sent. `rehearsal` are tasks on a few made-up ratings that make a worker
    compile what it will need.
    """

    held: Sequence[Held]
    together: Sequence[Sequence[int]]
    recipes: Sequence[Recipe | None] = ()
    rehearsal: Sequence[tuple[Held, Task]] = ()


class Engine(Protocol):
    """Runs tasks, in any order, anywhere.

    A task names its place. An engine owns no randomness and no parameters, so engines cannot
    differ in their results. It serves one run at a time.
    """

    def start(self, work: Workload) -> None:
        """Hand out the ratings."""

    def submit(self, task: Task) -> Handle:
        """Begin a task."""

    def wait(self, handles: Collection[Handle]) -> set[Handle]:
        """Wait until at least one of these is done; return those that are."""

    def seconds(self) -> float:
        """Since the start: of the clock on the wall, or of the one that is simulated."""

    def aside(self) -> AbstractContextManager[None]:
        """Around work that is no part of the algorithm, such as telling how well it does: a
        simulated clock stands still."""

    def report(self) -> dict[str, Any]:
        """Who did what, how long, and what travelled; see `Ledger`."""

    def close(self) -> None:
        """Let go of everything; tasks that have not begun are dropped."""
