"""Checks of every request: host, token, size, time and concurrency; and counts for Prometheus.

The guard is plain ASGI middleware in front of FastAPI, so that a hostile request costs little.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import prometheus_client as prometheus
from prometheus_client.multiprocess import MultiProcessCollector

from bayesmf.checks import positive, whole
from bayesmf.errors import InputError
from bayesmf.web.problems import ProblemError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOG = logging.getLogger("bayesmf.web")

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
METHODS = ("GET", "HEAD", "POST", "OPTIONS", "PUT", "PATCH", "DELETE")
# Answered at once and without a token: health checks, the description of the API, and the page,
# which asks for a token.
OPEN = ("/healthz", "/readyz", "/openapi.json", "/", "/favicon.ico")
# Bodies that may be arriving at once, for each request that may be under way.
_BODIES = 4
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = [
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]


@dataclass(frozen=True)
class Limits:
    """Limits of a request, and of all requests together.

    Parameters
    ----------
    body : int
        Most bytes of a request's body.
    seconds : float
        Most seconds until a body has arrived, and again until it is answered.
    waiting : int
        Most requests under way in one process; others are answered with status 503.

    Examples
    --------
    >>> from bayesmf.web import Limits
    >>> Limits(seconds=2.0)
    Limits(body=1000000, seconds=2.0, waiting=256)
    """

    body: int = 1_000_000
    seconds: float = 10.0
    waiting: int = 256

    def __post_init__(self) -> None:
        whole("body", self.body)
        positive("seconds", self.seconds)
        whole("waiting", self.waiting)


class Metrics:
    """Counts for Prometheus: requests by route and status, their duration, loaded models."""

    def __init__(self) -> None:
        self.registry = prometheus.CollectorRegistry()
        self._requests = prometheus.Counter(
            "bayesmf_requests",
            "Requests by route and status.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self._seconds = prometheus.Histogram(
            "bayesmf_request_seconds",
            "Seconds from the headers of a request to the end of its answer.",
            ("route",),
            buckets=BUCKETS,
            registry=self.registry,
        )
        self._loads = prometheus.Counter(
            "bayesmf_model_loads",
            "Models that were loaded, and that could not be.",
            ("result",),
            registry=self.registry,
        )
        self._loaded = prometheus.Gauge(
            "bayesmf_model_loaded_timestamp_seconds",
            "When the model was loaded.",
            registry=self.registry,
            multiprocess_mode="max",
        )

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request; unknown methods count as `other`."""
        method = method if method in METHODS else "other"
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def loaded(self, succeeded: bool) -> None:
        """Count a model that was loaded, or that could not be."""
        self._loads.labels("ok" if succeeded else "failed").inc()
        if succeeded:
            self._loaded.set_to_current_time()

    def text(self) -> bytes:
        """The counts of all processes of the service, in the format of Prometheus."""
        registry = self.registry
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:  # as set by `bayesmf.web.run`
            registry = prometheus.CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return prometheus.generate_latest(registry)


