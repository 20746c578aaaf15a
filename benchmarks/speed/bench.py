"""Speed of samplers, threads and answers on this machine (`make bench`)."""

from __future__ import annotations

import argparse
import io
import warnings
from collections.abc import Iterable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayesmf.cli import options
from bayesmf.cli.output import check_file, note, print_json, print_table, print_text
from bayesmf.errors import ConvergenceWarning, InputError
from bayesmf.process import counting
from bayesmf.storage.atomic import replacing
from benchmarks.options import Parser, command

if TYPE_CHECKING:
    from bayesmf.data.ratings import Ratings
    from benchmarks.speed.timers import Timer

SHAPES = ("ml-100k", "ml-1m", "ml-10m")
# Names in `bench.RULES`: repeated here so that -h need not import what samples.
RULES = ("sgd", "sgld", "sghmc", "gibbs", "gibbs-4", "gibbs-1")
PARTS = ("threads", "answers")


def parser() -> Parser:
    """The options of `bench`."""
    out = Parser(
        "speed.bench",
        "Measure this machine on synthetic ratings: the time of an epoch by each rule, what "
        "threads\nbring, and how fast a model answers. Takes a minute or three.",
    )
    add, whole = out.add_argument, options.whole
    add("--shape", choices=SHAPES, default="ml-1m", help="sizes of a known data set (ml-1m)")
    add("--scale", type=options.unit, default=1, metavar="X", help="part of its ratings (1)")
    add(
        "--factors", type=whole(1), nargs="+", default=[10, 32], metavar="D", help="factors (10 32)"
    )
    add("--repeats", type=whole(1), default=3, metavar="K", help="laps; the best counts (3)")
    add(
        "--threads", type=whole(1), default=2, metavar="T",
        help="threads to compare with one (2); 1 leaves that out",
    )  # fmt: skip
    add(
        "--only", nargs="+", choices=(*RULES, *PARTS), metavar="RULE",
        help=f"only these: {', '.join(RULES)}; {', '.join(PARTS)}",
    )  # fmt: skip
    add("--out", type=Path, metavar="FILE", help="also write it, to a .md or .json file")
    options.add_json(out)
    return out


