"""`bayesmf synth`: write synthetic ratings with a planted truth."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bayesmf.cli import options
from bayesmf.cli.output import check_file, print_facts, print_json
from bayesmf.errors import InputError
from bayesmf.process import counting
from bayesmf.wording import count

if TYPE_CHECKING:
    from bayesmf.synthetic.synthetic import Synthetic

SHAPES = ("ml-100k", "ml-1m", "ml-10m", "netflix", "yahoo")
SIZES = ("users", "items", "ratings")
SUFFIXES = (".csv", ".tsv", ".parquet")


def parser() -> options.Parser:
    """Options of `synth`."""
    out = options.command(
        "synth",
        "Write synthetic ratings, of the shape of a known data set or of sizes of your own.",
        "--shape ml-1m --scale 0.1 --out ratings.csv",
        "--users 1000 --items 500 --ratings 40000 --stars --out ratings.parquet",
        "--shape netflix --stars --shuffle --out train.parquet --test test.parquet",
    )
    add, whole = out.add_argument, options.whole
    add("--out", required=True, type=Path, metavar="FILE", help=".csv, .tsv or .parquet file")
    add("--shape", choices=SHAPES, help="sizes of a known data set")
    add("--scale", type=options.positive, metavar="X", help="part of the shape's ratings (1)")
    for name, letter in zip(SIZES, "LMN", strict=True):
        add(f"--{name}", type=whole(1), metavar=letter, help=f"number of {name}")
    add("--factors", type=whole(1), default=8, metavar="D", help="planted factors (8)")
    add(
        "--noise", type=_noise, default=0.85, metavar="S", help="standard deviation of noise (0.85)"
    )
    add("--stars", action="store_true", help="round to 1, 2, 3, 4 or 5")
    options.add_seed(out, "all that is drawn")
    add("--test", type=Path, metavar="FILE", help="file for ratings that are held out of --out")
    add("--holdout", type=_holdout, metavar="X", help="their share, or their number (0.01)")
    add("--shuffle", action="store_true", help="rows in random order, not user by user")
    add("--truth", type=Path, metavar="FILE", help=".safetensors file of what was planted")
    options.add_json(out)
    return out


def _noise(text: str) -> float:
    return options.number(text, lambda value: value >= 0, "a number from 0 on")


def _holdout(text: str) -> float:
    return options.number(
        text, lambda x: 0 < x < 1 or (x >= 1 and x == int(x)), "a share below 1 or a whole number"
    )


def run(args: argparse.Namespace) -> None:
    """Write the files, and print their sizes."""
    _check_files(args)
    plan = _plan(args)
    holdout = 0.01 if args.holdout is None else args.holdout
    held = 0 if args.test is None else plan.held_out(holdout)
    begin = time.monotonic()
    with counting("writing", plan.n_ratings, "ratings") as progress:
        plan.write(args.out, progress, test=args.test, holdout=holdout, shuffle=args.shuffle)
    if args.truth is not None:
        plan.truth().save(args.truth)
    about = {
        "users": plan.n_users,
        "items": plan.n_items,
        "ratings": plan.n_ratings,
        "factors": plan.n_factors,
        "noise": plan.noise,
        "stars": plan.stars,
        "noise_floor": plan.noise_floor,
        "seed": plan.random_state,
        "seconds": time.monotonic() - begin,
        "out": args.out,
        "held_out": held,
        "test": args.test,
        "truth": args.truth,
    }
    if args.json:
        print_json(about)
        return
    floor = "unknown: stars are rounded" if plan.stars else f"RMSE {plan.noise_floor:g}"
    sizes = f"{plan.n_ratings:,} by {count(plan.n_users, 'user')} of {count(plan.n_items, 'item')}"
    facts = [("ratings", sizes), ("noise floor", floor), ("saved", str(args.out))]
    if args.test is not None:
        facts.append(("held out", f"{held:,}: {args.test}"))
    if args.truth is not None:
        facts.append(("truth", str(args.truth)))
    print_facts(facts)


def _check_files(args: argparse.Namespace) -> None:
    check_file(args.out, SUFFIXES)
    if args.test is not None:
        check_file(args.test, SUFFIXES)
        if args.test.resolve() == args.out.resolve():
            raise InputError(f"{args.test} is also --out: choose another name")
    elif args.holdout is not None:
        raise InputError("--holdout needs --test, the file for what is held out")
    if args.truth is not None:
        check_file(args.truth, (".safetensors",))


def _plan(args: argparse.Namespace) -> Synthetic:
    from bayesmf.synthetic.synthetic import Synthetic

    given = [name for name in SIZES if getattr(args, name) is not None]
    rest = {
        "n_factors": args.factors,
        "noise": args.noise,
        "stars": args.stars,
        "random_state": args.seed,
    }
    if args.shape is not None and not given:
        return Synthetic.like(args.shape, 1.0 if args.scale is None else args.scale, **rest)
    if args.shape is not None or args.scale is not None or len(given) < len(SIZES):
        raise InputError(
            "give --shape, perhaps with --scale, or all of --users, --items and --ratings"
        )
    return Synthetic(args.users, args.items, args.ratings, **rest)
