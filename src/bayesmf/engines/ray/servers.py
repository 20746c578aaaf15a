"""Ray's servers of this machine alone, for one run: begun, watched, and ended with this process.

They are started by Ray's own command, `ray start --head --block`, with an address that no other
machine reaches and in a session of their own: a signal for the group of this process (`timeout`
sends one) is no signal for them, since the round that is under way still needs them. The command's
process reads from a pipe that this one holds; when that is closed, by whatever end this process
comes to, it ends the servers and itself.
"""

from __future__ import annotations

import json
import math
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from bayesmf.engines.ray.addresses import note_address, noted_address
from bayesmf.engines.ray.cluster import Cluster

# Ray takes "localhost" and 127.0.0.1 for this machine's address on the network, where it has one;
# a name that says the same in other letters it leaves alone.
HOST = "LOCALHOST" if sys.platform == "linux" else "127.0.0.1"
PATIENCE = 120.0  # seconds to start
GRACE = 10.0  # seconds to end
WATCHED = ("gcs_server", "raylet")

COMMAND = """
import sys
from importlib.metadata import entry_points
(ray,) = entry_points(group="console_scripts", name="ray")
ray.load()()
"""
WATCHMAN = """
import os, signal, sys, threading

def watch():
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=watch, daemon=True).start()
"""


class Servers(NamedTuple):
    """The command that started them, its folder, and files by which the end of each is seen."""

    command: subprocess.Popen[bytes]
    folder: str
    watched: dict[str, int]


_running: Servers | None = None


def begin(cluster: Cluster, store: int | None) -> tuple[str, str]:
    """Start them; the folder in which Ray's users find them, RAY_TMPDIR, and their address."""
    global _running
    # Short, for the names of sockets; of its own, so that nobody's `address="auto"` finds it.
    short = os.environ.get("RAY_TMPDIR") or ("/tmp" if os.name == "posix" else None)
    folder = tempfile.mkdtemp(prefix="bmf", dir=short)
    _ensure_token()
    said = Path(folder, "said")
    with said.open("wb") as out:
        command = subprocess.Popen(
            [sys.executable, "-c", WATCHMAN + COMMAND, *_arguments(cluster, store, folder)],
            stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
            env=_environment(),
        )  # fmt: skip
    _running = Servers(command, folder, {})
    end = time.monotonic() + PATIENCE
    while "Ray runtime started" not in (text := said.read_text(errors="replace")):
        if command.poll() is not None or time.monotonic() > end:
            raise RuntimeError(_reason(text))
        time.sleep(0.02)
    _running.watched.update(_watch(command.pid))
    address = f"{HOST}:{noted_address(folder).rpartition(':')[2]}"
    note_address(folder, address)
    return folder, address


def _reason(said: str) -> str:
    """Why it did not start: the last line that was said before a crash's own account, if any."""
    before = said.partition("Fatal Python error")[0].partition("Stack (most recent")[0]
    lines = [line.strip() for line in before.splitlines() if line.strip()]
    return lines[-1] if lines else "`ray start` has ended; a busy machine may need another try"


def _environment() -> dict[str, str]:
    """That of this process. Servers listen to this machine alone, as those of Ray do by default on
    other systems than Linux."""
    own = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    return {**own, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


def _ensure_token() -> None:
    """Have a token, as `ray.init` makes one: other users of this machine are kept out by it."""
    if any(f"RAY_AUTH_{name}" in os.environ for name in ("MODE", "TOKEN", "TOKEN_PATH")):
        return
    if not Path("~/.ray/auth_token").expanduser().exists():
        command = [sys.executable, "-c", COMMAND, "get-auth-token", "--generate"]
        subprocess.run(command, capture_output=True, umask=0o077)  # not known to versions of old


def _arguments(cluster: Cluster, store: int | None, folder: str) -> list[str]:
    n, given = cluster.n_workers, ["start", "--head", "--block", "--port=0"]
    given += [f"--temp-dir={folder}/ray", "--include-dashboard=false"]
    given += ["--disable-usage-stats"]
    if n is not None:
        given += [f"--num-cpus={max(1, math.ceil(n * cluster.cpus_per_worker))}"]
    if cluster.resources:
        have = {name: need * (n or 1) for name, need in cluster.resources.items()}
        given += [f"--resources={json.dumps(have)}"]
    if store is not None:
        given += [f"--object-store-memory={store}"]
    return given


def _watch(parent: int) -> dict[str, int]:
    """Files that become readable when a child of a process has ended, by its name; on Linux."""
    found: dict[str, int] = {}
    if not hasattr(os, "pidfd_open"):
        return found
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError, IndexError):
            name, _, rest = (entry / "stat").read_text().partition("(")[2].rpartition(")")
            if name in WATCHED and int(rest.split()[1]) == parent:
                found[name] = os.pidfd_open(int(entry.name))
    return found


def ended() -> list[str]:
    """Names of the servers, of those that were started here, that have ended."""
    if _running is None:
        return []
    if _running.watched:
        files = {file: name for name, file in _running.watched.items()}
        return sorted(files[file] for file in select.select(list(files), [], [], 0)[0])
    return [] if _running.command.poll() is None else ["servers"]


def end() -> None:
    """End them, and wait until they have."""
    global _running
    servers, _running = _running, None
    if servers is None:
        return
    for file in servers.watched.values():
        os.close(file)
    assert servers.command.stdin is not None
    servers.command.stdin.close()
    try:
        servers.command.wait(GRACE)
    except subprocess.TimeoutExpired:
        servers.command.kill()  # Ray's own watchman ends the rest
        servers.command.wait()
    shutil.rmtree(servers.folder, ignore_errors=True)
