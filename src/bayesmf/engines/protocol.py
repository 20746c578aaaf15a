"""What an engine is: somewhere to keep ratings, and hands to do tasks with them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from bayesmf.worker import Held, Result, Task


class Handle(Protocol):
    """A task under way."""

    def result(self) -> Result:
        """What came of it; raises what the task raised."""


class Engine(Protocol):
    """Runs tasks, in any order, anywhere.

    `start` is called once with the ratings of every place; a task names its place. An engine
    owns no randomness and no parameters, so engines cannot differ in their results. It serves
    one run at a time.
    """

    def start(self, held: Sequence[Held]) -> None:
        """Hand out the ratings."""

    def submit(self, task: Task) -> Handle:
        """Begin a task."""

    def wait(self, handles: Collection[Handle]) -> set[Handle]:
        """Wait until at least one of these is done; return those that are."""

    def close(self) -> None:
        """Let go of everything; tasks that have not begun are dropped."""
