"""Virtual clocks of a cluster: its workers, and a link for every node.

Nothing is computed or sent: jobs state their seconds and bytes, and events are processed in the
order of their times. The simulated engine submits real tasks, `experiments.plan` tasks that are
too large to run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

from bayesmf.checks import not_negative, positive, whole


@dataclass(frozen=True)
class Network:
    """Links between the nodes of simulated workers, and what messages cost.

    Every node has one link, in and out at the same time, and the driver has one on a node of its
    own. The default is a cluster with ten gigabits a second, and a node for every worker.

    Parameters
    ----------
    latency : float
        Seconds of an empty message, one way.
    bandwidth : float
        Bytes a second of a node's link, each way; may be infinite.
    overhead : float
        Seconds in which a worker unpacks a task and packs its result, and computes nothing.
    copying : float
        Bytes a second at which a worker copies tasks and results, which it needs as well.
    workers_per_node : int
        Workers that share a node: its link, and what was brought to it.
    calling : float
        Seconds that the driver needs for any call of a worker. Tasks of one phase for one
        worker are one call.

    Raises
    ------
    InputError
        For times below 0, and for rates that are not above 0.

    Examples
    --------
    >>> from bayesmf import BayesianMF
    >>> from experiments.simulated import Network, Simulated
    >>> slow = Network(latency=0.05, bandwidth=1.25e7, workers_per_node=4)
    >>> model = BayesianMF(engine=Simulated(36, slow))
    """

    latency: float = 0.5e-3
    bandwidth: float = 1.25e9
    overhead: float = 0.0
    copying: float = math.inf
    workers_per_node: int = 1
    calling: float = 0.0

    def __post_init__(self) -> None:
        for name in ("latency", "overhead", "calling"):
            not_negative(name, getattr(self, name))
        for name in ("bandwidth", "copying"):
            if getattr(self, name) != math.inf:
                positive(name, getattr(self, name), "bytes a second above 0")
        whole("workers_per_node", self.workers_per_node)

    def handling(self, size: int) -> float:
        """Seconds that a task and its result cost the worker.

        Parameters
        ----------
        size : int
            Bytes of both.

        Returns
        -------
        float
            Overhead and copying.
        """
        return self.overhead + size / self.copying


# Workers that share the server's memory: nothing is sent.
SHARED_MEMORY = Network(latency=0.0, bandwidth=math.inf, workers_per_node=1 << 30)


@dataclass(eq=False)
class Transfer:
    """Arrays that go from one node to another together."""

    source: int
    target: int
    size: int = 0
    done: bool = False
    waiting: list[LinkJob] = field(default_factory=list)


@dataclass(eq=False)
class LinkJob:
    """A submitted task: the transfers that it waits for, its seconds and its result.

    `message` and `back` are bytes through the driver's link; `brings` are transfers that begin when
    the message is there, `needs` all that must have arrived before it is done. A `short` one
    runs beside the worker's current job, which takes longer by its seconds.
    """

    worker: int
    message: int
    seconds: float
    back: int
    brings: Sequence[Transfer] = ()
    needs: Sequence[Transfer] = ()
    value: Any = None
    is_back: bool = False
    missing: int = 0
    short: bool = False

    def result(self) -> Any:
        """The task's result."""
        return self.value


class Link:
    """One direction of a node's link, which sends one transfer after another."""

    __slots__ = ("bandwidth", "free", "moved", "seconds")

    def __init__(self, bandwidth: float) -> None:
        self.bandwidth, self.free, self.seconds, self.moved = bandwidth, 0.0, 0.0, 0

    def take(self, at: float, size: int) -> float:
        """Reserve the link for some bytes; returns the time at which they have been sent."""
        seconds = size / self.bandwidth
        self.free = max(at, self.free) + seconds
        self.seconds += seconds
        self.moved += size
        return self.free


