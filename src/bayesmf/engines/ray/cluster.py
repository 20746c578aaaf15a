"""Settings of the Ray engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from bayesmf.checks import one_of, positive
from bayesmf.errors import InputError


@dataclass(frozen=True)
class Cluster:
    """Settings of the `ray` engine, which runs a fit on a Ray cluster.

    Parameters
    ----------
    address : str, optional
        Address of a Ray cluster: "auto" for the one this machine belongs to, or "host:port"; by
        default the environment variable RAY_ADDRESS, which Ray sets for jobs. Without either, or
        with "local", a cluster of this machine is started, and ended with the run. A process that
        is in a cluster already stays in it.
    n_workers : int, optional
        Worker processes; by default as many as fit into the cluster. Workers that find no room yet
        wait for it and take over their part then, so that a cluster with autoscaling grows.
    cpus_per_worker : float
        CPUs that Ray reserves for each worker; may be a fraction.
    resources : mapping, optional
        Custom resources of Ray for each worker: {"ratings": 1} keeps workers on nodes that were
        started with them.
    placement : {"spread", "pack"}
        Workers on as many nodes as possible, or on as few.
    retries : int
        How often a task is repeated after its worker was lost, before the run ends.
    task_timeout : float
        Seconds after which a worker that does not answer is replaced.
    start_timeout : float
        Seconds for a worker to start and compile; after that, others do its work until it has
        started.
    placement_group : ray.util.placement_group.PlacementGroup, optional
        Placement group of Ray for the workers, by default that of the fit itself, if any.

    Raises
    ------
    InputError
        For values that cannot be used.

    Examples
    --------
    >>> from bayesmf import BayesianMF, Cluster
    >>> model = BayesianMF(engine=Cluster(address="auto", n_workers=16, task_timeout=60))
    >>> model.engine.n_workers
    16
    """

    address: str | None = None
    n_workers: int | None = None
    cpus_per_worker: float = 1.0
    resources: Mapping[str, float] = field(default_factory=dict)
    placement: str = "spread"
    retries: int = 3
    task_timeout: float = 600.0
    start_timeout: float = 120.0
    placement_group: Any = None

    def __post_init__(self) -> None:
        for name in ("cpus_per_worker", "task_timeout", "start_timeout"):
            positive(f"{name} of a Cluster", getattr(self, name))
        n_workers = 1 if self.n_workers is None else self.n_workers
        for name, value, least in (("retries", self.retries, 0), ("n_workers", n_workers, 1)):
            if type(value) is not int or value < least:
                raise InputError(
                    f"{name} of a Cluster must be a whole number of at least {least}, not {value!r}"
                )
        one_of("placement", self.placement, ("spread", "pack"))
        if self.placement_group is not None and not hasattr(self.placement_group, "bundle_specs"):
            raise InputError(
                "placement_group of a Cluster must be what ray.util.placement_group returns, not "
                f"{self.placement_group!r}"
            )


@contextmanager
def needs_ray() -> Iterator[None]:
    """Context for imports of Ray; InputError if it is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise InputError(
            "engine 'ray' needs Ray, which is not installed: pip install ray"
        ) from None
