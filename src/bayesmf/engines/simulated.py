"""An engine of any number of simulated workers: real arithmetic, virtual clocks.

Every task is done when it is submitted, so draws are those of any other engine. What is simulated
is time: a clock for the server, one for each worker and one for each direction of the server's
link. So a run on 36 or 1,000 workers can be planned on a laptop.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import zip_longest
from typing import Any

from bayesmf.checks import not_negative, positive, whole
from bayesmf.engines.base import Handle, Workload
from bayesmf.engines.ledger import Ledger, payload
from bayesmf.engines.placement import spread
from bayesmf.errors import InputError
from bayesmf.worker.row_tasks import RowsTask
from bayesmf.worker.tasks import Result, Task, run_task


@dataclass(frozen=True)
class Network:
    """Links between the server and its simulated workers, and what messages cost a worker.

    The default is a cluster with ten gigabits a second.

    Parameters
    ----------
    latency : float
        Seconds of an empty message, one way.
    bandwidth : float
        Bytes a second of the server's link, each way; may be infinite.
    overhead : float
        Seconds that a worker needs to unpack a task and pack its result. Meanwhile it computes
        nothing.
    copying : float
        Bytes a second at which a worker copies tasks and results, which it needs as well.

    Raises
    ------
    InputError
        For times below 0, and for rates that are not above 0.

    Examples
    --------
    >>> from bayesmf import BayesianMF, Network, Simulated
    >>> slow = Network(latency=0.05, bandwidth=1.25e7)
    >>> model = BayesianMF(engine=Simulated(36, slow))
    """

    latency: float = 0.5e-3
    bandwidth: float = 1.25e9
    overhead: float = 0.0
    copying: float = math.inf

    def __post_init__(self) -> None:
        for name in ("latency", "overhead"):
            not_negative(name, getattr(self, name))
        for name in ("bandwidth", "copying"):
            value = getattr(self, name)
            if not value > 0:
                raise InputError(f"{name} must be bytes a second above 0, not {value!r}")

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
SHARED_MEMORY = Network(latency=0.0, bandwidth=math.inf)


@dataclass(eq=False)
class Flight:
    """A task that has been sent: when its worker will have done it, and its result."""

    finish: float
    size: int
    value: Result = field(repr=False)
    back: bool = False

    def result(self) -> Result:
        return self.value


class Link:
    """One direction of the server's link: messages go one after another."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self.free, self.seconds = 0.0, 0.0

    def arrival(self, ready: float, size: int) -> float:
        """When a message arrives that is ready to leave, behind those sent already."""
        return max(ready, self.free) + size / self._network.bandwidth + self._network.latency

    def send(self, ready: float, size: int) -> float:
        """Send a message: the link is taken until it has left. Returns when it arrives."""
        taken = size / self._network.bandwidth
        self.seconds += taken
        self.free = max(ready, self.free) + taken
        return self.free + self._network.latency


