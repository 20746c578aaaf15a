"""Numbers that users give: what they must be, said in one sentence where they are not."""

from __future__ import annotations

import math
from typing import Any

from bayesmf.errors import InputError


def whole(name: str, value: Any, least: int = 1) -> int:
    """A whole number of at least `least`, as an int."""
    try:
        if not isinstance(value, str | bool) and int(value) == value and least <= value:
            return int(value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise InputError(f"{name} must be a whole number of at least {least}; got {value!r}")


def positive(name: str, value: Any, what: str = "a positive number") -> float:
    """A finite number above zero, as a float."""
    try:
        if not isinstance(value, str | bool) and 0 < float(value) < math.inf:
            return float(value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise InputError(f"{name} must be {what}; got {value!r}")
