"""Which worker holds which partition of the ratings."""

from __future__ import annotations

from heapq import heapify, heapreplace

from bayesmf.engines.base import Workload


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
