"""`bayesmf diagnose`: how a model was fitted, whether its chains agree and its intervals hold."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayesmf.cli import options
from bayesmf.cli.fit import fit_facts
from bayesmf.cli.output import check_file, count, note, print_facts, print_json, print_table
from bayesmf.errors import InputError

if TYPE_CHECKING:
    from bayesmf.calibration import Calibration
    from bayesmf.estimator import BayesianMF

AGREE = 1.1  # as tuning.py has it: of 95% of the pairs
N_PAIRS = 200
# Split R-hat halves each chain, and a variance takes two.
LEAST_DRAWS = 4


def parser() -> options.Parser:
    """The options of `diagnose`."""
    out = options.command(
        "diagnose",
        "How a model was fitted; R-hat and effective sample size of predictions, precisions and\n"
        "tau, the worst of each kind; and what to make of them. With --test also whether\n"
        "intervals hold what they promise: coverage overall, by activity of users and by\n"
        "popularity of items, and a PIT histogram.",
        "model --test test.csv",
        "model --test test.csv --plots pictures",
    )
    out.add_argument("model", metavar="MODEL", type=Path, help="folder of a fitted model")
    out.add_argument("--test", metavar="FILE", help="held-out ratings: scores and calibration")
    out.add_argument(
        "--plots",
        metavar="FOLDER",
        type=Path,
        help="draw traces.png and rmse.png into it, and with --test reliability.png and pit.png "
        "(none)",
    )
    options.add_file_options(out)
    options.add_json(out)
    return out


def run(args: argparse.Namespace) -> None:
    """Diagnose, and tell."""
    from bayesmf.cli.scores import calibrate, unseen
    from bayesmf.estimator import BayesianMF
    from bayesmf.ratings import Ratings

    if args.plots is not None:
        from bayesmf.plots import check_matplotlib

        check_matplotlib()
    model = BayesianMF.load(args.model)
    ratings = scores = calibration = None
    if args.test is not None:
        ratings = Ratings.read(args.test, format=args.format, columns=args.columns)
    if args.plots is not None:
        _make_folder(args.plots)
    if ratings is not None:
        calibration = calibrate(model, ratings)
        scores = calibration.overall.as_dict() | unseen(model, ratings)
    found, (chains, draws) = model.diagnose(N_PAIRS), _chains(model)
    about = {"model": args.model, "fit": model.report_, "chains": chains}
    about |= {"draws_per_chain": draws, "diagnostics": found}
    about["verdict"] = verdict(chains, draws, found["prediction"]["rhat_95"])
    about |= {"test": scores, "calibration": calibration and calibration.as_dict()}
    about["plots"] = [] if args.plots is None else _draw(model, args.plots, calibration)
    if args.json:
        print_json(about)
    else:
        _tell(about, calibration)


def _tell(about: dict[str, Any], calibration: Calibration | None) -> None:
    from bayesmf.cli.scores import error_facts, print_calibration

    print_facts(fit_facts(about["fit"]))
    print()
    _print(about["diagnostics"])
    print()
    if calibration is not None:
        print_facts(error_facts(about["test"]))
        print()
        print_calibration(calibration)
        print()
    if about["plots"]:
        names = ", ".join(path.name for path in about["plots"])
        print(f"{names} drawn in {about['plots'][0].parent}\n")
    print(about["verdict"])
    if calibration is not None:
        print(calibration.verdict)


def _make_folder(folder: Path) -> None:
    """Make the folder, and refuse now pictures that could not be written after the work."""
    from bayesmf.plots import NAMES

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"{folder} cannot be made a folder: {reason}") from None
    for name in NAMES:
        check_file(folder / name, (".png",))


def _draw(model: BayesianMF, folder: Path, calibration: Calibration | None) -> list[Path]:
    from bayesmf.plots import draw

    drawn, missing = draw(folder, model._traces(N_PAIRS, 0), model.history_, calibration)
    for sentence in missing:
        note(sentence)
    return drawn


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
        return (
            f"R-hat of predictions {rhat:.3f} > {AGREE} (95% of them stay below it): sample "
            "longer, with --target accurate or more --epochs."
        )
    if chains < 2:
        return (
            f"R-hat of predictions {rhat:.3f}: the halves of the one chain agree; whether chains "
            "from elsewhere would is not known, fit with --chains 2 or more."
        )
    return f"R-hat of predictions {rhat:.3f}: the {chains} chains agree."
