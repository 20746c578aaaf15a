"""Where a fit runs, as options of `bayesmf fit`, and what is told of it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bayesmf.cli import options
from bayesmf.engines.registry import ENGINES
from bayesmf.errors import InputError
from bayesmf.wording import count

if TYPE_CHECKING:
    from bayesmf.engines.ray.cluster import Cluster

# Options of Ray alone, by their name in the parsed arguments.
RAY_OPTIONS = {
    "ray_address": "--ray-address",
    "task_timeout": "--task-timeout",
    "retries": "--retries",
}


def add_engine_options(group: argparse._ArgumentGroup) -> None:
    """Options of where tasks run."""
    add = group.add_argument
    add("--engine", choices=ENGINES, default="threads", help="where tasks run (threads)")
    add(
        "--workers",
        type=options.whole(1),
        metavar="W",
        help="threads or workers (one for each core)",
    )
    add("--ray-address", metavar="A",
        help="ray: cluster to join, auto for this machine's (else one is started)")  # fmt: skip
    add("--task-timeout", type=options.positive, metavar="S",
        help="ray: seconds until a worker counts as hung (600)")  # fmt: skip
    add("--retries", type=options.whole(0), metavar="N",
        help="ray: tries of a task after its worker was lost (3)")  # fmt: skip


def engine_from_options(args: argparse.Namespace) -> str | Cluster:
    """Engine of the options; InputError for options of another engine."""
    for name, option in RAY_OPTIONS.items():
        if args.engine != "ray" and getattr(args, name) is not None:
            raise InputError(f"{option} is for --engine ray")
    if args.workers is not None and args.engine == "serial":
        raise InputError("--workers is for the other engines: serial has one")
    if args.engine == "ray":
        from bayesmf.engines.ray.cluster import Cluster
        from bayesmf.engines.registry import make_engine

        names = {"ray_address": "address", "task_timeout": "task_timeout", "retries": "retries"}
        given = {to: getattr(args, name) for name, to in names.items()}
        cluster = Cluster(**{name: x for name, x in given.items() if x is not None})
        make_engine(cluster, args.workers)  # without Ray, better now than after the reading
        return cluster
    return str(args.engine)


def engine_facts(told: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """What a report says of workers, idle time, bytes moved and faults, for people."""
    if not told or "idle" not in told:
        return []
    idle = [100 * share for share in told["idle"]]
    where = f" on {count(told['nodes'], 'node')}" if "nodes" in told else ""
    waited = f"{idle[0]:.0f}%" if len(idle) == 1 else f"{min(idle):.0f} to {max(idle):.0f}%"
    line = f"{told['name']}, {count(told['workers'], 'worker')}{where}, idle {waited}"
    moved = told["bytes_sent"] + told["bytes_received"] + told.get("fetched_bytes", 0)
    moved += told.get("peer_bytes_per_round", 0) * told.get("rounds", 0)
    if moved:
        line += f", {moved / 1e6:,.0f} MB of parameters moved"
    facts = [("engine", line)]
    slow = told["slowest_partitions"]
    if len(told["idle"]) > 1 and slow:
        median, worst = told["task_seconds"]["median"], max(slow, key=lambda one: one["mean"])
        facts.append(
            (
                "blocks",
                f"{1e3 * median:.3g} ms a task in the median, {1e3 * worst['mean']:.3g} ms in the "
                f"slowest block ({worst['partition']})",
            )
        )
    if told["faults"]:
        last = told["faults"][-1]
        facts.append(("faults", f"{len(told['faults'])} dealt with; the last: {last}"))
    return facts
