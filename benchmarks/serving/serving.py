"""Throughput, latency, memory and faults of `bayesmf serve`.

`python -m benchmarks serving --shape ml-1m` fits a model of ratings made at that shape, with 30
factors and 64 draws (`--data RATINGS` reads a file or folder, `--model FOLDER` takes a saved
model), serves it by two processes on a free port of this machine, and asks four kinds of questions:
lists for users that are known and for people who send 20 ratings, 10 pairs, and explanations. The
most answers a second over several numbers of connections are by wrk where it is installed; then
the median and the 99th percentile of latency at half of that, by a client that sends each request
when it is due, and counts from then on.

    --soak N                 memory while N requests of all kinds are answered
    --swap S --for S         two models saved in turn, every so many seconds, under load
    --same-bits [N]          numbers of N questions of each kind beside those of the library

These are done instead of the table. The exit status is 1 where an answer failed, memory grew or a
number was another one.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bayesmf import BayesianMF, Ratings, Synthetic
from bayesmf.errors import InputError
from bayesmf.synthetic.synthetic import SHAPES
from benchmarks.options import Parser, command, words
from benchmarks.serving import checks as checks
from benchmarks.serving.service import KINDS, Asker, Service, fit, has_wrk
from experiments.machine import describe_machine

QUESTIONS = 500  # of each kind, chosen at random again and again
CONNECTIONS = "1,2,4,8,16,32"
WARM = 1.0
PACED = 16  # connections of the client with a rate


def speed(
    service: Service, model: BayesianMF, seconds: float, connections: Sequence[int]
) -> dict[str, Any]:
    """Throughput and latency of each kind of question."""
    asker, found = Asker(model), {}
    for kind in KINDS:
        questions = asker.of(kind, QUESTIONS)
        service.load(questions, seconds=min(WARM, seconds), connections=4)
        rates, failed, done = {}, 0, 0
        for n in connections:
            if has_wrk():
                one = service.wrk(questions, n, seconds)
            else:
                one = service.load(questions, seconds=seconds, connections=n)
            rates[n] = one["answers"] / one["seconds"]
            failed += one["wrong"] + one["errors"]
            done += one["answers"]
        best = max(rates, key=lambda n: rates[n])
        rate = rates[best] / 2
        paced = service.load(questions, seconds=seconds, connections=PACED, rate=rate)
        failed += paced["wrong"] + paced["errors"]
        found[kind] = {
            "rates": rates, "most": rates[best], "connections": best, "rate": rate,
            **{name: paced[name] for name in ("p50", "p99", "max")},
            "answers": done + paced["answers"], "failed": failed,
        }  # fmt: skip
    client = "wrk" if has_wrk() else "threads of Python, each with a connection"
    ok = not any(one["failed"] for one in found.values())
    return {"throughput_by": client, "seconds": seconds, "kinds": found, "ok": ok}


def tell_speed(found: dict[str, Any], say: checks.Say) -> None:
    """The table."""
    say(f"Throughput by {found['throughput_by']}; latency at half of it, from when a request was")
    say(f"due; {found['seconds']:g} s each.")
    say(f"{'':<28}{'most/s':>9}{'connections':>12}{'p50 ms':>9}{'p99 ms':>9}"
        f"{'answers':>10}{'not 200':>9}")  # fmt: skip
    for kind, one in found["kinds"].items():
        say(f"{KINDS[kind]:<28}{one['most']:>9.0f}{one['connections']:>12}{one['p50']:>9.2f}"
            f"{one['p99']:>9.2f}{one['answers']:>10,}{one['failed']:>9,}")  # fmt: skip


def make_model(args: argparse.Namespace, folder: Path) -> Path:
    """The folder of the model that is served, which nobody else uses."""
    path = folder / "model"
    if args.model is not None:
        BayesianMF.load(args.model).save(path)
        return path
    if args.data is not None:
        ratings = Ratings.read(args.data)
    else:
        ratings = Synthetic.like(args.shape, args.scale, stars=True).ratings().compact()
    fit(ratings, args.factors, args.draws).save(path)
    return path


def make_parser() -> Parser:
    """The options."""
    parser = Parser("serving", __doc__)
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--data", type=Path, metavar="RATINGS", help="file or folder of ratings")
    source.add_argument("--shape", choices=SHAPES, default="ml-1m", help="of ratings made (ml-1m)")
    source.add_argument("--model", type=Path, metavar="FOLDER", help="a model that was saved")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the shape (1)")
    parser.add_argument("--factors", type=int, default=30, metavar="D")
    parser.add_argument("--draws", type=int, default=64, metavar="N")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="processes (2)")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement (10)")
    parser.add_argument("--connections", default=CONNECTIONS, metavar="N,N", help=CONNECTIONS)
    parser.add_argument("--soak", type=int, metavar="N", help="requests while memory is followed")
    parser.add_argument("--swap", type=float, metavar="S", help="seconds between two saved models")
    parser.add_argument("--for", type=float, default=60.0, metavar="S", dest="lasts",
                        help="seconds of --swap (60)")  # fmt: skip
    parser.add_argument("--same-bits", type=int, nargs="?", const=200, metavar="N",
                        help="questions of each kind (200)")  # fmt: skip
    parser.add_argument("--json", action="store_true")
    return parser


def _checked(args: argparse.Namespace) -> list[int]:
    """Numbers of connections; refuses what cannot be."""
    if min(args.factors, args.draws, args.workers, args.same_bits or 1) < 1:
        raise InputError("numbers of factors, draws, processes and questions are 1 or more")
    if not min(args.seconds, args.lasts, args.scale, args.swap or 1.0) > 0:
        raise InputError("seconds and the scale are more than 0")
    if args.soak is not None and args.soak < checks.FEWEST:
        raise InputError(f"--soak must be {checks.FEWEST:,} or more: fewer say nothing of memory")
    typed = words(args.connections)
    if not all(word.isdecimal() and int(word) for word in typed):
        raise InputError(f"--connections must be whole numbers from 1 on, not {args.connections!r}")
    return [int(word) for word in typed]


def run(args: argparse.Namespace, say: checks.Say) -> dict[str, Any]:
    """Everything that was asked for."""
    connections, found = _checked(args), dict[str, Any]()
    with tempfile.TemporaryDirectory() as folder:
        path = make_model(args, Path(folder))
        model = BayesianMF.load(path)
        posterior = model.posterior_
        about = {
            "machine": describe_machine(), "users": len(model.user_ids_),
            "items": len(model.item_ids_), "factors": posterior.n_factors,
            "draws": len(posterior.draws), "workers": args.workers,
        }  # fmt: skip
        say(
            f"{about['users']:,} users, {about['items']:,} items, {about['factors']} factors, "
            f"{about['draws']} draws; {args.workers} processes on {os.cpu_count()} cores"
        )
        with Service(path, "--workers", str(args.workers)) as service:
            service.wait(args.workers)
            if args.same_bits:
                found["same_bits"] = checks.same_bits(service, model, args.same_bits)
                checks.tell_same_bits(found["same_bits"], say)
            if args.soak is not None:
                found["soak"] = checks.soak(service, model, args.soak, say)
                checks.tell_soak(found["soak"], say)
            if args.swap is not None:
                found["swap"] = checks.swap(service, path, args.swap, args.lasts)
                checks.tell_swap(found["swap"], say)
            if not found:
                found["speed"] = speed(service, model, args.seconds, connections)
                tell_speed(found["speed"], say)
            if said := service.said():
                say(f"The service printed: {said}")
    return {**about, **found}


@command
def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and tell."""
    args = make_parser().parse_args(argv)
    found = run(args, (lambda line: None) if args.json else print)
    if args.json:
        print(json.dumps(found))
    judged = [found[name]["ok"] for name in ("speed", "same_bits", "soak", "swap") if name in found]
    return 0 if all(judged) else 1
