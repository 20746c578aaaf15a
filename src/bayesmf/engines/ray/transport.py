"""Arrays of tasks and results: put into a store, and made a process's own after it."""

from __future__ import annotations

from typing import Any, TypeVar, cast

import numpy as np

from bayesmf.model.refs import Array, tree_map

T = TypeVar("T")

LINE = 64  # bytes of a cache line
MOST_PADDING = 1.04  # times as wide as rows are


def own(value: T) -> T:
    """A copy whose arrays can be written to.

    Arrays of Ray are maps of memory that others read too. Kernels are compiled for arrays that can
    be written to, and would be compiled a second time for those that cannot.
    """
    return cast(T, tree_map(value, np.ndarray, _copy))


def writable(array: Array) -> Array:
    """An array that can be written to, copied if need be."""
    return array if array.flags.writeable else _copy(array)


def contiguous(value: T) -> T:
    """A copy with arrays in one piece: views of padded rows would be pickled byte by byte."""
    return cast(T, tree_map(value, np.ndarray, np.ascontiguousarray))


def packed(rows: Array) -> tuple[Array, int]:
    """Rows as they are put into a store, and how wide they are.

    Padded rows go with their padding, where a copy without it would save little.
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
    """Rows from what was put into a store."""
    rows, width = found
    return rows if width < 0 else rows[:, :width]


def _copy(array: Any) -> Array:
    """Copy to the beginning of a cache line: rows that begin with one are read in fewer."""
    room = np.empty(array.nbytes + LINE, np.uint8)
    first = -room.ctypes.data % LINE
    out: Array = room[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
    out[...] = array
    return out
