"""An engine of any number of simulated workers: real arithmetic, virtual clocks.

A task runs when it is submitted, so draws are those of any other engine. Only time is simulated
(links.py): clocks of the driver, of every worker, and of each direction of every node's
link. So a run on 36 or 1,000 workers can be planned on a laptop.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any

import numpy as np

from bayesmf.checks import not_negative, positive, whole
from bayesmf.engines.base import Handle, Ledger, Workload, payload
from bayesmf.engines.placement import Homes
from bayesmf.errors import InputError
from bayesmf.model.refs import Array, Ref, leaves, value_of
from bayesmf.wording import shown
from bayesmf.worker.tasks import Held, Result, Shared, Task, with_refs
from experiments.links import SHARED_MEMORY, LinkJob, Network, SimCluster, Transfer, in_turn


class Placed(Ref):
    """An array held by a worker, and the nodes that it was sent to."""

    __slots__ = ("brought", "node")

    def __init__(self, value: Array, node: int, nbytes: int | None = None) -> None:
        super().__init__(value, nbytes)
        self.node = node
        self.brought: dict[int, Transfer] = {}


class Phase:
    """State of the `shared` part of a phase's tasks."""

    def __init__(self, shared: Any) -> None:
        self.shared = shared  # held, so that no other can have its number
        self.size = payload(shared)
        self.refs = list({id(ref): ref for ref in leaves(shared, Ref)}.values())
        self.seconds: float | None = None  # of preparing it
        self.table = 0  # bytes of what was prepared
        self.on_nodes: dict[int, list[Transfer]] = {}
        self.workers: set[int] = set()


def own_size(task: Any) -> int:
    """Bytes of a task without its `Shared` value."""
    names = task.__dataclass_fields__
    shared = isinstance(getattr(task, "shared", None), Shared)
    return sum(payload(getattr(task, name)) for name in names if name != "shared" or not shared)


def own_refs(task: Any) -> list[Ref]:
    """References of a task without those of its `Shared` value."""
    names = (name for name in task.__dataclass_fields__ if name != "shared")
    return [ref for name in names for ref in leaves(getattr(task, name), Ref)]


class Memory:
    """Bytes that nodes hold: ratings, rows of all chains, tables that workers have prepared."""

    def __init__(self, homes: Homes, clocks: SimCluster, sizes: Sequence[int]) -> None:
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


MOST_WORKERS = 100_000

__all__ = ["SHARED_MEMORY", "Network", "Simulated"]


def look_up() -> float:
    """Seconds of a reading of the clock, which are not work of the server."""
    times = [time.thread_time() for _ in range(64)]
    return float(np.median(np.diff(times)))


