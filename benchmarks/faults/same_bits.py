"""The same draws on every engine: SHA-256 of all draws of short fits.

Short fits of every algorithm on `serial`, on `threads`, on `simulated` workers, and on Ray clusters
of this machine with some nodes, two workers on each: the SHA-256 over all draws of all chains. The
status is 1 unless each algorithm has one and the same everywhere.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

from bayesmf import SGHMC, SGLD, Auto, BayesianMF, Cluster
from bayesmf.synthetic.synthetic import Synthetic
from benchmarks.faults.driver import digest
from benchmarks.options import BenchParser, command, words
from experiments.simulated import Network, Simulated

CASES: dict[str, Any] = {
    "default": Auto(),
    "DSGLD-S 3x3": SGLD(grid=(3, 3), n_chains=3, epochs=20, burn_in=4),
    "DSGLD-C 4x1": SGLD(grid=(4, 1), n_chains=4, epochs=20, burn_in=4),
    "hybrid 2x3": SGLD(grid=(2, 3), n_chains=2, epochs=20, burn_in=4),
    "SGHMC 2x2": SGHMC(grid=(2, 2), n_chains=2, epochs=12, burn_in=4),
}
SHAPE = 400, 250, 12_000  # users, items, ratings
FACTORS = 6


def sha(case: str, engine: Any, n_workers: int | None = None) -> str:
    """Of a fit."""
    model = BayesianMF(
        FACTORS, sampler=CASES[case], engine=engine, n_workers=n_workers, random_state=0
    )
    return digest(model.fit(Synthetic(*SHAPE, random_state=1).ratings()))


def here(cases: list[str]) -> Iterator[tuple[str, str, str]]:
    """Case, engine and hash of those that need no cluster."""
    for case in cases:
        yield case, "serial", sha(case, "serial")
        yield case, "threads, 2", sha(case, "threads", 2)
        yield case, "simulated, 5", sha(case, Simulated(5))
        yield case, "simulated, 16 on 4", sha(case, Simulated(16, Network(workers_per_node=4)))


def there(cases: list[str], n_nodes: int) -> Iterator[tuple[str, str, str]]:
    """The same on Ray."""
    from benchmarks.faults.nodes import Nodes

    nodes = Nodes(n_nodes, 2)
    try:
        for case in cases:
            engine = Cluster(address=nodes.address, n_workers=2 * n_nodes, start_timeout=300.0)
            word = "node" if n_nodes == 1 else "nodes"
            yield case, f"ray, {2 * n_nodes} on {n_nodes} {word}", sha(case, engine)
    finally:
        nodes.close()


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Options, checked."""
    parser = BenchParser("same_bits", __doc__)
    parser.add_argument("--nodes", default="1,2,4", help="of Ray clusters, by commas (1,2,4)")
    parser.add_argument("--cases", default=",".join(CASES), help="by commas; all by default")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    args.cases, args.nodes = words(args.cases), words(args.nodes)
    for case in args.cases:
        if case not in CASES:
            parser.error(f"--cases: {case!r} is none of {', '.join(CASES)}")
    if not all(word.isdecimal() and 1 <= int(word) <= 16 for word in args.nodes):
        parser.error("--nodes must be numbers from 1 to 16, by commas")
    return args


@command
def main(argv: list[str] | None = None) -> int:
    """A line for each fit."""
    args = parse(argv)
    found: dict[str, dict[str, str]] = {case: {} for case in args.cases}
    sources = [here(args.cases), *(there(args.cases, int(n)) for n in args.nodes)]
    for source in sources:
        for case, engine, value in source:
            found[case][engine] = value
            if not args.json:
                print(f"{case:<17}{engine:<22}{value[:32]}", flush=True)
    same = {case: len(set(values.values())) == 1 for case, values in found.items()}
    if args.json:
        print(json.dumps({"sha256": found, "same": same}))
    else:
        print(", ".join(f"{case}: {'same' if ok else 'OTHERS'}" for case, ok in same.items()))
    return 0 if all(same.values()) else 1
