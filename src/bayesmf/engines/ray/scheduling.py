"""Where Ray may start workers: by the settings of a cluster, in a placement group, on a node."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import ray
from ray.util import get_current_placement_group
from ray.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

from bayesmf.engines.ray.cluster import Cluster
from bayesmf.errors import InputError

MOMENT = 2.0  # seconds in which a cluster learns what has become free


def group_of(cluster: Cluster) -> Any:
    """The placement group that workers are to be in: the one asked for, or that of the driver."""
    return cluster.placement_group or get_current_placement_group()


def strategy(cluster: Cluster) -> Any:
    """How Ray is to place a worker."""
    group = group_of(cluster)
    if group is not None:
        return PlacementGroupSchedulingStrategy(group)
    return "SPREAD" if cluster.placement == "spread" else "DEFAULT"


def on_node(node: str) -> Any:
    """On a node and no other."""
    return NodeAffinitySchedulingStrategy(node, soft=False)


def elsewhere(nodes: Collection[str]) -> Any:
    """On another node than these, if there is one."""
    others = [n["NodeID"] for n in ray.nodes() if n["Alive"] and n["NodeID"] not in nodes]
    return NodeAffinitySchedulingStrategy(others[0], soft=True) if others else "DEFAULT"


def room(cluster: Cluster) -> int:
    """Number of workers for which there is room now, in the cluster or the placement group."""
    needs = {"CPU": cluster.cpus_per_worker, **cluster.resources}
    group = group_of(cluster)
    # A worker lies in one bundle: what is left of two makes none.
    places = [ray.cluster_resources()] if group is None else group.bundle_specs
    n = _fitting(needs, places, _own_resources())
    if n < 1:
        asked = ", ".join(f"{need:g} {name}" for name, need in needs.items())
        where = "the cluster" if group is None else "the placement group"
        raise InputError(
            f"{where} has no room for a worker, which needs {asked}: lower cpus_per_worker or "
            "resources, or add nodes"
        )
    return n if group is not None else _free_now(needs, n)


def _free_now(needs: Mapping[str, float], most: int) -> int:
    """How many of so many workers others leave room for: at least one, which then waits.

    What has just been released, by a fit before, takes a moment to be told of.
    """
    end = time.monotonic() + MOMENT
    while (n := _fitting(needs, [ray.available_resources()], {})) < most:
        if time.monotonic() > end:
            return max(1, n)
        time.sleep(MOMENT / 20)
    return most


def _fitting(
    needs: Mapping[str, float], places: Sequence[Mapping[str, float]], own: Mapping[str, float]
) -> int:
    """How often something fits into places, of which one holds `own` already."""
    n = 0
    for have in places:
        taken = own if all(have.get(name, 0.0) >= x for name, x in own.items()) else {}
        own = {} if taken else own
        left = {name: have.get(name, 0.0) - taken.get(name, 0.0) for name in needs}
        n += min(int(left[name] / need + 1e-9) for name, need in needs.items() if need > 0)
    return n


def _own_resources() -> Mapping[str, float]:
    """What a fit that is a task or an actor of Ray has itself."""
    try:
        found = ray.get_runtime_context().get_assigned_resources()
    except (AssertionError, RuntimeError):  # a driver has none
        return {}
    return {name: float(x) for name, x in found.items() if "_group_" not in name}
