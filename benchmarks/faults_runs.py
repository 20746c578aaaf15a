"""Drivers: processes that do one short fit each, watched from outside."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.faults_nodes import wait_for

ROOT = Path(__file__).resolve().parents[1]
DEADLINE = 150.0  # seconds after which a run counts as hung


class Run:
    """A fit in a process of its own. `order` is what `faults_driver` reads."""

    def __init__(self, folder: Path, order: dict[str, Any], deadline: float = DEADLINE) -> None:
        folder.mkdir(parents=True)
        self.folder, self.begin, self.deadline = folder, time.monotonic(), deadline
        (folder / "order.json").write_text(json.dumps({**order, "folder": str(folder)}))
        command = [sys.executable, "-m", "benchmarks.faults_driver", str(folder / "order.json")]
        prefix = order.get("prefix", [])
        with (folder / "stderr").open("w") as err:
            self.process = subprocess.Popen(
                [*prefix, *command], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=err, stderr=err
            )

    def _lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    @property
    def epochs(self) -> int:
        """Epochs that all chains have done so far."""
        return len(self._lines("progress"))

    @property
    def told(self) -> list[str]:
        """What the library has warned of."""
        return self._lines("told")

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def late(self) -> bool:
        """Whether its time is over."""
        return time.monotonic() - self.begin > self.deadline

    def reach(self, epochs: int) -> bool:
        """Wait until so many epochs are over; whether the run still goes on then."""
        wait_for(lambda: self.ended or self.epochs >= epochs or self.late(), self.deadline, 0.005)
        return not self.ended and self.epochs >= epochs

    def tells(self, words: str) -> bool:
        """Wait until it warns of something; whether it has."""
        wait_for(lambda: self.ended or self._says(words) or self.late(), self.deadline)
        return self._says(words)

    def _says(self, words: str) -> bool:
        return any(words in line for line in self.told)

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
        wait_for(lambda: self.ended or self.late(), self.deadline, 0.02)
        if not self.ended:
            self.process.kill()
            self.process.wait()
            return {"status": "hung", "error": "no end within its time"}
        if self.process.returncode != 0:
            lines = self._lines("stderr")
            return {"status": "lost", "error": lines[-1] if lines else "no word"}
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

    def fill(self, run: Run) -> None:
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
