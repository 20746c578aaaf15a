"""Command lines of the benchmarks: parsers, lists of names, and how a command ends."""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn

from bayesmf.errors import BayesMFError, InputError


def command(main: Callable[..., int | None]) -> Callable[..., int]:
    """Make a function the `main` of a benchmark: an error is one sentence and status 2."""

    @functools.wraps(main)
    def run(argv: list[str] | None = None, *more: Any) -> int:
        try:
            return main(argv, *more) or 0
        except (BayesMFError, OSError) as error:
            print(f"{main.__module__.rpartition('.')[2]}: {error}", file=sys.stderr)
            return 2

    return run


class BenchParser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, and shows a description as it was written."""

    def __init__(self, module: str, description: str | None) -> None:
        super().__init__(
            f"python -m benchmarks {module}",
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self._module = module

    def error(self, message: str) -> NoReturn:
        print(f"{self._module}: {message}", file=sys.stderr)
        raise SystemExit(2)


def factors(text: str) -> list[int | None]:
    """Numbers of factors from what was typed, ascending; None for "auto", which comes first."""
    typed = words(text)
    if not all(word == "auto" or (word.isdecimal() and int(word) > 0) for word in typed):
        raise InputError(f"--factors must be whole numbers from 1 on, by commas, not {text!r}")
    numbers = sorted({int(word) for word in typed if word != "auto"})
    return [None] * ("auto" in typed) + numbers


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Lines of a table in Markdown."""
    yield "| " + " | ".join(heads) + " |"
    yield "|---" * len(heads) + "|"
    for cells in rows:
        yield "| " + " | ".join(cells) + " |"


def words(text: str) -> list[str]:
    """What was typed, between commas."""
    return [word.strip() for word in text.split(",")]
