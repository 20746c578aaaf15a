"""Runs one peer on data in an .npz file: `python -m benchmarks peer_worker` reads a job from stdin.

The interpreter is that of the peers' environment, so nothing of bayesmf is imported here.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import numpy as np

from benchmarks.speed.peers import PEERS, Job


def main() -> None:
    """Print a JSON line for each checkpoint; one with `missing` where the peer cannot be had."""
    asked: dict[str, Any] = json.load(sys.stdin)
    # Peers print what they like: what they print goes to stderr, and ours alone to stdout.
    lines = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def emit(line: dict[str, Any]) -> None:
        print(json.dumps(line), file=lines, flush=True)

    run = PEERS[asked.pop("system")]
    with np.load(asked.pop("data")) as file:
        data = dict(file)
    try:
        run(Job(data, emit=emit, **asked))
    except ImportError as error:
        emit({"missing": str(error)})


if __name__ == "__main__":
    main()
