"""A worker on Ray: an actor that holds ratings and rows, and executes tasks."""

from __future__ import annotations

import importlib.metadata
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import ray
from ray.exceptions import RayError

from bayesmf.engines.ray.lineage import Export, Input, Key, Order, ResultRef
from bayesmf.errors import InputError
from bayesmf.model.refs import Array, tree_map
from bayesmf.worker.tasks import (
    Held,
    Recipe,
    Result,
    Shared,
    Task,
    added_up,
    with_refs,
)

T = TypeVar("T")

PACKAGES = ("bayesmf", "numpy", "numba")
BESIDE = "beside"  # the second thread, for calls that do not wait for a task
LEAST = 0.5  # seconds to wait for each array after one did not arrive
LINE = 64  # bytes of a cache line
MOST_PADDING = 1.04  # times as wide as rows are

# Arrays to export, grouped by which are read together.
Leaving = dict[Any, list[Key]]


class About(NamedTuple):
    """Where a worker is, and its versions of packages."""

    pid: int
    node: str
    host: str
    versions: dict[str, str]


class NotHeld(Exception):
    """A worker does not have the ratings of a task."""


class NotFetched(Exception):
    """Arrays did not arrive from other nodes; the arguments are their keys."""


class Missing(Exception):
    """Values did not arrive from the object store; the arguments are references to them."""


class Store:
    """Ray's object store."""

    def put(self, value: Any) -> Any:
        return ray.put(value)

    def get(self, refs: Sequence[Any], patience: float) -> list[Any]:
        try:
            return ray.get(list(refs), timeout=patience)
        except RayError:
            raise Missing(*(ref for ref in refs if not _there(ref))) from None


def _there(ref: Any) -> bool:
    try:
        ray.get(ref, timeout=LEAST)
    except RayError:
        return False
    return True


class Worker:
    """The actor: holds partitions of the ratings and arrays, and executes tasks.

    Tasks run one after the other in one thread, and short ones in a second thread.
    """

    def __init__(
        self, name: str, rehearsal: Sequence[tuple[Held, Task]], store: Store | None = None
    ) -> None:
        self._name = name
        self._held: dict[int, Held] = {}
        self._missing: dict[int, str] = {}
        self._arrays: dict[Key, Array] = {}
        self._exports: dict[Key, Export] = {}
        self._phases: dict[int, tuple[int, Shared]] = {}
        self._store = store or Store()
        for held, task in rehearsal:
            private_copy(task).execute(private_copy(held))

    def __repr__(self) -> str:  # shown by Ray's dashboard
        return f"Worker({self._name})"

    def about(self) -> About:
        """Where it is; answered first when the worker has compiled."""
        context = ray.get_runtime_context()
        return About(os.getpid(), context.get_node_id(), ray.util.get_node_ip_address(), versions())

    # -- ratings --------------------------------------------------------------------------------

    def hold(self, partition: int, held: Held) -> None:
        """Hold ratings that were sent."""
        self._held[partition] = private_copy(held)

    def load(self, partition: int, recipe: Recipe) -> None:
        """Read ratings from storage; the first task that needs them raises a failure."""
        try:
            self._held[partition] = recipe.load()
        except Exception as error:
            self._missing[partition] = str(error)

    def release(self, partition: int) -> None:
        """Drop ratings that another worker holds again."""
        self._held.pop(partition, None)

    # -- tasks ----------------------------------------------------------------------------------

    def run(self, order: Order, shared: Shared | None) -> list[tuple[Result, float]]:
        """Results of tasks, and the seconds of each; their arrays stay here."""
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
        """The value that tasks share: sent now, or before."""
        made = None if sent is None else self._filled(private_copy(sent), elsewhere)
        if order.short or not order.phase:
            return made
        if made is not None:
            self._phases[order.chain] = order.phase, made
        number, found = self._phases.get(order.chain, (0, None))
        if number != order.phase:
            raise NotFetched
        return found

    def _all_held(self, order: Order) -> dict[int, Held]:
        """Ratings for an order; they may be released while it runs."""
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
        task = self._filled(private_copy(task), elsewhere, writable)
        if common is not None:
            task = replace(task, shared=common)  # type: ignore[type-var]
        result = task.execute(held)
        count = 0

        def keep(how: str, name: str, array: Array) -> ResultRef:
            nonlocal count
            key = (number, count)
            count += 1
            self._arrays[key] = array
            if how == "shared_fields":
                group = (type(result), name) if getattr(result, "together", False) else key
                leaving.setdefault(group, []).append(key)
            return ResultRef(key, array.nbytes)

        return contiguous(with_refs(result, keep)), clock() - begin

    def _filled(
        self, value: Any, elsewhere: Mapping[Key, Array],
        change: Callable[[Array], Array] = lambda array: array,
    ) -> Any:  # fmt: skip
        """Replace the placeholders in a task, or in a part of one, by arrays."""

        def find(place: Input) -> Array:
            mine = self._arrays.get(place.key)
            found = elsewhere.get(place.key) if mine is None else mine
            if found is None:
                raise NotFetched(place.key)
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
        """Put arrays into the object store as one value; each value takes a millisecond or two."""
        ref = self._store.put([packed(self._arrays[key]) for key in keys])
        return [Export(ref, at) for at in range(len(keys))]

    def _export_leaving(self, leaving: Leaving, results: Sequence[Result]) -> list[Result]:
        """Put arrays that others read into the object store; results with their places."""
        for keys in leaving.values():
            self._exports.update(zip(keys, self._put(keys), strict=True))

        def exported(ref: ResultRef) -> ResultRef:
            return ref._replace(export=self._exports.get(ref.key))

        return [tree_map(result, ResultRef, exported) for result in results]

    def export(self, keys: Sequence[Key]) -> list[Export]:
        """Put arrays into the object store, each as a value of its own; return their places."""
        found = [self._put([key])[0] for key in keys]
        self._exports.update(zip(keys, found, strict=True))
        return found

    def put_temporarily(self, keys: Sequence[Key]) -> tuple[list[Export], float]:
        """Put arrays into the object store as one value; return their places, and the seconds."""
        begin = time.perf_counter()
        return self._put(keys), time.perf_counter() - begin

    def fetch(self, keys: Sequence[Key]) -> list[Array]:
        """Return arrays."""
        return [np.ascontiguousarray(self._arrays[key]) for key in keys]

    def keep(self, refs: Mapping[Key, Export], patience: float, dropped: Iterable[Key]) -> float:
        """Keep copies of arrays of other processes, and drop others; return the seconds."""
        begin = time.perf_counter()
        self.drop(dropped)
        for key, array in self._bring(refs, patience).items():
            self._arrays[key] = np.array(array)
        return time.perf_counter() - begin

    def drop(self, keys: Iterable[Key]) -> None:
        """Drop arrays that are not needed any more."""
        for key in keys:
            self._arrays.pop(key, None)
            self._exports.pop(key, None)


