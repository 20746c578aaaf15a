"""Which worker holds which partition of the ratings, and whose tasks it does."""

from __future__ import annotations

from heapq import heapify, heapreplace

from bayesmf.engines.base import Workload


class Homes:
    """The worker of every task, by its chain and partition; the same load, the same places.

    Where stripes of rows stay with their workers, a worker has all partitions of its stripes. With
    so many workers that each stripe could have several, chains are dealt out to them: their rows
    and their ratings are then at different places, and all can work at the same time.
    """

    def __init__(self, load: Workload, n_workers: int) -> None:
        self._units, self._copies = load.units, 1
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
        return self._worker[partition] + self._n * (chain % self._copies)

    def held_by(self, worker: int) -> list[int]:
        """Partitions whose tasks a worker does, for some chain or other."""
        copy, own = divmod(worker, self._n)
        if copy >= self._copies:
            return []
        return [partition for partition, home in enumerate(self._worker) if home == own]

    @property
    def n_workers(self) -> int:
        """Workers that have anything to do."""
        return self._n * self._copies


def spread(load: Workload, n_workers: int) -> list[int]:
    """The worker of every partition; the same workload is always spread in the same way.

    Tasks of partitions that come together are done at the same time, so each such list is shared
    out by number first: a worker with two of them is late however small they are. Among equals the
    one with the fewest ratings gets the partition, so that memory and work come out even as well.
    """
    weights = [len(held) for held in load.held]
    owner: dict[int, int] = {}
    ratings = [0] * n_workers

    def share_out(partitions: range | list[int], by_number: bool) -> None:
        held = [0] * n_workers
        for partition in partitions if by_number else ():
            if partition in owner:  # in an earlier list: it stays, and counts
                held[owner[partition]] += 1
        # The heap's first is the next to be given: (partitions of this list, ratings, worker).
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
