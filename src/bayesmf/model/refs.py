"""References to arrays stored on workers, so that tasks need not contain rows.

A result's rows stay on the worker that computed them; tasks that need them contain a `Ref`. In a
single process it holds the array itself; otherwise the engine sends the array to the worker that
reads it (docs/cluster.md). Rescaling by the server does not change stored rows: a `Scaled` has the
factors to apply on reading.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Ref:
    """A reference to an array on a worker; `value` is the array, if it is in this process."""

    __slots__ = ("__weakref__", "nbytes", "shape", "value")

    def __init__(
        self, value: Array | None = None, nbytes: int | None = None, shape: tuple[int, ...] = ()
    ) -> None:
        self.value = value
        self.nbytes = int((0 if value is None else value.nbytes) if nbytes is None else nbytes)
        self.shape = shape if value is None else value.shape


@dataclass(frozen=True, eq=False)
class Scaled:
    """Rows times factors for each column, or numbers times one factor: one after the other.

    Not by their product, which would round differently from rows multiplied before a checkpoint.
    """

    of: Any  # a Ref, or an array
    factors: tuple[NDArray[np.float32], ...]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        out = np.asarray(value_of(self.of) * self.factors[0])
        for more in self.factors[1:]:
            out *= more
        return out


# Rows in tasks and in the state of a chain.
Part = Ref | Scaled | Array


def value_of(part: Any) -> Any:
    """The array of a part; callers that write must copy it."""
    if isinstance(part, Ref):
        assert part.value is not None, "the array is in another process"
        return part.value
    return part.__array__() if isinstance(part, Scaled) else part


def writable_copy(part: Any) -> Array:
    """A writable copy of the array of a part."""
    return part.__array__() if isinstance(part, Scaled) else np.array(value_of(part))


def scaled(part: Part, factors: NDArray[Any] | float) -> Part:
    """A part times further factors."""
    new = np.asarray(factors, np.float32)
    if isinstance(part, Scaled):
        return Scaled(part.of, (*part.factors, new))
    return Scaled(part, (new,))


def shape_of(part: Part) -> tuple[int, ...]:
    """The shape of the array of a part."""
    return shape_of(part.of) if isinstance(part, Scaled) else part.shape


def ref_of(part: Part) -> Any:
    """The array or reference itself, without factors."""
    return part.of if isinstance(part, Scaled) else part


def fetch_here(refs: Sequence[Ref]) -> list[Array]:
    """Arrays of references in this process."""
    return [value_of(ref) for ref in refs]


# Function that fetches arrays from workers: `Engine.fetch`.
Fetch = Callable[[Sequence[Ref]], list[Array]]


class StripeLayout:
    """Partition of the rows of one side into stripes."""

    def __init__(self, index: Sequence[slice | NDArray[np.int32]], n_rows: int) -> None:
        self.index, self.n_rows = tuple(index), n_rows

    def __len__(self) -> int:
        return len(self.index)

    @functools.cached_property
    def order(self) -> NDArray[np.int64]:
        """Position of each row in the concatenated stripes."""
        out, every = np.empty(self.n_rows, np.int64), np.arange(self.n_rows)
        out[np.concatenate([every[own] for own in self.index])] = every
        return out

    def sizes(self) -> list[int]:
        """Numbers of rows of the stripes."""
        spans = (range(self.n_rows)[i] if isinstance(i, slice) else i for i in self.index)
        return [len(span) for span in spans]

    def split(self, whole: Array) -> Pieces:
        """The stripes of an array of all rows, which are copies."""
        return Pieces(tuple(np.array(whole[own]) for own in self.index), self)

    def join(self, arrays: Sequence[Array]) -> Array:
        """An array of all rows from those of the stripes."""
        first = arrays[0]
        out = np.empty((self.n_rows, *first.shape[1:]), first.dtype)
        for own, array in zip(self.index, arrays, strict=True):
            out[own] = array
        return out


@dataclass(frozen=True, eq=False)
class Pieces:
    """Rows of one side, or one number for each row, as stripes stored anywhere."""

    parts: tuple[Part, ...]
    layout: StripeLayout

    def __len__(self) -> int:
        return self.layout.n_rows

    def __getitem__(self, stripe: int) -> Part:
        return self.parts[stripe]

    def whole(self, fetch: Fetch = fetch_here) -> Array:
        """All rows in one array; `fetch` returns those that are not in this process."""
        refs = [ref_of(part) for part in self.parts]
        remote = [ref for ref in refs if isinstance(ref, Ref)]
        found = dict(zip(map(id, remote), fetch(remote), strict=True))
        refs = [found.get(id(ref), ref) for ref in refs]
        arrays = [
            value_of(replace(part, of=ref) if isinstance(part, Scaled) else ref)
            for part, ref in zip(self.parts, refs, strict=True)
        ]
        return self.layout.join(arrays)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self.whole(), dtype)

    def scaled(self, factors: NDArray[Any] | float) -> Pieces:
        """The same rows times factors of columns."""
        new = np.asarray(factors, np.float32)  # one array for all: it is sent once
        return Pieces(tuple(scaled(part, new) for part in self.parts), self.layout)

    def put(self, stripe: int, part: Part) -> Pieces:
        """With one stripe replaced."""
        return Pieces((*self.parts[:stripe], part, *self.parts[stripe + 1 :]), self.layout)


def whole(rows: Pieces | Array, fetch: Fetch = fetch_here) -> Array:
    """All rows in one array, in pieces or not."""
    return rows.whole(fetch) if isinstance(rows, Pieces) else rows


def in_layout(rows: Pieces | Array, layout: StripeLayout) -> Pieces:
    """Rows as `Pieces` of a layout."""
    if isinstance(rows, Pieces):
        return rows if rows.layout is layout else layout.split(rows.whole())
    return layout.split(rows)


def tree_map(value: Any, kinds: type | tuple[type, ...], change: Callable[[Any], Any]) -> Any:
    """A value with everything of some kinds in it changed, however deep in tuples and dataclasses.

    Values without any of these kinds are returned unchanged.
    """
    if isinstance(value, kinds):
        return change(value)
    if isinstance(value, tuple):
        parts = [tree_map(part, kinds, change) for part in value]
        if all(a is b for a, b in zip(parts, value, strict=True)):
            return value
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if is_dataclass(value) and not isinstance(value, type):
        found = {f.name: getattr(value, f.name) for f in fields(value)}
        new = {name: tree_map(x, kinds, change) for name, x in found.items()}
        changed = {name: x for name, x in new.items() if x is not found[name]}
        return replace(value, **changed) if changed else value
    return value


def leaves(value: Any, kinds: type | tuple[type, ...]) -> Iterator[Any]:
    """Everything of some kinds in a value, in tuples and dataclasses."""
    if isinstance(value, kinds):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from leaves(part, kinds)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from leaves(getattr(value, field.name), kinds)