class Simulated:
    """An engine of workers that are simulated: real draws, seconds by virtual clocks.

    Rows are stored on their workers and go from node to node; the driver's link has tasks,
    statistics and the draws that are kept. Ratings are handed out before the clock starts: the
    report's `ratings_bytes_sent` over the bandwidth is what that takes. One thread drives it, as
    the server does.

    Parameters
    ----------
    n_workers : int
        Workers, each with one core.
    network : Network, optional
        Links between nodes, and how many workers share one.
    rate : float, optional
        Ratings a second of one worker. The server's work then takes no time and nothing is
        measured: the same run takes the same virtual seconds everywhere. By default tasks and the
        server's work take the seconds measured here, in processor time of this thread: what other
        processes take from it is not a property of the task.
    contention : float
        How many times longer a task takes while all workers are at work than alone. 1 where each
        has a machine of its own; threads of one machine share its memory.
    server : float
        Factor of the server's measured seconds. With a part of the data a round computes less, and
        the server's work for it, most of which does not depend on the data, should shrink alike.

    Raises
    ------
    InputError
        For values that cannot be used.

    Examples
    --------
    Virtual seconds of a fit on nine workers that read a million ratings a second each:

    >>> from bayesmf import SGLD, BayesianMF, Synthetic
    >>> from experiments.simulated import Simulated
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
        server: float = 1.0,
    ) -> None:
        self.n_workers = whole("n_workers", n_workers)
        if self.n_workers > MOST_WORKERS:
            raise InputError(f"n_workers must be at most {MOST_WORKERS:,}, not {n_workers!r}")
        self.network = Network() if network is None else network
        if not isinstance(self.network, Network):
            raise InputError(f"network must be a Network, not {shown(network)}")
        self.rate = None if rate is None else positive("rate", rate, "ratings a second above 0")
        self.contention = positive("contention", contention)
        self.server = not_negative("server", server)

    def start(self, load: Workload) -> None:
        """Hand out the ratings, and start the clocks.

        Parameters
        ----------
        load : Workload
            Partitions of the ratings, and which of them are worked on together.
        """
        self._held: Sequence[Held] = load.held
        self._homes = self._placed(load)
        self._clocks = SimCluster(self.n_workers, self.network)
        self._server, self._alone, self._standing = 0.0, 0.0, False
        self._phases: dict[int, Phase] = {}  # of each chain, the one it is in
        self._called: set[tuple[int, int]] = set()
        self._ledger = Ledger("simulated", self.n_workers, clock=lambda: self._clocks.now)
        sizes = self._sizes_held(load.held)
        sent = [0 if recipe else size for size, recipe in zip_longest(sizes, load.recipes)]
        for worker in range(self._homes.n_workers):
            self._ledger.ratings_sent += sum(sent[p] for p in self._homes.held_by(worker))
        self._memory = Memory(self._homes, self._clocks, sizes)
        self._tick = look_up()
        self._mark = time.thread_time()

    def submit(self, task: Task) -> LinkJob:
        """Run the task, and simulate its transfers and time.

        Parameters
        ----------
        task : Task
            The task, with the number of its partition.

        Returns
        -------
        LinkJob
            The submitted task.
        """
        self._catch_up()
        worker = self._homes.of(task.chain, task.partition)
        node = self._clocks.node(worker)
        phase, message = self._phase(task), own_size(task)
        prepared = self._prepare(phase, task)
        seconds, found = self._run(task)
        result = with_refs(found, lambda how, name, array: self._keep(task, found, array, node))
        if getattr(task, "aside", False):
            self._mark = time.thread_time()
            return LinkJob(worker, 0, 0.0, 0, value=result, is_back=True)
        brings, needs = self._bring(own_refs(task), node)
        self._alone += seconds
        if phase is not None:
            if not phase.workers:
                self._alone += prepared
            first = worker not in phase.workers
            if first:
                phase.workers.add(worker)
                seconds += prepared
                self._memory.prepared(worker, phase.table)
            if node not in phase.on_nodes:
                new, phase.on_nodes[node] = self._bring(phase.refs, node)
                brings = in_turn([*brings, *new], self._clocks.nodes)
                message += phase.size
            needs += phase.on_nodes[node]
        back = payload(result)
        if phase is not None and not first:  # sums of a worker's tasks come back together
            back -= sum(payload(getattr(result, name)) for name in getattr(result, "adds", ()))
        self._call(task.chain, worker)
        job = LinkJob(worker, message, seconds, back, brings, needs, result)
        job.short = getattr(task, "short", False)
        self._clocks.submit(job)
        self._ledger.done(worker, task.partition, seconds)
        self._ledger.bytes_sent += message
        self._ledger.bytes_received += back
        self._mark = time.thread_time()  # the arithmetic was not the server's
        return job

    def wait(self, handles: Collection[Handle]) -> set[Handle]:
        """Advance to the first result; return all jobs that have one by then.

        Parameters
        ----------
        handles : collection of LinkJob
            Submitted tasks.

        Returns
        -------
        set of LinkJob
            Those with a result, at least one.
        """
        self._catch_up()
        ready: set[Handle] = self._clocks.wait(handles)
        self._called.clear()
        self._mark = time.thread_time()
        return ready

    def fetch(self, refs: Sequence[Ref]) -> list[Array]:
        """Bring arrays to the driver, over its link and their owners'.

        Parameters
        ----------
        refs : sequence of Ref
            Arrays stored on workers.

        Returns
        -------
        list of ndarray
            To be read alone.
        """
        if not self._standing:
            self._catch_up()
            parts: dict[int, Transfer] = {}
            for ref in refs:
                if isinstance(ref, Placed):
                    source = Transfer(ref.node, self._clocks.driver)
                    parts.setdefault(ref.node, source).size += ref.nbytes
                    self._ledger.fetched_bytes += ref.nbytes
            self._clocks.fetch(list(parts.values()))
            self._mark = time.thread_time()
        return [value_of(ref) for ref in refs]

    def settled(self, chain: int, refs: Sequence[Ref]) -> None:
        """Count a round, and the memory of what the chain holds at its end.

        Parameters
        ----------
        chain : int
            Its number.
        refs : sequence of Ref
            What the rest of the chain depends on.
        """
        self._catch_up()
        self._ledger.rounds += 1
        self._memory.settled(chain, refs)
        self._mark = time.thread_time()

    def seconds(self) -> float:
        """Virtual seconds since the start.

        Returns
        -------
        float
            By the server's clock.
        """
        self._catch_up()
        return self._clocks.now

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Context in which the clocks stand still."""
        self._catch_up()
        before, self._standing = self._standing, True
        try:
            yield
        finally:
            self._standing = before
            self._mark = time.thread_time()

    def report(self) -> dict[str, Any]:
        """Tasks, times and bytes of the run.

        Returns
        -------
        dict
            As all engines report; also seconds of links and of the server, `alone_seconds` that
            one worker beside the server would take for the same tasks, bytes that went over the
            links of nodes, the larger way, and bytes that nodes held.
        """
        self._catch_up()
        clocks = self._clocks
        nodes = range(clocks.nodes)
        return {
            **self._ledger.report(),
            "nodes": clocks.nodes,
            "link_seconds": {
                "sending": clocks.out[clocks.driver].seconds,
                "receiving": clocks.into[clocks.driver].seconds,
                "nodes_out": [clocks.out[node].seconds for node in nodes],
                "nodes_in": [clocks.into[node].seconds for node in nodes],
            },
            "node_bytes": [max(clocks.out[node].moved, clocks.into[node].moved) for node in nodes],
            "server_seconds": self._server,
            "alone_seconds": self._alone + self._server,
            "memory_by_node": self._memory.by_node(),
        }

    def close(self) -> None:
        """Release the ratings."""
        self._held, self._phases = (), {}

    # -- time --------------------------------------------------------------------------------------

    def _catch_up(self) -> None:
        """Count the time of what the server did since it was last here."""
        mark = time.thread_time()
        if self.rate is None and not self._standing:
            passed = self.server * max(0.0, mark - self._mark - self._tick)
            self._server += passed
            self._clocks.now += passed
        self._mark = mark

    def _run(self, task: Task) -> tuple[float, Result]:
        begin = time.thread_time()
        result = task.execute(self._held[task.partition])
        measured = time.thread_time() - begin
        return self.contention * (result.count / self.rate if self.rate else measured), result

    def _phase(self, task: Task) -> Phase | None:
        """The phase of a task, by what it shares with others."""
        shared = getattr(task, "shared", None)
        if not isinstance(shared, Shared):
            return None
        known = self._phases.get(task.chain)
        if known is None or known.shared is not shared:
            known = self._phases[task.chain] = Phase(shared)
        return known

    def _prepare(self, phase: Phase | None, task: Task) -> float:
        """Seconds that each worker needs to prepare what the tasks share: here it is done once."""
        if phase is None:
            return 0.0
        if phase.seconds is None:
            begin = time.thread_time()
            phase.table = payload(phase.shared.ready)
            measured = time.thread_time() - begin
            phase.seconds = 0.0 if self.rate else self.contention * measured
        return phase.seconds

    def _call(self, chain: int, worker: int) -> None:
        """What it costs the driver to call a worker: once for all its tasks of a phase."""
        if self.network.calling and (chain, worker) not in self._called:
            self._called.add((chain, worker))
            self._clocks.now += self.network.calling
            self._server += self.network.calling

    # -- places ------------------------------------------------------------------------------------

    def _placed(self, load: Workload) -> Homes:
        return Homes(load, self.n_workers)

    def _sizes_held(self, held: Sequence[Held]) -> list[int]:
        """Bytes of the partitions."""
        return [payload(one) for one in held]

    def _keep(self, task: Task, result: Any, array: Array, node: int) -> Ref:
        return Placed(array, node)

    def _bring(self, refs: Sequence[Ref], node: int) -> tuple[list[Transfer], list[Transfer]]:
        """Transfers of what is not on a node yet, one from each other node; and all
        that must have ended before the arrays are there."""
        new: dict[int, Transfer] = {}
        needs: dict[int, Transfer] = {}
        size = 0
        for ref in refs:
            if not isinstance(ref, Placed) or ref.node == node:
                continue
            transfer = ref.brought.get(node)
            if transfer is None:
                transfer = new.get(ref.node)
                if transfer is None:
                    transfer = new[ref.node] = Transfer(ref.node, node)
                transfer.size += ref.nbytes
                ref.brought[node] = transfer
                size += ref.nbytes
            if not transfer.done:
                needs[id(transfer)] = transfer
        self._ledger.peer_bytes += size
        self._memory.brought(node, size)
        return list(new.values()), list(needs.values())
