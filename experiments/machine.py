"""The machine that this process runs on: processor, caches, memory, versions."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import numpy as np

from bayesmf import __version__
from bayesmf.process import cores, memory_bytes


def describe_machine() -> dict[str, Any]:
    """The machine and the versions in use; None for what the system does not report."""
    import numba

    memory = memory_bytes()
    return {
        "cpu": _cpu_model(),
        "cores": cores(),
        "caches": _caches(Path("/sys/devices/system/cpu/cpu0/cache")),
        "memory_gb": None if memory is None else memory / 2**30,
        "os": platform.platform(terse=True),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "bayesmf": __version__,
    }


def machine_text(about: dict[str, Any]) -> str:
    """What `describe_machine` found, in a sentence."""
    caches = ", ".join(f"{name} {size}" for name, size in about["caches"].items())
    memory = about["memory_gb"]
    parts = [
        about["cpu"],
        f"{about['cores']} core{'' if about['cores'] == 1 else 's'}",
        *([f"caches {caches}"] if caches else []),
        *([f"{memory:.0f} GB of memory"] if memory else []),
        about["os"],
    ]
    used = (f"{name} {about[name.lower()]}" for name in ("Python", "numpy", "numba", "bayesmf"))
    return f"{', '.join(parts)}; {', '.join(used)}"


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    found = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return found[0] if found else platform.processor() or platform.machine()


def _caches(folder: Path) -> dict[str, str]:
    """Sizes of the first core's caches by name, such as L1d; empty where they cannot be read."""
    letters = {"Data": "d", "Instruction": "i"}
    found = {}
    for index in sorted(folder.glob("index*")):
        try:
            level, kind, size = (
                (index / name).read_text().strip() for name in ("level", "type", "size")
            )
        except OSError:
            continue
        found[f"L{level}{letters.get(kind, '')}"] = size
    return found
