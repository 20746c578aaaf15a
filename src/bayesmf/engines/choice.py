"""Which engine is meant by a name."""

from __future__ import annotations

from bayesmf.engines.local import Serial, Threads
from bayesmf.engines.protocol import Engine
from bayesmf.errors import InputError

ENGINES = ("threads", "serial")


def make_engine(engine: str | Engine, n_workers: int | None) -> Engine:
    """An engine by its name, or as it is."""
    if n_workers is not None and n_workers < 1:
        raise InputError(f"n_workers must be at least 1; got {n_workers}")
    if not isinstance(engine, str):
        return engine
    if engine == "serial":
        return Serial()
    if engine == "threads":
        return Threads(n_workers)
    raise InputError(f"engine {engine!r} is none of {', '.join(map(repr, ENGINES))}")
