"""Hostile and malformed requests to the HTTP service.

A tiny model is served, once with integers and once with text as ids. Each request must be refused
with the right status and one sentence within `--limit` milliseconds, but for those that wait by
design, while others are answered. The exit status is 1 where anything was not so.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import socket
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bayesmf import BayesianMF, Gibbs, Ratings, Synthetic
from benchmarks.options import BenchParser, command
from benchmarks.serving.client import Wire
from benchmarks.serving.service import HOST, Probe, ServiceProcess, request

TRIES = 3  # of a request whose time counts: the machine may be busy
# The service is started with this limit, so that what waits by design does not take long.
TIMEOUT = 2.0
PATIENCE = 20.0
MEGABYTE = 1_000_000
IDLE = 300
METHODS = ("HEAD", "OPTIONS", "PUT", "DELETE", "TRACE", "PATCH")
_TYPE = re.compile(rb"\r\ncontent-type: *([^\r;]*)", re.IGNORECASE)
# Of a request that no parser can read, the server says so before the application hears of it.
UNPARSED = "unparsed"

Pieces = Iterator[bytes]
Make = Callable[[int], bytes | Pieces]


@dataclass(frozen=True)
class Hostile:
    """What is sent, and the status it must have; it waits where it must be waited for."""

    name: str
    make: Make
    status: int | tuple[int, ...]
    waits: bool = False
    form: str = "problem"

    @property
    def statuses(self) -> tuple[int, ...]:
        """All that are right."""
        return self.status if isinstance(self.status, tuple) else (self.status,)


def _post(body: Any, path: str = "/v1/recommend", **headers: str) -> Make:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda port: request("POST", path, port, body, named)


def _chunks(piece: bytes, n: int, pause: float = 0.0) -> Make:
    """A chunked body of n pieces, without an end."""

    def make(port: int) -> Pieces:
        head = {"Transfer-Encoding": "chunked", "Content-Type": "application/json"}
        yield request("POST", "/v1/recommend", port, None, head)
        for _ in range(n):
            yield b"%x\r\n%s\r\n" % (len(piece), piece)
            time.sleep(pause)

    return make


def _drops(port: int) -> Pieces:
    """A body that comes a byte a second."""
    yield request("POST", "/v1/recommend", port, None, {
        "Content-Length": "100", "Content-Type": "application/json",
    })  # fmt: skip
    for _ in range(int(2 * TIMEOUT)):
        yield b"{"
        time.sleep(1.0)


def _raw(text: bytes) -> Make:
    return lambda port: text.replace(b"HOST", f"{HOST}:{port}".encode())


def _items(n: int) -> dict[str, Any]:
    return {"user": 3, "items": [k % 10 for k in range(n)]}


def hostile(unknown: Any, known: Any) -> list[Hostile]:
    """All of them; `unknown` is an id that the model does not have, `known` one that it has."""
    line = b"POST /v1/recommend HTTP/1.1\r\nHost: HOST\r\nContent-Type: application/json\r\n"
    deep, many = b"[" * 100_000, MEGABYTE
    return [
        Hostile("a body of 10 MB", _post(b" " * (10 * many)), 413),
        Hostile("a body of 10 MB, in chunks", _chunks(b" " * 65_536, 160), 413),
        Hostile("a length of 10^30", _raw(line + b"Content-Length: 1" + b"0" * 30 + b"\r\n\r\n"),
                (400, 413), form=UNPARSED),
        Hostile("100,000 brackets", _post(deep), 400),
        Hostile("100,000 brackets in `user`", _post(b'{"user":' + deep), 400),
        Hostile("NaN", _post(b'{"ratings":[{"item":1,"rating":NaN}]}'), 400),
        Hostile("Infinity", _post(b'{"ratings":[{"item":1,"rating":-Infinity}]}'), 400),
        Hostile("1e999", _post(b'{"ratings":[{"item":1,"rating":1e999}]}'), (400, 422)),
        Hostile("a number of 900,000 digits", _post(b'{"user":' + b"9" * 900_000 + b"}"),
                (400, 422)),
        Hostile("not UTF-8", _post(b'{"user": "\xff\xfe\x00"}'), 400),
        Hostile("an unknown user", _post({"user": unknown}), 404),
        Hostile("unknown items", _post({"ratings": [{"item": unknown, "rating": 3}]}), 422),
        Hostile("unknown pairs", _post({"pairs": [{"user": unknown, "item": unknown}]},
                                       "/v1/predict"), 404),
        Hostile("a million items", _post(_items(1_000_000)), 413),
        Hostile("300,000 items", _post(_items(300_000)), 422),
        Hostile("70,000 names that are none", _post({f"k{k}": 1 for k in range(70_000)}), 422),
        Hostile("a name of 900,000 letters", _post({"k" * 900_000: 1}), 422),
        Hostile("a name of 400,000 ends of lines", _post({"\n" * 400_000: 1}), 422),
        Hostile("200,000 lists as items", _post({"user": known, "items": [[]] * 200_000}), 422),
        Hostile("a level of 1 - 1e-16", _post({"user": known, "level": 0.9999999999999999}), 422),
        Hostile("text/plain", _post(b'{"user": 3}', Content_Type="text/plain"), 415),
        Hostile("a form", _post(b"user=3", Content_Type="application/x-www-form-urlencoded"), 415),
        Hostile("parts", _post(b"--x", Content_Type="multipart/form-data; boundary=x"), 415),
        Hostile("gzip", _post(b"\x1f\x8b\x08\x00" + b"\x00" * 40, Content_Encoding="gzip"), 400),
        Hostile("chunks without end", _chunks(b" ", 3), 408, waits=True),
        Hostile("chunks that drip", _chunks(b" ", 10, TIMEOUT / 5), 408, waits=True),
        Hostile("a byte a second", _drops, 408, waits=True),
        Hostile("a header of 100 kB", _raw(b"GET /healthz HTTP/1.1\r\nHost: HOST\r\nX: "
                + b"x" * 100_000 + b"\r\n\r\n"), (200, 400, 431), form=UNPARSED),
        Hostile("a path of 100 kB", _raw(b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: HOST\r\n"
                b"\r\n"), (400, 404, 414, 431), form=UNPARSED),
        Hostile("10,000 headers", _raw(b"GET /healthz HTTP/1.1\r\nHost: HOST\r\n"
                + b"X-Y: z\r\n" * 10_000 + b"\r\n"), (200, 400, 431), form=UNPARSED),
        Hostile("garbage", _raw(b"\x16\x03\x01\x02\x00\x01\x00\xff\r\n\r\n"), 400, form=UNPARSED),
        Hostile("two lengths", _raw(line + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}"),
                400, form=UNPARSED),
        Hostile("a length and chunks", _raw(line + b"Content-Length: 4\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), (400, 422), form=UNPARSED),
        Hostile("a length below 0", _raw(line + b"Content-Length: -1\r\n\r\n"), 400, form=UNPARSED),
        Hostile("another name", _raw(b"GET /v1/model HTTP/1.1\r\nHost: evil.example\r\n\r\n"), 421),
        Hostile("no name", _raw(b"GET /v1/model HTTP/1.1\r\n\r\n"), (400, 421), form=UNPARSED),
        Hostile("HTTP/1.0", _raw(b"GET /healthz HTTP/1.0\r\nHost: HOST\r\n\r\n"), 200, form="any"),
        Hostile("out of /static", _raw(b"GET /static/../routes.py HTTP/1.1\r\nHost: HOST\r\n\r\n"),
                404),
        Hostile("out of /static, encoded", _raw(
            b"GET /static/%2e%2e/routes.py HTTP/1.1\r\nHost: HOST\r\n\r\n"), 404),
        Hostile("out of /static, by %2f", _raw(
            b"GET /static/..%2f..%2fweb%2froutes.py HTTP/1.1\r\nHost: HOST\r\n\r\n"), 404),
        Hostile("a null in /static", _raw(b"GET /static/%00 HTTP/1.1\r\nHost: HOST\r\n\r\n"), 404),
        Hostile("a long name in /static", _raw(b"GET /static/" + b"a" * 5_000
                + b" HTTP/1.1\r\nHost: HOST\r\n\r\n"), 404),
    ]  # fmt: skip


def ask(port: int, what: Hostile) -> dict[str, Any]:
    """Send one, and judge what comes."""
    wire = Wire(HOST, port, PATIENCE)
    made = what.make(port)
    began = time.perf_counter()
    sender = threading.Thread(target=_send, args=(wire.sock, made))
    sender.start()
    try:
        status, head, body = wire.read()
    except (OSError, ValueError) as error:
        status, head, body = 0, b"", type(error).__name__.encode()
    seconds = time.perf_counter() - began
    wire.close()
    sender.join()
    kind = found[1].decode() if (found := _TYPE.search(head)) else ""
    wrong = [] if status in what.statuses else [f"status {status}, not {what.status}"]
    if status and (what.form == "problem" or kind.startswith("application/problem")):
        wrong += problem_in(status, kind, body)
    return {"name": what.name, "status": status, "ms": 1e3 * seconds, "wrong": wrong}


def problem_in(status: int, kind: str, body: bytes) -> list[str]:
    """What is wrong about an answer that should be a problem with one sentence."""
    if kind != "application/problem+json":
        return [f"content type {kind!r}"]
    try:
        answer = json.loads(body)
    except ValueError:
        return ["a body that is not JSON"]
    good = answer.get("status") == status and 5 < len(answer.get("detail", "")) <= 600
    good = good and not {"Traceback", "\n"} & set(re.findall("Traceback|\n", answer["detail"]))
    return [] if good else ["no sentence"]


def _send(sock: socket.socket, made: bytes | Pieces) -> None:
    # The service may have answered and closed before all was sent.
    with contextlib.suppress(OSError):
        for piece in [made] if isinstance(made, bytes) else made:
            sock.sendall(piece)


# Those who look after a service ask for heads alone.
LOOKED_AFTER = ("/healthz", "/readyz")


def methods(port: int, paths: dict[str, set[str]]) -> list[dict[str, Any]]:
    """Methods that a route does not have."""
    found = []
    for method in METHODS:
        worst, wrong = 0.0, []
        for path, has in paths.items():
            if method.lower() in has or (method == "HEAD" and path in LOOKED_AFTER):
                continue
            wire, began = Wire(HOST, port, PATIENCE), time.perf_counter()
            wire.sock.sendall(request(method, path, port, None, {"Connection": "close"}))
            text = b""
            while piece := wire.sock.recv(65_536):
                text += piece
            worst = max(worst, time.perf_counter() - began)
            wire.close()
            if text[9:12] != b"405":
                wrong.append(f"{path} {text[9:12].decode(errors='replace')}")
        found.append({
            "name": f"{method} on {len(paths)} routes", "status": 405, "ms": 1e3 * worst,
            "wrong": wrong,
        })  # fmt: skip
    return found


def pipelined(port: int) -> dict[str, Any]:
    """Two good requests and garbage in one piece: that is refused, and the connection ends."""
    one = request("GET", "/healthz", port)
    wire, began = Wire(HOST, port, PATIENCE), time.perf_counter()
    wire.sock.sendall(one + one + b"\x00\x01garbage\r\n\r\n")
    statuses = []
    with contextlib.suppress(OSError, ValueError):
        while len(statuses) < 4:
            statuses.append(wire.read()[0])
    ms = 1e3 * (time.perf_counter() - began)
    wire.close()
    right = statuses[-1:] == [400] and set(statuses[:-1]) <= {200} and len(statuses) < 4
    wrong = [] if right else [f"statuses {statuses}"]
    return {"name": "pipelined garbage", "status": statuses[-1:], "ms": ms, "wrong": wrong}


def idle(port: int) -> dict[str, Any]:
    """Connections that send nothing, or half of a request, during other requests."""
    half, wires = request("GET", "/healthz", port)[:20], []
    try:
        for k in range(IDLE):
            wires.append(Wire(HOST, port, PATIENCE))
            if k % 2:
                wires[-1].sock.sendall(half)
        began = time.perf_counter()
        other = Wire(HOST, port, PATIENCE)
        status, _ = other.ask(request("GET", "/v1/items", port))
        ms = 1e3 * (time.perf_counter() - began)
        other.close()
    finally:
        for wire in wires:
            wire.close()
    wrong = [] if status == 200 else [f"status {status}"]
    return {"name": f"beside {IDLE} idle connections", "status": status, "ms": ms, "wrong": wrong}


class BackgroundRequests:
    """A thread that sends requests all the time, each on a new connection."""

    def __init__(self, port: int) -> None:
        self.port, self.over = port, threading.Event()
        self.answers, self.failed, self.worst = 0, 0, 0.0
        self.thread = threading.Thread(target=self._go, daemon=True)

    def _go(self) -> None:
        while not self.over.wait(0.02):
            began = time.perf_counter()
            try:
                wire = Wire(HOST, self.port, PATIENCE)
                status, _ = wire.ask(request("GET", "/v1/items?n=3", self.port))
                wire.close()
            except (OSError, ValueError):
                status = 0
            self.answers += 1
            self.failed += status != 200
            self.worst = max(self.worst, time.perf_counter() - began)

    def __enter__(self) -> BackgroundRequests:
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.over.set()
        self.thread.join()


def make_model(text: bool) -> BayesianMF:
    """A model whose ids are integers or text, some of which look like numbers."""
    found = Synthetic(60, 40, 1200, stars=True, random_state=1).ratings()
    users, items = found.users.tolist(), found.items.tolist()
    if text:
        users = [f"u {k}" if k % 3 else str(k) for k in users]
        items = [f"Ünïcode/{k}?&" if k % 3 else str(k) for k in items]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = BayesianMF(3, sampler=Gibbs(epochs=12, n_chains=2), random_state=0)
        return made.fit(Ratings(users, items, found.rating))


def attack(
    args: argparse.Namespace, model: BayesianMF, service: ServiceProcess
) -> list[dict[str, Any]]:
    """Send hostile requests, and judge the answers."""
    _, described = service.ask(Probe("", "/openapi.json"))
    paths = {path: set(one) for path, one in described["paths"].items()}
    known, unknown = model.user_ids_[0], "nobody" if model.user_ids_.ids.dtype == object else 10**9
    found = []
    with BackgroundRequests(service.port) as other:
        for what in hostile(unknown, known):
            found.append(_quickest(service.port, what, args.limit))
        found += [*methods(service.port, paths), pipelined(service.port), idle(service.port)]
    wrong = [f"{other.failed} failed"] if other.failed else []
    found.append({"name": f"{other.answers:,} other requests, the slowest", "status": 200,
                  "ms": 1e3 * other.worst, "wrong": wrong, "waits": True})  # fmt: skip
    for one in found:
        if not one.get("waits") and one["ms"] > args.limit:
            one["wrong"].append(f"slower than {args.limit:g} ms")
        print(f"{one['name']:<42}{one['status']!s:>7}{one['ms']:>9.1f} ms  "
              f"{', '.join(one['wrong'])}".rstrip(), flush=True)  # fmt: skip
    return found


def _quickest(port: int, what: Hostile, limit: float) -> dict[str, Any]:
    tries = [ask(port, what)]
    while not what.waits and len(tries) < TRIES and tries[-1]["ms"] > limit:
        tries.append(ask(port, what))
    wrong = next((one["wrong"] for one in tries if one["wrong"]), [])
    return {**min(tries, key=lambda one: one["ms"]), "wrong": wrong, "waits": what.waits}


@command
def main(argv: list[str] | None = None) -> int:
    """Ask, and print a line for each request; 1 if one was handled wrongly."""
    parser = BenchParser("hostile", __doc__)
    parser.add_argument("--limit", type=float, default=100.0, metavar="MS", help="(100)")
    args = parser.parse_args(argv)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("integers", "text"):
            model, path = make_model(kind == "text"), Path(folder) / kind
            model.save(path)
            with ServiceProcess(path, "--timeout", str(TIMEOUT)) as service:
                service.wait()
                found += attack(args, model, service)
                if said := service.said():
                    print(f"The service printed: {said}")
    wrong = sum(bool(one["wrong"]) for one in found)
    print(f"{len(found):,} requests, {wrong:,} handled wrongly")
    return 1 if wrong else 0
