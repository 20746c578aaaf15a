"""What every request passes before it is answered: host, token, size, time, and how many at once.

Everything here is plain ASGI: it stands before FastAPI, so that a hostile request costs little.
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

from bayesmf.checks import positive, whole
from bayesmf.errors import InputError
from bayesmf.web.metrics import Metrics
from bayesmf.web.problems import ProblemError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOG = logging.getLogger("bayesmf.web")

# Answered at once and without a token: is the service there, what can it be asked, and the page
# that asks for a token.
OPEN = ("/healthz", "/readyz", "/openapi.json", "/", "/favicon.ico")
# Bodies that may be coming at once, for each request that may be under way.
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
    """What one request, and all of them together, may take.

    Parameters
    ----------
    body : int
        Most bytes of a request's body.
    seconds : float
        Most seconds until a body has come, and again until it is answered.
    waiting : int
        Most requests that are answered or wait at once, in one process; others are told to come
        again.

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


class Guard:
    """ASGI middleware: refuses what must not be answered, and counts what is.

    Parameters
    ----------
    app : ASGI application
        What answers.
    limits : Limits
        What requests may take.
    metrics : Metrics
        Where they are counted.
    hosts : sequence of str
        Names under which the service may be asked for; any where there are none.
    token : str, optional
        What requests must bring as a bearer token.
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
        self._known_names = " or ".join(dict.fromkeys(hosts))
        self.token = None if token is None else b"bearer " + check_token(token)
        self.waiting = self.reading = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, told = time.perf_counter(), _Told(send, self.limits.seconds)
        try:
            await self._answer(scope, receive, told)
        except ProblemError as problem:
            await self._refuse(problem, scope, receive, told)
        except _NotTakenError:
            LOG.info("An answer was not taken within %g s", self.limits.seconds)
        except Exception as error:  # what nobody foresaw: told without a word of the request
            LOG.error("An answer failed: %s in %s", type(error).__name__, where(error))
            failed = ProblemError(500, "the service failed at this request; its log says where")
            await self._refuse(failed, scope, receive, told)
        finally:
            seconds = time.perf_counter() - began
            path = getattr(scope.get("route"), "path", None) or "other"
            self.metrics.count(scope["method"], path, told.status, seconds)
            LOG.info("%s %s %d %.1f ms", scope["method"], path, told.status, 1e3 * seconds)

    async def _answer(self, scope: Scope, receive: Receive, send: _Told) -> None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        has_body = headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
        # What is answered before its body has come is hung up on: it may never come.
        send.hang_up = has_body
        _refuse_doubles(scope["headers"])
        self._check_host(headers)
        # Inside another application the path begins with where it is mounted.
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        is_open = path in OPEN or path.startswith("/static/")
        if is_open:
            await self.app(scope, receive, send)
            return
        self._check_token(headers)
        body = b""
        if has_body:
            with self._place("reading", _BODIES * self.limits.waiting):
                body = await self._body(headers, receive)
        send.hang_up = False
        with self._place("waiting", self.limits.waiting):
            await self.app(scope, _replay(body, receive), send)

    @contextlib.contextmanager
    def _place(self, name: str, most: int) -> Iterator[None]:
        """Take a place among those that wait to be answered, or whose bodies are coming."""
        if getattr(self, name) >= most:
            raise ProblemError(
                503, "too many requests are under way: come again in a second",
                headers={"retry-after": "1"},
            )  # fmt: skip
        setattr(self, name, getattr(self, name) + 1)
        try:
            yield
        finally:
            setattr(self, name, getattr(self, name) - 1)

    def _check_host(self, headers: dict[bytes, bytes]) -> None:
        """Refuse other names: a page of somebody else's could have its name lead here."""
        if not self.hosts:
            return
        host = headers.get(b"host", b"").lower()
        name = host.rpartition(b":")[0] if host.rpartition(b":")[2].isdigit() else host
        if name not in self.hosts:
            raise ProblemError(
                421, "this service is not known under that name: ask for it as "
                f"{self._known_names}, or start it with --allow-host NAME"
            )  # fmt: skip

    def _check_token(self, headers: dict[bytes, bytes]) -> None:
        if self.token is None:
            return
        given = headers.get(b"authorization", b"")
        kind, space, rest = given.partition(b" ")
        if not hmac.compare_digest(kind.lower() + space + rest, self.token):
            raise ProblemError(
                401, "this service wants a token: send it as `Authorization: Bearer TOKEN`",
                headers={"www-authenticate": "Bearer"},
            )  # fmt: skip

    async def _body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        """The whole body, which must neither be too large nor take too long to come."""
        given = headers.get(b"content-length", b"0")
        if given.isdigit() and int(given[:20]) > self.limits.body:
            raise self._too_large()
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await self._read(receive)
        except TimeoutError:
            raise ProblemError(
                408, f"the body did not come within {self.limits.seconds:g} seconds"
            ) from None  # fmt: skip

    async def _read(self, receive: Receive) -> bytes:
        pieces, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ProblemError(400, "the connection was closed before the body had come")
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
        self, problem: ProblemError, scope: Scope, receive: Receive, send: _Told
    ) -> None:
        if not send.began:
            await problem.response()(scope, receive, send)


class _NotTakenError(Exception):
    """The client does not read what it asked for."""


class _Told:
    """Sends answers with the headers that all have, within a time, and notes their status."""

    def __init__(self, send: Send, seconds: float) -> None:
        self.send, self.seconds = send, seconds
        self.status, self.began, self.hang_up = 500, False, False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self.began = message["status"], True
            last = [(b"connection", b"close")] if self.hang_up else []
            message = {**message, "headers": [*message["headers"], *HEADERS, *last]}
        try:
            async with asyncio.timeout(self.seconds):
                await self.send(message)
        except TimeoutError:
            raise _NotTakenError from None


def _refuse_doubles(headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Refuse a header twice of which two readers could take another one each."""
    names = [name for name, _ in headers]
    for name in (b"host", b"authorization"):
        if names.count(name) > 1:
            raise ProblemError(400, f"send the header {name.decode().title()} once")


def _replay(body: bytes, receive: Receive) -> Receive:
    """Give the body that was read, then whatever comes."""
    first = True

    async def again() -> Message:
        nonlocal first
        if first:
            first = False
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return again


def check_token(token: str) -> bytes:
    """A token as it is sent; refuses what no header can hold, and what is quickly guessed."""
    if not token.isascii() or not token.isprintable() or " " in token or len(token) < 8:
        raise InputError("a token is 8 or more printable ASCII characters without spaces")
    return token.encode()


def where(error: BaseException) -> str:
    """The place in the code, and nothing of what the error says: it may quote the request."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "an unknown place"
    frame = trace.tb_frame
    # Frames of compiled functions have no module, but a file.
    name = frame.f_globals.get("__name__") or os.path.basename(frame.f_code.co_filename)
    return f"{name}, line {trace.tb_lineno}"
