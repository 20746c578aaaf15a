"""Drivers: processes that do one short fit each, watched from outside."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DEADLINE = 600.0  # seconds after which a run counts as hung, by default
READ = 1 << 16


class FaultRun:
    """A fit in a process of its own. `order` is what `module` reads.

    The driver writes every epoch and every warning to a pipe, which closes with it, so waiting is
    waiting for the pipe.
    """

    module = "benchmarks.faults.driver"

    def __init__(self, folder: Path, order: dict[str, Any], deadline: float = DEADLINE) -> None:
        folder.mkdir(parents=True)
        self.folder, self.begin, self.deadline = folder, time.monotonic(), deadline
        self._times: list[float] = []
        self._told: list[str] = []
        self._rest, self._open = b"", True
        self._pipe, theirs = os.pipe()
        os.set_blocking(self._pipe, False)
        order = {**order, "folder": str(folder), "notes": theirs}
        (folder / "order.json").write_text(json.dumps(order))
        command = [sys.executable, "-m", self.module, str(folder / "order.json")]
        with (folder / "stderr").open("w") as err:
            self.process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=err, stderr=err,
                pass_fds=[theirs],
            )  # fmt: skip
        os.close(theirs)

    def __del__(self) -> None:
        if hasattr(self, "_pipe"):
            os.close(self._pipe)

    # -- what it notes --------------------------------------------------------------------------

    def _read(self, seconds: float) -> None:
        """Take what has come, waiting for at most this long."""
        if not self._open or not select.select([self._pipe], [], [], seconds)[0]:
            return
        found = os.read(self._pipe, READ)
        if not found:
            self._open = False
            return
        *lines, self._rest = (self._rest + found).split(b"\n")
        for line in lines:
            what, _, text = line.decode(errors="replace").partition(" ")
            self.noted(what, json.loads(text))

    def noted(self, what: str, value: Any) -> None:
        """Take a note of the driver's."""
        if what == "epoch":
            self._times.append(value - self.begin)
        else:
            self._told.append(value)

    def until(self, what: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait until something is true, the driver has ended, or so long; whether it is true."""
        end = self.begin + self.deadline if seconds is None else time.monotonic() + seconds
        self._catch_up()
        while not what() and self._open and (left := end - time.monotonic()) > 0:
            self._read(left)
        return what()

    def _catch_up(self) -> None:
        while self._open and select.select([self._pipe], [], [], 0)[0]:
            self._read(0)

    @property
    def times(self) -> list[float]:
        """Seconds after its beginning when epochs ended, of all chains."""
        self._catch_up()
        return self._times

    @property
    def epochs(self) -> int:
        """Epochs that all chains have done so far."""
        return len(self.times)

    @property
    def log(self) -> list[str]:
        """Warnings of the library."""
        self._catch_up()
        return list(self._told)

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    @property
    def said(self) -> str:
        """What it has printed."""
        return (self.folder / "stderr").read_text(errors="replace")

    # -- what is waited for ---------------------------------------------------------------------

    def reach(self, epochs: int) -> bool:
        """Wait until this many epochs are over; return whether the run still continues."""
        return self.until(lambda: len(self._times) >= epochs) and not self.ended

    def logs(self, words: str) -> bool:
        """Wait until it warns of something; whether it has."""
        return self.until(lambda: any(words in line for line in self._told))

    def kill(self) -> bool:
        """SIGKILL; whether that came before its answer."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        return self.process.returncode == -signal.SIGKILL and not self.answer_file.exists()

    @property
    def answer_file(self) -> Path:
        return self.folder / "answer.json"

    def wait(self) -> dict[str, Any]:
        """The answer; `status` is "done", "lost" with an error, or "hung"."""
        self.until(lambda: False)
        try:
            self.process.wait(max(0.1, self.begin + self.deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.kill()
            return {"status": "hung", "error": f"no end within {self.deadline:.0f} s"}
        if self.process.returncode != 0:
            lines = self.said.split("\n")
            why = next((line for line in reversed(lines) if line.strip()), "no word")
            return {"status": "lost", "error": f"{why} (status {self.process.returncode})"}
        return {"status": "done", **json.loads(self.answer_file.read_text())}


class Disk:
    """A small file system of its own, or else a limit on the size of files, that can be full."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        mount = ["mount", "-t", "tmpfs", "-o", "size=128m", "tmpfs", str(folder)]
        self.mounted = (
            os.geteuid() == 0 and subprocess.run(mount, capture_output=True).returncode == 0
        )
        self._filler = folder / "filler"

    def fill(self, run: FaultRun) -> None:
        """No more bytes for this run."""
        if not self.mounted:
            # Enough for its answer, not for a checkpoint.
            resource.prlimit(run.process.pid, resource.RLIMIT_FSIZE, (4096, -1))
            return
        with self._filler.open("wb", buffering=0) as file:
            for size in (1 << 20, 4096):
                with suppress(OSError):
                    while file.write(bytes(size)) == size:
                        pass

    def free(self) -> None:
        """Room again."""
        self._filler.unlink(missing_ok=True)

    def close(self) -> None:
        if self.mounted:
            subprocess.run(["umount", str(self.folder)], check=True)
