"""Rules for the numbers of a file, checked before compiled code uses them.

A digest shows that a file is unchanged, not that its numbers are valid. Kernels check nothing: an
index out of range would crash them, or read other memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Piece = NDArray[Any]


class Rule(NamedTuple):
    """A rule for all numbers of an array, applied piece by piece, in order."""

    holds: Callable[[Piece, Any, int], bool]
    """Takes a piece, which is not empty, the number before it (None at the beginning), and the
    position of its first number."""
    fault: str
    """The message if it does not hold."""


FINITE = Rule(lambda piece, *_: bool(np.isfinite(piece).all()), "holds numbers that are not finite")
# Numbers of a model: sums of their products stay finite in their precision.
USABLE = Rule(
    lambda piece, *_: bool(np.abs(piece).max() < (1e18 if piece.itemsize == 4 else 1e25)),
    "holds numbers that are not finite, or too large to be computed with",
)
POSITIVE = Rule(
    lambda piece, *_: bool(((piece > 1e-25) & (piece < 1e25)).all()),
    "holds numbers that are not positive, or too small or too large to be computed with",
)
ASCENDING = Rule(
    lambda piece, before, _: (
        (before is None or piece[0] >= before) and bool((piece[1:] >= piece[:-1]).all())
    ),
    "does not ascend",
)
ANY = Rule(lambda *_: True, "")


def below(n: int) -> Rule:
    """Whole numbers from 0 to n - 1."""

    def holds(piece: Piece, *_: Any) -> bool:
        # A negative number, read without its sign, is a large one.
        return int(piece.view(f"u{piece.itemsize}").max()) < n

    return Rule(holds, f"holds numbers that are not from 0 to {n - 1}")


def between(low: float, high: float) -> Rule:
    """Numbers from `low` to `high`."""
    return Rule(
        lambda piece, *_: bool(((piece >= low) & (piece <= high)).all()),
        f"holds numbers that are not from {low:g} to {high:g}",
    )


def once_in_rows(n: int, starts: Piece) -> Rule:
    """Whole numbers from 0 to n - 1, each above the last in the rows that begin at `starts`."""
    within, starts = below(n), np.asarray(starts)

    def holds(piece: Piece, before: Any, at: int) -> bool:
        if not within.holds(piece, before, at):
            return False
        first, second, last = np.searchsorted(starts, [at, at + 1, at + len(piece)])
        if before is not None and piece[0] <= before and first == second:
            return False
        # Where numbers do not ascend, a row must begin. Starts may be wrong, too: another rule
        # checks that they ascend.
        begin = starts[second:last] - at
        begin = begin[np.diff(begin, prepend=0) > 0]  # not those of empty rows
        if len(begin) and not (begin.min() > 0 and begin.max() < len(piece)):
            return False
        falls = np.count_nonzero(piece[begin] <= piece[begin - 1])
        return bool(np.count_nonzero(piece[1:] <= piece[:-1]) == falls)

    return Rule(holds, f"{within.fault}, ascending in each row")


class Expected(NamedTuple):
    """The dtype, shape and rule of an array."""

    dtype: Any
    shape: tuple[int, ...]
    rule: Rule = USABLE


def misfit(arrays: Mapping[str, Piece], expected: Mapping[str, Expected]) -> str:
    """The first array that is missing, too many, or of another type or shape; "" if none is."""
    for name, (dtype, shape, _) in expected.items():
        if name not in arrays:
            return f"the array {name} is missing"
        array = arrays[name]
        if array.dtype != np.dtype(dtype) or array.shape != shape:
            return (
                f"the array {name} is {array.dtype}{list(array.shape)} where"
                f" {np.dtype(dtype)}{list(shape)} belongs"
            )
    extra = sorted(set(arrays) - set(expected))
    return f"the array {extra[0]} does not belong there" if extra else ""


def starts_misfit(starts: Piece, end: int) -> bool:
    """Whether starts of rows do not lead from 0 to the end; whether they ascend is a rule."""
    return starts.ndim != 1 or len(starts) == 0 or starts[0] != 0 or starts[-1] != end


def ids_expected(arrays: Mapping[str, Piece], side: str) -> tuple[dict[str, Expected], int]:
    """Rules for ids (integers, or text and where each begins), and their number."""
    if (name := f"{side}_id_ids") in arrays:
        n = arrays[name].size
        return {name: Expected("i8", (n,), ASCENDING)}, n
    text, offsets = f"{side}_id_bytes", f"{side}_id_offsets"
    size, n = arrays[text].size, arrays[offsets].size - 1
    if starts_misfit(arrays[offsets], size):
        raise ValueError(f"the array {offsets} does not fit {text}")
    return {text: Expected("u1", (size,), ANY), offsets: Expected("i8", (n + 1,), ASCENDING)}, n


# -- plain values -------------------------------------------------------------------------------

WHOLE, NUMBER, TEXT, FLAG, NOTHING, ANYTHING = "whole", "number", "text", "flag", None, "anything"


def check_plain(value: Any, shape: Any, where: str) -> None:
    """Refuse values of JSON that are not of the types they must be.

    Parameters
    ----------
    value : plain JSON
        The value.
    shape : str, None, dict, list or tuple
        One of the words above; a dict of required keys (optional ones end in "?") and the shapes
        of their values; a list with the shape of all members; a tuple of alternatives.
    where : str
        Its name in the message.

    Raises
    ------
    ValueError
        If a value is wrong.
    """
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            raise ValueError(f"{where} is not a dictionary")
        for key, inner in shape.items():
            name = key.removesuffix("?")
            if name in value:
                check_plain(value[name], inner, f"{where}.{name}")
            elif name == key:
                raise ValueError(f"{where}.{name} is missing")
    elif isinstance(shape, list):
        if not isinstance(value, list):
            raise ValueError(f"{where} is not a list")
        for k, member in enumerate(value):
            check_plain(member, shape[0], f"{where}[{k}]")
    elif isinstance(shape, tuple):
        if not any(_fits(value, one, where) for one in shape):
            raise ValueError(f"{where} is of a wrong type")
    elif not _is(value, shape):
        raise ValueError(f"{where} is not {_NAMES[shape]}")


_NAMES = {
    WHOLE: "a whole number", NUMBER: "a finite number", TEXT: "text", FLAG: "true or false",
    NOTHING: "null",
}  # fmt: skip


def _is(value: Any, word: str | None) -> bool:
    if word == WHOLE:
        return type(value) is int and abs(value) < 1 << 63
    if word == NUMBER:
        return type(value) in (int, float) and abs(value) < 1e100 and math.isfinite(value)
    if word == TEXT:
        return isinstance(value, str)
    if word == FLAG:
        return isinstance(value, bool)
    return word == ANYTHING or value is None


def _fits(value: Any, shape: Any, where: str) -> bool:
    try:
        check_plain(value, shape, where)
    except ValueError:
        return False
    return True
