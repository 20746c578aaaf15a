"""`bayesmf synth`: synthetic ratings with a planted truth, written as they are made."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bayesmf.cli import options
from bayesmf.cli.output import bar, check_file, count, print_facts, print_json
from bayesmf.errors import InputError

if TYPE_CHECKING:
    from bayesmf.synthetic import Synthetic

SIZES = ("users", "items", "ratings")


def parser() -> options.Parser:
    """The options of `synth`."""
    out = options.command(
        "synth",
        "Write synthetic ratings: of the shape of a known data set, or of your own.",
        "--shape ml-1m --scale 0.1 --out ratings.csv",
        "--users 1000 --items 500 --ratings 40000 --stars --out ratings.parquet",
    )
    add, whole = out.add_argument, options.whole
    add("--out", required=True, type=Path, metavar="FILE", help=".csv, .tsv or .parquet file")
    add("--shape", choices=("ml-100k", "ml-1m", "ml-10m", "netflix", "yahoo"))
    add("--scale", type=options.positive, metavar="X", help="part of the shape's ratings (1)")
    for name, letter in zip(SIZES, "LMN", strict=True):
        add(f"--{name}", type=whole(1), metavar=letter)
    add("--factors", type=whole(1), default=8, metavar="D", help="planted factors (8)")
    add("--noise", type=_noise, default=0.85, metavar="S", help="its standard deviation (0.85)")
    add("--stars", action="store_true", help="round to 1, 2, 3, 4 or 5")
    add("--seed", type=whole(0), default=0, metavar="S", help="(0)")
    options.add_json(out)
    return out


def _noise(text: str) -> float:
    return options.number(text, lambda value: value >= 0, "a number from 0 on")


def run(args: argparse.Namespace) -> None:
    """Write the file, and tell its size."""
    check_file(args.out, (".csv", ".tsv", ".parquet"))
    plan = _plan(args)
    begin = time.monotonic()
    with bar(plan.n_ratings, "ratings") as progress:
        plan.write(args.out, progress.update)
    about = {
        "users": plan.n_users,
        "items": plan.n_items,
        "ratings": plan.n_ratings,
        "factors": plan.n_factors,
        "noise": plan.noise,
        "stars": plan.stars,
        "noise_floor": plan.noise_floor,
        "seed": plan.seed,
        "seconds": time.monotonic() - begin,
        "out": args.out,
    }
    if args.json:
        print_json(about)
        return
    floor = "unknown: stars are rounded" if plan.stars else f"RMSE {plan.noise_floor:g}"
    sizes = f"{plan.n_ratings:,} by {count(plan.n_users, 'user')} of {count(plan.n_items, 'item')}"
    print_facts([("ratings", sizes), ("noise floor", floor), ("saved", str(args.out))])


def _plan(args: argparse.Namespace) -> Synthetic:
    from bayesmf.synthetic import Synthetic

    given = [name for name in SIZES if getattr(args, name) is not None]
    rest = {
        "n_factors": args.factors,
        "noise": args.noise,
        "stars": args.stars,
        "seed": args.seed,
    }
    if args.shape is not None and not given:
        return Synthetic.like(args.shape, 1.0 if args.scale is None else args.scale, **rest)
    if args.shape is not None or args.scale is not None or len(given) < len(SIZES):
        raise InputError(
            "give --shape, perhaps with --scale, or all of --users, --items and --ratings"
        )
    return Synthetic(args.users, args.items, args.ratings, **rest)
