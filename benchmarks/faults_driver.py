"""One short fit, as a process that can be killed: `python -m benchmarks.faults_driver ORDER.json`.

The order names a case and an engine, where to note every epoch, and where to put the answer: the
SHA-256 over all draws of all chains, what the engine and the log told, and seconds.
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

from bayesmf import SGLD, Auto, BayesianMF, Checkpoint, Synthetic
from bayesmf.chains.history import Event
from bayesmf.engines.base import Engine
from bayesmf.engines.ray.cluster import Cluster


class Case(NamedTuple):
    """A sampler, with ratings for it."""

    sampler: Any
    data: tuple[int, int, int] = (300, 200, 9000)  # users, items, ratings
    factors: int = 5
    more: dict[str, Any] = {}  # noqa: RUF012


# Many short rounds, so that there are many moments for something to happen. The heavy one has few,
# with megabytes to carry: these go through the nodes' stores, and are lost with them.
CASES = {
    "DSGLD-S 3x3": Case(SGLD(grid=(3, 3), n_chains=3, epochs=40, burn_in=4)),
    "DSGLD-C 4x1": Case(SGLD(grid=(4, 1), n_chains=4, epochs=90, burn_in=10)),
    "default": Case(Auto()),
    "heavy 2x2": Case(
        SGLD(grid=(2, 2), n_chains=2, epochs=20, burn_in=10), (20_000, 8_000, 200_000), 16,
        {"tau": 4.0, "max_draws": 20},
    ),
}  # fmt: skip

PAUSE = 0.15  # seconds after an epoch, where a run waits for something to happen


def digest(model: BayesianMF) -> str:
    """SHA-256 over all draws of all chains."""
    arrays, total = model.posterior_.draws.arrays(), hashlib.sha256()
    for name in sorted(arrays):
        total.update(np.ascontiguousarray(arrays[name]).tobytes())
    return total.hexdigest()


class Told(logging.Handler):
    """Keeps what the library warns of, and writes it down at once for who watches."""

    def __init__(self, path: Path) -> None:
        super().__init__(logging.WARNING)
        self._path = path

    def emit(self, record: logging.LogRecord) -> None:
        with self._path.open("a") as file:
            print(record.getMessage(), file=file)


class Progress:
    """A line for every epoch of every chain; slow until the library has told of `linger`."""

    def __init__(self, folder: Path, linger: str | None) -> None:
        self._folder, self._linger = folder, linger

    def __call__(self, event: Event) -> None:
        with (self._folder / "progress").open("a") as file:
            print(event.chain, event.epoch, file=file)
        told = self._folder / "told"
        if self._linger and not (told.exists() and self._linger in told.read_text()):
            time.sleep(PAUSE)


def make_engine(order: dict[str, Any]) -> str | Engine | Cluster:
    """By name, or the cluster that the order has settings of."""
    return order["engine"] if isinstance(order["engine"], str) else Cluster(**order["engine"])


def answer(order: dict[str, Any]) -> dict[str, Any]:
    """Fit, and say what came of it."""
    folder = Path(order["folder"])
    told = Told(folder / "told")
    logging.getLogger("bayesmf").addHandler(told)
    case = CASES[order["case"]]
    model = BayesianMF(
        case.factors, sampler=case.sampler, engine=make_engine(order),
        callbacks=[Progress(folder, order.get("linger"))], random_state=0, **case.more,
    )  # fmt: skip
    more = {}
    if "checkpoint" in order:
        more["checkpoint"] = Checkpoint(**order["checkpoint"])
    begin = time.monotonic()
    try:
        model.fit(Synthetic(*case.data, random_state=1).ratings(), **more)
    finally:
        logging.getLogger("bayesmf").removeHandler(told)
    engine = model.report_["engine"]
    return {
        "sha256": digest(model), "draws": len(model.posterior_.draws), "engine": engine,
        "seconds": time.monotonic() - begin, "epochs": len(model.history_),
    }  # fmt: skip


def main() -> None:
    """The answer appears at once and whole, or not at all."""
    order = json.loads(Path(sys.argv[1]).read_text())
    folder = Path(order["folder"])
    (folder / "answer.part").write_text(json.dumps(answer(order)))
    os.replace(folder / "answer.part", folder / "answer.json")


if __name__ == "__main__":
    main()
