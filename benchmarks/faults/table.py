"""What `benchmarks faults` prints and keeps: a line for each run, and a table by kinds."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

STATES = ("same", "different", "lost", "hung", "missed")
# It ends with whoever started it, even where that is killed.
COMPUTE = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: sum(range(100_000))"


@contextmanager
def busy(n: int) -> Iterator[list[int]]:
    """Context with processes that do nothing but compute; their numbers."""
    begun: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(n):
            begun.append(subprocess.Popen([sys.executable, "-c", COMPUTE]))
        yield [process.pid for process in begun]
    finally:
        for process in begun:
            process.kill()
            process.wait()


def read_lines(path: Path | None, planned: Sequence[Any], seed: int) -> list[dict[str, Any]]:
    """Faults that a file has already; ValueError where they are not those that are planned."""
    if path is None or not path.exists():
        return []
    kinds = {what.number: (what.kind, what.case) for what in planned}
    lines = []
    for number, text in enumerate(path.read_text().splitlines(), 1):
        try:
            line = json.loads(text)
            found = line["number"], line["kind"], line["case"], line["seed"]
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"{path}, line {number}, is no run of this: name another") from None
        if line["kind"] == "none":
            continue
        if found != (found[0], *kinds.get(found[0], ("", "")), seed):
            raise ValueError(
                f"{path}, line {number}, has a fault that is not planned: use the --n, --kinds and "
                "--seed that it was made with, or name another"
            )
        lines.append(line)
    return lines


def summary(lines: list[dict[str, Any]], planned: Sequence[Any], left: list[str]) -> dict[str, Any]:
    """Counts of all, and by kind."""
    faults = [line for line in lines if line["kind"] != "none"]
    by_kind = {}
    for kind in dict.fromkeys(what.kind for what in planned):
        of = [line for line in faults if line["kind"] == kind]
        counts = {state: sum(line["status"] == state for line in of) for state in STATES}
        seconds = [line["seconds"] for line in of if line["status"] != "missed"]
        by_kind[kind] = {
            "asked": sum(what.kind == kind for what in planned),
            # A run may also be lost before anything is done to it.
            "injected": sum(line["injected"] for line in of if line["status"] != "missed"),
            **counts,
            "seconds": statistics.median(seconds) if seconds else 0.0,
        }  # fmt: skip
    totals = {
        name: sum(one[name] for one in by_kind.values()) for name in ("asked", "injected", *STATES)
    }
    quiet = all(line["status"] == "same" for line in lines if line["kind"] == "none")
    return {**totals, "quiet_same": quiet, "left_behind": left, "kinds": by_kind, "runs": lines}


def good(found: dict[str, Any]) -> bool:
    """Whether every fault that was asked for happened, and every run ended the same."""
    return bool(
        found["same"] == found["asked"] and found["quiet_same"] and not found["left_behind"]
        and not (found["different"] or found["lost"] or found["hung"])
    )  # fmt: skip


def show(line: dict[str, Any], number: str, to_stderr: bool) -> None:
    """A run in one line."""
    moment = f"epoch {line['epochs']}/{line['of']}"
    early = "before the fault" if line["error"] and not line["injected"] else ""
    rest = "; ".join(filter(None, [line["detail"], early, line["error"]]))
    number = "" if line["kind"] == "none" else number
    print(
        f"{number:>7} {line['kind']:<7}{line['case']:<13}{moment:<15}{line['seconds']:>6.1f} s  "
        f"{len(line['told'])} told  {line['status']:<9} {rest}",
        file=sys.stderr if to_stderr else sys.stdout, flush=True,
    )  # fmt: skip


def table(found: dict[str, Any]) -> str:
    """By kinds."""
    names = ("injected", *STATES)
    head = "".join(f"{name:>11}" for name in ("same hash" if n == "same" else n for n in names))
    lines = [f"\n{'kind':<9}{head}{'median s':>11}"]
    for kind, one in found["kinds"].items():
        counts = "".join(f"{one[name]:>11}" for name in names)
        lines.append(f"{kind:<9}{counts}{one['seconds']:>11.1f}")
    lines.append(f"{'all':<9}" + "".join(f"{found[name]:>11}" for name in names))
    lines.append(
        f"{found['asked']} faults asked for, {found['seconds']:.0f} s on {found['cores']} cores "
        f"beside {found['busy']} busy processes; missed ones came too late or were not noticed, "
        f"and were repeated; undisturbed runs {'same' if found['quiet_same'] else 'DIFFERENT'}; "
        f"{len(found['left_behind'])} processes left behind"
    )
    return "\n".join(lines)
