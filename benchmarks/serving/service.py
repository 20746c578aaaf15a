"""Shared by `benchmarks serving` and `benchmarks hostile`: a service, a client, requests."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from bayesmf import BayesianMF, Gibbs, Ratings
from bayesmf.errors import BayesMFError, ConvergenceWarning
from benchmarks.serving.client import Wire

HOST = "127.0.0.1"
PATIENCE = 120.0
BURN_IN = 8
SENT, PAIRS = 20, 10
KINDS = {
    "known": "recommend, known user",
    "sent": f"recommend, {SENT} ratings sent",
    "predict": f"predict, {PAIRS} pairs",
    "explain": "explain",
}


def fit(ratings: Ratings, factors: int, draws: int, seed: int = 0) -> BayesianMF:
    """A model of two chains with exactly this many draws (one chain where they are odd)."""
    chains = 2 - draws % 2
    sampler = Gibbs(n_chains=chains, epochs=BURN_IN + draws // chains, burn_in=BURN_IN, joint=4)
    made = BayesianMF(factors, sampler=sampler, max_draws=draws, random_state=seed, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        made.fit(ratings)
    if (kept := len(made.posterior_.draws)) != draws:
        raise BayesMFError(f"{kept} draws were kept, not {draws}")
    return made


@dataclass(frozen=True)
class Probe:
    """A request, and the status that its answer must have."""

    kind: str
    path: str
    body: dict[str, Any] | None = None
    status: int = 200

    def raw(self, port: int) -> bytes:
        """The request as it is sent."""
        return request("GET" if self.body is None else "POST", self.path, port, self.body)


def request(
    method: str, path: str, port: int, body: Any = None, headers: dict[str, str] | None = None
) -> bytes:
    """An HTTP request; a body that is not bytes goes as JSON."""
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    sent = {"Host": f"{HOST}:{port}"}
    if body is not None:
        sent |= {"Content-Type": "application/json", "Content-Length": str(len(data))}
    sent |= headers or {}
    lines = [f"{method} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in sent.items())]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + data


class Asker:
    """Questions at random about a model's users and items."""

    def __init__(self, model: BayesianMF, seed: int = 0) -> None:
        self.draw = random.Random(seed)
        self.users, self.items = model.user_ids_.ids.tolist(), model.item_ids_.ids.tolist()
        levels = getattr(model, "rating_levels_", None)
        ends = [model.posterior_.low, model.posterior_.high]
        self.levels = [float(x) for x in (ends if levels is None else levels)]
        counts = model.posterior_.ratings.item_counts().astype(float)
        self.weight = np.cumsum(counts + 1.0).tolist()

    def sent(self, n: int) -> list[dict[str, Any]]:
        """Ratings of some items, rather of those that many have rated."""
        found = dict.fromkeys(self.draw.choices(self.items, cum_weights=self.weight, k=2 * n))
        return [{"item": i, "rating": self.draw.choice(self.levels)} for i in list(found)[:n]]

    def known(self) -> Probe:
        return Probe("known", "/v1/recommend", {"user": self.draw.choice(self.users), "n": 10})

    def new(self) -> Probe:
        return Probe("sent", "/v1/recommend", {"ratings": self.sent(SENT), "n": 10})

    def predict(self) -> Probe:
        pairs = [
            {"user": self.draw.choice(self.users), "item": self.draw.choice(self.items)}
            for _ in range(PAIRS)
        ]
        return Probe("predict", "/v1/predict", {"pairs": pairs})

    def explain(self) -> Probe:
        user, item = self.draw.choice(self.users), self.draw.choice(self.items)
        return Probe("explain", "/v1/explain", {"user": user, "item": item})

    def of(self, kind: str, n: int) -> list[Probe]:
        """Requests of one kind."""
        make = {"known": self.known, "sent": self.new, "predict": self.predict}
        return [make.get(kind, self.explain)() for _ in range(n)]

    def other(self) -> list[Probe]:
        """Of the rest of the API one each, and what is refused."""
        item, user = self.draw.choice(self.items), self.draw.choice(self.users)
        nobody = {"user": "nobody at all", "n": 3}
        return [
            Probe("similar", f"/v1/similar?item={item}&n=5"),
            Probe("item", f"/v1/item?item={item}"),
            Probe("user", f"/v1/user?user={user}"),
            Probe("search", f"/v1/items?q={str(item)[:2]}"),
            Probe("model", "/v1/model"),
            Probe("thompson", "/v1/recommend", {"user": user, "policy": "thompson"}),
            Probe("parts", "/v1/recommend", {"user": user, "parts": True, "policy": "lcb"}),
            Probe("metrics", "/metrics"),
            Probe("page", "/static/main.js"),
            Probe("refused", "/v1/recommend", nobody, 404),
            Probe("refused", "/v1/predict", {"pairs": []}, 422),
            Probe("refused", f"/v1/nothing-{self.draw.random()}", None, 404),
        ]

    @property
    def text(self) -> bool:
        """Whether ids are text."""
        return isinstance(self.users[0], str)


