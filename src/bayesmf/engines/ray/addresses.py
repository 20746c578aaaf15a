"""Whether a cluster listens at an address: Ray itself would try for many minutes."""

from __future__ import annotations

import os
import socket

TIMEOUT = 10.0  # seconds to connect
NOTE = ("ray", "ray_current_cluster")  # where `ray start` notes the address


def check_listening(address: str, own: str) -> None:
    """Raise OSError where nothing listens; `own` is this machine's address as Ray reads it."""
    if address == "auto":
        address = current_address()
        if not address:  # Ray would look for anybody's process, and try that for minutes
            raise OSError("none was started here")
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or "/" in host:
        return
    # Ray reads the names of this machine as its address on the network.
    hosts = [host.strip("[]"), own] if host in ("localhost", "127.0.0.1", "[::1]") else [host]
    for k, one in enumerate(hosts):
        try:
            socket.create_connection((one.strip("[]"), int(port)), TIMEOUT).close()
            return
        except OSError:
            if k + 1 == len(hosts):
                raise


def current_address() -> str:
    """The address of this machine's cluster; empty where there is none."""
    found = os.environ.get("RAY_ADDRESS")
    return found or noted_address(os.environ.get("RAY_TMPDIR", "/tmp"))


def noted_address(folder: str) -> str:
    """The address that `ray start` has noted, where RAY_TMPDIR is a folder; or nothing."""
    try:
        with open(os.path.join(folder, *NOTE)) as file:
            return file.read().strip()
    except OSError:
        return ""


def note_address(folder: str, address: str) -> None:
    """Note another: the same by another name."""
    with open(os.path.join(folder, *NOTE), "w") as file:
        file.write(address)


def first_line(error: BaseException) -> str:
    """The first line of an error's message, shortened."""
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__


def wants_token(error: BaseException | None) -> bool:
    """Whether a cluster refused for want of a token: the text of one of the causes says so."""
    while error is not None:
        if any("AuthenticationError" in text for text in (type(error).__name__, str(error))):
            return True
        error = error.__cause__ or error.__context__
    return False
