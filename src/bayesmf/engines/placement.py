"""Assignment of partitions and chains to workers."""

from __future__ import annotations

from heapq import heapify, heapreplace

from bayesmf.engines.base import Workload


class Homes:
    """The worker of every task, by its chain and partition; a function of the workload.

    If stripes of rows stay with their workers, a worker has all partitions of its stripes. If there
    are several workers for each stripe, chains are distributed over them, and each worker holds the
    ratings. Chains with successive numbers share workers, as they are on different blocks.
    """

    def __init__(self, load: Workload, n_workers: int) -> None:
        self._units, self._copies, self._n_chains = load.units, 1, load.n_chains
        if self._units is None:
            self._worker = spread(load, n_workers)
            self._n = len(set(self._worker))
            return
        n_units = max(self._units) + 1
        self._n = min(n_workers, n_units)
        self._copies = min(load.n_chains, max(1, n_workers // n_units))
        weights = [0] * n_units
        for held, unit in zip(load.held, self._units, strict=True):
            weights[unit] += len(held)
        # Largest first, each to the worker with the fewest ratings.
        heap, of_unit = [(0, w) for w in range(self._n)], [0] * n_units
        for unit in sorted(range(n_units), key=lambda u: (-weights[u], u)):
            of_unit[unit] = heap[0][1]
            heapreplace(heap, (heap[0][0] + weights[unit], heap[0][1]))
        self._worker = [of_unit[unit] for unit in self._units]

    def of(self, chain: int, partition: int) -> int:
        """The worker of a chain's tasks on a partition."""
        copy = chain * self._copies // self._n_chains % self._copies
        return self._worker[partition] + self._n * copy

    def held_by(self, worker: int) -> list[int]:
        """Partitions whose tasks a worker runs, for at least one chain."""
        copy, own = divmod(worker, self._n)
        if copy >= self._copies:
            return []
        return [partition for partition, home in enumerate(self._worker) if home == own]

    @property
    def n_workers(self) -> int:
        """Number of workers with tasks."""
        return self._n * self._copies


def spread(load: Workload, n_workers: int) -> list[int]:
    """The worker of every partition; a function of the workload.

    Tasks in a list of `together` run at the same time, so partitions of each list are first spread
    evenly by number, then by ratings, for even memory and work.
    """
    weights = [len(held) for held in load.held]
    owner: dict[int, int] = {}
    ratings = [0] * n_workers

    def share_out(partitions: range | list[int], by_number: bool) -> None:
        held = [0] * n_workers
        for partition in partitions if by_number else ():
            if partition in owner:  # assigned with an earlier list
                held[owner[partition]] += 1
        # The next worker is the heap's first: (partitions of this list, ratings, worker).
        heap = [(held[w], ratings[w], w) for w in range(n_workers)]
        heapify(heap)
        left = [partition for partition in partitions if partition not in owner]
        for partition in sorted(left, key=lambda p: (-weights[p], p)):
            number, _, worker = heap[0]
            owner[partition] = worker
            ratings[worker] += weights[partition]
            heapreplace(heap, (number + by_number, ratings[worker], worker))

    for partitions in load.together:
        share_out(list(partitions), by_number=True)
    share_out(range(len(weights)), by_number=False)
    return [owner[partition] for partition in range(len(weights))]