class SimCluster:
    """Clocks of workers, links and the driver, and the queue of events.

    Task messages and results are small: they use the driver's link, and do not delay the rows that
    a node receives. Rows go from node to node while both links are free. A node asks its
    neighbours first, so that not all of them ask the same one.
    """

    def __init__(self, n_workers: int, network: Network) -> None:
        self.network = network
        self.nodes = -(-n_workers // network.workers_per_node)
        self.driver = self.nodes  # its node is behind all others
        self.now = 0.0
        self.out = [Link(network.bandwidth) for _ in range(self.nodes + 1)]
        self.into = [Link(network.bandwidth) for _ in range(self.nodes + 1)]
        self._busy = [False] * n_workers
        self._owed = [0.0] * n_workers  # seconds that short jobs took from the one at work
        self._beside = [0.0] * n_workers  # when a worker has done its last short job
        self._ready: list[list[tuple[int, LinkJob]]] = [[] for _ in range(n_workers)]
        self._asked: list[list[Transfer]] = [[] for _ in range(self.nodes + 1)]
        self._askers: list[dict[int, int]] = [{} for _ in range(self.nodes + 1)]
        self._events: list[tuple[float, int, Callable[..., None], Any]] = []
        self._number = 0
        self._came: LinkJob | None = None  # the last result

    def node(self, worker: int) -> int:
        """The node of a worker."""
        return worker // self.network.workers_per_node

    def submit(self, job: LinkJob) -> None:
        """Send a job to its worker, now."""
        left = self.out[self.driver].take(self.now, job.message)
        self._at(left + self.network.latency, self._received, job)

    def fetch(self, transfers: Sequence[Transfer]) -> None:
        """Transfer arrays to the driver, which waits for them."""
        for transfer in transfers:
            self._at(self.now, self._ask, transfer)
        while not all(transfer.done for transfer in transfers):
            self.now = max(self.now, self._step())

    def wait(self, jobs: Collection[Any]) -> set[Any]:
        """Advance until at least one of these has a result; return all that have one."""
        self._catch_up()
        found = {job for job in jobs if job.is_back}
        while self._events and not found:
            self._came = None
            time = self._step()
            if self._came is not None and self._came in jobs:
                self.now = max(self.now, time)
                self._catch_up()
                found = {job for job in jobs if job.is_back}
        return found

    def _catch_up(self) -> None:
        """Process the events up to now."""
        while self._events and self._events[0][0] <= self.now:
            self._step()

    # -- events ------------------------------------------------------------------------------------

    def _at(self, time: float, what: Callable[..., None], about: Any) -> None:
        self._number += 1  # events at one time are processed in the order of their submission
        heappush(self._events, (time, self._number, what, about))

    def _step(self) -> float:
        time, _, what, about = heappop(self._events)
        what(time, about)
        return time

    def _received(self, time: float, job: LinkJob) -> None:
        """A task has reached its worker's node, which asks for what it lacks."""
        for transfer in job.brings:
            self._ask(time, transfer)
        job.missing = sum(not transfer.done for transfer in job.needs)
        for transfer in job.needs:
            if not transfer.done:
                transfer.waiting.append(job)
        if not job.missing:
            self._can_begin(time, job)

    def _can_begin(self, time: float, job: LinkJob) -> None:
        worker = job.worker
        if job.short:
            takes = self._takes(job)
            self._owed[worker] += takes if self._busy[worker] else 0.0
            self._beside[worker] = max(time, self._beside[worker]) + takes
            self._at(self._beside[worker], self._answered, job)
            return
        self._number += 1
        heappush(self._ready[worker], (self._number, job))
        self._work(time, worker)

    def _takes(self, job: LinkJob) -> float:
        return self.network.handling(job.message + job.back) + job.seconds

    def _work(self, time: float, worker: int) -> None:
        if not self._busy[worker] and self._ready[worker]:
            _, job = heappop(self._ready[worker])
            self._busy[worker] = True
            self._at(time + self._takes(job), self._finished, job)

    def _finished(self, time: float, job: LinkJob) -> None:
        owed, self._owed[job.worker] = self._owed[job.worker], 0.0
        if owed:
            self._at(time + owed, self._finished, job)
            return
        self._busy[job.worker] = False
        self._answered(time, job)
        self._work(time, job.worker)

    def _answered(self, time: float, job: LinkJob) -> None:
        left = self.into[self.driver].take(time, job.back)
        self._at(left + self.network.latency, self._back, job)

    def _back(self, time: float, job: LinkJob) -> None:
        job.is_back = True
        self._came = job

    # -- from node to node -------------------------------------------------------------------------

    def _ask(self, time: float, transfer: Transfer) -> None:
        own = self._asked[transfer.target]
        own.append(transfer)
        askers = self._askers[transfer.source]
        askers[transfer.target] = askers.get(transfer.target, 0) + 1
        self._pull(time, transfer.target)

    def _pull(self, time: float, target: int) -> None:
        """Begin the first transfer that was asked for whose source is free."""
        into, asked = self.into[target], self._asked[target]
        if not asked:
            return
        if into.free > time:
            if target == self.driver:  # busy with results, whose end is not known otherwise
                self._at(into.free, self._pull, target)
            return
        for k, transfer in enumerate(asked):
            out = self.out[transfer.source]
            if out.free <= time:
                del asked[k]
                askers = self._askers[transfer.source]
                askers[target] -= 1
                if not askers[target]:
                    del askers[target]
                out.take(time, transfer.size)
                self._at(into.take(time, transfer.size), self._sent, transfer)
                return

    def _sent(self, time: float, transfer: Transfer) -> None:
        self._at(time + self.network.latency, self._arrived, transfer)
        self._pull(time, transfer.target)
        for target in list(self._askers[transfer.source]):
            if self.out[transfer.source].free > time:
                break
            self._pull(time, target)

    def _arrived(self, time: float, transfer: Transfer) -> None:
        transfer.done = True
        for job in transfer.waiting:
            job.missing -= 1
            if not job.missing:
                self._can_begin(time, job)
        transfer.waiting = []


def in_turn(transfers: Sequence[Transfer], n_nodes: int) -> list[Transfer]:
    """Sort transfers by source, from the node after their target on, around the ring."""
    return sorted(transfers, key=lambda one: (one.source - one.target) % (n_nodes + 1))
