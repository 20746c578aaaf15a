"""Kernels as plain Python, in a process of its own: in float64 without compiling them for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_PROGRAM = """
import runpy, sys
sys.path[:0] = sys.argv[2:]
from benchmarks.attack import plain
plain.install()
runpy.run_path(sys.argv[1])["main"]()
"""


def run_main(file: str) -> None:
    """Call `main` of a file where kernels are plain Python, every index of theirs checked."""
    path = [_ROOT, _ROOT / "src", _ROOT / "tests" / "helpers"]
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *map(str, (file, *path))],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
