"""Copies of what a chain depends on, kept by other workers: what was lost is made anew from them.

Copying goes on beside the run. When all that a chain named after one of its rounds has been copied,
the tasks that led there are forgotten; both the arrays and their copies stay until the next time,
so that no single process has anything alone.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from bayesmf.engines.ray.contents import Content, Key, Node
from bayesmf.engines.ray.crew import Crew
from bayesmf.engines.ray.dispatch import Dispatch
from bayesmf.engines.ray.slots import Process

SHARE = 20.0  # times as long as copying takes, at least, is worked before it is done again
LEAST = 5.0  # seconds between copies
FIRST = 30.0  # seconds before a process is started for copies alone, which takes one or two
LONGEST = 5000  # tasks of a chain that are remembered, about


class Snapshot:
    """The copying of one chain; `left` are answers that have not come."""

    def __init__(self, chain: int, nodes: Sequence[Node]) -> None:
        self.chain, self.nodes = chain, nodes
        self.copies: dict[Node, tuple[Content, Content]] = {}
        self.left, self.seconds, self.failed = 0, 0.0, False


class Snapshots:
    """When chains are copied, and to whom."""

    def __init__(self, crew: Crew, dispatch: Dispatch) -> None:
        self._crew, self._dispatch = crew, dispatch
        self._under_way: dict[int, Snapshot] = {}
        self._begin = time.monotonic()
        self._last: dict[int, float] = {}  # when, by chain
        self._lives: dict[int, int] = {}  # processes there had been by then
        self._seconds = 0.0  # that the last one took, of all workers
        self.taken = 0

    def settled(self, chain: int, nodes: Sequence[Node]) -> None:
        """Begin to copy a chain, if it is time to."""
        if chain not in self._under_way and self._due(chain):
            self._start(chain, nodes)

    def _due(self, chain: int) -> bool:
        lives = self._crew.lives
        if self._lives.setdefault(chain, lives) != lives:
            return True  # copies were lost with a process
        all_chains = self._seconds * self._crew.load.n_chains / len(self._crew.slots)
        since = time.monotonic() - self._last.get(chain, self._begin)
        return since >= max(LEAST, SHARE * all_chains) or (
            self._dispatch.steps.get(chain, 0) >= LONGEST
        )

    def _start(self, chain: int, nodes: Sequence[Node]) -> None:
        plan: dict[tuple[Process, Process], list[tuple[Node, Content]]] = {}
        for node in nodes:
            alive = [copy for copy in node.copies if copy.process.alive]
            content = alive[0] if alive else node.content()
            if content is None:
                return  # being made anew
            if len(alive) < 2:
                to = self._keeper_of(chain, content.process)
                if to is None:
                    return
                plan.setdefault((content.process, to), []).append((node, content))
        made = self._under_way[chain] = Snapshot(chain, nodes)
        self._lives[chain] = self._crew.lives
        self._dispatch.steps[chain] = 0
        made.left = 1
        for (owner, to), pairs in plan.items():
            self._copy(made, owner, to, pairs)
        self._answered(made)

    def _keeper_of(self, chain: int, owner: Process) -> Process | None:
        """Who keeps copies of a process's arrays: another, on another node if there is one."""
        others = [
            slot.process for slot in self._crew.slots
            if slot.process is not None and slot.ready and slot.process is not owner
        ]  # fmt: skip
        n = len(self._crew.slots)
        if others:
            return min(others, key=lambda p: (p.node == owner.node, (p.slot - owner.slot) % n))
        early = time.monotonic() - self._begin < FIRST
        if self._crew.keeper is None and early and self._dispatch.steps.get(chain, 0) < LONGEST:
            return None
        keeper = self._crew.open_keeper()
        return keeper.process if keeper.ready else None

    def _copy(
        self, made: Snapshot, owner: Process, to: Process, pairs: list[tuple[Node, Content]]
    ) -> None:
        there = [(node, content) for node, content in pairs if content.export is not None]
        if there:
            self._keep(made, to, there, [content.export for _, content in there])
        alone = [(node, content) for node, content in pairs if content.export is None]
        if alone:

            def lent(answer: tuple[list[Any], float]) -> None:
                refs, seconds = answer
                made.seconds += seconds
                self._keep(made, to, alone, refs)
                self._answered(made)

            keys = [content.key for _, content in alone]
            made.left += 1
            failed = partial(self._failed, made)
            self._crew.call(
                owner, "lend", keys, done=lent, again=failed, failed=lambda error: failed()
            )

    def _keep(
        self, made: Snapshot, to: Process, pairs: list[tuple[Node, Content]], refs: list[Any]
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
            for key, (node, content) in zip(keys, pairs, strict=True):
                made.copies[node] = content, Content(key, to, content.nbytes)
            self._answered(made)

        for _, content in pairs:
            self._dispatch.fetched_by(to, content)
        patience = self._crew.cluster.task_timeout / 2
        self._crew.call(
            to, "keep", dict(zip(keys, refs, strict=True)), patience, to.forget(),
            done=kept, again=failed, failed=lambda error: failed(),
        )  # fmt: skip

    def _failed(self, made: Snapshot) -> None:
        made.failed = True
        self._answered(made)

    def _answered(self, made: Snapshot) -> None:
        """Once all has been copied, the way there is forgotten."""
        made.left -= 1
        if made.left:
            return
        del self._under_way[made.chain]
        self._last[made.chain] = time.monotonic()
        if made.failed or not all(c.process.alive for both in made.copies.values() for c in both):
            self._last[made.chain] = self._begin  # as soon as it can be
            return
        self._seconds = made.seconds
        for node, both in made.copies.items():
            node.copies = both
        for node in made.nodes:
            node.step = None
        self.taken += 1
