"""Numbers, names and values in sentences."""

from __future__ import annotations

import math
from typing import Any

# Characters of a sentence, which may quote a long value.
_LONGEST = 1900


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
    """Replace control characters, which would steer a terminal, by escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shown(value: Any) -> str:
    """Representation of a value if that is short, else its type."""
    text = repr(value)
    return text if len(text) <= 60 and "\n" not in text else f"a {type(value).__name__}"


def cut(text: str, longest: int) -> str:
    """A text, cut at the end if it is too long."""
    return text if len(text) <= longest else text[: longest - 3] + "..."


def cut_middle(sentence: str) -> str:
    """A sentence, cut in the middle if it is too long: it may quote a value as long as a file."""
    half = _LONGEST // 2
    return sentence if len(sentence) <= _LONGEST else f"{sentence[:half]} ... {sentence[-half:]}"
