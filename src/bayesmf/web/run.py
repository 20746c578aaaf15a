"""How the service is run: by `bayesmf serve` with uvicorn, and as a Ray Serve deployment."""

from __future__ import annotations

import contextlib
import errno
import gc
import ipaddress
import json
import logging
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bayesmf.errors import BayesMFError, InputError
from bayesmf.process import cores, is_terminal

if TYPE_CHECKING:
    from fastapi import FastAPI

# Keep BLAS on the calling thread: the service has threads of its own. Set before NumPy is imported.
ONE_BLAS_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), "1")
# Settings of `bayesmf serve` for its worker processes, as JSON.
SETTINGS = "BAYESMF_SERVE"
# Folder in which prometheus_client adds up the counts of several processes.
METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
# Seconds that requests under way have when the service ends.
GRACE = 10
# Seconds after which a thread that computes lets the event loop run.
SWITCH = 0.001
# Connections that may wait to be accepted.
BACKLOG = 128
UVICORN: dict[str, Any] = {
    "http": "h11",  # which bounds the size of headers
    "h11_max_incomplete_event_size": 65_536,
    "ws": "none",
    "lifespan": "on",
    "backlog": BACKLOG,
    "timeout_keep_alive": 75,
    "timeout_graceful_shutdown": GRACE,
    "log_config": None,
    "log_level": "error",
    "access_log": False,
    "server_header": False,
    "proxy_headers": False,
}


@dataclass(frozen=True)
class Address:
    """Host and port of the service."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def url(self) -> str:
        """URL of the page."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}/"

    def names(self) -> list[str]:
        """Host names that programs on this machine use, such as health checks."""
        return ["127.0.0.1", "localhost", "[::1]", self.host]


def one_blas_thread() -> None:
    """Set the variables of `ONE_BLAS_THREAD`, where the user has not."""
    for name, value in ONE_BLAS_THREAD.items():
        os.environ.setdefault(name, value)


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        sock = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, UnicodeError, OverflowError) as error:
        number = getattr(error, "errno", None)
        # Python adds the address to what the system says.
        reason = os.strerror(number) if number and number > 0 else str(error)
        hint = "a port from 1024 on" if number == errno.EACCES else "another port"
        raise InputError(
            f"cannot listen on {host}, port {port} ({reason.lower()}): give {hint} "
            "(--port, 0 for any free one) or another address (--host)"
        ) from None
    # Accepted connections inherit it: small answers are sent at once.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def make_app(
    model: str,
    *,
    test: str | None = None,
    columns: dict[str, str | None] | None = None,
    limits: Mapping[str, Any],
    **options: Any,
) -> FastAPI:
    """Make the application from plain values; `options` are arguments of `create_app`."""
    from bayesmf.data.ratings import Ratings
    from bayesmf.web.app import create_app
    from bayesmf.web.guard import Limits

    held_out = None if test is None else Ratings.read(test, columns=columns)
    return create_app(model, test=held_out, limits=Limits(**limits), **options)


def serve(
    options: dict[str, Any],
    sock: socket.socket,
    workers: int,
    access_log: bool,
    ready: Callable[[list[str]], None],
) -> None:
    """Answer on a socket until SIGINT or SIGTERM, in this process or in several.

    `options` are arguments of `make_app`. `ready` is called with the model's warnings once
    everything has been checked. The socket is closed at the end.
    """
    import uvicorn

    with sock:
        app = make_app(**options)
        ready(app.state.holder.current.notes)
        if workers == 1:
            prepare_process(access_log)
            with contextlib.suppress(KeyboardInterrupt):
                uvicorn.Server(uvicorn.Config(app, **UVICORN)).run(sockets=[sock])
            return
        del app  # each process loads its own
        each = options | {"threads": max(1, cores() // workers)}
        with tempfile.TemporaryDirectory(prefix="bayesmf-metrics-") as folder:
            os.environ.update({SETTINGS: json.dumps([each, access_log]), METRICS_FOLDER: folder})
            uvicorn.run(
                "bayesmf.web.run:worker_app",
                factory=True, fd=sock.fileno(), workers=workers, **UVICORN,
            )  # fmt: skip


def worker_app() -> FastAPI:
    """Make the application of a worker process, from the settings in the environment."""
    options, access_log = json.loads(os.environ[SETTINGS])
    threading.Thread(target=_end_with_parent, name="bayesmf-parent", daemon=True).start()
    try:
        app = make_app(**options)
    except BayesMFError as error:
        sys.exit(f"bayesmf: error: {error}")
    prepare_process(access_log)
    return app


def _end_with_parent() -> None:
    """End a worker process whose parent was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def prepare_process(access_log: bool) -> None:
    """Set up a process that does nothing but serve."""
    sys.setswitchinterval(SWITCH)
    gc.collect()
    gc.freeze()  # the garbage collector need not look at the loaded model again
    if access_log:
        log_requests()


def log_requests() -> None:
    """Print a line for each request on stderr: method, route, status and time."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    log = logging.getLogger("bayesmf.web")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False


def open_browser(url: str) -> bool:
    """Open the page in a browser, where there is a screen and not only a terminal."""
    has_screen = sys.platform == "darwin" or any(
        map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY"))
    )
    return bool(has_screen) and is_terminal(sys.stdout) and webbrowser.open(url)


def deployment(
    model: str | os.PathLike[str],
    *,
    replicas: int | str = 1,
    name: str = "bayesmf",
    options: Mapping[str, Any] | None = None,
    **app: Any,
) -> Any:
    """Make a Ray Serve application of the service.

    Run it with `ray.serve.run`. Each replica loads the model from a path that all nodes can read,
    and takes up a new one as `bayesmf serve` does.

    Parameters
    ----------
    model : path-like
        A saved model.
    replicas : int or "auto"
        Number of processes; with "auto" Ray chooses it by the load.
    name : str
        Name of the deployment.
    options : mapping, optional
        More arguments of `ray.serve.deployment`.
    **app
        Arguments of `create_app`.

    Returns
    -------
    ray.serve.Application
        The argument of `ray.serve.run`.

    Examples
    --------
    >>> from bayesmf import InputError
    >>> from bayesmf.web import deployment
    >>> try:
    ...     deployment("no-such-model")
    ... except InputError:
    ...     print("save a model first")
    save a model first
    """
    from bayesmf.estimator.bayesian_mf import BayesianMF

    if isinstance(model, BayesianMF):
        raise InputError("replicas load the model themselves: save it, and give its path")
    BayesianMF.load(model)  # errors are raised here, not in a replica
    try:
        from ray import serve
    except ImportError as error:
        raise InputError(
            f"Ray Serve is not installed ({error.name} is missing): pip install 'ray[serve]'"
        ) from None
    path = os.path.abspath(model)

    def build() -> FastAPI:
        from bayesmf.web.app import create_app

        return create_app(path, **app)

    @serve.ingress(build)
    class Service:
        """One replica."""

    defaults = {"ray_actor_options": {"runtime_env": {"env_vars": ONE_BLAS_THREAD}}}
    settings = defaults | dict(options or {})
    made: Any = serve.deployment(name=name, num_replicas=replicas, **settings)(Service)
    return made.bind()
