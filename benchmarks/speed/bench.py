"""Speed of samplers, threads and answers on this machine (`make bench`).

On synthetic ratings: the time of an epoch by each rule, what threads bring, and how fast a model
answers. Takes a minute or three.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

from bayesmf import Ratings, Synthetic
from bayesmf.errors import ConvergenceWarning, InputError
from benchmarks.options import BenchParser, command
from benchmarks.speed import timers as bench
from benchmarks.speed.scale_speed import Plan, Section, turns
from experiments.machine import describe_machine, machine_text

SHAPES = ("ml-100k", "ml-1m", "ml-10m")
PARTS = ("threads", "answers")
ANSWERS = {"predict": "mean and std of {:,} pairs", "top-10": "ten best for each of {:,} users"}


def make_parser() -> BenchParser:
    """The options."""
    parser = BenchParser("bench", __doc__)
    add = parser.add_argument
    add("--shape", choices=SHAPES, default="ml-1m", help="sizes of a known data set (ml-1m)")
    add("--scale", type=float, default=1.0, metavar="X", help="part of its ratings (1)")
    add("--factors", type=int, nargs="+", default=[10, 32], metavar="D", help="factors (10 32)")
    add("--repeats", type=int, default=3, metavar="K", help="laps; the best counts (3)")
    add("--threads", type=int, default=2, metavar="T",
        help="threads to compare with one (2); 1 leaves that out")  # fmt: skip
    add("--only", nargs="+", choices=(*bench.RULES, *PARTS), metavar="RULE",
        help=f"only these: {', '.join((*bench.RULES, *PARTS))}")  # fmt: skip
    add("--out", type=Path, metavar="FILE", help="also write it, to a .md or .json file")
    add("--json", action="store_true", help="print one JSON object, nothing else")
    return parser


def check(args: argparse.Namespace) -> None:
    """InputError for invalid options."""
    if not 0 < args.scale <= 1:
        raise InputError("--scale must be above 0 and at most 1")
    if min(args.repeats, args.threads, *args.factors) < 1:
        raise InputError("--factors, --repeats and --threads must be whole numbers from 1 on")
    if args.out is not None and args.out.suffix not in (".md", ".json"):
        raise InputError(f"{args.out} must end in .md or .json")
    if args.out is not None and not args.out.resolve().parent.is_dir():
        raise InputError(f"there is no folder {args.out.parent}")


def rules_section(made: Ratings, names: list[str], args: argparse.Namespace) -> Section:
    """Epochs of each rule."""
    data = bench.training_data(made)
    timers = {
        (name, d): bench.EpochTimer(data, bench.Timed(bench.RULES[name], d))
        for d in args.factors
        for name in names
    }
    turns(timers.values(), Plan(repeats=args.repeats), "rules")
    out = Section("One thread", ("rule", "D", "ms per epoch", "M ratings/s"))
    out.data["rows"] = []
    for (name, d), timer in timers.items():
        usual, rate = name == bench.default_rule(data, d), timer.ratings_per_second
        out.data["rows"].append({
            "rule": name, "factors": d, "default": usual, "seconds_per_epoch": timer.seconds,
            "ratings_per_second": rate,
        })  # fmt: skip
        label = bench.LABELS[name] + " (default)" * usual
        out.rows.append((label, f"{d}", f"{1e3 * timer.seconds:.1f}", f"{rate / 1e6:.1f}"))
    return out


def threads_section(made: Ratings, args: argparse.Namespace) -> Section:
    """Epochs on one and on several threads, at the largest D: there threads have most to share."""
    n, d = args.threads, max(args.factors)
    timers = bench.scaling_timers(bench.training_data(made), d, n)
    turns((t for pair in timers.values() for t in pair), Plan(repeats=args.repeats), "threads")
    out = Section(f"An epoch on {n} threads, D = {d}",
                  ("what", "ms, 1 thread", f"ms, {n} threads", "times as fast"))  # fmt: skip
    out.data["rows"] = bench.scaling_rows(timers)
    for row in out.data["rows"]:
        times = (f"{1e3 * row[name]:.1f}" for name in ("seconds_one_thread", "seconds"))
        out.rows.append((row["case"], *times, f"{row['speed_up']:.2f}"))
    return out


def answers_section(made: Ratings, args: argparse.Namespace) -> Section:
    """Predictions and lists of a fitted model."""
    d = max(args.factors)
    with warnings.catch_warnings():  # it is there to answer, not to be right
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = bench.fitted(made, d)
    timers = bench.answer_timers(model, sorted({1, args.threads}))
    turns(timers.values(), Plan(repeats=args.repeats), "answers")
    out = Section(f"Answers from {bench.DRAWS} draws, D = {d}",
                  ("answer", "threads", "ms", "a second"))  # fmt: skip
    out.data["rows"] = [{"factors": d, **row} for row in bench.answer_rows(model, timers)]
    for row in out.data["rows"]:
        what = ANSWERS[row["answer"]].format(row["count"])
        numbers = f"{1e3 * row['seconds']:.0f}", f"{row['per_second']:,.0f}"
        out.rows.append((what, f"{row['threads']}", *numbers))
    return out


@command
def main(argv: list[str] | None = None) -> None:
    """Measure, print, and write."""
    args = make_parser().parse_args(argv)
    check(args)
    # Stars, because that is what people give: whole stars are held in a byte each.
    made = Synthetic.like(args.shape, args.scale, stars=True).ratings().compact()
    about = describe_machine()
    found: dict[str, Any] = {
        "machine": about, "shape": args.shape, "users": made.n_users, "items": made.n_items,
        "ratings": len(made.rating), "repeats": args.repeats,
        "rules": [], "threads": [], "answers": [],
    }  # fmt: skip
    asked, sections = args.only or (*bench.RULES, *PARTS), {}
    if names := [name for name in bench.RULES if name in asked]:
        sections["rules"] = rules_section(made, names, args)
    if "threads" in asked and args.threads > 1:
        sections["threads"] = threads_section(made, args)
    if "answers" in asked:
        sections["answers"] = answers_section(made, args)
    found |= {name: section.data["rows"] for name, section in sections.items()}
    head = (
        f"{machine_text(about)}\n\n{args.shape}: {len(made.rating):,} synthetic ratings by "
        f"{made.n_users:,} users of {made.n_items:,} items; best of {args.repeats}.\n"
    )
    text = "\n".join([head, *(section.markdown() for section in sections.values())])
    plain = json.dumps(found)
    print(plain if args.json else text)
    if args.out is not None:
        args.out.write_text(plain if args.out.suffix == ".json" else text)
