"""What is bounded before a request is understood: heads, and the time until they have come."""

import asyncio
import json
import socket
import threading
import time
from contextlib import contextmanager

import pytest

pytest.importorskip("fastapi")
import uvicorn

from bayesmf.web.connection import MOST_HEAD, bounded

SECONDS = 0.5
LINE = b"GET /%b HTTP/1.1\r\nHost: a\r\n"


async def app(scope, receive, send):
    """Answers with how many bytes came, after a while where the path says so."""
    if scope["type"] != "http":
        return
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    if scope["path"] == "/slow":
        await asyncio.sleep(3 * SECONDS)
    body = b"%d" % size
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture(scope="module")
def port():
    config = uvicorn.Config(
        app, http=bounded(SECONDS), log_config=None, log_level="critical", lifespan="off"
    )
    server = uvicorn.Server(config)
    sock = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, args=([sock],))
    thread.start()
    yield sock.getsockname()[1]
    server.should_exit = True
    thread.join()
    sock.close()


@contextmanager
def connected(port):
    with socket.create_connection(("127.0.0.1", port), 20) as sock:
        yield sock


def read(sock):
    """All that comes until the other side hangs up."""
    found = b""
    while True:
        try:
            piece = sock.recv(65_536)
        except ConnectionResetError:
            return found
        if not piece:
            return found
        found += piece


def refused(found, status):
    head, _, body = found.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), found
    assert b"application/problem+json" in head and b"connection: close" in head
    told = json.loads(body)
    assert told["status"] == status and len(told["detail"]) > 10


ROOM = MOST_HEAD - 100
HEADS = {
    "an address": LINE % (b"x" * MOST_HEAD),
    "a header": LINE % b"" + b"X: " + b"y" * MOST_HEAD + b"\r\n",
    "many headers": LINE % b"" + b"X: y\r\n" * MOST_HEAD,
}


@pytest.mark.parametrize("name", HEADS)
def test_heads_that_are_too_large(port, name):
    with connected(port) as sock:
        sock.sendall(HEADS[name] + b"\r\n")
        refused(read(sock), 431)


def test_a_head_without_end_is_hung_up_on(port):
    with connected(port) as sock:
        sock.sendall(LINE % b"" + b"X: ")
        with pytest.raises(OSError, match=r"reset|[Bb]roken"):
            sock.sendall(b"y" * 100_000_000)


def test_a_head_that_just_fits_and_a_large_body(port):
    with connected(port) as sock:
        text = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 3000000\r\nX: "
        sock.sendall(text + b"y" * ROOM + b"\r\n\r\n" + b"z" * 3_000_000)
        assert read(sock).endswith(b"\r\n\r\n3000000")


def test_many_requests_in_pieces_that_end_anywhere(port):
    many = 5_000
    text = (LINE % b"" + b"Accept: */*\r\n\r\n") * many
    text += LINE % b"" + b"Connection: close\r\n\r\n"
    with connected(port) as sock:
        threading.Thread(target=sock.sendall, args=(text,)).start()
        assert read(sock).count(b"HTTP/1.1 200 OK") == many + 1


@pytest.mark.parametrize("said", [b"", b"\r\n", b"GET", LINE % b"", LINE % b"" + b"X: y"])
def test_who_says_nothing_or_half_is_hung_up_on(port, said):
    with connected(port) as sock:
        began = time.monotonic()
        sock.sendall(said)
        found = read(sock)
        assert 0.8 * SECONDS < time.monotonic() - began < 20
    if len(said) < 3:
        assert found == b""
    else:
        refused(found, 408)


def test_a_later_request_has_its_time_too(port):
    with connected(port) as sock:
        sock.sendall(LINE % b"" + b"\r\n")
        found = b""
        while not found.endswith(b"\r\n\r\n0"):
            found += sock.recv(1_000)
        time.sleep(2 * SECONDS)  # nothing is due before it has begun
        sock.sendall(b"GET")
        refused(read(sock), 408)


def test_an_answer_that_takes_longer_than_a_head_may(port):
    with connected(port) as sock:
        sock.sendall(LINE % b"slow" + b"\r\n" + (LINE % b"")[:10])
        time.sleep(2 * SECONDS)  # the second one is late, but the first is not answered yet
        sock.sendall((LINE % b"")[10:] + b"Connection: close\r\n\r\n")
        assert read(sock).count(b"HTTP/1.1 200 OK") == 2


def test_what_is_no_http(port):
    with connected(port) as sock:
        sock.sendall(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n")
        refused(read(sock), 400)
