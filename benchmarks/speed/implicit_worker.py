"""implicit's top-k for `benchmarks answers`: answers each line of stdin with a line of seconds.

The interpreter is that of an environment with implicit, so nothing of bayesmf is imported here. The
process stays, so that its runs may take turns with ours.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import numpy as np


def make_model(data: dict[str, np.ndarray]) -> Any:
    """A model whose factors are given, and what each user has rated."""
    from implicit.cpu.matrix_factorization_base import MatrixFactorizationBase
    from scipy.sparse import csr_matrix

    class Given(MatrixFactorizationBase):  # type: ignore[misc]
        def fit(self, *_: Any, **__: Any) -> None: ...
        def save(self, *_: Any) -> None: ...

    model = Given()
    model.user_factors, model.item_factors = data["users"], data["items"]
    shape = len(data["users"]), len(data["items"])
    ones = np.ones(len(data["seen_items"]), np.float32)
    return model, csr_matrix((ones, data["seen_items"], data["seen_starts"]), shape)


def main() -> None:
    """Read the data's path, then one question a line: threads, and whether to leave out rated."""
    lines = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what others print goes to stderr
    asked = json.loads(sys.stdin.readline())
    with np.load(asked["data"]) as file:
        data = dict(file)
    try:
        import implicit

        model, rated = make_model(data)
        print(json.dumps({"version": implicit.__version__}), file=lines)
    except ImportError as error:
        print(json.dumps({"missing": str(error)}), file=lines)
        return
    everyone = np.arange(len(data["users"]))
    for line in sys.stdin:
        question = json.loads(line)
        model.num_threads, leave_out = question["threads"], question["exclude_seen"]
        begin, busy = time.perf_counter(), time.process_time()
        ids, _ = model.recommend(
            everyone, rated if leave_out else None, N=10, filter_already_liked_items=leave_out
        )
        taken = {"seconds": time.perf_counter() - begin, "cpu_seconds": time.process_time() - busy}
        np.save(asked["out"], ids)
        print(json.dumps(taken), file=lines)


if __name__ == "__main__":
    main()
