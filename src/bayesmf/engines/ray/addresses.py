"""Whether a cluster answers at an address, before Ray tries for many minutes."""

from __future__ import annotations

import os
import socket

KNOCK = 10.0  # seconds


def knock(address: str, own: str) -> None:
    """Raise OSError where nobody listens; `own` is this machine's address as Ray reads it."""
    if address == "auto":
        address = noted_address()
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or "/" in host:
        return
    # Ray reads the names of this machine as its address on the network.
    hosts = [host.strip("[]"), own] if host in ("localhost", "127.0.0.1", "[::1]") else [host]
    for k, one in enumerate(hosts):
        try:
            socket.create_connection((one.strip("[]"), int(port)), KNOCK).close()
            return
        except OSError:
            if k + 1 == len(hosts):
                raise


def noted_address() -> str:
    """Where Ray would look for this machine's cluster; nothing if it must find out itself."""
    if "RAY_ADDRESS" in os.environ:
        return os.environ["RAY_ADDRESS"]
    folder = os.environ.get("RAY_TMPDIR", "/tmp")
    try:
        with open(os.path.join(folder, "ray", "ray_current_cluster")) as file:
            return file.read().strip()
    except OSError:
        return ""


def first_line(error: BaseException) -> str:
    """The beginning of what an error says."""
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__


def wants_token(error: BaseException | None) -> bool:
    """Whether a cluster was there and refused: Ray tells it in one of the causes, as a text."""
    while error is not None:
        if any("AuthenticationError" in text for text in (type(error).__name__, str(error))):
            return True
        error = error.__cause__ or error.__context__
    return False
