"""Throughput, latency, memory and faults of `bayesmf serve`.

`python -m benchmarks serving --shape ml-1m` fits a model of ratings made at that shape, with 30
factors and 64 draws (`--data RATINGS` reads a file or folder, `--model FOLDER` takes a saved
model), serves it by two processes on a free port of this machine, and asks four kinds of questions:
lists for users that are known and for people who send 20 ratings, 10 pairs, and explanations. The
most answers a second over several numbers of connections are by wrk where it is installed; then
the median and the 99th percentile of latency at half of that, by a client that sends each request
when it is due, and counts from then on.

    --soak N                 memory while N requests of all kinds are answered
    --swap S --for S         two models saved in turn, every S seconds, under load
    --same-bits [N]          numbers of N questions of each kind beside those of the library

These are done instead of the table. The exit status is 1 where an answer failed, memory grew or a
number was another one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bayesmf import BayesianMF, Ratings, Synthetic
from bayesmf.errors import InputError
from bayesmf.posterior import POLICIES
from bayesmf.synthetic.synthetic import SHAPES
from benchmarks.options import BenchParser, command, words
from benchmarks.serving.service import KINDS, Asker, Probe, ServiceProcess, fit, has_wrk
from experiments.machine import describe_machine

CONNECTIONS = 8
# Memory is looked at so often, the first tenth of which does not count.
LOOKS, PRINTED = 20, 10
# Bytes per request that memory may grow by and still be called flat: a counted, freed megabyte
# here and there is less, a list that keeps a line for each request is more.
FLAT = 64.0
# Requests whose slope says anything.
FEWEST = 1000
IN_ROWS = ("mean", "std", "low", "high", "rating", "share", "share_std", "effect")
Say = Callable[[str], None]


def mixed(asker: Asker, n: int) -> list[Probe]:
    """Questions of all kinds, those that are refused among them."""
    found = [one for kind in KINDS for one in asker.of(kind, n)]
    while len(found) < 5 * n:
        found += asker.other()
    return found


def soak(service: ServiceProcess, model: BayesianMF, requests: int, say: Say) -> dict[str, Any]:
    """Memory of the service's processes while it answers, and what a request adds to it."""
    questions, each = mixed(Asker(model), 60), requests // LOOKS
    done, seen, failed = 0, [], {"wrong": 0, "errors": 0}
    for k in range(LOOKS):
        found = service.load(questions, requests=each, connections=CONNECTIONS, seed=k)
        done += each
        seen.append((done, service.memory()))
        for name in failed:
            failed[name] += found[name]
        if (k + 1) % (LOOKS // PRINTED) == 0:
            rate = found["answers"] / found["seconds"]
            say(f"{done:>12,} requests  {seen[-1][1] / 1e6:8.1f} MB  {rate:8.0f} a second")
    late = np.array(seen[LOOKS // PRINTED - 1 :], float)
    slope = float(np.polyfit(late[:, 0], late[:, 1], 1)[0])
    return {
        "requests": done, **failed, "memory": seen, "bytes_per_request": slope, "bound": FLAT,
        "flat": slope < FLAT, "ok": slope < FLAT and not any(failed.values()),
    }  # fmt: skip


def print_soak(found: dict[str, Any], say: Say) -> None:
    """In a sentence."""
    say(
        f"{found['bytes_per_request']:+.1f} bytes per request after the first tenth "
        f"({'flat: below' if found['flat'] else 'not flat: not below'} {found['bound']:g}); "
        f"{found['wrong']:,} wrong statuses, {found['errors']:,} connection errors"
    )


def swap(service: ServiceProcess, folder: Path, every: float, seconds: float) -> dict[str, Any]:
    """Save two models in turn to the folder that is served, while it is asked.

    The second has half of the draws of the first. Connections are kept by half of the clients and
    made again for each request by the others; each answer is compared with all others of the same
    model to the same question.
    """
    with tempfile.TemporaryDirectory() as scratch:
        first = BayesianMF.load(folder)
        sources = [Path(scratch) / name for name in ("whole", "half")]
        first.save(sources[0])
        first.save(sources[1], max_draws=max(1, len(first.posterior_.draws) // 2))
        models = [BayesianMF.load(path) for path in sources]
        questions = [one for kind in KINDS for one in Asker(first).of(kind, 10)]
        plan = {"seconds": seconds, "connections": 4, "fresh": 4, "compare": True}
        before = service.held()
        client = subprocess.Popen(
            service.client(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )  # fmt: skip
        assert client.stdin is not None and client.stdout is not None
        client.stdin.write(service.plan(questions, **plan))
        client.stdin.close()
        saves, end = 0, time.monotonic() + seconds
        while client.poll() is None and time.monotonic() + every < end:
            time.sleep(every)
            saves += 1
            models[saves % 2].save(folder)
        found = json.loads(client.stdout.read())
        client.wait()
        client.stdout.close()
    failed = found["answers"] - found["statuses"].get("200", 0) + found["errors"]
    return {
        "answers": found["answers"], "saves": saves, "failed": failed,
        "different": found["different"], "statuses": found["statuses"], "models": found["models"],
        "before": before, "after": service.held(),
        "ok": not failed and not found["different"] and len(found["models"]) == 2,
    }  # fmt: skip


def print_swap(found: dict[str, Any], say: Say) -> None:
    """In two sentences."""
    say(
        f"{found['answers']:,} requests while models were saved {found['saves']:,} times: "
        f"{found['failed']:,} failed, {found['different']:,} answers unlike another of the same "
        "model to the same question"
    )
    shown = ", ".join(f"{name} {n:,}" for name, n in found["models"].items())
    say(f"{len(found['models'])} models answered: {shown}; statuses {found['statuses']}")
    first, last = (found[name] for name in ("before", "after"))
    say(
        f"{first['memory'] / 1e6:.1f} MB and {first['files']:,} open or mapped files before, "
        f"{last['memory'] / 1e6:.1f} MB and {last['files']:,} after"
    )


def same_bits(service: ServiceProcess, model: BayesianMF, n: int) -> dict[str, Any]:
    """Numbers of the service beside those of the library, for n questions of each kind."""
    asker, found = Asker(model, seed=1), {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind, make in _ways(asker, model):
            compared = different = 0
            for _ in range(n):
                question, own = make()
                status, answer = service.ask(question)
                shown = _numbers(answer) if status == 200 else [status]
                compared += len(own)
                different += shown != own
            found[kind] = {"questions": n, "numbers": compared, "different": different}
    return {"kinds": found, "ok": not any(one["different"] for one in found.values())}


def print_same_bits(found: dict[str, Any], say: Say) -> None:
    """A table."""
    say(f"{'':<28}{'questions':>10}{'numbers':>10}{'different':>10}")
    for kind, one in found["kinds"].items():
        say(f"{kind:<28}{one['questions']:>10,}{one['numbers']:>10,}{one['different']:>10,}")


Way = Callable[[], tuple[Probe, list[float]]]


def _ways(asker: Asker, model: BayesianMF) -> Iterator[tuple[str, Way]]:
    """Kinds of questions: what is asked of the service, and the numbers of the library."""
    names = ("mean", "std", "low", "high")

    def recommend(body: dict[str, Any]) -> list[float]:
        sent = body.get("ratings")
        ratings = None if sent is None else [(one["item"], one["rating"]) for one in sent]
        found = model.recommend(
            body.get("user"), body["n"], ratings=ratings, policy=body["policy"],
            random_state=body["seed"],
        )  # fmt: skip
        return [getattr(one, name) for one in found for name in names]

    def listed(policy: str, sent: bool) -> Way:
        def make() -> tuple[Probe, list[float]]:
            asked = (asker.new() if sent else asker.known()).body
            assert asked is not None
            body = asked | {"policy": policy, "seed": asker.draw.randrange(2**53)}
            return Probe("known", "/v1/recommend", body), recommend(body)

        return make

    def predict() -> tuple[Probe, list[float]]:
        asked = asker.predict()
        assert asked.body is not None
        users, items = ([pair[side] for pair in asked.body["pairs"]] for side in ("user", "item"))
        table = model.predict_table(users, items)
        columns = [getattr(table, name) for name in names]
        if hasattr(model, "rating_levels_"):
            columns += list(model.predict_proba(users, items).T)
        return asked, np.stack(columns, 1).astype(float).ravel().tolist()

    def explain() -> tuple[Probe, list[float]]:
        asked = asker.explain()
        assert asked.body is not None
        found = model.explain(asked.body["user"], asked.body["item"])
        rows = np.stack([found.ratings, found.shares, found.share_std, found.effects], 1)[:10]
        rest = float(found.shares[10:].sum())
        return asked, [found.prediction, found.rest, rest, *rows.ravel().tolist()]

    def similar() -> tuple[Probe, list[float]]:
        item = asker.draw.choice(asker.items)
        found = model.similar_items(item, 10)
        rows = np.stack([found.similarity, found.std], 1)
        return Probe("similar", f"/v1/similar?item={item}"), rows.ravel().tolist()

    for policy in POLICIES:
        yield f"recommend, known, {policy}", listed(policy, False)
        yield f"recommend, sent, {policy}", listed(policy, True)
    yield "predict", predict
    yield "explain", explain
    yield "similar", similar


def _numbers(answer: dict[str, Any]) -> list[float]:
    """The numbers of an answer that the library gives, in the order of `_ways`."""
    found = [answer[name] for name in ("prediction", "rest", "others") if name in answer]
    for rows in ("items", "predictions", "shares"):
        for row in answer.get(rows, ()):
            names = ("similarity", "std") if "similarity" in row else IN_ROWS
            found += [row[name] for name in names if name in row]
            found += row.get("probabilities") or ()
    return found


QUESTIONS = 500  # of each kind, chosen at random again and again
ASKING = "1,2,4,8,16,32"
WARM = 1.0
PACED = 16  # connections of the client with a rate


def speed(
    service: ServiceProcess, model: BayesianMF, seconds: float, connections: Sequence[int]
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


def print_speed(found: dict[str, Any], say: Say) -> None:
    """The table."""
    say(f"Throughput by {found['throughput_by']}; latency at half of it, from when a request was")
    say(f"due; {found['seconds']:g} s each.")
    say(f"{'':<28}{'most/s':>9}{'connections':>12}{'p50 ms':>9}{'p99 ms':>9}"
        f"{'answers':>10}{'not 200':>9}")  # fmt: skip
    for kind, one in found["kinds"].items():
        say(f"{KINDS[kind]:<28}{one['most']:>9.0f}{one['connections']:>12}{one['p50']:>9.2f}"
            f"{one['p99']:>9.2f}{one['answers']:>10,}{one['failed']:>9,}")  # fmt: skip


def make_model(args: argparse.Namespace, folder: Path) -> Path:
    """The folder of the model that is served, for this service alone."""
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


def make_parser() -> BenchParser:
    """The options."""
    parser = BenchParser("serving", __doc__)
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--data", type=Path, metavar="RATINGS", help="file or folder of ratings")
    source.add_argument("--shape", choices=SHAPES, default="ml-1m", help="of ratings made (ml-1m)")
    source.add_argument("--model", type=Path, metavar="FOLDER", help="a model that was saved")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the shape (1)")
    parser.add_argument("--factors", type=int, default=30, metavar="D")
    parser.add_argument("--draws", type=int, default=64, metavar="N")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="processes (2)")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement (10)")
    parser.add_argument("--connections", default=ASKING, metavar="N,N", help=ASKING)
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
    if args.soak is not None and args.soak < FEWEST:
        raise InputError(f"--soak must be {FEWEST:,} or more: fewer say nothing of memory")
    typed = words(args.connections)
    if not all(word.isdecimal() and int(word) for word in typed):
        raise InputError(f"--connections must be whole numbers from 1 on, not {args.connections!r}")
    return [int(word) for word in typed]


def run(args: argparse.Namespace, say: Say) -> dict[str, Any]:
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
        with ServiceProcess(path, "--workers", str(args.workers)) as service:
            service.wait(args.workers)
            if args.same_bits:
                found["same_bits"] = same_bits(service, model, args.same_bits)
                print_same_bits(found["same_bits"], say)
            if args.soak is not None:
                found["soak"] = soak(service, model, args.soak, say)
                print_soak(found["soak"], say)
            if args.swap is not None:
                found["swap"] = swap(service, path, args.swap, args.lasts)
                print_swap(found["swap"], say)
            if not found:
                found["speed"] = speed(service, model, args.seconds, connections)
                print_speed(found["speed"], say)
            if said := service.said():
                say(f"The service printed: {said}")
    return {**about, **found}


@command
def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print the results."""
    args = make_parser().parse_args(argv)
    found = run(args, (lambda line: None) if args.json else print)
    if args.json:
        print(json.dumps(found))
    judged = [found[name]["ok"] for name in ("speed", "same_bits", "soak", "swap") if name in found]
    return 0 if all(judged) else 1
