"""A worker that is a process of its own: ratings it holds, arrays it keeps, what it does."""

from __future__ import annotations

import importlib.metadata
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from bayesmf.engines.ray.contents import Input, Key, Left, Order
from bayesmf.engines.ray.transport import contiguous, own, packed, unpacked, writable
from bayesmf.errors import InputError
from bayesmf.model.refs import Array, tree_map
from bayesmf.worker.tasks import (
    Held,
    Recipe,
    Result,
    Shared,
    Task,
    added_up,
    run_task,
    with_refs,
)

PACKAGES = ("bayesmf", "numpy", "numba")


class About(NamedTuple):
    """Where a worker is, and what it runs."""

    pid: int
    node: str
    host: str
    versions: dict[str, str]


class NotHeld(Exception):
    """A worker was asked for ratings that it does not have."""


class NotFetched(Exception):
    """Arrays did not come from where they lie: their keys."""


class Store:
    """Where arrays are put for others to read: all that a worker needs of Ray."""

    def put(self, value: Any) -> Any:
        """A reference to a value in the store of this node."""
        raise NotImplementedError

    def get(self, refs: Mapping[Key, Any], patience: float) -> list[Any]:
        """Values, from this node or another; NotFetched where some do not come in time."""
        raise NotImplementedError


class Holder:
    """Holds partitions of the ratings and arrays, and does tasks one after the other."""

    def __init__(self, rehearsal: Sequence[tuple[Held, Task]], store: Store | None = None) -> None:
        self._held: dict[int, Held] = {}
        self._missing: dict[int, str] = {}
        self._arrays: dict[Key, Array] = {}
        self._exports: dict[Key, Any] = {}
        self._phases: dict[int, tuple[int, Shared]] = {}
        self._store = store or Store()
        for held, task in rehearsal:
            run_task(own(held), own(task))

    # -- ratings --------------------------------------------------------------------------------

    def hold(self, partition: int, held: Held) -> None:
        """Hold ratings that were sent."""
        self._held[partition] = own(held)

    def load(self, partition: int, recipe: Recipe) -> None:
        """Get ratings from storage. A failure is told to whoever asks for them first."""
        try:
            self._held[partition] = recipe.load()
        except Exception as error:
            self._missing[partition] = str(error)

    def release(self, partition: int) -> None:
        """Forget ratings that another worker holds again."""
        self._held.pop(partition, None)

    # -- tasks ----------------------------------------------------------------------------------

    def run(self, order: Order, shared: Shared | None) -> list[tuple[Result, float]]:
        """Results of tasks, and the seconds that each took; arrays they leave stay here."""
        self.drop(order.dropped)
        for _, task in order.tasks:
            if task.partition not in self._held:
                raise NotHeld(self._missing.get(task.partition, "they were never sent"))
        elsewhere = self._bring(order.refs, order.patience)
        if shared is not None:
            made = self._filled(own(shared), elsewhere)
            self._phases[order.chain] = order.phase, made
        elif order.phase and self._phases.get(order.chain, (0, None))[0] != order.phase:
            raise NotFetched
        done = [self._run(number, task, order, elsewhere) for number, task in order.tasks]
        if not order.adds_up:
            return done
        results = added_up([result for result, _ in done])
        return [(result, seconds) for result, (_, seconds) in zip(results, done, strict=True)]

    def _run(
        self, number: int, task: Task, order: Order, elsewhere: Mapping[Key, Array]
    ) -> tuple[Result, float]:
        begin = time.perf_counter()
        task = self._filled(own(task), elsewhere, writable)
        if order.phase:
            task = replace(task, shared=self._phases[order.chain][1])  # type: ignore[type-var]
        result = run_task(self._held[task.partition], task)
        count = 0

        def leave(how: str, array: Array) -> Left:
            nonlocal count
            key = (number, count)
            count += 1
            self._arrays[key] = array
            ref = self._export(key) if how == "goes" and order.export else None
            return Left(key, array.nbytes, ref)

        left = with_refs(result, leave)  # type: ignore[arg-type]
        return contiguous(left), time.perf_counter() - begin

    def _filled(
        self, value: Any, elsewhere: Mapping[Key, Array],
        change: Callable[[Array], Array] = lambda array: array,
    ) -> Any:  # fmt: skip
        """A task, or a part of one, with arrays in their places."""

        def find(named: Input) -> Array:
            mine = self._arrays.get(named.key)
            found = elsewhere.get(named.key) if mine is None else mine
            if found is None:
                raise NotFetched(named.key)
            return change(found)

        return tree_map(value, Input, find)

    # -- arrays ---------------------------------------------------------------------------------

    def _bring(self, refs: Mapping[Key, Any], patience: float) -> dict[Key, Array]:
        if not refs:
            return {}
        return dict(zip(refs, map(unpacked, self._store.get(refs, patience)), strict=True))

    def _export(self, key: Key) -> Any:
        if key not in self._exports:
            self._exports[key] = self._store.put(packed(self._arrays[key]))
        return self._exports[key]

    def export(self, keys: Sequence[Key]) -> list[Any]:
        """Put arrays into the store, for others to read; references to them there."""
        self._exports = {key: ref for key, ref in self._exports.items() if key not in set(keys)}
        return [self._export(key) for key in keys]

    def lend(self, keys: Sequence[Key]) -> tuple[list[Any], float]:
        """The same for a moment: references, and the seconds it took."""
        begin = time.perf_counter()
        refs = [self._store.put(packed(self._arrays[key])) for key in keys]
        return refs, time.perf_counter() - begin

    def give(self, keys: Sequence[Key]) -> list[Array]:
        """The arrays themselves."""
        return [np.ascontiguousarray(self._arrays[key]) for key in keys]

    def keep(self, refs: Mapping[Key, Any], patience: float) -> float:
        """Keep copies of arrays that lie elsewhere; the seconds it took."""
        begin = time.perf_counter()
        for key, array in self._bring(refs, patience).items():
            self._arrays[key] = np.array(array)
        return time.perf_counter() - begin

    def drop(self, keys: Iterable[Key]) -> None:
        """Forget arrays that nobody will ask for again."""
        for key in keys:
            self._arrays.pop(key, None)
            self._exports.pop(key, None)


def versions() -> dict[str, str]:
    """Versions of the packages that bits depend on."""
    return {name: importlib.metadata.version(name) for name in PACKAGES}


def check_versions(about: About) -> None:
    """Refuse a worker with other versions: they may draw other bits."""
    for name, here in versions().items():
        if about.versions[name] != here:
            raise InputError(
                f"{about.host} has {name} {about.versions[name]}, this process {here}: install the "
                "same versions on all nodes"
            )
