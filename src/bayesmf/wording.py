"""Numbers and names as people read them, wherever they are told."""

from __future__ import annotations

import math


def short(value: float, digits: int = 4) -> str:
    """A number with some decimals, or with as many digits where it is very large or small."""
    if not math.isfinite(value):
        return str(value)
    usual = value == 0 or 1e-3 <= abs(value) < 1e7
    return f"{value:.{digits}f}" if usual else f"{value:.{digits}g}"


def count(n: int, one: str, many: str | None = None) -> str:
    """A number with its noun: '1 user', '2 users'."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def printable(text: str) -> str:
    """What would steer a terminal, or turn its text round, as an escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