class Guard:
    """ASGI middleware that refuses requests beyond the limits, and counts all of them.

    `hosts` are accepted names in the header `Host`, any if empty; `token` is the bearer token.
    """

    def __init__(
        self,
        app: App,
        limits: Limits,
        metrics: Metrics,
        hosts: Sequence[str] = (),
        token: str | None = None,
    ) -> None:
        self.app, self.limits, self.metrics = app, limits, metrics
        self.hosts = frozenset(host.lower().encode() for host in hosts)
        self._host_names = " or ".join(dict.fromkeys(hosts))
        self.token = None if token is None else b"bearer " + check_token(token)
        self.waiting = self.reading = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, timed = time.perf_counter(), TimedSend(send, self.limits.seconds)
        try:
            await self._answer(scope, receive, timed)
        except ProblemError as problem:
            await self._refuse(problem, scope, receive, timed)
        except _NotReadError:
            LOG.info("A client did not read its answer within %g s", self.limits.seconds)
        except Exception as error:  # the log has nothing of the request
            LOG.error("An answer failed: %s in %s", type(error).__name__, where(error))
            failed = ProblemError(500, "the service failed at this request; its log says where")
            await self._refuse(failed, scope, receive, timed)
        finally:
            seconds = time.perf_counter() - began
            path = getattr(scope.get("route"), "path", None) or "other"
            self.metrics.count(scope["method"], path, timed.status, seconds)
            LOG.info("%s %s %d %.1f ms", scope["method"], path, timed.status, 1e3 * seconds)

    async def _answer(self, scope: Scope, receive: Receive, send: TimedSend) -> None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        has_body = headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
        # A connection whose body is not read is closed after the answer.
        send.close = has_body
        self._check_host(headers)
        # Inside another application the path begins with where it is mounted.
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if path in OPEN or path.startswith("/static/"):
            await self.app(scope, receive, send)
            return
        self._check_token(headers)
        body = b""
        if has_body:
            with self._place("reading", _BODIES * self.limits.waiting):
                body = await self._body(headers, receive)
        send.close = False
        with self._place("waiting", self.limits.waiting):
            await self.app(scope, _replay(body, receive), send)

    @contextlib.contextmanager
    def _place(self, name: str, most: int) -> Iterator[None]:
        """Count a request among those whose bodies arrive, or that are being answered."""
        if getattr(self, name) >= most:
            raise ProblemError(
                503, "too many requests are under way: try again in a second",
                headers={"retry-after": "1"},
            )  # fmt: skip
        setattr(self, name, getattr(self, name) + 1)
        try:
            yield
        finally:
            setattr(self, name, getattr(self, name) - 1)

    def _check_host(self, headers: dict[bytes, bytes]) -> None:
        """Refuse other names, which a hostile page could have resolve to this machine."""
        if not self.hosts:
            return
        host = headers.get(b"host", b"").lower()
        name = host.rpartition(b":")[0] if host.rpartition(b":")[2].isdigit() else host
        if name not in self.hosts:
            raise ProblemError(
                421, f"this service does not answer to that host name: use {self._host_names}, or "
                "start it with --allow-host NAME"
            )  # fmt: skip

    def _check_token(self, headers: dict[bytes, bytes]) -> None:
        if self.token is None:
            return
        kind, space, rest = headers.get(b"authorization", b"").partition(b" ")
        if not hmac.compare_digest(kind.lower() + space + rest, self.token):
            raise ProblemError(
                401, "this service requires a token: send it as `Authorization: Bearer TOKEN`",
                headers={"www-authenticate": "Bearer"},
            )  # fmt: skip

    async def _body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        """Read the body within the limits of size and time."""
        announced = headers.get(b"content-length", b"0")
        if announced.isdigit() and int(announced[:20]) > self.limits.body:
            raise self._too_large()
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await self._read(receive)
        except TimeoutError:
            raise ProblemError(
                408, f"the body did not arrive within {self.limits.seconds:g} seconds"
            ) from None  # fmt: skip

    async def _read(self, receive: Receive) -> bytes:
        pieces, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ProblemError(400, "the connection was closed before the end of the body")
            piece = message.get("body", b"")
            size += len(piece)
            if size > self.limits.body:
                raise self._too_large()
            pieces.append(piece)
            if not message.get("more_body", False):
                return b"".join(pieces)

    def _too_large(self) -> ProblemError:
        return ProblemError(
            413, f"the body is larger than {self.limits.body:,} bytes: send less at a time"
        )  # fmt: skip

    async def _refuse(
        self, problem: ProblemError, scope: Scope, receive: Receive, send: TimedSend
    ) -> None:
        if not send.began:
            await problem.response()(scope, receive, send)


class _NotReadError(Exception):
    """The client does not read its answer."""


class TimedSend:
    """ASGI `send` with a time limit and the headers of all answers; notes their status."""

    def __init__(self, send: Send, seconds: float) -> None:
        self.send, self.seconds = send, seconds
        self.status, self.began, self.close = 500, False, False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self.began = message["status"], True
            last = [(b"connection", b"close")] if self.close else []
            message = {**message, "headers": [*message["headers"], *HEADERS, *last]}
        try:
            async with asyncio.timeout(self.seconds):
                await self.send(message)
        except TimeoutError:
            raise _NotReadError from None


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body already read, then what follows."""
    first = True

    async def again() -> Message:
        nonlocal first
        if first:
            first = False
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return again


def check_token(token: str) -> bytes:
    """Return a token as bytes; refuse one that no header can hold, or that is too short."""
    if not token.isascii() or not token.isprintable() or " " in token or len(token) < 8:
        raise InputError("a token is 8 or more printable ASCII characters without spaces")
    return token.encode()


def where(error: BaseException) -> str:
    """Return module and line of an exception, without its message, which may quote the request."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "an unknown place"
    frame = trace.tb_frame
    # Frames of compiled functions have no module, but a file.
    name = frame.f_globals.get("__name__") or os.path.basename(frame.f_code.co_filename)
    return f"{name}, line {trace.tb_lineno}"
