"""A process that runs attacks, one after the other: `worker.py MATERIAL SCRATCH [--plain]`.

It reads a seed a line on stdin and writes a line of JSON for each to the descriptor that was its
stdout. Everything is imported and compiled before the first, so that most take milliseconds.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import time
import traceback
from pathlib import Path
from typing import Any

# No attack needs more, and one that makes bayesmf take all memory must not take the machine's.
MEMORY = 6 << 30


def main() -> None:
    """Until stdin ends."""
    material_folder, scratch = map(Path, sys.argv[1:3])
    replies = os.fdopen(os.dup(1), "w")
    scratch.mkdir(parents=True, exist_ok=True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if "--plain" in sys.argv:
        from benchmarks.attack import plain

        plain.install()
    from benchmarks.attack.case import Streams
    from benchmarks.attack.material import Material
    from benchmarks.attack.registry import load_all

    load_all()
    material, streams = Material(material_folder), Streams(scratch)
    streams.reset()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    print(json.dumps({"ready": True}), file=replies, flush=True)
    for line in sys.stdin:
        found = run_one(line.strip(), material, streams, scratch)
        print(json.dumps(found), file=replies, flush=True)


def run_one(seed: str, material: Any, streams: Any, scratch: Path) -> dict[str, Any]:
    """One attack, from an empty box to a judgement."""
    from benchmarks.attack.case import Case, Refused, in_box
    from benchmarks.attack.registry import ATTACKS

    box = scratch / "box"
    _clear(box)
    streams.reset()
    begin = time.perf_counter()
    case = Case(seed, box, material, streams)

    def run() -> None:
        try:
            ATTACKS[seed.rpartition(":")[0]].run(case)
        except Refused as refusal:
            case.say(f"refused: {refusal}")
        except MemoryError:
            case.find("tracebacks", "MemoryError: more memory was asked for than anything needs")
        except Exception:
            # The harness's own mistake must not pass for a good end.
            case.find("tracebacks", f"in the attack: {traceback.format_exc()[-900:]}")

    in_box(box, run)
    case.finish()
    _clear(box)
    return {
        "seed": seed, "said": case.said, "findings": case.findings, "answered": case.answered,
        "refused": case.refused and not case.answered, "seconds": time.perf_counter() - begin,
    }  # fmt: skip


def _clear(box: Path) -> None:
    if box.exists():
        shutil.rmtree(box, ignore_errors=True)
    if box.exists():  # permissions that an attack took away
        for path in [box, *box.rglob("*")]:
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o700)
        shutil.rmtree(box)


if __name__ == "__main__":
    main()
