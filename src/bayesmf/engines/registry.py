"""Engines by their names."""

from __future__ import annotations

from dataclasses import replace
from inspect import isclass
from typing import TYPE_CHECKING

from bayesmf.checks import one_of, whole
from bayesmf.engines.ray.cluster import Cluster, needs_ray

if TYPE_CHECKING:
    from bayesmf.engines.base import Engine

ENGINES = ("threads", "serial", "ray")


def make_engine(engine: str | Engine | Cluster, n_workers: int | None) -> Engine:
    """Return an engine, of its name or of the settings of a cluster; an engine is returned as is.

    Engines are imported when they are made, so that the command line has their names at once.
    """
    if n_workers is not None:
        n_workers = whole("n_workers", n_workers)
    if not isinstance(engine, str | Cluster) and hasattr(engine, "submit") and not isclass(engine):
        return engine
    if not isinstance(engine, Cluster):
        one_of("engine", engine, ENGINES, " or an engine object")
    if isinstance(engine, Cluster) or engine == "ray":
        cluster = engine if isinstance(engine, Cluster) else Cluster()
        with needs_ray():
            from bayesmf.engines.ray.engine import Ray
        return Ray(cluster if n_workers is None else replace(cluster, n_workers=n_workers))
    from bayesmf.engines.local import Serial, Threads

    return Serial() if engine == "serial" else Threads(n_workers)