class ServiceProcess:
    """`bayesmf serve` as a process of its own, on a free port."""

    def __init__(
        self, folder: Path, *options: str, environment: dict[str, str] | None = None
    ) -> None:
        command = [sys.executable, "-m", "bayesmf", "serve", str(folder)]
        self.log = tempfile.TemporaryFile()  # noqa: SIM115  (closed by __exit__)
        self.process = subprocess.Popen(
            [*command, "--host", HOST, "--port", "0", *options],
            stdout=subprocess.PIPE, stderr=self.log, text=True,
            env=os.environ | (environment or {}),
        )  # fmt: skip
        assert self.process.stdout is not None
        found_ports = (re.search(rf"http://{HOST}:(\d+)", line) for line in self.process.stdout)
        found = next(filter(None, found_ports), None)
        if found is None:
            self.close()
            with self.log:
                raise BayesMFError(f"the service did not start: {self.said()}")
        self.port = int(found[1])

    def said(self) -> str:
        """What it has printed on stderr."""
        self.log.seek(0)
        return self.log.read().decode(errors="replace").strip()

    def wait(self, workers: int = 1) -> None:
        """Until it is ready; of several processes each is asked in its turn."""
        done = subprocess.run(
            [sys.executable, "-c", _WAIT, HOST, str(self.port), str(PATIENCE), str(12 * workers)],
            check=False,
        )
        if done.returncode:
            raise BayesMFError(f"the service is not ready after {PATIENCE:g} s: {self.said()}")

    def pids(self) -> list[int]:
        """The process and those that it has started."""
        found, own = [self.process.pid], f"/proc/{self.process.pid}/task/{self.process.pid}"
        with contextlib.suppress(OSError):
            found += map(int, Path(own, "children").read_text("ascii").split())
        return found

    def memory(self) -> int:
        """Bytes of all processes without pages of files (0 where the system is not Linux).

        Pages of files, the model's and those of libraries, are kept by the system, and shared
        with other processes.
        """
        return sum(map(_memory, self.pids()))

    def held(self) -> dict[str, int]:
        """Memory, and how many files are open or mapped."""
        return {"memory": self.memory(), "files": sum(map(_open, self.pids()))}

    def ask(self, question: Probe) -> tuple[int, Any]:
        """Status and answer to one question."""
        wire = Wire(HOST, self.port)
        try:
            status, body = wire.ask(question.raw(self.port))
        finally:
            wire.close()
        return status, json.loads(body)

    def load(self, questions: Sequence[Probe], **plan: Any) -> dict[str, Any]:
        """What the client of benchmarks/serving/client.py finds, which is a process of its own."""
        done = subprocess.run(
            self.client(), input=self.plan(questions, **plan), stdout=subprocess.PIPE, check=True
        )
        return dict(json.loads(done.stdout))

    def client(self) -> list[str]:
        """The command of the client."""
        return [sys.executable, str(Path(__file__).with_name("client.py"))]

    def plan(self, questions: Sequence[Probe], **plan: Any) -> bytes:
        """What the client reads."""
        asked = [(one.raw(self.port).decode("latin-1"), one.status) for one in questions]
        plan = {"host": HOST, "port": self.port, "connections": 4, "questions": asked, **plan}
        return json.dumps(plan).encode()

    def wrk(self, questions: Sequence[Probe], connections: int, seconds: float) -> dict[str, Any]:
        """What wrk finds: answers, seconds, and those with an error."""
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder) / "ask.lua"
            asked = ",\n".join(_lua(one.raw(self.port)) for one in questions)
            script.write_text(_SCRIPT % asked, "ascii")
            command = ["wrk", "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s"]
            command += ["--timeout", "30s", "-s", str(script), f"http://{HOST}:{self.port}"]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        return dict(json.loads(done.stdout.splitlines()[-1]))

    def close(self) -> None:
        """End it."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
        self.log.close()


def has_wrk() -> bool:
    """Whether wrk can be run."""
    return shutil.which("wrk") is not None


def _memory(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii")
    except OSError:
        return 0
    found = re.findall(r"^Pss_(?:Anon|Shmem): +(\d+) kB", text, re.MULTILINE)
    return 1024 * sum(map(int, found))


def _open(pid: int) -> int:
    """Files and connections that are open, and files that are mapped."""
    with contextlib.suppress(OSError):
        mapped = Path(f"/proc/{pid}/maps").read_text("utf-8", "replace").count("/")
        return len(os.listdir(f"/proc/{pid}/fd")) + mapped
    return 0


def _lua(text: bytes) -> str:
    """A string of Lua with these bytes."""
    plain = (chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:03d}" for b in text)
    return '"' + "".join(plain) + '"'


_SCRIPT = """
local asked = {
%s
}
init = function(args) math.randomseed(os.time()) end
request = function() return asked[math.random(#asked)] end
done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format('{"answers": %%d, "seconds": %%f, "wrong": %%d, "errors": %%d}\\n',
    summary.requests, summary.duration / 1e6, e.status, e.connect + e.read + e.write + e.timeout))
end
"""
_WAIT = """
import sys, time, urllib.error, urllib.request
url = f"http://{sys.argv[1]}:{sys.argv[2]}/readyz"
end, wanted = time.monotonic() + float(sys.argv[3]), int(sys.argv[4])
while wanted and time.monotonic() < end:
    try:
        urllib.request.urlopen(url, timeout=5)
        wanted -= 1
    except OSError:
        wanted = int(sys.argv[4])
        time.sleep(0.2)
sys.exit(wanted > 0)
"""
