"""Speed at large sizes, beside other libraries. It takes hours.

Where there is a peer, every figure is a ratio: one thread beside one thread in the same run, taking
turns, and the best of five of each. The peers' interpreter is that of an environment with
benchmarks/peers-requirements.txt in it (benchmarks time_to_rmse --make-peers makes one). Sections:

    sgd      our O(N D) rules beside LIBMF's SGD, MovieLens 10M's shape
    gibbs    whole rows beside SMURFF, single columns beside myFM, MovieLens 1M's shape
    threads  what a second thread brings, MovieLens 10M's shape
    linear   an epoch's time by ratings and by D
    netflix  files of 100M ratings: made, packed, fitted, and the lowest error in reach of anyone
    yahoo    files of 718M ratings: made, packed, a few sweeps

    python -m benchmarks scale --peers PEERS/bin/python --only sgd gibbs --markdown scale.md
    python -m benchmarks scale --folder DATA --only netflix yahoo --json scale.json
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bayesmf.errors import BayesMFError, InputError
from benchmarks.options import Parser, command
from benchmarks.speed import scale_figure, scale_large, scale_speed
from benchmarks.speed.scale_speed import Plan, Section
from experiments.machine import describe_machine, machine_text

SECTIONS: dict[str, Callable[[Plan], Section]] = {
    "sgd": scale_speed.sgd,
    "gibbs": scale_speed.gibbs,
    "threads": scale_speed.threads,
    "linear": scale_speed.linear,
    "netflix": scale_large.netflix,
    "yahoo": scale_large.yahoo,
}
LARGE = ("netflix", "yahoo")


def make_parser() -> Parser:
    """The options."""
    parser = Parser("scale", __doc__)
    add = parser.add_argument
    add("--peers", type=Path, metavar="PYTHON", help="interpreter of the peers' environment")
    add("--only", nargs="+", choices=SECTIONS, metavar="SECTION", help="all, if not named")
    add("--repeats", type=int, default=5, metavar="K", help="turns; the best of each counts (5)")
    add("--scale", type=float, default=1.0, metavar="X", help="part of all ratings, to try it (1)")
    add("--full", action="store_true", help="linear: up to 100M ratings")
    add("--folder", type=Path, metavar="DIR", help="netflix, yahoo: where files are kept")
    add("--fit-options", default="", metavar="TEXT", help="netflix, yahoo: more for bayesmf fit")
    add("--json", type=Path, metavar="FILE", help="write all figures")
    add("--markdown", type=Path, metavar="FILE", help="write all tables")
    add("--figure", type=Path, metavar="FILE.png", help="linear: draw it")
    return parser


def check(args: argparse.Namespace) -> list[str]:
    """The sections that are meant; one sentence about what cannot be."""
    if args.repeats < 1:
        raise InputError("--repeats must be a whole number from 1 on")
    if not 0 < args.scale <= 1:
        raise InputError("--scale must be above 0 and at most 1")
    if args.peers is not None and not args.peers.is_file():
        raise InputError(f"there is no interpreter {args.peers}")
    asked = args.only or [name for name in SECTIONS if args.folder or name not in LARGE]
    if args.folder is None and any(name in LARGE for name in asked):
        raise InputError("netflix and yahoo need --folder, where their files are kept")
    if args.figure is not None and "linear" not in asked:
        raise InputError("--figure is drawn by the section linear")
    if args.figure is not None and args.figure.suffix != ".png":
        raise InputError(f"{args.figure} must end in .png")
    for path in (args.json, args.markdown, args.figure):
        if path is not None and not path.resolve().parent.is_dir():
            raise InputError(f"there is no folder {path.parent}")
    return [name for name in SECTIONS if name in asked]


def run(args: argparse.Namespace, names: list[str]) -> bool:
    """All sections, each told and written as soon as it is there; whether all went well."""
    options = tuple(shlex.split(args.fit_options))
    plan = Plan(args.peers, args.scale, args.repeats, args.full, args.folder, options)
    about = describe_machine()
    found: dict[str, Any] = {"machine": about, "scale": args.scale, "repeats": args.repeats}
    text = [f"# Speed at size\n\n{machine_text(about)}.\n"]
    print(text[0], flush=True)
    for name in names:
        begin = time.perf_counter()
        try:
            section = SECTIONS[name](plan)
        except BayesMFError as error:  # hours of other sections are not to be lost with it
            found[name] = {"problem": str(error)}
            text.append(f"## {name}\n\nfailed: {error}\n")
        else:
            found[name] = {**section.data, "section_seconds": time.perf_counter() - begin}
            text.append(section.markdown())
        print(text[-1], flush=True)
        write(args.json, json.dumps(found, indent=1) + "\n")
        write(args.markdown, "\n".join(text))
        if name == "linear" and args.figure is not None and "problem" not in found[name]:
            _draw(found[name], args.figure)
    return not any("problem" in found[name] for name in names)


def _draw(found: dict[str, Any], path: Path) -> None:
    try:
        scale_figure.draw(found, path)
    except ImportError:
        print("scale: no figure: matplotlib is not installed", file=sys.stderr)


def write(path: Path | None, text: str) -> None:
    """Where a file was named; it is never there by half."""
    if path is not None:
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        part.write_text(text)
        os.replace(part, path)


@command
def main(argv: list[str] | None = None) -> int:
    """0 where all sections went well, 1 where one failed; 2 for bad input."""
    args = make_parser().parse_args(argv)
    return 0 if run(args, check(args)) else 1