class Simulated:
    """An engine of workers that are simulated: real draws, seconds by virtual clocks.

    Ratings are handed out before the clock starts: the report's `ratings_bytes_sent` over the
    bandwidth is what that takes. One thread drives it, as the server does.

    Parameters
    ----------
    n_workers : int
        Workers, each with one core.
    network : Network, optional
        Links between them and the server.
    rate : float, optional
        Ratings a second of one worker. The server's work then takes no time and nothing is
        measured: the same run takes the same virtual seconds everywhere. By default tasks and the
        server's work take the seconds measured here, in processor time of this thread: what other
        processes take from it is no property of the task.
    contention : float
        How many times longer a task takes while all workers are at work than alone. 1 where each
        has a machine of its own; threads of one machine share its memory.

    Raises
    ------
    InputError
        For values that cannot be used.

    Examples
    --------
    Virtual seconds of a fit on nine workers that read a million ratings a second each:

    >>> from bayesmf import SGLD, BayesianMF, Simulated, Synthetic
    >>> sampler = SGLD(grid=(3, 3), epochs=10)
    >>> model = BayesianMF(4, sampler=sampler, engine=Simulated(9, rate=1e6), random_state=0)
    >>> report = model.fit(Synthetic(60, 40, 1200).ratings()).report_
    >>> report["engine"]["workers"], 0 < report["seconds"] < 1
    (9, True)
    """

    def __init__(
        self,
        n_workers: int,
        network: Network | None = None,
        *,
        rate: float | None = None,
        contention: float = 1.0,
    ) -> None:
        self.n_workers = whole("n_workers", n_workers)
        self.network = network or Network()
        self.rate = None if rate is None else positive("rate", rate, "ratings a second above 0")
        self.contention = positive("contention", contention)

    def start(self, load: Workload) -> None:
        """Hand out the ratings, and start the clocks.

        Parameters
        ----------
        load : Workload
            Partitions of the ratings, and which of them are worked on together.
        """
        self._held, self._worker = load.held, spread(load, self.n_workers)
        self._now, self._server = 0.0, 0.0
        self._out, self._in = Link(self.network), Link(self.network)
        self._free = [0.0] * self.n_workers
        self._flying: list[tuple[float, int, Flight]] = []
        self._sent = 0
        self._known: dict[tuple[int, int], object] = {}
        self._ledger = Ledger("simulated", self.n_workers, clock=lambda: self._now)
        for held, recipe in zip_longest(load.held, load.recipes):
            if recipe is None:
                self._ledger.ratings_sent += payload(held)
        self._mark = time.thread_time()

    def submit(self, task: Task) -> Flight:
        """Do the task, and find when its worker will have done it.

        All messages leave by one link and take equally long, so they arrive in the order of
        their sending: when the worker begins is known already. When the result is back is not: a
        task that is sent later may be done earlier.

        Parameters
        ----------
        task : Task
            What is to be done, and on which partition.

        Returns
        -------
        Flight
            The task under way.
        """
        self._catch_up()
        worker, size = self._worker[task.partition], self._size(task)
        seconds, result = self._run(task)
        arrival = self._out.send(self._now, size)
        back = payload(result)
        handling = self.network.handling(size + back)
        finish = max(arrival, self._free[worker]) + handling + seconds
        self._free[worker] = finish
        flight = Flight(finish, back, result)
        self._sent += 1  # among tasks done at the same time, the first sent is the first back
        heappush(self._flying, (finish, self._sent, flight))
        self._ledger.done(worker, task.partition, seconds)
        self._ledger.moved(sent=size)
        self._mark = time.thread_time()  # the arithmetic was not the server's
        return flight

    def wait(self, handles: Collection[Handle]) -> set[Handle]:
        """Move on to the first result that comes in; with it, those that came in before now.

        Results come in in the order in which they are done. While the server waits it sends
        nothing, so none can come before the first of those that are under way.

        Parameters
        ----------
        handles : collection of Flight
            Tasks under way.

        Returns
        -------
        set of Flight
            Those that are back, at least one.
        """
        self._catch_up()
        asked: set[Any] = set(handles)
        ready = {flight for flight in asked if flight.back}
        while self._flying and (not ready or self._next_arrival() <= self._now):
            flight = self._receive()
            if flight in asked:
                ready.add(flight)
        self._mark = time.thread_time()
        return ready

    def seconds(self) -> float:
        """Virtual seconds since the start.

        Returns
        -------
        float
            By the server's clock.
        """
        self._catch_up()
        return self._now

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Context in which the clocks stand still."""
        self._catch_up()
        yield
        self._mark = time.thread_time()

    def report(self) -> dict[str, Any]:
        """Who did what, how long it took, and what was sent.

        Returns
        -------
        dict
            As all engines report; also the seconds of both links and of the server.
        """
        self._catch_up()
        return {
            **self._ledger.report(),
            "link_seconds": {"sending": self._out.seconds, "receiving": self._in.seconds},
            "server_seconds": self._server,
        }

    def close(self) -> None:
        """Release the ratings."""
        self._held, self._flying, self._known = (), [], {}

    def _catch_up(self) -> None:
        """Count the time of what the server did since it was last here."""
        mark = time.thread_time()
        if self.rate is None:
            self._server += mark - self._mark
            self._now += mark - self._mark
        self._mark = mark

    def _run(self, task: Task) -> tuple[float, Result]:
        begin = time.thread_time()
        result = run_task(self._held[task.partition], task)
        measured = time.thread_time() - begin
        return self.contention * (result.count / self.rate if self.rate else measured), result

    def _size(self, task: Task) -> int:
        """Bytes of a message. What tasks of a phase have in common is sent once to each worker."""
        size = payload(task)
        if isinstance(task, RowsTask):
            to = self._worker[task.partition], task.chain
            if self._known.get(to) is task.other:
                size -= payload(task.other)
            self._known[to] = task.other
        return size

    def _next_arrival(self) -> float:
        finish, _, flight = self._flying[0]
        return self._in.arrival(finish, flight.size)

    def _receive(self) -> Flight:
        finish, _, flight = heappop(self._flying)
        self._now = max(self._now, self._in.send(finish, flight.size))
        self._ledger.moved(received=flight.size)
        flight.back = True
        return flight
