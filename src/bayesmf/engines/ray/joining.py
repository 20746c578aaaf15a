"""Joining a Ray cluster, or starting one on this machine, while signal handlers stay ours."""

from __future__ import annotations

from typing import Any

import ray
from ray.exceptions import RayError

from bayesmf.engines.ray.addresses import check_listening, first_line, wants_token
from bayesmf.engines.ray.cluster import Cluster
from bayesmf.engines.ray.handlers import unchanged, unchanged_during
from bayesmf.engines.ray.private import ended_servers, local_servers
from bayesmf.errors import EngineError, InputError

QUIET: dict[str, Any] = {"logging_level": 40, "log_to_driver": False}


def connect(cluster: Cluster, store: int | None = None) -> bool:
    """Join a cluster, or start one on this machine; False where this process is in one already."""
    if ray.is_initialized():
        return False
    try:
        with unchanged():
            if cluster.address is None:
                _start(cluster, store)
            else:
                _join(cluster.address)
    except BaseException:
        disconnect()  # from what there is by then
        raise
    return True


def disconnect() -> None:
    """Leave a cluster, and end it if it was started here."""
    unchanged_during(ray.shutdown)


def _join(address: str) -> None:
    try:
        check_listening(address, ray.util.get_node_ip_address())
        ray.init(address=address, **QUIET)
    except (OSError, ValueError, RuntimeError, RayError) as error:
        if wants_token(error):
            raise InputError(
                f"the Ray cluster at {address!r} wants a token, and this process has none or "
                "another: set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN_PATH to a file with the "
                "token, as on its nodes"
            ) from None
        raise InputError(
            f"no Ray cluster answers at {address!r} ({first_line(error)}): start one "
            "with `ray start --head`, or leave the address out"
        ) from None


def _start(cluster: Cluster, store: int | None) -> None:
    """Start a cluster of this machine alone."""
    n = cluster.n_workers
    try:
        with local_servers():
            ray.init(
                address="local",  # whatever other clusters this machine runs
                num_cpus=None if n is None else max(1, round(n * cluster.cpus_per_worker)),
                resources={name: need * (n or 1) for name, need in cluster.resources.items()},
                include_dashboard=False,
                object_store_memory=store,
                _system_config={} if store is None else {"preallocate_plasma_memory": True},
                **QUIET,
            )
    except Exception as error:
        raise EngineError(
            f"Ray could not be started on this machine ({first_line(error)}): check that HOME "
            "and the temporary folder can be written to"
        ) from None


def check_servers() -> None:
    """Raise EngineError where a server of Ray that was started here has ended.

    Without them Ray ends whoever asks it for anything, at once or after a minute, without a word.
    """
    ended = ended_servers()
    if lost := " and ".join(name for name in ("gcs_server", "raylet") if name in ended):
        raise EngineError(
            f"Ray's {lost} on this machine has ended: look at the memory, then go on from the last "
            "checkpoint (--resume)"
        )


def room(cluster: Cluster) -> int:
    """Number of workers for which the cluster has room now."""
    have = ray.cluster_resources()
    needs = {"CPU": cluster.cpus_per_worker, **cluster.resources}
    n = min(int(have.get(name, 0.0) / need) for name, need in needs.items() if need > 0)
    if n < 1:
        asked = ", ".join(f"{need:g} {name}" for name, need in needs.items())
        raise InputError(
            f"the cluster has no room for a worker, which needs {asked}: lower cpus_per_worker or "
            "resources, or add nodes"
        )
    return n
