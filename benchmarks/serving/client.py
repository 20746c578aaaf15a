"""A client of an HTTP service: `python benchmarks/serving/client.py` reads a plan on stdin.

It uses the standard library alone, and is a process of its own, so that it takes little time from
the service that it measures. The plan and the result are JSON. With a rate the loop is open: a
request has a time at which it is due, and its latency is counted from then on, however late it was
sent; without one each connection asks again when it was answered.
"""

from __future__ import annotations

import itertools
import json
import random
import re
import socket
import sys
import threading
import time
from collections import Counter
from typing import Any

TIMEOUT = 30.0
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CLOSES = re.compile(rb"\r\nconnection: *close", re.IGNORECASE)
_MODEL = re.compile(rb'"model_version":"([^"]*)"')


class Wire:
    """A connection that is kept, and asks one thing after the other."""

    def __init__(self, host: str, port: int, timeout: float = TIMEOUT) -> None:
        self.sock = socket.create_connection((host, port), timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.rest, self.ends = b"", False

    def ask(self, request: bytes) -> tuple[int, bytes]:
        """Status and body of the answer."""
        self.sock.sendall(request)
        return self.read()[::2]

    def read(self) -> tuple[int, bytes, bytes]:
        """Status, head and body of the next answer."""
        while (end := self.rest.find(b"\r\n\r\n")) < 0:
            self._more()
        head = self.rest[: end + 2]
        length = _LENGTH.search(head)
        size = end + 4 + (int(length[1]) if length else 0)
        self.ends = bool(_CLOSES.search(head))
        while len(self.rest) < size:
            self._more()
        body, self.rest = self.rest[end + 4 : size], self.rest[size:]
        return int(head[9:12]), head, body

    def _more(self) -> None:
        piece = self.sock.recv(1 << 16)
        if not piece:
            raise ConnectionResetError("the service closed the connection")
        self.rest += piece

    def close(self) -> None:
        """Close the connection."""
        self.sock.close()


class Client:
    """All connections of a plan, a thread each."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.asked = [(text.encode("latin-1"), status) for text, status in plan["questions"]]
        self.turn, self.lock = itertools.count(), threading.Lock()
        self.seconds: list[float] = []
        self.counts, self.models = Counter[str](), Counter[str]()
        self.digests: dict[tuple[int, bytes], int] = {}
        self.last = 0.0

    def run(self) -> dict[str, Any]:
        """Send requests until the plan's end, and return the counts and latencies."""
        kept, fresh = self.plan["connections"], self.plan.get("fresh", 0)
        self.begin = time.perf_counter() + 0.1
        threads = [
            threading.Thread(target=self._go, args=(k, k >= kept)) for k in range(kept + fresh)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = sorted(self.seconds)
        names = ("answers", "wrong", "errors", "different")
        return {
            **{name: self.counts[name] for name in names},
            "seconds": self.last - self.begin,
            "statuses": {k[1:]: n for k, n in self.counts.items() if k[0] == "="},
            "models": dict(self.models),
            **{name: quantile(found, p) for name, p in (("p50", 0.5), ("p99", 0.99), ("max", 1))},
        }

    def _due(self) -> float | None:
        """When the next request is to be sent; None where none is."""
        k = next(self.turn)
        at, rate = time.perf_counter(), self.plan.get("rate")
        if rate:
            at = self.begin + k / rate
        most, seconds = self.plan.get("requests"), self.plan.get("seconds")
        over = k >= most if most is not None else at > self.begin + seconds
        return None if over else max(at, self.begin)

    def _go(self, number: int, fresh: bool) -> None:
        draw, wire = random.Random(self.plan.get("seed", 0) * 1000 + number), None
        while (due := self._due()) is not None:
            k = int(draw.random() * len(self.asked))
            if (wait := due - time.perf_counter()) > 0:
                time.sleep(wait)
            if not self.plan.get("rate"):
                due = time.perf_counter()
            try:
                if wire is None:
                    wire = Wire(self.plan["host"], self.plan["port"])
                status, body = wire.ask(self.asked[k][0])
            except (OSError, ValueError) as error:
                with self.lock:
                    self.counts["errors"] += 1
                    self.counts[f"={type(error).__name__}"] += 1
                fresh_wire, wire = wire, None
                if fresh_wire is not None:
                    fresh_wire.close()
                continue
            self._note(k, status, body, time.perf_counter(), due)
            if fresh or wire.ends:
                wire.close()
                wire = None
        if wire is not None:
            wire.close()

    def _note(self, k: int, status: int, body: bytes, now: float, due: float) -> None:
        with self.lock:
            self.seconds.append(now - due)
            self.last = max(self.last, now)
            self.counts["answers"] += 1
            self.counts[f"={status}"] += 1
            self.counts["wrong"] += status != self.asked[k][1]
            if self.plan.get("compare") and status == 200:
                model = found[1] if (found := _MODEL.search(body)) else b""
                self.models[model.decode("latin-1")] += 1
                # The same question to the same model has the same answer.
                digest = hash(body)
                self.counts["different"] += self.digests.setdefault((k, model), digest) != digest


def quantile(ordered: list[float], p: float) -> float | None:
    """The smallest value that a share p of all do not exceed, in milliseconds."""
    if not ordered:
        return None
    return 1e3 * ordered[max(0, -int(-p * len(ordered) // 1) - 1)]


if __name__ == "__main__":
    print(json.dumps(Client(json.load(sys.stdin)).run()))
