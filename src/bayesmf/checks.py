"""Checks of numbers and words that users give; InputError in one sentence where they fail."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from bayesmf.errors import InputError
from bayesmf.wording import shown

if TYPE_CHECKING:
    from numpy.typing import NDArray


def whole(name: str, value: Any, least: int = 1) -> int:
    """A whole number of at least `least`, as an int."""
    try:
        if not isinstance(value, str | bool) and int(value) == value and int(value) >= least:
            return int(value)
    except Exception:  # a value of any type may raise any error
        pass
    raise InputError(f"{name} must be a whole number of at least {least}, not {shown(value)}")


def positive(name: str, value: Any, what: str = "a positive number") -> float:
    """A finite number above zero, as a float."""
    try:
        if not isinstance(value, str | bool) and 0 < float(value) < math.inf:
            return float(value)
    except Exception:
        pass
    raise InputError(f"{name} must be {what}, not {shown(value)}")


def not_negative(name: str, value: Any) -> float:
    """A finite number of at least zero, as a float."""
    try:
        if not isinstance(value, str | bool) and float(value) == 0:
            return 0.0
    except Exception:
        pass
    return positive(name, value, "a number of at least 0")


def finite(name: str, value: Any) -> float:
    """A finite number of any sign, as a float."""
    try:
        if not isinstance(value, str | bool) and math.isfinite(float(value)):
            return float(value)
    except Exception:
        pass
    raise InputError(f"{name} must be a number, not {shown(value)}")


def yes_or_no(name: str, value: Any) -> bool:
    """A boolean of Python or NumPy; not text, which is true in Python even if it says no."""
    if type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    raise InputError(f"{name} must be True or False, not {shown(value)}")


def refuse_lost_digits(low: float, high: float) -> None:
    """Refuse ratings whose differences are lost in single precision."""
    # Below this bound they differ by rounding errors alone.
    differ = high - low > 1e-12 * max(abs(low), abs(high))
    if differ and struct.pack("f", low) == struct.pack("f", high):
        raise InputError(
            f"ratings from {low:.12g} to {high:.12g} are one number in single precision, in which"
            " they are stored: subtract their mean first"
        )


def number_array(name: str, value: Any) -> NDArray[Any]:
    """An array of numbers; dates and masked values are refused."""
    import numpy as np  # here: a command line imports this, and should answer at once

    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise InputError(f"{name} has masked values, which are missing: leave them out")
    try:
        found = np.asarray(value)
        if found.dtype.kind in "OSU":
            found = found.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name} must be numbers, not {shown(value)}") from None
    if found.dtype.kind not in "biuf":
        raise InputError(f"{name} must be numbers, not {found.dtype}")
    return found


def one_of(name: str, value: Any, choices: Iterable[str], also: str = "") -> str:
    """A word if it is one of the choices; else InputError that names the nearest one."""
    known = list(choices)
    if isinstance(value, str) and value in known:
        return value
    listed = ", ".join(map(repr, known)) + also
    raise InputError(f"{name} {value!r} is none of {listed}{did_you_mean(value, known)}")


def did_you_mean(value: Any, known: Iterable[str]) -> str:
    """'; did you mean ...?' where a known word is similar, else an empty text."""
    if not isinstance(value, str):
        return ""
    by_case = {name.lower(): name for name in known}
    near = get_close_matches(value.lower(), by_case, 1, 0.75)
    return f"; did you mean {by_case[near[0]]!r}?" if near else ""
