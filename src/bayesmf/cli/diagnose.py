"""`bayesmf diagnose`: how a model was fitted, and whether its chains have converged."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayesmf.cli import options
from bayesmf.cli.fit import fit_facts
from bayesmf.cli.output import count, print_facts, print_json, print_table

if TYPE_CHECKING:
    from bayesmf.estimator import BayesianMF

AGREE = 1.1  # of the worst of two hundred pairs
# Split R-hat halves each chain, and a variance takes two.
LEAST_DRAWS = 4


def parser() -> options.Parser:
    """The options of `diagnose`."""
    out = options.command(
        "diagnose",
        "How a model was fitted; R-hat and effective sample size of predictions, precisions and\n"
        "tau, the worst of each kind; and what to make of them.",
        "model --test test.csv",
    )
    out.add_argument("model", metavar="MODEL", type=Path, help="folder of a fitted model")
    out.add_argument("--test", metavar="FILE", help="ratings to score, too")
    options.add_file_options(out)
    options.add_json(out)
    return out


def run(args: argparse.Namespace) -> None:
    """Diagnose, and tell."""
    from bayesmf.cli.scores import score, score_facts
    from bayesmf.estimator import BayesianMF
    from bayesmf.ratings import Ratings

    model = BayesianMF.load(args.model)
    test = None
    if args.test is not None:
        test = score(model, Ratings.read(args.test, format=args.format, columns=args.columns))
    found, (chains, draws) = model.diagnose(), _chains(model)
    told = verdict(chains, draws, found["prediction"]["rhat"])
    if args.json:
        about = {"model": args.model, "fit": model.report_, "chains": chains}
        about |= {"draws_per_chain": draws, "diagnostics": found, "verdict": told}
        print_json(about | {"test": test})
        return
    print_facts(fit_facts(model.report_))
    print()
    _print(found)
    print()
    if test is not None:
        print_facts(score_facts(test))
        print()
    print(told)


def _print(found: dict[str, dict[str, float]]) -> None:
    rows = [
        (name, x["rhat"], *(_rounded(x[k]) for k in ("ess_min", "ess_median")))
        for name, x in found.items()
    ]
    print_table(("", "R-hat", "ESS least", "ESS median"), rows)


def _rounded(value: float) -> str:
    return f"{value:.0f}" if value == value else "-"


def _chains(model: BayesianMF) -> tuple[int, int]:
    """Chains, and draws of the shortest."""
    import numpy as np

    sizes: Any = np.unique(model.posterior_.draws.chain, return_counts=True)[1]
    return len(sizes), int(sizes.min())


def verdict(chains: int, draws: int, rhat: float) -> str:
    """What can be known of convergence, in one sentence."""
    if draws < LEAST_DRAWS:
        return (
            f"{count(draws, 'draw')} in a chain ({LEAST_DRAWS} are needed): convergence cannot be "
            "known, nor how sure the predictions are; sample longer, with sgld or gibbs."
        )
    if rhat != rhat:
        return "The predictions are the same in all draws: R-hat cannot be known."
    if rhat > AGREE:
        return f"R-hat of predictions {rhat:.3f} > {AGREE}: run longer (--epochs)."
    if chains < 2:
        return (
            f"R-hat of predictions {rhat:.3f}: the halves of the one chain agree; whether chains "
            "from elsewhere would is not known, fit with --chains 2 or more."
        )
    return f"R-hat of predictions {rhat:.3f}: the {chains} chains agree."
