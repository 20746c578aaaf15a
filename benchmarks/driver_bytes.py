"""Bytes through the driver in a round or sweep: `python -m benchmarks.driver_bytes FOLDER`.

FOLDER are packed ratings, say of Netflix's shape:

    bayesmf synth --shape netflix --stars --out netflix.parquet
    bayesmf pack netflix.parquet --out netflix.packed
    python -m benchmarks.driver_bytes netflix.packed

Real arithmetic, simulated links: the messages are those that a cluster would see.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

from bayesmf import SGHMC, SGLD, BayesianMF, Gibbs
from bayesmf.errors import ConvergenceWarning, InputError
from benchmarks.arguments import Parser
from experiments.simulated import Network, Simulated

# Name, sampler, workers: few rounds are enough to count.
CASES: dict[str, tuple[Any, int]] = {
    "default": (Gibbs(epochs=4, joint=4), 32),
    "DSGLD-S 6x6": (SGLD(grid=(6, 6), n_chains=6, epochs=1), 36),
    "DSGLD-C 16x1": (SGLD(grid=(16, 1), n_chains=16, epochs=0.25), 16),
    "SGHMC 6x6": (SGHMC(grid=(6, 6), epochs=1), 6),
}


def main(argv: list[str] | None = None) -> int:
    parser = Parser(prog="benchmarks.driver_bytes", description=__doc__)
    parser.add_argument("folder", help="packed ratings")
    parser.add_argument("--factors", type=int, default=30, metavar="D", help="factors (30)")
    parser.add_argument("--per-node", type=int, default=4, metavar="N", help="workers a node (4)")
    args = parser.parse_args(argv)
    print(f"{'':14} {'workers':>8} {'KB driver':>10} {'MB peers':>10} {'idle':>6}")
    warnings.simplefilter("ignore", ConvergenceWarning)
    try:
        for name, (sampler, workers) in CASES.items():
            engine = Simulated(workers, Network(workers_per_node=args.per_node))
            model = BayesianMF(args.factors, sampler=sampler, engine=engine, random_state=0)
            found = model.fit(args.folder).report_["engine"]
            idle = sum(found["idle"]) / len(found["idle"])
            driver, peers = (
                found[f"{who}_bytes_per_round"] / size
                for who, size in (("driver", 1e3), ("peer", 1e6))
            )
            print(f"{name:14} {workers:8} {driver:10,.0f} {peers:10,.1f} {idle:6.0%}", flush=True)
    except InputError as error:
        print(f"benchmarks.driver_bytes: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
