"""Workers under way: who has which attack, and what becomes of one that dies or hangs."""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# Seconds that an attack may take; one that takes longer is tried once more, alone in its worker.
LIMIT, SLOW_LIMIT = 20.0, 120.0


class AttackWorker:
    """A process that runs one attack at a time."""

    def __init__(
        self, material: Path, scratch: Path, options: list[str], env: dict[str, str]
    ) -> None:
        self.scratch = scratch
        release(scratch)
        shutil.rmtree(scratch, ignore_errors=True)
        command = [sys.executable, "-m", "benchmarks.attack.worker", str(material), str(scratch)]
        self.log = Path(f"{scratch}.log")
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*command, *options], cwd=ROOT, env=env, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=log, start_new_session=True,
            )  # fmt: skip
        self.seed: str | None = None
        self.due = time.monotonic() + 600  # to be ready: kernels may have to be compiled
        self.again = False
        self.buffer = b""

    def give(self, seed: str, again: bool, limit: float) -> None:
        """Let it run an attack."""
        assert self.process.stdin is not None
        self.seed, self.again = seed, again
        self.due = time.monotonic() + limit
        self.process.stdin.write(f"{seed}\n".encode())
        self.process.stdin.flush()

    def lines(self) -> list[dict[str, Any]] | None:
        """What it has replied, None at its end."""
        assert self.process.stdout is not None
        new = os.read(self.process.stdout.fileno(), 1 << 16)
        if not new:
            return None
        *whole, self.buffer = (self.buffer + new).split(b"\n")
        return [json.loads(line) for line in whole]

    def end(self, kill: bool = False) -> int:
        """Its status, once it has ended, or been ended with all that it started."""
        if kill:
            # Its own session: no other process is in it.
            os.killpg(self.process.pid, signal.SIGKILL)
        elif self.process.stdin is not None:
            self.process.stdin.close()
        status = self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None and not stream.closed:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        return status


class AttackPool:
    """Runs attacks in some workers side by side."""

    def __init__(
        self, material: Path, scratch: Path, jobs: int, options: list[str], env: dict[str, str],
        limit: float = LIMIT,
    ) -> None:  # fmt: skip
        self._make = lambda k: AttackWorker(material, scratch / f"worker-{k}", options, env)
        self._jobs, self._limit = jobs, limit

    def run(self, seeds: list[str]) -> Iterator[dict[str, Any]]:
        """The judgement of every attack, in the order in which they end."""
        todo = deque((seed, False) for seed in seeds)
        left = len(todo)
        with selectors.DefaultSelector() as selector:
            for k in range(min(self._jobs, left)):
                self._start(selector, k)
            try:
                while left:
                    for found in self._step(selector, todo):
                        left -= 1
                        yield found
            finally:
                for key in list(selector.get_map().values()):
                    key.data[0].end(kill=key.data[0].seed is not None)
                    release(key.data[0].scratch)

    def _start(self, selector: Any, k: int) -> None:
        worker = self._make(k)
        selector.register(worker.process.stdout, selectors.EVENT_READ, (worker, k))

    def _step(self, selector: Any, todo: Any) -> Iterator[dict[str, Any]]:
        keys = list(selector.get_map().values())
        first = min(key.data[0].due for key in keys)
        ready = {key.fd for key, _ in selector.select(max(0.0, first - time.monotonic()) + 0.01)}
        for key in keys:
            worker, _ = key.data
            if key.fd in ready:
                lines = worker.lines()
                if lines is None:
                    yield from self._died(selector, key, todo)
                    continue
                for line in lines:
                    if "ready" not in line:
                        worker.seed = None
                        yield line
                    if todo:
                        self._next(worker, todo)
                    else:
                        worker.due = float("inf")
            elif time.monotonic() > worker.due:
                yield from self._hung(selector, key, todo)

    def _next(self, worker: AttackWorker, todo: Any) -> None:
        from benchmarks.attack.registry import ATTACKS

        seed, again = todo.popleft()
        quick = ATTACKS[seed.rpartition(":")[0]].quick
        worker.give(seed, again, (self._limit if quick else SLOW_LIMIT) * (2 if again else 1))

    def _died(self, selector: Any, key: Any, todo: Any) -> Iterator[dict[str, Any]]:
        worker, k = key.data
        selector.unregister(key.fileobj)
        status = worker.end()
        said = _told(worker.scratch / "stderr") or _told(worker.log)
        if worker.seed is None:
            raise SystemExit(f"attack: a worker did not start: {said}")
        what = signal.Signals(-status).name if status < 0 else f"status {status}"
        yield _finding(worker.seed, "signals", f"the process ended by {what}: {said}")
        if todo:
            self._start(selector, k)

    def _hung(self, selector: Any, key: Any, todo: Any) -> Iterator[dict[str, Any]]:
        worker, k = key.data
        selector.unregister(key.fileobj)
        if worker.seed is None:
            worker.end(kill=True)
            raise SystemExit("attack: a worker did not start in ten minutes")
        worker.end(kill=True)
        if not worker.again:
            todo.appendleft((worker.seed, True))
        else:
            yield _finding(worker.seed, "hangs", "no end within the time limit, twice")
        if todo:
            self._start(selector, k)


def release(folder: Path) -> None:
    """Take away the small disks that a worker which was ended has left mounted."""
    try:
        mounts = Path("/proc/mounts").read_text().splitlines()
    except OSError:
        return
    for line in mounts:
        place = line.split()[1]
        if place.startswith(f"{os.path.realpath(folder)}/"):
            subprocess.run(["umount", "-l", place], check=False)


def _told(file: Path) -> str:
    """The last that a process said; of what Python says of a crash, where it was in our code."""
    try:
        text = file.read_bytes()[-20_000:].decode(errors="replace")
    except OSError:
        return ""
    text = text.partition("Extension modules:")[0]
    frames = re.findall(r'File ".*?/bayesmf/([^"]+)", line (\d+)', text)
    return " < ".join(f"{name}:{line}" for name, line in frames[:4]) or text[-300:]


def _finding(seed: str, of: str, text: str) -> dict[str, Any]:
    found = {"seed": seed, "said": [], "findings": [(of, " ".join(text.split()))]}
    return {**found, "answered": False, "refused": False, "seconds": 0.0}
