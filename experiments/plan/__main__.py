"""`python -m experiments.plan`: estimated time, bytes and memory of a fit on a cluster."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from bayesmf.cli import options
from bayesmf.cli.output import during, print_json, print_table, print_text
from bayesmf.cli.synth import SHAPES
from bayesmf.errors import InputError
from bayesmf.wording import count
from experiments import command

if TYPE_CHECKING:
    from experiments.plan.plan import Planned

WORKERS = "4,16,64,256"
MOST_WORKERS = 4096
MOST_ASKED = 256
CALLING = 0.25e-3  # seconds of the driver for a call of a worker: Ray's, as measured
SAMPLERS = ("default", "dsgld-s", "dsgld-c", "hybrid")
OTHER_NAMES = {"yahoo-music": "yahoo"}
HEAD = (
    "split", "workers", "chains", "seconds a round", "an epoch of all", "used", "idle",
    "driver's MB a round", "kept MB", "a node's MB", "GB of a node",
)  # fmt: skip


def parser() -> options.Parser:
    """The options of `plan`."""
    out = command.command(
        "plan",
        "Estimate what a fit takes on a number of workers, and how best to split it. Nothing is "
        "fitted: tasks are timed on this machine for a second, and the run is simulated.",
        "ratings.packed --workers 4,16,64 --bandwidth 10 --chains 4",
        "--shape netflix --factors 30 --workers-per-node 8",
    )
    add = out.add_argument
    add("ratings", nargs="?", metavar="RATINGS", help="file or folder of ratings, packed ones too")
    add("--shape", choices=(*SHAPES, *OTHER_NAMES), help="sizes of a known data set instead")
    add("--workers", type=_workers, default=_workers(WORKERS), metavar="W,W,...",
        help=f"numbers of workers ({WORKERS})")  # fmt: skip
    add("--chains", type=_chains, default=4, metavar="C",
        help="chains of the default and of hybrid splits (4)")  # fmt: skip
    add("--factors", type=options.whole(1), metavar="D", help="latent features (by the data)")
    add("--samplers", type=_samplers, default=SAMPLERS, metavar="S,S,...",
        help=f"splits to compare ({','.join(SAMPLERS)})")  # fmt: skip
    add("--latency", type=options.seconds, default=0.5, metavar="MS", help="one way (0.5)")
    add("--bandwidth", type=options.positive, default=10, metavar="GBIT",
        help="of a node's link, each way (10)")  # fmt: skip
    add("--workers-per-node", type=options.whole(1), default=4, metavar="N",
        help="workers that share a node and its link (4)")  # fmt: skip
    add("--rate", type=options.positive, metavar="R",
        help="ratings a second of a worker, instead of a measurement on this machine")  # fmt: skip
    options.add_json(out)
    files = out.add_argument_group("files")
    options.add_file_options(files)
    options.add_duplicates(files)
    return out


def _workers(text: str) -> tuple[int, ...]:
    what = f"whole numbers from 1 to {MOST_WORKERS} such as 4,16,64"
    try:
        found = sorted({int(part) for part in text.split(",")})
    except ValueError:
        found = []
    if not found or found[0] < 1 or found[-1] > MOST_WORKERS:
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
    return tuple(found)


def _chains(text: str) -> int:
    found = options.whole(1)(text)
    if found > MOST_ASKED:
        raise argparse.ArgumentTypeError(f"{text!r} is more than {MOST_ASKED}")
    return found


def _samplers(text: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for name in found:
        if name not in SAMPLERS:
            known = ", ".join(SAMPLERS)
            raise argparse.ArgumentTypeError(f"{name!r} is none of {known}")
    return found


def run(args: argparse.Namespace) -> None:
    """Plan, and print a table."""
    if (args.ratings is None) == (args.shape is None):
        raise InputError("give either RATINGS or --shape")
    from experiments.links import Network
    from experiments.plan.plan import advice, plan
    from experiments.plan.sketch import Rate

    network = Network(
        1e-3 * args.latency, args.bandwidth * 1.25e8, workers_per_node=args.workers_per_node,
        calling=CALLING,
    )  # fmt: skip
    counts = _counts(args)
    costs = None if args.rate is None else Rate(args.rate)
    with during("planning") as line:
        found = plan(
            counts, args.workers, args.chains, network, args.factors, args.samplers, costs,
            progress=lambda what: line.say(f"planning {what}"),
        )  # fmt: skip
    best, why = advice(found)
    sizes = {
        "users": len(counts[0]), "items": len(counts[1]), "ratings": int(counts[0].sum())
    }  # fmt: skip
    if args.json:
        plans = [asdict(one) for one in found]
        print_json({**sizes, "plans": plans, "take": asdict(best), "why": why})
        return
    print_table(HEAD, map(_row, found))
    print_text(
        f"\n{sizes['ratings']:,} ratings by {count(sizes['users'], 'user')} of "
        f"{count(sizes['items'], 'item')}; {args.bandwidth:g} Gbit/s, {args.latency:g} ms, "
        f"{count(args.workers_per_node, 'worker')} a node."
    )
    print_text(why[0].upper() + why[1:])


def _row(one: Planned) -> tuple[Any, ...]:
    return (
        f"{one.split} {one.grid}".strip(), one.workers, one.chains,
        f"{one.seconds_per_round:.3g}", f"{one.seconds_per_epoch:.3g}",
        f"{min(one.efficiency, 1.0):.0%}", f"{max(one.idle, 0.0):.0%}",
        f"{one.driver_bytes / 1e6:.2g}", f"{one.fetched_bytes / 1e6:.2g}",
        f"{one.node_bytes / 1e6:.2g}", f"{one.memory / 1e9:.2g}",
    )  # fmt: skip


def _counts(args: argparse.Namespace) -> Any:
    from bayesmf.packed.ratings import PackedRatings
    from experiments.plan.plan import count_ratings, count_shape

    if args.shape is not None:
        return count_shape(OTHER_NAMES.get(args.shape, args.shape))
    if PackedRatings.is_packed(args.ratings):
        return count_ratings(PackedRatings.open(args.ratings))
    return count_ratings(options.read_ratings(args.ratings, args))


def main(argv: list[str] | None = None) -> int:
    """The command's exit status."""
    return command.main(parser, run, argv)


if __name__ == "__main__":
    sys.exit(main())
