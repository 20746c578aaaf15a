"""Workers and their tasks, as the driver of a cluster keeps track of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from bayesmf.engines.ray.worker import About
from bayesmf.kernels.gather import Regressors
from bayesmf.worker.row_tasks import RowsTask
from bayesmf.worker.tasks import Result, Task


@dataclass(eq=False)
class Shared:
    """The other side of a phase, put into Ray's store once; `nodes` have fetched it."""

    value: Regressors
    ref: Any
    number: int
    nodes: set[str] = field(default_factory=set)


@dataclass(eq=False)
class Pending:
    """A task under way."""

    task: Task
    shared: Shared | None = None
    tries: int = 0
    value: Result | None = None
    error: BaseException | None = None

    @property
    def done(self) -> bool:
        return self.value is not None or self.error is not None

    def result(self) -> Result:
        if self.error is not None:
            raise self.error
        assert self.value is not None
        return self.value


@dataclass(eq=False)
class Call:
    """Tasks of one chain that went to a worker together, and where their results will be."""

    pending: list[Pending]
    ref: Any


@dataclass(eq=False)
class Slot:
    """One of the workers, whatever process it is at the moment.

    `outbox` are tasks that go to it next, `running` its calls in the order in which it does them;
    `since` is when it last gave a sign of life, or was started. An `absent` worker has not come in
    time: others do its work until then.
    """

    number: int
    actor: Any = None
    started: Any = None  # the call that is answered when it can work
    about: About | None = None
    holding: set[int] = field(default_factory=set)
    outbox: list[Pending] = field(default_factory=list)
    running: list[Call] = field(default_factory=list)
    since: float = 0.0
    absent: bool = False
    failures: int = 0

    @property
    def ready(self) -> bool:
        return self.about is not None

    def tasks(self) -> list[Pending]:
        """All tasks that it has not answered."""
        return [one for call in self.running for one in call.pending] + self.outbox

    def __str__(self) -> str:
        where = f" (process {self.about.pid} on {self.about.host})" if self.about else ""
        return f"worker {self.number}{where}"


def bare(task: Task) -> Task:
    """A task without what all of its phase have in common."""
    return replace(task, other=()) if isinstance(task, RowsTask) else task  # type: ignore[arg-type]
