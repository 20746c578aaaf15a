"""What an engine is: it holds the partitions of the ratings, and executes tasks on them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from bayesmf.model.refs import Array, Ref
from bayesmf.worker.tasks import Held, Recipe, Result, Task


class Handle(Protocol):
    """A task under way."""

    def result(self) -> Result:
        """The task's result; raises what the task raised."""


@dataclass(frozen=True)
class Workload:
    """What an engine is started with.

    `held` are the partitions of the ratings, which tasks name by number. `together` are lists of
    partitions whose tasks come at the same time: each list should be spread over all workers.
    `recipes`, by partition, say how workers get ratings that need not be sent. `rehearsal` are
    tasks on a few made-up ratings, by which a worker compiles what it will need. `units` are, by
    partition, the numbers of the stripes that stay with their workers, None where there are none:
    all tasks of one chain on one unit are then done at one place, and those of other chains may be
    done at another, which holds these ratings too.
    """

    held: Sequence[Held]
    together: Sequence[Sequence[int]]
    recipes: Sequence[Recipe | None] = ()
    rehearsal: Sequence[tuple[Held, Task]] = ()
    units: Sequence[int] | None = None
    n_chains: int = 1


class Engine(Protocol):
    """Executes tasks, in any order, anywhere.

    A task names the partition it reads, and the rows, by references that results have given.
    Whoever executes it gets the arrays. An engine owns no randomness and decides nothing, so
    engines cannot differ in their results. It serves one run at a time.
    """

    def start(self, load: Workload) -> None:
        """Hand out the ratings."""

    def submit(self, task: Task) -> Handle:
        """Begin a task."""

    def wait(self, handles: Collection[Handle]) -> set[Handle]:
        """Wait until at least one of these is done; return those that are."""

    def fetch(self, refs: Sequence[Ref]) -> list[Array]:
        """Bring arrays that lie with workers here, to be read alone."""

    def settled(self, chain: int, refs: Sequence[Ref]) -> None:
        """Told after every round of a chain what the rest of it depends on.

        An engine whose workers can be lost may have it copied now: what is not among these is
        never asked for again.
        """

    def seconds(self) -> float:
        """Seconds since the start, by the engine's clock."""

    def aside(self) -> AbstractContextManager[None]:
        """Context of what is not part of the algorithm, such as validation: an engine with a
        clock of its own may stop it."""

    def report(self) -> dict[str, Any]:
        """Who did what, how long it took, and what was sent; see `Ledger`."""

    def close(self) -> None:
        """Release everything; tasks that have not begun are dropped."""