def versions() -> dict[str, str]:
    """Versions of the packages that results depend on."""
    return {name: importlib.metadata.version(name) for name in PACKAGES}


def check_versions(about: About) -> None:
    """Refuse a worker with other versions, whose draws may differ."""
    for name, here in versions().items():
        if about.versions[name] != here:
            raise InputError(
                f"{about.host} has {name} {about.versions[name]}, this process {here}: install the "
                "same versions on all nodes"
            )


# -- arrays of tasks and results ---


def private_copy(value: T) -> T:
    """A copy with writable arrays.

    Arrays of Ray are read-only maps of shared memory, for which kernels would be compiled again.
    """
    return cast(T, tree_map(value, np.ndarray, _copy))


def writable(array: Array) -> Array:
    """The array, or a copy if it is read-only."""
    return array if array.flags.writeable else _copy(array)


def contiguous(value: T) -> T:
    """A copy with contiguous arrays: views of padded rows would be pickled byte by byte."""
    return cast(T, tree_map(value, np.ndarray, np.ascontiguousarray))


def packed(rows: Array) -> tuple[Array, int]:
    """Rows for the object store, and their width.

    Padded rows are stored with their padding, if a copy without it would save little.
    """
    base = rows.base
    if (
        rows.ndim == 2
        and isinstance(base, np.ndarray)
        and base.flags.c_contiguous
        and base.dtype == rows.dtype
        and base.ndim == 2
        and len(base) == len(rows)
        and base.ctypes.data == rows.ctypes.data
        and base.shape[1] <= MOST_PADDING * rows.shape[1]
    ):
        return base, rows.shape[1]
    return np.ascontiguousarray(rows), -1


def unpacked(found: tuple[Array, int]) -> Array:
    """Rows from the object store."""
    rows, width = found
    return rows if width < 0 else rows[:, :width]


def _copy(array: Any) -> Array:
    """Copy to the beginning of a cache line, for faster reading."""
    room = np.empty(array.nbytes + LINE, np.uint8)
    first = -room.ctypes.data % LINE
    out: Array = room[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
    out[...] = array
    return out
