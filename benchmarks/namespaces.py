"""A cluster in one machine: `python -m benchmarks.namespaces [--nodes 2,4] [--shape ml-1m]`.

As root on Linux. Nodes with a worker each, and a head with the driver, are network namespaces that
are wired to a switch; cards do 1 Gbit/s, messages are 1 ms under way. Every algorithm is fitted
there, and for a round of all its chains the table has

    measured    milliseconds                       head, nodes   MB that each card sent and received
    ledger      MB that the engine has counted     wire/ledger   MB that all cards sent over those,
                                                   less what Ray sends while nothing is done
    predicted   milliseconds by the simulated engine, that is given what messages of Ray take here
                (measured with an echo), and that so many workers share so few cores
    own cores   the same where every node has a core of its own
    link alone  the same with the link's rate and latency, where Ray costs nothing
    cores busy  shares of all processors: by this, and by whatever runs here

Counters are read between two epochs of one fit, so its start is not in them. Draws have to be
those of the simulated fit: the status is 1 otherwise. Where there can be no
namespaces nothing is measured, and the status is 0.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.arguments import Parser, words
from benchmarks.namespaces_runs import (
    FIRST,
    Counters,
    Fit,
    counters,
    measured,
    rounds_of_an_epoch,
    seconds_of_an_epoch,
)
from benchmarks.netns import Link, ended_by_signals, why_not

CASES = ("default", "DSGLD-S", "DSGLD-C")
SHAPES = ("ml-100k", "ml-1m", "ml-10m")
IDLE = 3.0  # seconds in which Ray is watched that does nothing


def done(run: Fit, what: str) -> dict[str, Any]:
    """The answer of something that has to go well."""
    found = run.wait()
    if found["status"] != "done":
        raise SystemExit(f"namespaces: {what}: {found['error']}")
    return found


def beside(
    args: argparse.Namespace, nodes: int, order: dict[str, Any], echo: dict[str, float],
    folder: Path,
) -> dict[str, Any]:  # fmt: skip
    """Milliseconds of a round by simulated nodes, and the hash of their draws."""
    shared = max(1.0, nodes / (os.cpu_count() or 1))
    link = {"latency": args.latency / 1e3, "bandwidth": args.gbits * 1.25e8}
    asked = {"predicted": (echo, shared), "own_cores": (echo, 1.0), "link_alone": (link, 1.0)}
    order = {**order, "what": "predict", "predict": asked}
    found = done(Fit(folder, order), "the simulated engine")
    out: dict[str, Any] = {"sha256": found["predicted"]["sha256"]}
    for name in asked:
        per = rounds_of_an_epoch(found[name]["grid"])
        events = found[name]["events"]
        out[name] = seconds_of_an_epoch(events, *order["window"]) / per
    return out


def on_nodes(args: argparse.Namespace, n: int, folder: Path) -> list[dict[str, Any]]:
    """All cases on so many nodes."""
    from benchmarks.namespaces_driver import samplers
    from benchmarks.netns_ray import NetNodes

    link = Link(f"{args.gbits * 1000:g}mbit", args.latency / 1e3)
    made = samplers(n, args.epochs)
    nodes = NetNodes(n, 1, link, store=300 << 20)
    lines: list[dict[str, Any]] = []
    try:
        with counters(nodes.wires) as counts:
            engine = {"address": nodes.address, "n_workers": n}
            order = {
                "nodes": n, "shape": args.shape, "scale": args.scale, "factors": args.factors,
                "epochs": args.epochs, "engine": engine,
            }  # fmt: skip
            where = {"prefix": nodes.prefix, "environment": nodes.environment}
            echo = done(Fit(folder / f"{n}-echo", {**order, "what": "echo"}, **where), "an echo")
            echo = {k: echo[k] for k in ("latency", "bandwidth", "overhead", "calling")}
            idle = idle_rate(counts)
            say(args, f"\n{n} nodes: {about(echo)}; {idle / 1e3:.1f} KB/s while nothing is done; "
                      f"{relayed(nodes.wires)}")  # fmt: skip
            for case in args.cases:
                if case not in made:
                    say(args, f"{case}: this version does not have it")
                    continue
                chains = getattr(made[case], "n_chains", None) or 1
                one = {
                    **order, "case": case, "what": "fit", "chains": chains,
                    "window": (FIRST, args.epochs - 1),
                }  # fmt: skip
                found = measured(folder / f"{n}-{case}", one, nodes, counts)
                line = {"nodes": n, "case": case, "echo": echo, "idle": idle,
                        "cores": os.cpu_count(), **found}  # fmt: skip
                if found["status"] == "done":
                    line |= {"same": False, **_compared(args, line, one, folder)}
                lines.append(line)
                show(args, line)
    finally:
        left = nodes.close()
    if left:
        say(args, f"processes left behind: {', '.join(left)}")
    return lines


def _compared(
    args: argparse.Namespace, line: dict[str, Any], order: dict[str, Any], folder: Path
) -> dict[str, Any]:
    name = f"{line['nodes']}-{line['case']}-simulated"
    told = beside(args, line["nodes"], order, line["echo"], folder / name)
    same = told.pop("sha256") == line["sha256"]
    return {"same": same, **told, "ratio": told["predicted"] / line["seconds"]}


# -- what is printed ------------------------------------------------------------------------------


def say(args: argparse.Namespace, text: str) -> None:
    print(text, file=sys.stderr if args.json else sys.stdout, flush=True)


def about(echo: dict[str, float]) -> str:
    """What messages cost."""
    return (
        f"a message of Ray is {1e3 * echo['latency']:.1f} ms under way and keeps a worker busy for "
        f"{1e3 * echo['overhead']:.2f} ms, the driver for {1e3 * echo['calling']:.2f} ms; large "
        f"ones go at {echo['bandwidth'] / 1e6:.0f} MB/s"
    )


def idle_rate(counts: Counters) -> float:
    """Bytes a second that Ray sends without being asked."""
    before = counts.read()
    time.sleep(IDLE)
    sent = sum(
        now[0] - then[0] for now, then in zip(counts.read().wires, before.wires, strict=True)
    )
    return sent / IDLE


def relayed(wires: Any) -> str:
    return "latency by a relay, for want of netem" if wires.relayed else "latency by netem"


HEAD = (
    f"{'case':<13}{'nodes':>6}{'measured':>10}{'ledger':>9}{'wire/ledger':>12}{'predicted':>11}"
    f"{'/measured':>10}{'own cores':>11}{'link alone':>11}{'cores busy':>13}  draws  head, nodes: "
    "MB sent+received"
)


def show(args: argparse.Namespace, line: dict[str, Any]) -> None:
    """A fit in one line."""
    if line["status"] != "done":
        say(args, f"{line['case']:<13}{line['nodes']:>6} {line['status'].upper()}: {line['error']}")
        return
    counted = sum(line["ledger"].values())
    sent = sum(one[0] for one in line["wires"]) - line["idle"] * line["passed"]
    cards = "  ".join(f"{one[0] / 1e6:.2f}+{one[1] / 1e6:.2f}" for one in line["wires"])
    ratio = f"{sent / counted:.2f}" if counted else "-"
    own, busy = line["processors"]["own"], line["processors"]["busy"]
    say(
        args,
        f"{line['case']:<13}{line['nodes']:>6}{1e3 * line['seconds']:>7.1f} ms"
        f"{counted / 1e6:>6.2f} MB{ratio:>12}{1e3 * line['predicted']:>8.1f} ms"
        f"{line['ratio']:>10.2f}{1e3 * line['own_cores']:>8.1f} ms"
        f"{1e3 * line['link_alone']:>8.1f} ms{own:>9.0%}/{busy:.0%}  "
        f"{'same ' if line['same'] else 'OTHER'}  {cards}",
    )


def measure(args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """All cases on all numbers of nodes."""
    say(args, f"{args.shape} times {args.scale:g}, {args.factors} factors, {args.epochs} epochs; "
              f"{args.gbits:g} Gbit/s, {args.latency:g} ms; per round of all chains")  # fmt: skip
    cores = os.cpu_count() or 1
    if max(args.nodes) + 1 > cores:
        say(args, f"{cores} cores for {' or '.join(map(str, args.nodes))} workers, the driver and "
                  "Ray's own processes: measured rounds wait for processors too")  # fmt: skip
    say(args, HEAD)
    return [line for n in args.nodes for line in on_nodes(args, n, folder)]


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Options, checked."""
    parser = Parser("namespaces", __doc__)
    parser.add_argument("--nodes", default="2,4", help="numbers of nodes, by commas (2,4)")
    parser.add_argument("--cases", default=",".join(CASES), help="by commas; all by default")
    parser.add_argument("--shape", default="ml-1m", choices=SHAPES, help="of the ratings (ml-1m)")
    parser.add_argument("--scale", type=float, default=1.0, help="of the shape (1)")
    parser.add_argument("--factors", type=int, default=30)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--gbits", type=float, default=1.0, help="Gbit/s of a card (1)")
    parser.add_argument("--latency", type=float, default=1.0, help="ms from card to card (1)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    args.cases = words(args.cases)
    for case in args.cases:
        if case not in CASES:
            parser.error(f"--cases: {case!r} is none of {', '.join(CASES)}")
    if not all(word.isdecimal() and 1 <= int(word) <= 16 for word in words(args.nodes)):
        parser.error(f"--nodes must be numbers from 1 to 16, by commas, not {args.nodes!r}")
    args.nodes = [int(word) for word in words(args.nodes)]
    if args.epochs < FIRST + 2:
        parser.error(f"--epochs must be at least {FIRST + 2}, not {args.epochs}")
    if not (args.gbits > 0 and args.latency >= 0 and args.scale > 0):
        parser.error("--gbits and --scale must be above 0, --latency 0 or more")
    return args


def main(argv: list[str] | None = None) -> int:
    """A line for each fit; 0 if all have drawn the same as simulated ones."""
    args = parse(argv)
    if reason := why_not():
        print(f"namespaces: NOTHING IS MEASURED: {reason}", file=sys.stderr)
        return 0
    try:
        with ended_by_signals(), tempfile.TemporaryDirectory() as folder:
            lines = measure(args, Path(folder))
    except KeyboardInterrupt:
        print("namespaces: interrupted; all has been cleared away", file=sys.stderr)
        return 130
    if args.json:
        print(json.dumps([{k: v for k, v in one.items() if k != "events"} for one in lines]))
    return 0 if all(line.get("same") for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
