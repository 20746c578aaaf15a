"""Other libraries in processes of their own that stay, so that they take turns with ours."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bayesmf.data.training import TrainingData
from bayesmf.errors import BayesMFError
from bayesmf.synthetic.synthetic import Synthetic
from benchmarks.speed import race
from benchmarks.speed.timers import Timer

NAMES = {"libmf": "LIBMF", "smurff": "SMURFF", "myfm": "myFM"}
# LIBMF fits anew for each question; the samplers go on from where they are.
SHORT = {"libmf": 1, "smurff": 0, "myfm": 0}
# Seconds of a question when nothing is known yet, and how often a question is asked.
LONGEST, TRIES = 240.0, 4


class PeerError(BayesMFError):
    """A peer that was there has ended."""


class Peer:
    """A library on one thread, in a process of its own.

    LIBMF's threads sometimes wait for each other for ever: a question that takes far longer than
    those before is given up, and asked again of a new process.
    """

    def __init__(self, python: Path, system: str, data: Path, factors: int) -> None:
        self.system, self._python = system, python
        self._opening = {"task": "epochs", "system": system, "data": str(data), "factors": factors}
        self._longest: float | None = None
        self._begin()

    def _begin(self) -> None:
        # A file, because nobody reads a pipe while the peer works.
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            [str(self._python), "-m", "benchmarks.speed.peer_worker"], cwd=race.ROOT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
            env={**os.environ, **{f"{name}_THREADS": "1" for name in race.THREADS}},
        )  # fmt: skip
        try:
            self.about = self._ask(self._opening, LONGEST)
        except (PeerError, TimeoutError) as error:
            self.close()
            raise PeerError(str(error) or f"{NAMES[self.system]} did not begin") from None

    def run(self, epochs: int) -> float:
        """Seconds of so many epochs."""
        limit = LONGEST if self._longest is None else 30 + 20 * self._longest
        for _ in range(TRIES):
            try:
                seconds = float(self._ask({"epochs": epochs}, limit)["seconds"])
            except TimeoutError:
                self.close()
                self._begin()
            else:
                self._longest = max(self._longest or 0.0, seconds)
                return seconds
        raise PeerError(f"{NAMES[self.system]} did not end {TRIES} times")

    def _ask(self, question: dict[str, Any], limit: float) -> dict[str, Any]:
        """One line for one line."""
        assert self._process.stdin is not None and self._process.stdout is not None
        late = threading.Event()

        def give_up() -> None:
            late.set()
            self._process.kill()

        timer = threading.Timer(limit, give_up)
        timer.start()
        try:
            print(json.dumps(question), file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            timer.cancel()
        if late.is_set():
            raise TimeoutError
        if not line:
            self._process.wait()
            self._errors.seek(0)
            said = [text for text in self._errors.read().splitlines() if text.strip()]
            last = said[-1].strip() if said else f"exit status {self._process.returncode}"
            raise PeerError(f"{NAMES[self.system]} ended: {last}")
        return dict(json.loads(line))

    def close(self) -> None:
        """End its process: it ends by itself when nothing more can be asked."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()


class PeerTimer(Timer):
    """The time of a peer's epoch."""

    def __init__(self, peer: Peer) -> None:
        super().__init__(peer.run, short=SHORT[peer.system])
        self.version = str(peer.about.get("version", "?"))


@contextmanager
def peer_timer(
    python: Path | None, system: str, data: Path, factors: int
) -> Iterator[tuple[PeerTimer | None, str | None]]:
    """A timer, or None and why there is none."""
    if python is None:
        yield None, "no environment of the peers was named: give --peers PYTHON"
        return
    peer = Peer(python, system, data, factors)
    try:
        missing = peer.about.get("missing")
        yield (None, str(missing)) if missing else (PeerTimer(peer), None)
    finally:
        peer.close()


@contextmanager
def shared_data(shape: str, scale: float) -> Iterator[tuple[TrainingData, Path]]:
    """Planted stars as we hold them, and in a file for peers; those that a test set takes off."""
    plan = Synthetic.like(shape, scale, stars=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.npz"
        race.write_data(*plan.split(min(1000, plan.n_ratings // 10)), path)
        with np.load(path) as file:
            user, item, rating = (file[f"train_{name}"] for name in ("user", "item", "rating"))
            n_users, n_items = int(file["n_users"]), int(file["n_items"])
        value = ((rating - rating.mean()) / rating.std()).astype(np.float32)
        yield TrainingData.from_triples(user, item, value, n_users, n_items), path
