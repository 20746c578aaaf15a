"""One process of the service: an application on a socket that is open already."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from bayesmf.errors import BayesMFError
from bayesmf.web.environment import ANSWERING, one_blas_thread

if TYPE_CHECKING:
    from bayesmf.web.served import ModelHolder

# Seconds that requests under way have when the service ends.
GRACE = 10
# Connections that may wait to be taken.
BACKLOG = 2048
# Seconds after which a thread that computes lets the one that talks to clients have its turn.
SWITCH = 0.001


@dataclass(frozen=True)
class Settings:
    """All that a process has to know: plain values, which go to it as JSON."""

    model: str
    item_info: str | None = None
    test: str | None = None
    columns: dict[str, str | None] | None = None
    mmap: bool = False
    token: str | None = None
    hosts: list[str] = field(default_factory=list)
    origins: list[str] = field(default_factory=list)
    limits: dict[str, Any] = field(default_factory=dict)
    threads: int = 1
    access_log: bool = False

    def to_json(self) -> bytes:
        """The settings as a line of text."""
        return json.dumps(asdict(self)).encode()


def serve(settings: Settings, sock: socket.socket) -> None:
    """Answer requests until a signal ends it; those under way are answered first."""
    import uvicorn

    from bayesmf.data.ratings import Ratings
    from bayesmf.web.app import create_app
    from bayesmf.web.connection import bounded
    from bayesmf.web.guard import Limits

    limits = Limits(**settings.limits)
    if settings.access_log:
        log_requests()
    app = create_app(
        settings.model,
        item_info=settings.item_info,
        test=None
        if settings.test is None
        else Ratings.read(settings.test, columns=settings.columns),
        mmap=settings.mmap,
        token=settings.token,
        hosts=settings.hosts,
        origins=settings.origins,
        limits=limits,
        threads=settings.threads,
    )
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        http=bounded(limits.seconds),
        lifespan="on",
        timeout_keep_alive=75,
        timeout_graceful_shutdown=GRACE,
        backlog=1,  # connections that are taken at once: other processes have the next
    )

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            for one in sockets or []:
                one.listen(BACKLOG)  # those that may wait
            self.settling = asyncio.create_task(_settle(app.state.holder))

    sys.setswitchinterval(SWITCH)
    Server(config).run(sockets=[sock])


async def _settle(holder: ModelHolder) -> None:
    """Once all is loaded, leave it out of the garbage collector's rounds: they take long."""
    while not holder.ready:
        await asyncio.sleep(0.1)
    gc.collect()
    gc.freeze()


def leave_what_is_computed(patience: float = 1.0) -> None:
    """End the process where an answer is still computed that nobody waits for any more.

    Python would wait for its thread, which nothing can stop.
    """
    until = time.monotonic() + patience
    for thread in threading.enumerate():
        if thread.name.startswith(ANSWERING):
            thread.join(max(0.0, until - time.monotonic()))
            if thread.is_alive():
                sys.stdout.flush()
                os._exit(0)


def log_requests() -> None:
    """Print a line for each request on stderr: method, route, status, time; nothing of its own."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    log = logging.getLogger("bayesmf.web")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False


def main() -> None:
    """Take settings from stdin and the socket by its number; end when the parent has ended."""
    one_blas_thread()
    settings = Settings(**json.loads(sys.stdin.readline()))
    sock = socket.socket(fileno=int(sys.argv[1]))
    threading.Thread(target=_end_with_parent, name="bayesmf-parent", daemon=True).start()
    try:
        serve(settings, sock)
    except BayesMFError as error:
        sys.exit(f"bayesmf: error: {error}")


def _end_with_parent() -> None:
    """The parent holds the other end of stdin: it is closed when that process is no more."""
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
