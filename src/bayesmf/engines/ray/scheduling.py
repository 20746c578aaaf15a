"""Where Ray may start workers: by the settings of a cluster, in a placement group, on a node."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import ray
from ray.util import get_current_placement_group
from ray.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

from bayesmf.engines.ray.cluster import Cluster
from bayesmf.errors import InputError


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
    n = sum(
        min(int(have.get(name, 0.0) / need + 1e-9) for name, need in needs.items() if need > 0)
        for have in places
    )
    if n < 1:
        asked = ", ".join(f"{need:g} {name}" for name, need in needs.items())
        where = "the cluster" if group is None else "the placement group"
        raise InputError(
            f"{where} has no room for a worker, which needs {asked}: lower cpus_per_worker or "
            "resources, or add nodes"
        )
    return n
