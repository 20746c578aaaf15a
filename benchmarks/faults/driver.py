"""One short fit, as a process that can be killed: `python -m benchmarks driver ORDER.json`.

The order names a case and an engine, the pipe for notes (every epoch, every warning), and where to
put the answer: the SHA-256 over all draws of all chains, the engine's report, and seconds.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bayesmf import SGHMC, SGLD, Auto, BayesianMF, Checkpoint, Cluster, Event, Synthetic


class FaultCase(NamedTuple):
    """A sampler, with ratings for it."""

    sampler: Any
    data: tuple[int, int, int] = (300, 200, 9000)  # users, items, ratings
    factors: int = 5
    more: dict[str, Any] = {}  # noqa: RUF012


# Many short rounds, so that there are many moments for something to happen. SGHMC has fewer, with
# megabytes to carry: these go through the nodes' stores, and are lost with them.
CASES = {
    "DSGLD-S 3x3": FaultCase(SGLD(grid=(3, 3), n_chains=3, epochs=30, burn_in=4)),
    "DSGLD-C 4x1": FaultCase(SGLD(grid=(4, 1), n_chains=4, epochs=40, burn_in=10)),
    "default": FaultCase(Auto()),
    "SGHMC 2x2": FaultCase(
        SGHMC(grid=(2, 2), n_chains=2, epochs=16, burn_in=8), (10_000, 4_000, 100_000), 16,
        {"tau": 4.0, "max_draws": 20},
    ),
}  # fmt: skip


def digest(model: BayesianMF) -> str:
    """SHA-256 over all draws of all chains."""
    arrays, total = model.posterior_.draws.arrays(), hashlib.sha256()
    for name in sorted(arrays):
        total.update(np.ascontiguousarray(arrays[name]).tobytes())
    return total.hexdigest()


class Notes(logging.Handler):
    """Sends warnings of the library, and every epoch, to the harness.

    With `linger` a run is slow until the library has logged these words.
    """

    def __init__(self, pipe: int | None, linger: str | None, pause: float) -> None:
        super().__init__(logging.WARNING)
        self._pipe, self._linger, self._pause = pipe, linger, pause

    def note(self, what: str, value: Any) -> None:
        """Write a line for the harness."""
        if self._pipe is not None:
            os.write(self._pipe, f"{what} {json.dumps(value)}\n".encode())

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if self._linger is not None and self._linger in text:
            self._linger = None
        self.note("log", text)

    def __call__(self, event: Event) -> None:
        self.note("epoch", time.monotonic())
        if self._linger is not None:
            time.sleep(self._pause)


def make_engine(order: dict[str, Any]) -> str | Cluster:
    """By name, or the cluster that the order has settings of."""
    return order["engine"] if isinstance(order["engine"], str) else Cluster(**order["engine"])


def answer(order: dict[str, Any]) -> dict[str, Any]:
    """Fit, and return the result or the error."""
    notes = Notes(order.get("notes"), order.get("linger"), order.get("pause", 0.0))
    logging.getLogger("bayesmf").addHandler(notes)
    case = CASES[order["case"]]
    model = BayesianMF(
        case.factors, sampler=case.sampler, engine=make_engine(order),
        callbacks=[notes], random_state=0, **case.more,
    )  # fmt: skip
    more = {}
    if "checkpoint" in order:
        more["checkpoint"] = Checkpoint(**order["checkpoint"])
    begin = time.monotonic()
    try:
        model.fit(Synthetic(*case.data, random_state=1).ratings(), **more)
    finally:
        logging.getLogger("bayesmf").removeHandler(notes)
    engine = model.report_["engine"]
    return {
        "sha256": digest(model), "draws": len(model.posterior_.draws), "engine": engine,
        "seconds": time.monotonic() - begin, "epochs": len(model.history_),
    }  # fmt: skip


def main() -> None:
    """The answer appears at once and whole, or not at all."""
    order = json.loads(Path(sys.argv[1]).read_text())
    folder = Path(order["folder"])
    os.set_inheritable(order["notes"], False)  # it ends with this process, whatever Ray starts
    (folder / "answer.part").write_text(json.dumps(answer(order)))
    os.replace(folder / "answer.part", folder / "answer.json")


if __name__ == "__main__":
    main()