@dataclass
class Measured:
    """Rows of each table, and what they were measured on."""

    about: dict[str, Any]
    rules: list[dict[str, Any]] = field(default_factory=list)
    threads: list[dict[str, Any]] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain numbers and text, for JSON."""
        return {
            **self.about, "rules": self.rules, "threads": self.threads, "answers": self.answers,
        }  # fmt: skip


def run(args: argparse.Namespace) -> None:
    """Measure, print, and write."""
    if args.out is not None:
        check_file(args.out, (".md", ".json"))
    if not args.scale:
        raise InputError("--scale must be above 0")
    found = _measure(args)
    if args.out is not None:
        with replacing(args.out) as file:
            file.write(_text(found, json=args.out.suffix.lower() == ".json").encode())
    if args.json:
        print_json(found.as_dict())
    else:
        _print_tables(found, markdown=False)


def _measure(args: argparse.Namespace) -> Measured:
    from bayesmf.process import cores
    from bayesmf.synthetic.synthetic import Synthetic
    from experiments.machine import describe_machine

    if args.threads > (have := cores()):
        note(f"--threads {args.threads} is more than the {have} cores there are")
    # Stars, because that is what people give: whole stars are held in a byte each.
    made = Synthetic.like(args.shape, args.scale, stars=True).ratings().compact()
    sizes = {"users": made.n_users, "items": made.n_items, "ratings": len(made.rating)}
    about = {"machine": describe_machine(), "shape": args.shape, **sizes, "repeats": args.repeats}
    found, asked = Measured(about), args.only or (*RULES, *PARTS)
    rules = [name for name in RULES if name in asked]
    if rules:
        found.rules = _time_rules(made, rules, args)
    if "threads" in asked and args.threads > 1:
        found.threads = _time_threads(made, args)
    if "answers" in asked:
        found.answers = _time_answers(made, args)
    return found


def _time_rules(
    made: Ratings, rules: Sequence[str], args: argparse.Namespace
) -> list[dict[str, Any]]:
    from benchmarks.speed import timers as bench

    data = bench.training_data(made)
    timers = {
        (name, d): bench.EpochTimer(data, bench.Case(bench.RULES[name], d))
        for d in args.factors
        for name in rules
    }
    _take_turns(timers.values(), args.repeats, "rules")
    return [
        {
            "rule": name,
            "factors": d,
            "default": name == bench.default_rule(data, d),
            "seconds_per_epoch": timer.seconds,
            "ratings_per_second": timer.ratings_per_second,
        }
        for (name, d), timer in timers.items()
    ]


def _time_threads(made: Ratings, args: argparse.Namespace) -> list[dict[str, Any]]:
    from benchmarks.speed import timers as bench

    # At the largest D alone: there the work is most, and threads have most to share.
    timers = bench.scaling_timers(bench.training_data(made), max(args.factors), args.threads)
    _take_turns((t for pair in timers.values() for t in pair), args.repeats, "threads")
    return bench.scaling_rows(timers)


def _time_answers(made: Ratings, args: argparse.Namespace) -> list[dict[str, Any]]:
    from benchmarks.speed import timers as bench

    with warnings.catch_warnings():  # it is there to answer, not to be right
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = bench.fitted(made, max(args.factors))
    timers = bench.answer_timers(model, sorted({1, args.threads}))
    _take_turns(timers.values(), args.repeats, "answers")
    return [{"factors": max(args.factors), **row} for row in bench.answer_rows(model, timers)]


def _take_turns(timers: Iterable[Timer], repeats: int, what: str) -> None:
    from benchmarks.speed.timers import take_turns

    todo = list(timers)
    with counting(f"timing {what}", (1 + repeats) * len(todo), "runs") as progress:
        take_turns(todo, repeats, progress)


# -- telling --------------------------------------------------------------------------------------

Table = tuple[str, Sequence[str], list[Sequence[str]]]


def _tables(found: Measured) -> list[Table]:
    """Title, heads and rows of each."""
    from benchmarks.speed.timers import LABELS

    one = f"One thread, best of {found.about['repeats']}"
    tables: list[Table] = []
    if found.rules:
        rows = [
            (
                LABELS[row["rule"]] + (" (default)" if row["default"] else ""),
                f"{row['factors']}",
                f"{1e3 * row['seconds_per_epoch']:.1f}",
                f"{row['ratings_per_second'] / 1e6:.1f}",
            )
            for row in found.rules
        ]
        tables.append((one, ("rule", "D", "ms per epoch", "M ratings/s"), list(rows)))
    if found.threads:
        n, d = found.threads[0]["threads"], found.threads[0]["factors"]
        shown = [
            (
                row["case"],
                f"{1e3 * row['seconds_one_thread']:.1f}",
                f"{1e3 * row['seconds']:.1f}",
                f"{row['speed_up']:.2f}",
            )
            for row in found.threads
        ]
        heads = ("what", "ms, 1 thread", f"ms, {n} threads", "times as fast")
        tables.append((f"An epoch on {n} threads, D = {d}", heads, list(shown)))
    if found.answers:
        tables.append(_answer_table(found.answers))
    return tables


def _answer_table(answers: Sequence[dict[str, Any]]) -> Table:
    names = {"predict": "mean and std of {:,} pairs", "top-10": "ten best for each of {:,} users"}
    rows = [
        (
            names[row["answer"]].format(row["count"]),
            f"{row['threads']}",
            f"{1e3 * row['seconds']:.0f}",
            f"{row['per_second']:,.0f}",
        )
        for row in answers
    ]
    title = f"Answers from {answers[0]['draws']} draws, D = {answers[0]['factors']}"
    return title, ("answer", "threads", "ms", "a second"), list(rows)


def _text(found: Measured, json: bool) -> str:
    """Text for a file: one JSON object, or Markdown."""
    out = io.StringIO()
    with redirect_stdout(out):
        if json:
            print_json(found.as_dict())
        else:
            _print_tables(found, markdown=True)
    return out.getvalue()


def _print_tables(found: Measured, markdown: bool) -> None:
    from experiments.machine import machine_text

    about = found.about
    say = print if markdown else print_text
    say(machine_text(about["machine"]))
    say(
        f"\n{about['shape']}: {about['ratings']:,} synthetic ratings by {about['users']:,} users "
        f"of {about['items']:,} items"
    )
    for title, heads, rows in _tables(found):
        print(f"\n{'### ' if markdown else ''}{title}" + ("\n" if markdown else ""))
        if markdown:
            print(f"| {' | '.join(heads)} |\n|---{'|--:' * (len(heads) - 1)}|")
            for row in rows:
                print(f"| {' | '.join(row)} |")
        else:
            print_table(heads, rows)


@command
def main(argv: list[str] | None = None) -> int:
    """0, or 2 for bad input."""
    run(parser().parse_args(argv))
    return 0
