"""What a run needs to know of a cluster, and nothing of the model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from bayesmf.errors import InputError


@dataclass(frozen=True)
class Cluster:
    """Settings of the `ray` engine; `BayesianMF(engine=Cluster(address="auto"))`.

    Parameters
    ----------
    address : str, optional
        Of a Ray cluster: "auto" for the one this machine belongs to, or "host:port". Without one a
        cluster of this machine is started, and ended with the run.
    n_workers : int, optional
        Worker processes; by default as many as the cluster has room for.
    cpus_per_worker : float
        CPUs that Ray sets aside for each; a worker uses one.
    resources : mapping, optional
        Custom resources of Ray that each worker needs: {"ratings": 1} keeps workers on nodes that
        were started with them.
    placement : {"spread", "pack"}
        Workers on as many nodes as there are, or on as few as will do.
    retries : int
        How often a task is tried again after its worker was lost, before the run ends.
    task_timeout : float
        Seconds after which a worker that does not answer is taken for hung, and replaced.
    start_timeout : float
        Seconds that a worker may take to start and compile. After them others do its work, until
        it comes.
    """

    address: str | None = None
    n_workers: int | None = None
    cpus_per_worker: float = 1.0
    resources: Mapping[str, float] = field(default_factory=dict)
    placement: str = "spread"
    retries: int = 3
    task_timeout: float = 600.0
    start_timeout: float = 120.0

    def __post_init__(self) -> None:
        for name in ("cpus_per_worker", "task_timeout", "start_timeout"):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and 0 < value < math.inf):
                raise InputError(f"{name} of a Cluster must be a positive number; got {value!r}")
        if type(self.retries) is not int or self.retries < 0:
            raise InputError(
                f"retries of a Cluster must be a whole number from 0 on; got {self.retries!r}"
            )
        n = self.n_workers
        if n is not None and (type(n) is not int or n < 1):
            raise InputError(f"n_workers of a Cluster must be at least 1; got {n!r}")
        if self.placement not in ("spread", "pack"):
            raise InputError(f"placement {self.placement!r} is none of 'spread', 'pack'")
