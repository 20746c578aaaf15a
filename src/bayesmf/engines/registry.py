"""Engines by their names."""

from __future__ import annotations

from dataclasses import replace
from inspect import isclass

from bayesmf.checks import one_of, whole
from bayesmf.engines.base import Engine
from bayesmf.engines.local import Serial, Threads
from bayesmf.engines.ray.cluster import Cluster
from bayesmf.engines.simulated import Simulated
from bayesmf.errors import InputError

# A new engine: a module beside this one with a class that is an `Engine`, and a line here.
ENGINES = ("threads", "serial", "ray", "simulated")


def make_engine(engine: str | Engine | Cluster, n_workers: int | None) -> Engine:
    """An engine by its name, by the settings of a cluster, or as it is."""
    if n_workers is not None:
        n_workers = whole("n_workers", n_workers)
    if engine == "ray":
        return _on_ray(Cluster(n_workers=n_workers))
    if isinstance(engine, Cluster):
        return _on_ray(engine if n_workers is None else replace(engine, n_workers=n_workers))
    if not isinstance(engine, str) and hasattr(engine, "submit") and not isclass(engine):
        return engine
    if engine == "serial":
        return Serial()
    if engine == "threads":
        return Threads(n_workers)
    one_of("engine", engine, ENGINES, " or an engine object, such as Simulated(36)")
    if n_workers is None:
        raise InputError("engine 'simulated' needs n_workers (--workers): how many to simulate")
    return Simulated(n_workers)


def _on_ray(cluster: Cluster) -> Engine:
    try:
        from bayesmf.engines.ray.engine import Ray
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise InputError(
            "engine 'ray' needs Ray, which is not installed: pip install ray"
        ) from None
    return Ray(cluster)
