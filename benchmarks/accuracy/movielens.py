"""The paper's algorithms on MovieLens 100K.

FOLDER is the unpacked ml-100k data set of GroupLens. Defaults throughout, D = 10, nothing tuned on
the test folds.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bayesmf import SGD, SGHMC, SGLD, SGNHT, Auto, BayesianMF, Gibbs, Ratings
from benchmarks.options import BenchParser, command

ALGORITHMS = {
    "SGD": (SGD(), "gamma"),
    "DSGD 2x2": (SGD(grid=(2, 2)), "gamma"),
    "SGLD": (SGLD(), "gamma"),
    "DSGLD-S 2x2, 2 chains": (SGLD(grid=(2, 2), n_chains=2), "gamma"),
    "DSGLD-C 4x1, 4 chains": (SGLD(grid=(4, 1), n_chains=4), "gamma"),
    "SGLD, noise as printed": (SGLD(noise="paper"), "gamma"),
    "Gibbs, gamma": (Gibbs(), "gamma"),
    "Gibbs, wishart": (Gibbs(), "wishart"),
    "SGHMC": (SGHMC(), "gamma"),
    "SGNHT": (SGNHT(), "gamma"),
    "default": (Auto(), "auto"),
}


@command
def main(argv: list[str] | None = None) -> None:
    """Print a Markdown table."""
    parser = BenchParser("movielens", __doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--folds", nargs="+", default=["u1"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", default=list(ALGORITHMS), choices=ALGORITHMS
    )
    args = parser.parse_args(argv)
    print("| algorithm | RMSE | in 50 / 80 / 90 / 95% interval | NLL | seconds |")
    print("|---|---|---|---|---|")
    for name in args.only:
        sampler, prior = ALGORITHMS[name]
        rows = []
        for fold in args.folds:
            train, test = (Ratings.read(args.folder / f"{fold}.{p}") for p in ("base", "test"))
            for seed in args.seeds:
                model = BayesianMF(10, sampler=sampler, prior=prior, random_state=seed).fit(train)
                s = model.evaluate(test)
                rows.append([s.rmse, *s.coverage.values(), s.nll, model.report_["seconds"]])
        m = np.mean(rows, axis=0)
        inside = " / ".join(f"{100 * c:.1f}" for c in m[1:5])
        print(f"| {name} | {m[0]:.4f} | {inside} | {m[5]:.4f} | {m[6]:.1f} |", flush=True)
