"""Seconds and peak memory of a command: `python benchmarks/speed/child.py COMMAND...` prints JSON.

Linux counts the memory of the parent of a process as the process's own until it runs its program,
so a large benchmark cannot ask about its children. This small process can.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


def follow(command: list[str]) -> dict[str, Any]:
    """Run a command to its end; what it printed, its status, seconds, and peak memory in MB."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        begin = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=err)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)  # so that Popen does not wait again
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    return {
        "status": process.returncode, "seconds": seconds, "peak_mb": usage.ru_maxrss / unit,
        "cpu_seconds": usage.ru_utime + usage.ru_stime, "out": texts[0], "err": texts[1],
    }  # fmt: skip


def measured(command: list[str]) -> dict[str, Any]:
    """What `follow` finds, by a process of its own."""
    own = [sys.executable, str(Path(__file__).resolve()), *command]
    done = subprocess.run(own, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout))


if __name__ == "__main__":
    print(json.dumps(follow(sys.argv[1:])))
