"""Which worker holds which ratings."""

from __future__ import annotations

from heapq import heapify, heapreplace

from bayesmf.engines.base import Work


def spread(work: Work, n_workers: int) -> list[int]:
    """The worker of every place; the same work is spread in the same way.

    Tasks of places that run together come at the same time, so each such list is shared out by
    number first: a worker with two of them is late however small they are. Among equals the one
    with the fewest ratings gets the place, so that memory and work come out even as well.
    """
    weights = [len(held) for held in work.held]
    owner: dict[int, int] = {}
    load = [0] * n_workers

    def share_out(places: range | list[int], by_number: bool) -> None:
        held = [0] * n_workers
        for place in places if by_number else ():
            if place in owner:  # in an earlier list: it stays, and counts
                held[owner[place]] += 1
        # The heap's first is the next to be given: (places of this list, ratings, worker).
        heap = [(held[w], load[w], w) for w in range(n_workers)]
        heapify(heap)
        left = [place for place in places if place not in owner]
        for place in sorted(left, key=lambda p: (-weights[p], p)):
            number, _, worker = heap[0]
            owner[place] = worker
            load[worker] += weights[place]
            heapreplace(heap, (number + by_number, load[worker], worker))

    for places in work.together:
        share_out(list(places), by_number=True)
    share_out(range(len(weights)), by_number=False)
    return [owner[place] for place in range(len(weights))]
