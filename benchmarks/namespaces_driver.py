"""One fit of `benchmarks.namespaces`, or a measurement of messages, as a process of its own.

`python -m benchmarks.namespaces_driver ORDER.json`: started by `namespaces_runs` in the head's
namespace. What it tells of each epoch goes through a pipe, so that counters are read at once.
"""

from __future__ import annotations

import inspect
import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from bayesmf import SGLD, Auto, BayesianMF, Cluster, Event, Ratings, Synthetic
from bayesmf.engines.registry import make_engine
from benchmarks.faults_driver import digest
from experiments.simulated import Network, Simulated

MESSAGE, MESSAGES, REPEATS = 1_000_000, 10, 10


def samplers(nodes: int, epochs: int) -> dict[str, Any]:
    """Every algorithm, with as many blocks as there are nodes to work at once."""
    length = {"epochs": epochs, "burn_in": epochs - 1}
    found = {
        "default": Auto(n_chains=2, **length),
        "DSGLD-S": SGLD(grid=(nodes, nodes), n_chains=nodes, **length),
        "DSGLD-C": SGLD(grid=(nodes, 1), n_chains=nodes, **length),
    }
    return found


def simulated(nodes: int, network: dict[str, float], contention: float) -> Simulated:
    """As many nodes with a worker each; what `Network` does not know of is left out."""
    asked = {"workers_per_node": 1, **network}
    known = inspect.signature(Network).parameters
    links = Network(**{name: value for name, value in asked.items() if name in known})
    return Simulated(nodes, links, contention=contention)


def ratings(order: dict[str, Any]) -> Ratings:
    """Those of a shape, for all fits the same."""
    plan = Synthetic.like(order["shape"], order["scale"], stars=True, random_state=1)
    return plan.ratings()


def ledger(report: dict[str, Any]) -> dict[str, float]:
    """Bytes by the engine's own account so far: on the driver's link, and from node to node."""
    driver = report["bytes_sent"] + report["bytes_received"] + report["fetched_bytes"]
    return {"driver": driver, "peers": report["rounds"] * report["peer_bytes_per_round"]}


def fit(order: dict[str, Any], engine: Any, data: Ratings) -> dict[str, Any]:
    """A fit, with the seconds of all its epochs by the engine's clock."""
    events: list[tuple[int, int, float, dict[str, float]]] = []

    def note(event: Event) -> None:
        told = ledger(engine.report()) if "notes" in order else {}
        events.append((event.chain, event.epoch, event.seconds, told))
        if told:
            line = f"epoch {json.dumps([time.monotonic(), event.chain, event.epoch])}\n"
            os.write(order["notes"], line.encode())

    model = BayesianMF(
        order["factors"], sampler=samplers(order["nodes"], order["epochs"])[order["case"]],
        engine=engine, callbacks=[note], random_state=0,
    ).fit(data)  # fmt: skip
    report = model.report_
    return {
        "sha256": digest(model), "events": events, "engine": report["engine"],
        "grid": report["sampler"].get("grid"), "chains": report["sampler"].get("n_chains", 1),
    }  # fmt: skip


def predictions(order: dict[str, Any]) -> dict[str, Any]:
    """The same fit on simulated nodes, once for each of some networks."""
    data, silent = ratings(order), {k: v for k, v in order.items() if k != "notes"}
    return {
        name: fit(silent, simulated(order["nodes"], network, contention), data)
        for name, (network, contention) in order["predict"].items()
    }


def echo(order: dict[str, Any]) -> dict[str, float]:
    """What messages of Ray cost on these wires, by an actor on another node that sends them back.

    Of empty messages that wait for one another each takes what keeps the actor busy; of one alone
    the rest is time under way; what a large one takes beyond that is the wire's. A call keeps the
    driver busy for its processor time.
    """
    import ray

    class Echo:
        def back(self, rows: np.ndarray) -> np.ndarray:
            return rows

    ray.init(order["engine"]["address"], logging_level=40, log_to_driver=False)
    try:
        actor = ray.remote(num_cpus=1)(Echo).remote()

        def seconds(size: int, n: int) -> float:
            rows, best = np.zeros(size, np.uint8), math.inf
            for _ in range(REPEATS):
                begin = time.perf_counter()
                for reference in [actor.back.remote(rows) for _ in range(n)]:
                    ray.get(reference)
                best = min(best, (time.perf_counter() - begin) / n)
            return best

        alone, busy, large = seconds(0, 1), seconds(0, MESSAGES), seconds(MESSAGE, 1)
        begin = time.process_time()  # all threads: Ray's own have most of it
        seconds(0, MESSAGES)
        calling = (time.process_time() - begin) / (MESSAGES * REPEATS)
    finally:
        ray.shutdown()
    return {
        "latency": max(alone - busy, 0.0) / 2, "overhead": busy,
        "bandwidth": 2 * MESSAGE / max(large - alone, 1e-9), "calling": calling,
    }  # fmt: skip


def main() -> None:
    """The answer appears at once and whole, or not at all."""
    order = json.loads(Path(sys.argv[1]).read_text())
    folder = Path(order["folder"])
    os.set_inheritable(order["notes"], False)
    if order["what"] == "fit":
        answer = fit(order, make_engine(Cluster(**order["engine"]), None), ratings(order))
    else:
        answer = {"predict": predictions, "echo": echo}[order["what"]](order)
    (folder / "answer.part").write_text(json.dumps(answer))
    os.replace(folder / "answer.part", folder / "answer.json")


if __name__ == "__main__":
    main()
