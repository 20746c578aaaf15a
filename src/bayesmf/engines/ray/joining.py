"""Joining a Ray cluster, or starting one on this machine, while signal handlers stay ours."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

import ray
from ray.exceptions import RayError

from bayesmf.engines.ray import servers
from bayesmf.engines.ray.addresses import check_listening, first_line, wants_token
from bayesmf.engines.ray.cluster import Cluster
from bayesmf.engines.ray.handlers import unchanged, unchanged_during
from bayesmf.errors import EngineError, InputError

QUIET: dict[str, Any] = {"logging_level": 40, "log_to_driver": False}


def connect(cluster: Cluster, store: int | None = None) -> bool:
    """Join a cluster, or start one on this machine; False where this process is in one already.

    Without an address it is the cluster that RAY_ADDRESS names, as for all of Ray's users: that
    of the job, where this process is one.
    """
    if ray.is_initialized():
        return False
    address = cluster.address or os.environ.get("RAY_ADDRESS")
    try:
        if address is None or address == "local":
            _start(cluster, store)
        else:
            _join(address)
    except BaseException:
        disconnect()  # from what there is by then
        raise
    return True


def disconnect() -> None:
    """Leave a cluster, and end it if it was started here."""

    def leave() -> None:
        try:
            ray.shutdown()
        finally:
            servers.end()

    unchanged_during(leave)


def _join(address: str) -> None:
    try:
        check_listening(address, ray.util.get_node_ip_address())
        with unchanged():
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
    try:
        folder, address = servers.begin(cluster, store)
        # Found by Ray itself, which then takes the token along, where there is one.
        with _environment(RAY_TMPDIR=folder, RAY_ADDRESS=None), unchanged():
            ray.init(**QUIET)
        if (joined := ray.get_runtime_context().gcs_address) != address:
            raise RuntimeError(f"Ray joined {joined}, not {address}")
    except Exception as error:
        raise EngineError(
            f"Ray could not be started on this machine ({first_line(error)}): check that HOME "
            "and the temporary folder can be written to"
        ) from None


@contextlib.contextmanager
def _environment(**values: str | None) -> Iterator[None]:
    """Context in which variables have these values, or none."""
    before = {name: os.environ.get(name) for name in values}
    try:
        _put(values)
        yield
    finally:
        _put(before)


def _put(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def check_servers() -> None:
    """Raise EngineError where a server of Ray that was started here has ended.

    Without them Ray ends whoever asks it for anything, at once or after a minute, without a word.
    """
    if lost := " and ".join(servers.ended()):
        raise EngineError(
            f"Ray's {lost} on this machine has ended: look at the memory, then go on from the last "
            "checkpoint (--resume)"
        )
