"""Kernels as plain Python: slow, and every index is checked, so that none is out of range by luck.

`install` must come before any kernel is imported. The decorator that compiles is replaced by one
that gives functions arrays which refuse negative and too large indices, and the operations on
eight lanes by their twins in NumPy.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

LANES = 8


class OutOfRange(IndexError):
    """A kernel used an index that is not in its array."""


class Checked(np.ndarray):
    """An array that knows no negative indices, as compiled code for unsigned ones does not."""

    def __getitem__(self, key: Any) -> Any:
        _check(self.shape, key)
        return super().__getitem__(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        _check(self.shape, key)
        super().__setitem__(key, value)


def _check(shape: tuple[int, ...], key: Any) -> None:
    for axis, one in enumerate(key if type(key) is tuple else (key,)):
        if isinstance(one, int | np.integer) and not 0 <= one < shape[axis]:
            raise OutOfRange(f"index {one} of an axis of length {shape[axis]}")


def checked(value: Any) -> Any:
    """A value with its arrays checked, in tuples too."""
    if type(value) in (np.ndarray, np.memmap):
        return value.view(Checked)
    if isinstance(value, tuple):
        parts = map(checked, value)
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


def unchecked(value: Any) -> Any:
    """A value with plain NumPy arrays, for those who called a kernel."""
    if type(value) is Checked:
        return value.view(np.ndarray)
    if type(value) is tuple:
        return tuple(map(unchecked, value))
    return value


def njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """In the place of the decorator of that name."""

    def plain(function: Callable[..., Any]) -> Any:
        if options.get("inline") or options.get("no_cpython_wrapper"):
            return function  # called by kernels alone, whose arrays are checked

        @functools.wraps(function)
        def entry(*args: Any) -> Any:
            return unchecked(function(*map(checked, args)))

        return entry

    return plain


# -- eight lanes -----------------------------------------------------------------------------------


def _span(array: Any, index: Any) -> Any:
    """Eight elements of an array's memory, whatever its shape."""
    flat = array.view(np.ndarray)
    if flat.ndim > 1:
        assert flat.flags.c_contiguous
        flat = flat.reshape(-1)
    if not 0 <= index <= len(flat) - LANES:
        raise OutOfRange(f"eight from {index} on, of {len(flat)}")
    return flat[int(index) : int(index) + LANES]


def load(array: Any, index: Any) -> Any:
    return _span(array, index).copy()


def store(array: Any, index: Any, vector: Any) -> None:
    _span(array, index)[:] = vector


def splat(x: Any) -> Any:
    return np.full(LANES, x, np.asarray(x).dtype)


def fma(a: Any, b: Any, c: Any) -> Any:
    return a * b + c


def root(a: Any) -> Any:
    return np.sqrt(a)


def larger(a: Any, b: Any) -> Any:
    return np.where(a > b, a, b)


def total(vector: Any) -> Any:
    while len(vector) > 1:
        half = len(vector) // 2
        vector = vector[:half] + vector[half:]
    return vector[0]


def transpose(*rows: Any) -> Any:
    return tuple(np.array(column) for column in np.array(rows).T)


def prefetch(array: Any, index: Any) -> None:
    if not 0 <= index < array.size:
        raise OutOfRange(f"a prefetch of {index}, of {array.size}")


def install() -> None:
    """Replace what compiles, then import the kernels."""
    from bayesmf.kernels import jit, simd

    there = Path(jit.__file__).parent
    names = sorted({path.stem for path in there.glob("*.py")} - {"__init__", "jit", "simd"})
    loaded = [name for name in names if f"bayesmf.kernels.{name}" in sys.modules]
    if loaded:
        raise RuntimeError(f"{loaded[0]} is imported already, compiled")
    np.seterr(all="ignore")  # compiled code does not warn
    jit.njit = njit
    for twin in (load, store, splat, fma, root, larger, total, transpose, prefetch):
        setattr(simd, twin.__name__, twin)
    for name in names:
        module = import_module(f"bayesmf.kernels.{name}")
        # `_U` makes an unsigned number; here a whole number will do, which may fall below zero
        # where it is not used as an index.
        for unsigned in ("_U", "_LANES"):
            if hasattr(module, unsigned):
                setattr(module, unsigned, int if unsigned == "_U" else LANES)
