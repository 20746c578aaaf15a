"""A connection: the head of a request is bounded in size and in time, as its body is by `Guard`.

uvicorn bounds neither before the application hears of a request: one connection could fill the
memory with headers, and some that say nothing could take all that a process may have open.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from bayesmf.web.problems import ProblemError

# Bytes of address and headers together.
MOST_HEAD = 65_536


class Connection(HttpToolsProtocol):
    """uvicorn's protocol; heads that are too large or too slow are refused, and it is hung up.

    Attributes
    ----------
    seconds : float
        Most seconds until the head of a request has come, the first as well as later ones.
    """

    seconds = 10.0

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._head, self._in_head, self._began, self._waiting = 0, False, False, True
        self._upgrade = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the time."""
        self._stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what has come."""
        if self._waiting and self._timer is None:
            self._wait()
        before, self._began = self._in_head, False
        super().data_received(data)
        if before and self._in_head and not self._began and not self.transport.is_closing():
            # All of it is part of one head, and maybe of a header that the parser still keeps.
            self._head += len(data)
            if self._head > MOST_HEAD:
                self._refuse(_TOO_LARGE)

    def on_message_begin(self) -> None:
        """Count anew."""
        super().on_message_begin()
        self._head, self._in_head, self._began = 0, True, True

    def on_url(self, url: bytes) -> None:
        """Take a piece of the address."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        self._count(len(name) + len(value) + 4)  # as it was sent: `name: value` and a line's end
        if name.lower() == b"upgrade":
            self._upgrade = True
            raise ValueError("no other protocol is spoken here")  # ends parsing
        if self._in_head:  # what comes after a body in pieces is no header
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Leave the rest to the application."""
        self._in_head = self._waiting = False
        self._stop()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Wait for the next."""
        self._waiting = True
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what cannot be parsed, or was too large to be parsed on."""
        if self._upgrade:
            self._refuse(_NO_UPGRADE)
        else:
            self._refuse(_TOO_LARGE if self._head > MOST_HEAD else _NO_HTTP)

    def _count(self, size: int) -> None:
        self._head += size
        if self._head > MOST_HEAD:
            raise ValueError("the head is too large")  # ends parsing

    def _wait(self) -> None:
        self._timer = self.loop.call_later(self.seconds, self._too_late)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_late(self) -> None:
        self._timer = None
        if self.cycle is not None and not self.cycle.response_complete:
            self._wait()  # one before it is being answered, and reading may be paused
        elif self._in_head:
            self._refuse(_TOO_SLOW)
        else:
            self.transport.close()

    def _refuse(self, problem: ProblemError) -> None:
        """Say what is wrong, and hang up."""
        if self.transport.is_closing():
            return
        self._stop()
        made = problem.response()
        headers = [*made.raw_headers, (b"connection", b"close")]
        lines = [name + b": " + value + b"\r\n" for name, value in headers]
        self.transport.write(
            b"".join([STATUS_LINE[problem.status], *lines, b"\r\n", bytes(made.body)])
        )
        self.transport.close()


_TOO_LARGE = ProblemError(431, f"address and headers are larger than {MOST_HEAD:,} bytes")
_TOO_SLOW = ProblemError(408, "the headers did not come in time")
_NO_UPGRADE = ProblemError(400, "HTTP/1.1 alone is spoken here: leave the header Upgrade out")
_NO_HTTP = ProblemError(400, "this is no HTTP request that can be read")


def bounded(seconds: float) -> type[Connection]:
    """Connections that wait so long."""
    return type("Connection", (Connection,), {"seconds": seconds})
