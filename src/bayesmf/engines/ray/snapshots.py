"""Copies of the arrays of a chain in other workers, from which lost arrays are computed again.

Arrays are copied while the run continues. When all arrays that a chain refers to after a round
have been copied, the tasks that made them are forgotten; the arrays and their copies stay until the
next snapshot, so that no array is in one process alone.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from bayesmf.engines.ray.dispatch import Dispatch
from bayesmf.engines.ray.lineage import Content, Key, LineageEntry
from bayesmf.engines.ray.pool import Process, WorkerPool

SHARE = 20.0  # least time between snapshots, in times that one takes
LEAST = 5.0  # seconds between snapshots
FIRST = 30.0  # seconds before a process is started for copies alone
LONGEST = 5000  # tasks of a chain that are remembered


class Snapshot:
    """A snapshot of one chain under way; `left` is the number of missing answers."""

    def __init__(self, chain: int, entries: Sequence[LineageEntry]) -> None:
        self.chain, self.entries = chain, entries
        self.copies: dict[LineageEntry, tuple[Content, Content]] = {}
        self.left, self.seconds, self.failed = 0, 0.0, False


class Snapshots:
    """When chains are copied, and to which processes."""

    def __init__(self, pool: WorkerPool, dispatch: Dispatch) -> None:
        self._pool, self._dispatch = pool, dispatch
        self._under_way: dict[int, Snapshot] = {}
        self._begin = time.monotonic()
        self._last: dict[int, float] = {}  # when, by chain
        self._lives: dict[int, int] = {}  # number of processes so far, by then
        self._seconds = 0.0  # of all workers, for the last snapshot
        self.taken = 0

    def settled(self, chain: int, entries: Sequence[LineageEntry]) -> None:
        """Begin a snapshot of a chain, if one is due."""
        if chain not in self._under_way and self._due(chain):
            self._start(chain, entries)

    def _due(self, chain: int) -> bool:
        lives = self._pool.lives
        if self._lives.setdefault(chain, lives) != lives:
            return True  # copies were lost with a process
        all_chains = self._seconds * self._pool.load.n_chains / len(self._pool.slots)
        since = time.monotonic() - self._last.get(chain, self._begin)
        return since >= max(LEAST, SHARE * all_chains) or (
            self._dispatch.steps.get(chain, 0) >= LONGEST
        )

    def _start(self, chain: int, entries: Sequence[LineageEntry]) -> None:
        plan: dict[tuple[Process, Process], list[tuple[LineageEntry, Content]]] = {}
        for entry in entries:
            alive = [copy for copy in entry.copies if copy.process.alive]
            content = alive[0] if alive else entry.content()
            if content is None:
                return  # being computed again
            if len(alive) < 2:
                to = self._backup_of(chain, content.process)
                if to is None:
                    return
                plan.setdefault((content.process, to), []).append((entry, content))
        made = self._under_way[chain] = Snapshot(chain, entries)
        self._lives[chain] = self._pool.lives
        self._dispatch.steps[chain] = 0
        made.left = 1
        for (owner, to), pairs in plan.items():
            self._copy(made, owner, to, pairs)
        self._answered(made)

    def _backup_of(self, chain: int, owner: Process) -> Process | None:
        """Process for copies of another's arrays, on another node if there is one."""
        others = [
            slot.process for slot in self._pool.slots
            if slot.process is not None and slot.ready and slot.process is not owner
        ]  # fmt: skip
        n = len(self._pool.slots)
        if others:
            return min(others, key=lambda p: (p.node == owner.node, (p.slot - owner.slot) % n))
        early = time.monotonic() - self._begin < FIRST
        if self._pool.backup is None and early and self._dispatch.steps.get(chain, 0) < LONGEST:
            return None
        backup = self._pool.open_backup()
        return backup.process if backup.ready else None

    def _copy(
        self, made: Snapshot, owner: Process, to: Process, pairs: list[tuple[LineageEntry, Content]]
    ) -> None:
        there = [(entry, content) for entry, content in pairs if content.export is not None]
        if there:
            self._keep(made, to, there, [content.export for _, content in there])
        alone = [(entry, content) for entry, content in pairs if content.export is None]
        if alone:

            def stored(answer: tuple[list[Any], float]) -> None:
                refs, seconds = answer
                made.seconds += seconds
                self._keep(made, to, alone, refs)
                self._answered(made)

            keys = [content.key for _, content in alone]
            made.left += 1
            failed = partial(self._failed, made)
            self._pool.call(
                owner,
                "put_temporarily",
                keys,
                done=stored,
                again=failed,
                failed=lambda error: failed(),
            )

    def _keep(
        self,
        made: Snapshot,
        to: Process,
        pairs: list[tuple[LineageEntry, Content]],
        refs: list[Any],
    ) -> None:
        made.left += 1
        failed = partial(self._failed, made)
        if not to.alive:
            failed()
            return
        number = self._dispatch.number()
        keys: list[Key] = [(number, k) for k in range(len(refs))]

        def kept(seconds: float) -> None:
            made.seconds += seconds
            for key, (entry, content) in zip(keys, pairs, strict=True):
                made.copies[entry] = content, Content(key, to, content.nbytes)
            self._answered(made)

        for _, content in pairs:
            self._dispatch.fetched_by(to, content)
        patience = self._pool.cluster.task_timeout / 2
        self._pool.call(
            to, "keep", dict(zip(keys, refs, strict=True)), patience, to.take_dropped(),
            done=kept, again=failed, failed=lambda error: failed(),
        )  # fmt: skip

    def _failed(self, made: Snapshot) -> None:
        made.failed = True
        self._answered(made)

    def _answered(self, made: Snapshot) -> None:
        """End the snapshot when all arrays have been copied."""
        made.left -= 1
        if made.left:
            return
        del self._under_way[made.chain]
        self._last[made.chain] = time.monotonic()
        if made.failed or not all(c.process.alive for both in made.copies.values() for c in both):
            self._last[made.chain] = self._begin  # try again at once
            return
        self._seconds = made.seconds
        for entry, both in made.copies.items():
            entry.copies = both
        for entry in made.entries:
            entry.step = None
        self.taken += 1
