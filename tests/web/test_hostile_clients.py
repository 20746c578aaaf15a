"""Clients that send half, or do not read: they are hung up on, and take nobody else's place."""

import socket
import threading
import time

import pytest

from small_service import small_model

pytest.importorskip("fastapi")
import uvicorn

from bayesmf.web import Limits, create_app
from bayesmf.web.connection import bounded
from waiting import until

SECONDS, MOST = 0.5, 4
SECRET = "correct-horse-battery"
HEAD = b"POST /v1/recommend HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
TOKEN = b"Authorization: Bearer " + SECRET.encode() + b"\r\n"


@pytest.fixture(scope="module")
def service():
    limits = Limits(seconds=SECONDS, waiting=MOST)
    app = create_app(small_model(), token=SECRET, limits=limits)
    config = uvicorn.Config(app, http=bounded(SECONDS), log_config=None, log_level="critical")
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


def test_what_is_refused_before_its_body_has_come_is_hung_up_on(service):
    _, port = service
    with connect(port) as sock:
        sock.sendall(HEAD + b"Content-Length: 999999\r\n\r\n")
        time.sleep(0.1)
        sock.sendall(b"{")  # and no more
        found = read(sock)
    assert found.startswith(b"HTTP/1.1 401 ") and b"connection: close" in found


def test_bodies_that_do_not_come_take_nobodys_place(service):
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


def test_a_body_for_a_health_check_is_not_waited_for(service):
    _, port = service
    found = ask(port, b"POST /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n")
    assert found.startswith(b"HTTP/1.1 405 ") and b"connection: close" in found


def test_who_does_not_read_gives_its_place_back(service):
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


def test_what_comes_after_a_body_in_pieces_is_no_header(service):
    _, port = service
    body = b'{"user": 3, "n": 1}'
    pieces = b"%x\r\n%b\r\n0\r\n" % (len(body), body)
    head = HEAD + b"Transfer-Encoding: chunked\r\nConnection: close\r\n"
    without = ask(port, head + b"\r\n" + pieces + TOKEN + b"\r\n")
    assert without.startswith(b"HTTP/1.1 401 ")
    assert ask(port, head + TOKEN + b"\r\n" + pieces + b"\r\n").startswith(b"HTTP/1.1 200 ")


def test_another_protocol_is_refused_in_a_sentence(service):
    _, port = service
    asked = b"Upgrade: h2c\r\nConnection: Upgrade\r\nContent-Length: 2\r\n\r\n{}"
    found = ask(port, HEAD + asked)
    assert found.startswith(b"HTTP/1.1 400 ") and b"leave the header Upgrade out" in found
