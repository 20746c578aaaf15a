"""The actor: a worker as a process of Ray."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.metrics import Counter

from bayesmf.engines.ray.contents import Order
from bayesmf.engines.ray.worker import About, Holder, Missing, Store, versions
from bayesmf.worker.tasks import Held, Result, Shared, Task

BESIDE = "beside"  # the thread for what does not have to wait for a task
LEAST = 0.5  # seconds that a single array is waited for, once one has not come


class RayStore(Store):
    """The object stores of Ray's nodes."""

    def put(self, value: Any) -> Any:
        return ray.put(value)

    def get(self, refs: Sequence[Any], patience: float) -> list[Any]:
        try:
            return ray.get(list(refs), timeout=patience)
        except RayError:
            raise Missing(*(ref for ref in refs if not _there(ref))) from None


def _there(ref: Any) -> bool:
    try:
        ray.get(ref, timeout=LEAST)
    except RayError:
        return False
    return True


class Worker(Holder):
    """Holds ratings and arrays, and does tasks; Ray's dashboard and metrics show it by name."""

    def __init__(self, name: str, rehearsal: Sequence[tuple[Held, Task]]) -> None:
        super().__init__(rehearsal, RayStore())
        self._name, run = name, name.rpartition("-worker-")[0]
        tags = {"worker": name, "run": run}
        self._tasks, self._ratings = (
            Counter(f"bayesmf_{what}", description=said, tag_keys=tuple(tags))
            for what, said in (("tasks", "tasks done"), ("ratings", "ratings read by tasks"))
        )
        for counter in (self._tasks, self._ratings):
            counter.set_default_tags(tags)

    def __repr__(self) -> str:
        return f"Worker({self._name})"

    def about(self) -> About:
        """Where it is; the first call that is answered, when the worker has compiled."""
        context = ray.get_runtime_context()
        return About(os.getpid(), context.get_node_id(), ray.util.get_node_ip_address(), versions())

    def run(self, order: Order, shared: Shared | None) -> list[tuple[Result, float]]:
        found = super().run(order, shared)
        self._tasks.inc(len(found))
        if ratings := sum(result.count for result, _ in found):
            self._ratings.inc(ratings)
        return found
