"""`python -m experiments.paper`: the experiments of the paper, with pictures."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayesmf.cli import options
from bayesmf.cli.output import during, note, print_facts, print_json, print_text
from bayesmf.errors import InputError
from bayesmf.process import cores
from bayesmf.storage.paths import as_input_error, as_path
from bayesmf.wording import count
from experiments import command

if TYPE_CHECKING:
    from experiments.paper.datasets import Dataset, DataSource
    from experiments.paper.experiments import ExperimentSettings
    from experiments.paper.verdicts import Verdict

LATENCY, BANDWIDTH = 0.5, 10.0
EXPERIMENTS = ("convergence", "chains", "dimension", "cost", "all")


def parser() -> options.Parser:
    """The options of `paper`."""
    out = command.command(
        "paper",
        "Run the experiments of the paper: figures, tables, and a verdict on each claim. "
        "EXPERIMENT is convergence (Figures 3 and 4), chains (Figure 5), dimension (Figure 6 a, b, "
        "and Table 3), cost (Figure 6 c), or all of these. On a part of the "
        "paper's data, mini-batches, simulated latency and the server's seconds are multiplied by "
        "that part of the ratings, beta_0 by the part of the items, and the bandwidth by the "
        "second over the first. Burn-in ends at the printed RMSE on the paper's data, elsewhere at "
        "80% of DSGD's fall from the RMSE of the mean rating to its lowest. Trials are stored in "
        "DIR and reused.",
        "all --data synthetic:netflix --scale 0.01 --seeds 0 1 2 --out report",
        "convergence --data ml-1m --out report",
    )
    add = out.add_argument
    add("experiment", choices=EXPERIMENTS, metavar="EXPERIMENT", help=", ".join(EXPERIMENTS))
    add("--data", default="synthetic:netflix", metavar="PATH",
        help="folder of Netflix, Yahoo! Music R2 or MovieLens, a file of ratings, or "
        "synthetic:SHAPE (synthetic:netflix)")  # fmt: skip
    add("--scale", type=options.positive, default=None, metavar="X",
        help="part of the users, with their ratings (1; synthetic 0.01)")  # fmt: skip
    add("--budget", type=options.positive, default=60.0, metavar="SECONDS",
        help="seconds of each trial, by its own clock; with Yahoo's settings twice as many for 60 "
        "factors, three times for 100 (60)")  # fmt: skip
    add("--epochs", type=options.positive, metavar="E",
        help="largest number of epochs of a chain (what the budget allows; with --settings default "
        "40)")  # fmt: skip
    add("--workers", type=options.whole(1), default=9, metavar="S",
        help="workers of the distributed algorithms, a square number (9)")  # fmt: skip
    add("--settings", choices=("paper", "default"), default="paper",
        help="paper: as printed; default: the library's own with the paper's splits and numbers "
        "of chains (paper)")  # fmt: skip
    add("--burn-in", type=options.positive, metavar="RMSE",
        help="mean RMSE of all chains that ends burn-in, with the paper's settings")  # fmt: skip
    add("--beta-0", type=options.positive, metavar="B",
        help="beta_0 of SGLD and DSGLD, with the paper's settings (300 times the part of the "
        "items)")  # fmt: skip
    add("--dimensions", type=options.whole(1), nargs="+", default=[30, 60, 100], metavar="D",
        help="factors: dimension and cost use all, others the first (30 60 100)")  # fmt: skip
    add("--ray-address", metavar="A", help="run workers on a Ray cluster; else they are simulated")
    add("--latency", type=milliseconds, metavar="MS",
        help=f"latency of simulated links, one way ({LATENCY:g})")  # fmt: skip
    add("--bandwidth", type=options.positive, metavar="GBIT",
        help=f"bandwidth of the simulated server's link ({BANDWIDTH:g})")  # fmt: skip
    add(
        "--jobs",
        type=options.whole(1),
        metavar="J",
        help="trials at the same time (one for each core)",
    )
    add("--seeds", type=options.whole(0), nargs="+", default=[0], metavar="N",
        help="seeds of the data, or of their split, and of the chains (0)")  # fmt: skip
    add("--out", required=True, metavar="DIR", help="folder for trials and results")
    options.add_json(out)
    return out


def milliseconds(text: str) -> float:
    """A number of milliseconds, 0 included."""
    return options.number(text, lambda value: value >= 0, "a number of milliseconds, 0 or more")


def run(args: argparse.Namespace) -> None:
    """Run missing trials, draw the figures, print the verdicts."""
    from experiments.paper.experiments import EXPERIMENTS as MADE
    from experiments.paper.experiments import Job, missing, perform_all, specs_of, with_burn_in
    from experiments.paper.report import Results, write_all

    settings = _settings(args)
    _make_folder(settings.out)
    with during("making the data"):
        every = [settings.of_seed(seed) for seed in settings.seeds]
    note_excerpt(settings.source, every[0][1])
    if args.experiment != "cost":
        every = with_burn_in(every)
    jobs = {
        name: [
            [Job(spec, one, dataset) for spec in specs_of(name, one, dataset)]
            for one, dataset in every
        ]
        for name in MADE
    }
    # The report has all experiments whose trials are there.
    jobs = {
        name: groups for name, groups in jobs.items()
        if args.experiment in (name, "all") or not missing(chain.from_iterable(groups))
    }  # fmt: skip
    flat = [job for groups in jobs.values() for job in chain.from_iterable(groups)]
    _announce(args.experiment, flat, settings)
    records = perform_all(flat)
    found = [
        Results(seed, **{name: [records[job.spec.key] for job in jobs[name][k]] for name in jobs})
        for k, seed in enumerate(settings.seeds)
    ]
    settings = replace(settings, links=every[0][0].links, burn_in=every[0][0].burn_in)
    with during("judging the claims and drawing the figures"):
        verdicts = write_all(found, settings, [dataset for _, dataset in every])
    _print_results(verdicts, settings.out / "report.md", args.json)


def _settings(args: argparse.Namespace) -> ExperimentSettings:
    from experiments.paper.datasets import DataSource
    from experiments.paper.experiments import ExperimentSettings
    from experiments.paper.presets import EPOCHS, grid_and_chains
    from experiments.paper.trials import Links

    scale = args.scale or (0.01 if args.data.startswith("synthetic:") else 1.0)
    grid_and_chains("DSGLD-S", args.workers)  # refuses a number that is not a square
    for name, value in (("--burn-in", args.burn_in), ("--beta-0", args.beta_0)):
        if value is not None and args.settings == "default":
            raise InputError(f"{name} does nothing with --settings default")
    jobs = args.jobs or cores()
    if args.ray_address is not None:
        jobs = 1  # one cluster, one clock
        for name in ("latency", "bandwidth"):
            if getattr(args, name) is not None:
                raise InputError(f"--{name} does nothing with --ray-address, whose links are real")
    latency = LATENCY if args.latency is None else args.latency
    bandwidth = BANDWIDTH if args.bandwidth is None else args.bandwidth
    return ExperimentSettings(
        source=DataSource.parse(args.data, scale, args.seeds[0]),
        out=as_path(args.out),
        # Floats always: a run's name is a hash of them, and 60 is the same as 60.0.
        budget=float(args.budget),
        settings=args.settings,
        epochs=float(args.epochs or EPOCHS[args.settings]),
        workers=args.workers,
        links=Links(latency * 1e-3, bandwidth * 1.25e8, args.ray_address),
        seeds=tuple(dict.fromkeys(args.seeds)),
        jobs=jobs,
        dimensions=tuple(args.dimensions),
        burn_in=args.burn_in,
        beta_0=args.beta_0,
    )


def _announce(what: str, jobs: Any, settings: ExperimentSettings) -> None:
    """Print the number of missing trials and an estimate of their time."""
    from experiments.paper.experiments import missing, seconds_of

    if left := missing(jobs):
        seconds = seconds_of(left)
        lasting = f"{seconds:.0f} seconds" if seconds < 90 else f"{seconds / 60:.0f} minutes"
        note(
            f"{what}: {count(len(left), 'trial')} to run, of at most {settings.budget:g} s each by "
            f"their own clock; about {lasting} here, and some more of compiling at the first run"
        )


def note_excerpt(source: DataSource, dataset: Dataset) -> None:
    """Print a note where files of the paper's data are missing."""
    from experiments.paper.datasets import PAPER_RATINGS

    found, whole = dataset.shape().n_ratings, round(source.scale * PAPER_RATINGS[source.model])
    if source.of_paper and found < 0.9 * whole:
        note(
            f"{source.what} has {found:,} training ratings, not {whole:,}: mini-batches and the "
            "end of burn-in are those of all files; --burn-in sets another RMSE"
        )


def _make_folder(out: Path) -> None:
    """Make the folder, or refuse one of other files."""
    with as_input_error(out):
        out.mkdir(parents=True, exist_ok=True)
        inside = {one.name for one in out.iterdir()}
    known = any((out / "data").glob("*study-*")) or inside >= {"report.md", "runs"}
    if not known and (inside - {"data"} or any((out / "data").glob("*"))):
        raise InputError(f"--out {out} holds other files: give a new folder, or that of a report")


def _print_results(verdicts: Sequence[Verdict], path: Path, as_json: bool) -> None:
    from experiments.paper.verdicts import tally

    if as_json:
        rows = [
            {"claim": v.claim, "verdict": v.verdict,
             **{name: list(span.values) for name, span in v.figures.items()}}
            for v in verdicts
        ]  # fmt: skip
        print_json({"claims": rows, "report": str(path)})
        return
    print_text(f"{tally(verdicts)}\n")
    for verdict in verdicts:
        print_text(f"{verdict.verdict}: {verdict.claim}")
        print_text(f"{verdict.because}\n")
    print_facts([("report", str(path))])


def main(argv: list[str] | None = None) -> int:
    """The command's exit status."""
    return command.main(parser, run, argv)


if __name__ == "__main__":
    sys.exit(main())
