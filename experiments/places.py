"""Arrays and where they lie: what a task needs from elsewhere, and what nodes hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bayesmf.engines.base import payload
from bayesmf.engines.placement import Homes
from bayesmf.model.refs import Array, Ref, leaves
from bayesmf.worker.tasks import Shared
from experiments.links import Cluster, Transfer


class Placed(Ref):
    """An array that lies with a worker, and the nodes that it was brought to."""

    __slots__ = ("brought", "node")

    def __init__(self, value: Array, node: int, nbytes: int | None = None) -> None:
        super().__init__(value, nbytes)
        self.node = node
        self.brought: dict[int, Transfer] = {}


class Phase:
    """What is known of the `shared` part of a phase's tasks."""

    def __init__(self, shared: Any) -> None:
        self.shared = shared  # held, so that no other can have its number
        self.size = payload(shared)
        self.refs = list({id(ref): ref for ref in leaves(shared, Ref)}.values())
        self.seconds: float | None = None  # of preparing it
        self.table = 0  # bytes of what was prepared
        self.on_nodes: dict[int, list[Transfer]] = {}
        self.workers: set[int] = set()


def own_size(task: Any) -> int:
    """Bytes of a task but for what it shares with others, unless that is no `Shared`."""
    names = task.__dataclass_fields__
    shared = isinstance(getattr(task, "shared", None), Shared)
    return sum(payload(getattr(task, name)) for name in names if name != "shared" or not shared)


def own_refs(task: Any) -> list[Ref]:
    """References of a task but for those that it shares."""
    names = (name for name in task.__dataclass_fields__ if name != "shared")
    return [ref for name in names for ref in leaves(getattr(task, name), Ref)]


class Memory:
    """Bytes that nodes hold: ratings, rows of all chains, tables that workers have prepared."""

    def __init__(self, homes: Homes, clocks: Cluster, sizes: Sequence[int]) -> None:
        self._clocks, n_nodes = clocks, clocks.nodes
        self._ratings = [0] * n_nodes
        for worker in range(homes.n_workers):
            held = sum(sizes[partition] for partition in homes.held_by(worker))
            self._ratings[clocks.node(worker)] += held
        self._rows: dict[int, list[int]] = {}  # by chain, as it was settled
        self._most = [0] * n_nodes
        self._table: dict[int, int] = {}  # the largest of each worker
        self._guests, self._most_guests = [0] * n_nodes, [0] * n_nodes

    def prepared(self, worker: int, size: int) -> None:
        """A worker has made a table of what others have sent."""
        self._table[worker] = max(self._table.get(worker, 0), size)

    def brought(self, node: int, size: int) -> None:
        """An array has come from another node, which stays until the round ends."""
        self._guests[node] += size

    def settled(self, chain: int, refs: Sequence[Ref]) -> None:
        """A chain has ended a round: what was brought for it can go."""
        own = [0] * len(self._most)
        for ref in refs:
            if isinstance(ref, Placed):
                own[ref.node] += ref.nbytes
        self._rows[chain] = own
        for node, size in enumerate(map(sum, zip(*self._rows.values(), strict=True))):
            self._most[node] = max(self._most[node], size)
            self._most_guests[node] = max(self._most_guests[node], self._guests[node])
        if chain == max(self._rows):
            self._guests = [0] * len(self._guests)

    def by_node(self) -> list[dict[str, int]]:
        """Most bytes of each kind that a node held at the end of a round."""
        tables = [0] * len(self._most)
        for worker, size in self._table.items():
            tables[self._clocks.node(worker)] += size
        return [
            {"ratings": a, "rows": b, "brought": c, "tables": d}
            for a, b, c, d in zip(self._ratings, self._most, self._most_guests, tables, strict=True)
        ]
