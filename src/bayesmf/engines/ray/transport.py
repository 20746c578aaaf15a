"""Arrays of tasks and results: packed for a message, and made a process's own after it."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, TypeVar, cast

import numpy as np

from bayesmf.kernels.types import Rows
from bayesmf.worker.block_tasks import RoundResult
from bayesmf.worker.tasks import Result

T = TypeVar("T")

LINE = 64  # bytes of a cache line
MOST_PADDING = 1.04  # times as wide as rows are
_NOTHING = np.empty((0, 0), np.float32)

# Rows of a task, which `run_task` copies before it changes them.
COPIED = frozenset({"users", "items", "rows"})


def own(value: T) -> T:
    """A copy whose arrays can be written to.

    Arrays of Ray are maps of memory that others read too. Kernels are compiled for arrays that can
    be written to, and would be compiled a second time for those that cannot.
    """
    return cast(T, _map(value, _copy))


def own_task(task: T) -> T:
    """A task whose arrays can be written to, but for rows, which `run_task` copies anyway."""
    parts = {
        f.name: x if f.name in COPIED else own(x)
        for f in fields(task)  # type: ignore[arg-type]
        for x in [getattr(task, f.name)]
    }
    return type(task)(**parts)


def contiguous(value: T) -> T:
    """A copy with arrays in one piece: views of padded rows would be pickled byte by byte."""
    return cast(T, _map(value, np.ascontiguousarray))


def packed(result: Result) -> Result:
    """A result as it is sent: rows as wide as they are padded, where a copy would save little."""
    if not isinstance(result, RoundResult):
        return contiguous(result)
    rest = contiguous(replace(result, users=_NOTHING, items=_NOTHING))
    return replace(rest, users=_whole(result.users), items=_whole(result.items))


def unpacked(result: Result, width: int) -> Result:
    """A result with rows as wide as they should be, from a packed one."""
    if not isinstance(result, RoundResult):
        return result
    return replace(result, users=result.users[:, :width], items=result.items[:, :width])


def _whole(rows: Rows) -> Rows:
    """The padded rows that these are a view of, if that is what they are."""
    base = rows.base
    if (
        isinstance(base, np.ndarray)
        and base.flags.c_contiguous
        and base.ndim == rows.ndim
        and len(base) == len(rows)
        and base.ctypes.data == rows.ctypes.data
        and base.shape[1] <= MOST_PADDING * rows.shape[1]
    ):
        return base
    return np.ascontiguousarray(rows)


def _map(value: Any, change: Any) -> Any:
    if isinstance(value, np.ndarray):
        return change(value)
    if isinstance(value, tuple):
        parts = [_map(part, change) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if hasattr(value, "__dataclass_fields__"):
        return type(value)(**{f.name: _map(getattr(value, f.name), change) for f in fields(value)})
    return value


def _copy(array: np.ndarray) -> np.ndarray:
    """Copy to the beginning of a cache line: rows that begin with one are read in fewer."""
    room = np.empty(array.nbytes + LINE, np.uint8)
    first = -room.ctypes.data % LINE
    out = room[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
    out[...] = array
    return out
