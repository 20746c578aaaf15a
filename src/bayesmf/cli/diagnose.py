"""`bayesmf diagnose`: how a model was fitted, whether its chains agree and its intervals hold."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayesmf.cli import options
from bayesmf.cli.output import (
    check_file,
    during,
    note,
    print_facts,
    print_json,
    print_table,
    print_text,
)
from bayesmf.diagnostics.convergence import DECIDED_BY, advice, fit_facts, headline
from bayesmf.errors import InputError

if TYPE_CHECKING:
    from bayesmf.diagnostics.calibration import Calibration
    from bayesmf.estimator.bayesian_mf import BayesianMF

N_PAIRS = 200
# Names of the traces of `model.diagnose()` in the table.
KINDS = {
    "prediction": f"{N_PAIRS} predictions at random",
    "tau": "noise precision tau",
    "lambda_U": "precisions of user factors",
    "lambda_V": "precisions of item factors",
    "lambda_a": "precision of user biases",
    "lambda_b": "precision of item biases",
}


def parser() -> options.Parser:
    """Options of `diagnose`."""
    out = options.command(
        "diagnose",
        "Say in a sentence whether a model has converged and, with --test, whether its intervals "
        "are calibrated. Details follow: how it was fitted, R-hat and effective sample "
        "size of predictions, precisions and tau, coverage by activity of users, popularity of "
        "items, training error of users and predicted standard deviation, and a PIT histogram.",
        "films.bayesmf --test test.csv",
        "films.bayesmf --test test.csv --plots pictures",
    )
    options.add_model(out)
    out.add_argument("--test", metavar="FILE", help="held-out ratings: scores and calibration")
    out.add_argument(
        "--plots",
        metavar="FOLDER",
        type=Path,
        help="folder for traces.png and rmse.png, and with --test reliability.png and pit.png",
    )
    options.add_file_options(out)
    options.add_json(out)
    return out


def run(args: argparse.Namespace) -> None:
    """Diagnose, and print it."""
    from bayesmf.cli.evaluate import calibrate, calibrated_scores
    from bayesmf.estimator.bayesian_mf import BayesianMF

    if args.test is None and (args.columns is not None or args.format != "auto"):
        raise InputError("--columns and --format do nothing without --test FILE: leave them out")
    if args.plots is not None:  # fail before the work
        from bayesmf.plots.panels import check_matplotlib

        check_matplotlib()
    model = BayesianMF.load(args.model)
    ratings = scores = calibration = None
    if args.test is not None:
        ratings = options.read_ratings(args.test, args)
    if args.plots is not None:
        _make_folder(args.plots)
    if ratings is not None:
        calibration = calibrate(model, ratings)
        scores = calibrated_scores(model, ratings, calibration)
    with during("computing diagnostics"):
        found, (chains, draws) = model.diagnose(N_PAIRS), _chains(model)
    about = {"model": args.model, "fit": model.report_, "chains": chains}
    about |= {"draws_per_chain": draws, "diagnostics": found}
    convergence = model.report_["convergence"]
    about["converged"] = convergence["converged"]
    about["verdict"] = convergence["verdict"]
    about["advice"] = advice(convergence, shell=True)
    about |= {"test": scores, "calibration": calibration and calibration.as_dict()}
    about["plots"] = [] if args.plots is None else _draw(model, args.plots, calibration)
    if args.json:
        print_json(about)
    else:
        _print(about, calibration)


def _print(about: dict[str, Any], calibration: Calibration | None) -> None:
    from bayesmf.cli.evaluate import error_facts, level_facts, print_calibration

    verdicts = [("converged", f"{about['verdict']} {about['advice']}".rstrip())]
    if calibration is not None:
        verdicts.append(("intervals", calibration.verdict))
    print_facts(verdicts)
    print()
    print_facts([fact for fact in fit_facts(about["fit"], shell=True) if fact[0] != "converged"])
    print()
    state = (about["fit"]["convergence"] or {}).get("state")
    if state == "optimiser":
        print_text("There are no draws, so chains are not diagnosed.")
    else:
        print_text(
            "Details: the worst R-hat and effective sample size (ESS) of each kind. "
            f"{DECIDED_BY}; the worst value here may be above its limit."
        )
        rows = [
            (KINDS.get(name, name), x["rhat"], *(_rounded(x[k]) for k in ("ess_min", "ess_median")))
            for name, x in about["diagnostics"].items()
        ]
        print_table(("", "worst R-hat", "least ESS", "median ESS"), rows)
    if calibration is not None:
        print()
        print_facts([*error_facts(about["test"]), *level_facts(about["test"])])
        print()
        print_calibration(calibration)
    if about["plots"]:
        names = ", ".join(path.name for path in about["plots"])
        print_text(f"\n{names} drawn in {about['plots'][0].parent}")


def _make_folder(folder: Path) -> None:
    """Make the folder, and refuse now pictures that could not be written after the work."""
    from bayesmf.plots.panels import NAMES
    from bayesmf.plots.style import make_folder

    make_folder(folder)
    for name in NAMES:
        check_file(folder / name, (".png",))


def _draw(model: BayesianMF, folder: Path, calibration: Calibration | None) -> list[Path]:
    from bayesmf.plots.panels import draw

    drawn, missing = draw(
        folder,
        model._traces(N_PAIRS, 0),
        model.history_,
        calibration,
        headline(model.report_["convergence"]),
        model.report_.get("validation_rmse"),
    )
    for sentence in missing:
        note(sentence)
    return drawn


def _rounded(value: float) -> str:
    return f"{value:.0f}" if value == value else "-"


def _chains(model: BayesianMF) -> tuple[int, int]:
    """Number of chains, and draws of the shortest."""
    import numpy as np

    sizes: Any = np.unique(model.posterior_.draws.chain, return_counts=True)[1]
    return len(sizes), int(sizes.min())
