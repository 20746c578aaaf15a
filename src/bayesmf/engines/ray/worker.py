"""A worker that is a process of its own: ratings it holds, arrays it keeps, what it does."""

from __future__ import annotations

import importlib.metadata
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from bayesmf.engines.ray.contents import Export, Input, Key, Left, Order
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

# Arrays to export: keys of those that are read together.
Leaving = dict[Any, list[Key]]


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


class Missing(Exception):
    """Values did not come from the store: references to them."""


class Store:
    """Where arrays are put for others to read: all that a worker needs of Ray."""

    def put(self, value: Any) -> Any:
        """A reference to a value in the store of this node."""
        raise NotImplementedError

    def get(self, refs: Sequence[Any], patience: float) -> list[Any]:
        """Values, from this node or another; Missing where some do not come in time."""
        raise NotImplementedError


class Holder:
    """Holds partitions of the ratings and arrays, and does tasks.

    Tasks are done one after the other, short ones beside them, in another thread: so each order has
    what it works with for itself.
    """

    def __init__(self, rehearsal: Sequence[tuple[Held, Task]], store: Store | None = None) -> None:
        self._held: dict[int, Held] = {}
        self._missing: dict[int, str] = {}
        self._arrays: dict[Key, Array] = {}
        self._exports: dict[Key, Export] = {}
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
        elsewhere = self._bring(order.refs, order.patience)
        common = self._shared(order, shared, elsewhere)
        held = self._all_held(order)
        clock = time.thread_time if order.short else time.perf_counter
        leaving: Leaving = {}
        done = [
            self._run(number, task, held[task.partition], common, elsewhere, leaving, clock)
            for number, task in order.tasks
        ]
        results, seconds = [result for result, _ in done], [taken for _, taken in done]
        if leaving and order.export:
            begin = clock()
            results = self._export_leaving(leaving, results)
            seconds[-1] += clock() - begin
        if order.adds_up:
            results = added_up(results)
        return list(zip(results, seconds, strict=True))

    def _shared(
        self, order: Order, sent: Shared | None, elsewhere: Mapping[Key, Array]
    ) -> Shared | None:
        """What tasks have in common: as it was sent now, or before."""
        made = None if sent is None else self._filled(own(sent), elsewhere)
        if order.short or not order.phase:
            return made
        if made is not None:
            self._phases[order.chain] = order.phase, made
        number, found = self._phases.get(order.chain, (0, None))
        if number != order.phase:
            raise NotFetched
        return found

    def _all_held(self, order: Order) -> dict[int, Held]:
        """Ratings for an order, which are its own from now on: they may be released meanwhile."""
        found = {task.partition: self._held.get(task.partition) for _, task in order.tasks}
        for partition, held in found.items():
            if held is None:
                raise NotHeld(self._missing.get(partition, "they were never sent"))
        return {partition: held for partition, held in found.items() if held is not None}

    def _run(
        self, number: int, task: Task, held: Held, common: Shared | None,
        elsewhere: Mapping[Key, Array], leaving: Leaving, clock: Callable[[], float],
    ) -> tuple[Result, float]:  # fmt: skip
        begin = clock()
        task = self._filled(own(task), elsewhere, writable)
        if common is not None:
            task = replace(task, shared=common)  # type: ignore[type-var]
        result = run_task(held, task)
        count = 0

        def leave(how: str, name: str, array: Array) -> Left:
            nonlocal count
            key = (number, count)
            count += 1
            self._arrays[key] = array
            if how == "goes":
                group = (type(result), name) if getattr(result, "together", False) else key
                leaving.setdefault(group, []).append(key)
            return Left(key, array.nbytes)

        left = with_refs(result, leave)
        return contiguous(left), clock() - begin

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

    def _bring(self, refs: Mapping[Key, Export], patience: float) -> dict[Key, Array]:
        if not refs:
            return {}
        different = list(dict.fromkeys(export.ref for export in refs.values()))
        try:
            values = dict(zip(different, self._store.get(different, patience), strict=True))
        except Missing as missing:
            lost = [key for key, export in refs.items() if export.ref in missing.args]
            raise NotFetched(*lost) from None
        return {key: unpacked(values[export.ref][export.at]) for key, export in refs.items()}

    def _put(self, keys: Sequence[Key]) -> list[Export]:
        """Arrays in the store, together: another value there takes a millisecond or two."""
        ref = self._store.put([packed(self._arrays[key]) for key in keys])
        return [Export(ref, at) for at in range(len(keys))]

    def _export_leaving(self, leaving: Leaving, results: Sequence[Result]) -> list[Result]:
        """Put what goes into the store; results that tell where it is."""
        for keys in leaving.values():
            self._exports.update(zip(keys, self._put(keys), strict=True))

        def told(left: Left) -> Left:
            return left._replace(export=self._exports.get(left.key))

        return [tree_map(result, Left, told) for result in results]

    def export(self, keys: Sequence[Key]) -> list[Export]:
        """Put arrays into the store, for others to read, each alone; where they are there."""
        found = [self._put([key])[0] for key in keys]
        self._exports.update(zip(keys, found, strict=True))
        return found

    def lend(self, keys: Sequence[Key]) -> tuple[list[Export], float]:
        """The same for a moment, together; where they are, and the seconds it took."""
        begin = time.perf_counter()
        return self._put(keys), time.perf_counter() - begin

    def give(self, keys: Sequence[Key]) -> list[Array]:
        """The arrays themselves."""
        return [np.ascontiguousarray(self._arrays[key]) for key in keys]

    def keep(
        self, refs: Mapping[Key, Export], patience: float, dropped: Iterable[Key] = ()
    ) -> float:
        """Keep copies of arrays that lie elsewhere, and forget others; the seconds it took."""
        begin = time.perf_counter()
        self.drop(dropped)
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
