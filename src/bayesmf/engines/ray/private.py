"""The private parts of Ray that we touch, all of them here; pyproject.toml bounds its version.

They may move with any release of Ray. What is missing is passed over, so that a run goes on with
less: `missing_parts` says what that would be, and a test fails where it is anything.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from collections.abc import Iterator
from typing import Any

PARTS = {
    "ray._private.ray_constants.ENABLE_RAY_CLUSTER": "a cluster started here listens to this "
    "machine alone",
    "ray._private.services.ConsolePopen": "signals for this process's group do not end its servers",
    "ray._private.worker._global_node": "the end of its servers is noticed",
    "ray._private.node.Node.dead_processes": "the end of its servers is noticed",
}


def missing_parts() -> list[str]:
    """A sentence for each part that this version of Ray does not have."""
    return [
        f"Ray {importlib.import_module('ray').__version__} has no {name}, by which {purpose}: find "
        "where it is now, or lower the bound on ray in pyproject.toml"
        for name, purpose in PARTS.items()
        if not _has(name)
    ]


def _has(name: str) -> bool:
    parts = name.split(".")
    found: Any = importlib.import_module(".".join(parts[:3]))
    for part in parts[3:]:
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


@contextlib.contextmanager
def local_servers() -> Iterator[None]:
    """Context in which `ray.init` starts servers for this machine and this process alone."""
    from ray._private import ray_constants, services

    with contextlib.ExitStack() as stack:
        # As on systems where Ray's servers listen to their own machine alone: nobody else is to
        # reach a cluster that was not asked for.
        stack.enter_context(_replaced(ray_constants, "ENABLE_RAY_CLUSTER", False))
        if sys.platform == "linux":  # elsewhere Ray finds what it has to end by its group
            # A signal for the group of this process (`timeout` sends one) is no signal for them:
            # the round that is under way still needs them.
            real = getattr(services, "ConsolePopen", None)
            apart = functools.partial(real, start_new_session=True) if real else None
            stack.enter_context(_replaced(services, "ConsolePopen", apart))
        yield


@contextlib.contextmanager
def _replaced(module: Any, name: str, value: Any) -> Iterator[None]:
    """Context in which one of Ray's names has another value, if Ray has that name."""
    before = getattr(module, name, None)
    if before is None:
        yield
        return
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


def ended_servers() -> set[str]:
    """Names of the servers, of those that were started here, that have ended."""
    from ray._private import worker

    node: Any = getattr(worker, "_global_node", None)
    return set() if node is None else {name for name, _ in node.dead_processes()}
