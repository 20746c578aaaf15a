"""What posterior propagation loses: `python -m benchmarks.propagation --ml-1m FOLDER`.

Fits ML-1M (90:10, D = 30) with the default sampler, and by propagation on several grids, and prints
a Markdown table: errors and coverage of held-out ratings, and the seconds of each stage. With
--tune the held-out ratings are a tenth of the training ones: settings are chosen by these, and the
test ratings are never looked at.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

from bayesmf import BayesianMF, Propagation, Ratings, Scores
from bayesmf.errors import DataWarning, InputError
from benchmarks.arguments import Parser, words


def make_parser() -> Parser:
    """The options."""
    parser = Parser("propagation", __doc__)
    add = parser.add_argument
    add("--ml-1m", type=Path, required=True, metavar="FOLDER", help="has ratings.dat")
    add("--grids", default="2x2,4x4", metavar="RxC,..", help="grids (2x2,4x4)")
    add("--first", default="0.7", metavar="S,..", help="shares of the first stripes (0.7)")
    add("--factors", type=int, default=30, metavar="D", help="latent factors (30)")
    add("--sweeps", type=int, default=16, metavar="K", help="sweeps that are followed (16)")
    add("--warm-up", type=int, default=8, metavar="W", help="sweeps before these (8)")
    add("--seed", type=int, default=0, metavar="S", help="of split and fits (0)")
    add("--workers", type=int, default=None, metavar="N", help="threads (one a core)")
    add("--tune", action="store_true", help="hold out training ratings, not the test ones")
    return parser


def samplers(grids: str, first: str, sweeps: int, warm_up: int) -> dict[str, Propagation]:
    """Those to try, by what they are called in the table."""
    return {
        f"{grid}, first {share}": Propagation(
            grid=grid, first=float(share), sweeps=sweeps, warm_up=warm_up
        )
        for grid in words(grids)
        for share in words(first)
    }


def stage_seconds(model: BayesianMF) -> str:
    """Seconds of the stages, and of the draws after them."""
    ends = [event["seconds"] for event in model.history_[:3]]
    ends.append(model.report_["seconds"])
    return " + ".join(f"{b - a:.1f}" for a, b in zip([0.0, *ends], ends, strict=False))


def line(name: str, scores: Scores, joint: Scores, seconds: str) -> str:
    """A row of the table."""
    loss = 100 * (scores.rmse / joint.rmse - 1)
    held = 100 * scores.coverage["90"]
    return (
        f"| {name} | {scores.rmse:.4f} | {loss:+.2f}% | {scores.nll:.4f} | {held:.1f} | {seconds} |"
    )


def main() -> None:
    """Fit, and print the table."""
    args = make_parser().parse_args()
    path = args.ml_1m / "ratings.dat"
    if not path.exists():
        raise InputError(f"there is no file {path}")
    warnings.simplefilter("ignore", DataWarning)
    train, test = Ratings.read(path).split(0.1, random_state=args.seed)
    if args.tune:
        train, test = train.split(0.1, random_state=args.seed + 1)
    about = {"random_state": args.seed, "n_workers": args.workers, "progress": False}
    model = BayesianMF(args.factors, **about).fit(train)
    joint = model.evaluate(test)
    print("| sampler | RMSE | loss | NLL | 90% intervals hold | seconds: stages + draws |")
    print("|---|---|---|---|---|---|")
    print(line("joint", joint, joint, f"{model.report_['seconds']:.1f}"), flush=True)
    for name, rule in samplers(args.grids, args.first, args.sweeps, args.warm_up).items():
        model = BayesianMF(args.factors, sampler=rule, **about).fit(train)
        print(line(name, model.evaluate(test), joint, stage_seconds(model)), flush=True)


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        print(f"propagation: {error}", file=sys.stderr)
        raise SystemExit(2) from None
