"""Engines by their names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from inspect import isclass
from typing import TYPE_CHECKING

from bayesmf.checks import one_of, whole
from bayesmf.engines.ray.cluster import Cluster, needs_ray

if TYPE_CHECKING:
    from bayesmf.engines.base import Engine


def _serial(n_workers: int | None) -> Engine:
    from bayesmf.engines.local import Serial

    return Serial()


def _threads(n_workers: int | None) -> Engine:
    from bayesmf.engines.local import Threads

    return Threads(n_workers)


def _on_ray(cluster: Cluster) -> Engine:
    with needs_ray():
        from bayesmf.engines.ray.engine import Ray
    return Ray(cluster)


# A new engine: a module beside this one with a class that is an `Engine`, and a line here. Engines
# are imported when they are made: the command line has their names at once.
ENGINES: dict[str, Callable[[int | None], Engine]] = {
    "threads": _threads,
    "serial": _serial,
    "ray": lambda n_workers: _on_ray(Cluster(n_workers=n_workers)),
}


def make_engine(engine: str | Engine | Cluster, n_workers: int | None) -> Engine:
    """An engine by its name, by the settings of a cluster, or as it is."""
    if n_workers is not None:
        n_workers = whole("n_workers", n_workers)
    if isinstance(engine, Cluster):
        return _on_ray(engine if n_workers is None else replace(engine, n_workers=n_workers))
    if not isinstance(engine, str) and hasattr(engine, "submit") and not isclass(engine):
        return engine
    one_of("engine", engine, ENGINES, " or an engine object")
    return ENGINES[str(engine)](n_workers)
