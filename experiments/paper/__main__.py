"""`python -m experiments.paper`: the experiments of the paper, with pictures."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayesmf.cli import options
from bayesmf.cli.output import during, note, print_facts, print_json, print_text
from bayesmf.errors import InputError
from bayesmf.process import cores
from bayesmf.reading.files import open_regular, reading
from bayesmf.storage.paths import as_path
from bayesmf.wording import count
from experiments import command

if TYPE_CHECKING:
    from experiments.paper.experiments import ExperimentSettings
    from experiments.paper.presets import Tuned

LATENCY, BANDWIDTH = 0.5, 10.0
EXPERIMENTS = ("convergence", "chains", "dimension", "cost", "all", "search")


def parser() -> options.Parser:
    """The options of `paper`."""
    out = command.command(
        "paper",
        "Run the experiments of the paper: figures, tables, and a verdict on each claim. "
        "convergence: Figures 3 and 4. chains: Figure 5. dimension: Figure 6 a, b, and the table. "
        "cost: Figure 6 c. all: the four. search: step sizes for --settings tuned, on a validation "
        "split; the others make it where it is missing. Trials are stored in DIR and reused.",
        "all --data synthetic:netflix --scale 0.02 --budget 60 --out report",
        "convergence --data movielens:ml-1m --settings paper --out report",
    )
    add = out.add_argument
    add("experiment", choices=EXPERIMENTS, metavar="EXPERIMENT", help=", ".join(EXPERIMENTS))
    add("--data", default="synthetic:netflix", metavar="KIND:WHAT",
        help="netflix, yahoo, movielens:PATH or synthetic:SHAPE (synthetic:netflix)")  # fmt: skip
    add("--scale", type=options.positive, default=None, metavar="X",
        help="part of the users (1; synthetic 0.02)")  # fmt: skip
    add("--budget", type=options.positive, default=60.0, metavar="SECONDS",
        help="most seconds of each trial, by its own clock (60)")  # fmt: skip
    add("--epochs", type=options.positive, metavar="E",
        help="most epochs of each chain (120)")  # fmt: skip
    add("--workers", type=options.whole(1), default=9, metavar="S",
        help="workers of the distributed algorithms, a square number (9)")  # fmt: skip
    add("--settings", choices=("tuned", "paper"), default="tuned",
        help="step sizes found on a validation split, or the paper's (tuned)")  # fmt: skip
    add("--dimensions", type=options.whole(1), nargs="+", default=[30, 60, 100], metavar="D",
        help="factors; of dimension and cost all, of others the first (30 60 100)")  # fmt: skip
    add("--ray-address", metavar="A", help="run workers on a Ray cluster; else they are simulated")
    add("--latency", type=options.seconds, metavar="MS",
        help=f"latency of simulated links, one way ({LATENCY:g})")  # fmt: skip
    add("--bandwidth", type=options.positive, metavar="GBIT",
        help=f"bandwidth of the simulated server's link ({BANDWIDTH:g})")  # fmt: skip
    add(
        "--jobs", type=options.whole(1), metavar="J", help="trials side by side (one for each core)"
    )
    options.add_seed(out, "the data and the chains")
    add("--out", type=Path, required=True, metavar="DIR", help="folder for trials and results")
    options.add_json(out)
    return out


def run(args: argparse.Namespace) -> None:
    """Run missing trials, draw the figures, print the verdicts."""
    from experiments.paper.datasets import load_dataset
    from experiments.paper.experiments import EXPERIMENTS as MADE
    from experiments.paper.experiments import perform_all, specs_of
    from experiments.paper.report import Results, write_all

    settings = _settings(args)
    with _writable(args.out):
        with during("making the data"):
            dataset = load_dataset(settings.source, settings.out / "data")
        settings = _tuned(settings, dataset, args)
        if args.experiment == "search":
            return _print_search(settings, args)
        wanted = MADE if args.experiment == "all" else (args.experiment,)
        specs = {name: specs_of(name, settings, dataset) for name in wanted}
        every = [one for group in specs.values() for one in group]
        _announce(args.experiment, every, settings, dataset)
        records = perform_all(every, settings, dataset)
        found = Results(**{name: [records[one.key] for one in specs[name]] for name in wanted})
        path = write_all(found, settings, dataset)
    _print_results(path, found, args)


def _settings(args: argparse.Namespace) -> ExperimentSettings:
    from experiments.paper.datasets import DataSource
    from experiments.paper.experiments import ExperimentSettings
    from experiments.paper.presets import EPOCHS, grid_and_chains
    from experiments.paper.trials import Links

    scale = args.scale or (0.02 if args.data.startswith("synthetic:") else 1.0)
    grid_and_chains("DSGLD-S", args.workers)  # refuses a number that is not a square
    jobs = args.jobs or cores()
    if args.ray_address is not None:
        jobs = 1  # one cluster, one clock
        for name in ("latency", "bandwidth"):
            if getattr(args, name) is not None:
                raise InputError(f"--{name} does nothing with --ray-address, whose links are real")
    latency = LATENCY if args.latency is None else args.latency
    bandwidth = BANDWIDTH if args.bandwidth is None else args.bandwidth
    return ExperimentSettings(
        source=DataSource.parse(args.data, scale, args.seed),
        out=args.out,
        settings=args.settings,
        # Floats always: a run's name is a hash of them, and 60 is the same as 60.0.
        budget=float(args.budget),
        epochs=float(args.epochs or EPOCHS),
        workers=args.workers,
        links=Links(latency * 1e-3, bandwidth * 1.25e8, args.ray_address),
        seed=args.seed,
        jobs=jobs,
        dimensions=tuple(args.dimensions),
    )


def _tuned(
    settings: ExperimentSettings, dataset: Any, args: argparse.Namespace
) -> ExperimentSettings:
    """Settings with step sizes of tuned.json, which is made where it is missing."""
    from dataclasses import replace

    from experiments.paper.search import first_trials, keep, search

    # What is timed for three passes needs no good steps.
    if args.experiment == "cost" or (settings.settings == "paper" and args.experiment != "search"):
        return settings
    path = settings.out / "tuned.json"
    if path.exists() and args.experiment != "search":
        try:
            with reading(path), open_regular(path) as file:
                found: Tuned = json.loads(file.read())
        except InputError:
            raise
        except (ValueError, RecursionError):
            raise InputError(f"{path} is not JSON: remove it to search again") from None
        return replace(settings, tuned=found)
    _announce(
        "search for steps on a validation split", first_trials(settings, dataset), settings, dataset
    )
    found, trials = search(settings, dataset)
    keep(found, settings)
    from experiments.paper.tables import run_row, write_csv

    write_csv(settings.out / "search.csv", [run_row(record) for record in trials])
    return replace(settings, tuned=found)


def _announce(what: str, specs: Any, settings: ExperimentSettings, dataset: Any) -> None:
    """Print the number of missing trials and an estimate of their time."""
    from experiments.paper.experiments import expected

    found = expected(specs, settings, dataset)
    if found.runs:
        note(
            f"{what}: {count(found.runs, 'trial')} to run, of at most {settings.budget:g} s each "
            f"by their own clock; about {_lasting(found.seconds)} here, and about "
            f"{_lasting(found.compiling)} of compiling at the first run"
        )


def _lasting(seconds: float) -> str:
    return f"{seconds:.0f} seconds" if seconds < 90 else f"{seconds / 60:.0f} minutes"


@contextlib.contextmanager
def _writable(out: Path) -> Iterator[None]:
    """Context in which the folder exists; a new one is removed if it stays empty."""
    made = not as_path(out).exists()
    out.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        if made:
            with contextlib.suppress(OSError):
                out.rmdir()
        raise


def _print_search(settings: ExperimentSettings, args: argparse.Namespace) -> None:
    if args.json:
        print_json({"tuned": settings.tuned})
        return
    facts = [
        (f"{name}, D = {d}", ", ".join(f"{key} {value:.4g}" for key, value in found.items()))
        for name, by_dimension in settings.tuned.items()
        for d, found in by_dimension.items()
    ]
    print_facts([*facts, ("saved", str(settings.out / "tuned.json"))])


def _print_results(path: Path, found: Any, args: argparse.Namespace) -> None:
    from experiments.paper.claims import judge
    from experiments.paper.datasets import DataSource

    model = DataSource.parse(args.data, 1.0, 0).model
    verdicts = judge(model, found.convergence, found.chains, found.dimension, found.cost)
    if args.json:
        rows = [{"claim": v.claim, "verdict": v.verdict, **v.figures} for v in verdicts]
        print_json({"claims": rows, "report": str(path)})
        return
    for verdict in verdicts:
        print_text(f"{verdict.verdict}: {verdict.claim}")
        print_text(f"{verdict.because}\n")
    print_facts([("report", str(path))])


def main(argv: list[str] | None = None) -> int:
    """The command's exit status."""
    return command.main(parser, run, argv)


if __name__ == "__main__":
    sys.exit(main())
