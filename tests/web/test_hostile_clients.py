"""Limits at a real socket: bodies that do not arrive, answers that are not read, large heads."""

import socket
import threading
import time

import pytest

from small_service import small_model

pytest.importorskip("fastapi")
import uvicorn

from bayesmf.web import Limits, create_app
from bayesmf.web.run import UVICORN
from waiting import until

SECONDS, MOST = 0.5, 4
SECRET = "correct-horse-battery"
HEAD = b"POST /v1/recommend HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
TOKEN = b"Authorization: Bearer " + SECRET.encode() + b"\r\n"


@pytest.fixture(scope="module")
def service():
    limits = Limits(seconds=SECONDS, waiting=MOST)
    app = create_app(small_model(), token=SECRET, limits=limits)
    config = uvicorn.Config(app, **UVICORN)
    server, sock = uvicorn.Server(config), socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, args=([sock],))
    thread.start()
    until(lambda: server.started)
    yield app, sock.getsockname()[1]
    server.should_exit = True
    thread.join()
    sock.close()


def connect(port):
    return socket.create_connection(("127.0.0.1", port), 20)


def read(sock):
    """All that comes until the other side hangs up."""
    found = b""
    while piece := sock.recv(65_536):
        found += piece
    return found


def ask(port, text):
    with connect(port) as sock:
        sock.sendall(text)
        return read(sock)


BYE = b"Connection: close\r\n\r\n"


def test_a_refusal_before_the_body_closes_the_connection(service):
    _, port = service
    with connect(port) as sock:
        sock.sendall(HEAD + b"Content-Length: 999999\r\n\r\n")
        time.sleep(0.1)
        sock.sendall(b"{")  # and no more
        found = read(sock)
    assert found.startswith(b"HTTP/1.1 401 ") and b"connection: close" in found


def test_slow_bodies_are_refused_and_block_nobody(service):
    _, port = service
    held = []
    try:
        for _ in range(2 * MOST):
            sock = connect(port)
            sock.sendall(HEAD + TOKEN + b"Content-Length: 9\r\n\r\n")
            held.append(sock)
        text = b"GET /v1/items HTTP/1.1\r\nHost: a\r\n" + TOKEN + BYE
        assert ask(port, text).startswith(b"HTTP/1.1 200 ")
        assert all(read(sock).startswith(b"HTTP/1.1 408 ") for sock in held)
    finally:
        for sock in held:
            sock.close()


def test_a_client_that_does_not_read_frees_its_place(service):
    app, port = service
    guard = app.middleware_stack
    while type(guard).__name__ != "Guard":
        guard = guard.app
    line = b"GET /v1/items?n=1000 HTTP/1.1\r\nHost: a\r\n" + TOKEN + b"\r\n"
    with connect(port) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.sendall(line * 3_000)
        until(lambda: guard.waiting == 0, 60)
        text = b"GET /v1/items HTTP/1.1\r\nHost: a\r\n" + TOKEN + BYE
        until(lambda: ask(port, text).startswith(b"HTTP/1.1 200 "))


def test_a_large_head_is_refused(service):
    _, port = service
    found = ask(port, HEAD + b"X: " + 10_000 * b"a" + b"\r\n" + TOKEN + BYE)
    assert not found.startswith(b"HTTP/1.1 400 ")
    with connect(port) as sock:
        sock.sendall(HEAD + b"X: " + 80_000 * b"a")  # and no end
        assert sock.recv(100).startswith(b"HTTP/1.1 400 ")
