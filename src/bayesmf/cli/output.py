"""Output of commands: JSON, aligned lines, tables and files."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import sys
import textwrap
import traceback
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayesmf.errors import InputError
from bayesmf.process import Line, is_terminal, outside_of_lines, screen_width
from bayesmf.storage.atomic import check_replaceable, replacing, writing
from bayesmf.storage.paths import as_path
from bayesmf.wording import cut_middle, printable, short

if TYPE_CHECKING:
    import polars as pl

_SLICE = 100_000
# Width of lines, in characters, that go to a file or a pipe.
IN_FILES = 100
# Fewest characters of the first column of a table, on the narrowest terminal.
LEAST_FIRST = 8


def print_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object on one line; numbers that are not finite are null."""
    # All but ASCII is escaped by json, and of that all but this one.
    print(json.dumps(_plain(value), allow_nan=False).replace("\x7f", "\\u007f"))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "item"):  # a NumPy number
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def room(stream: Any = None) -> int:
    """Width to print in: that of the terminal, or IN_FILES where there is none."""
    stream = sys.stdout if stream is None else stream
    return screen_width(stream) if is_terminal(stream) else IN_FILES


def wrapped(text: str, width: int) -> list[str]:
    """Wrap a text, which may have line breaks already; words stay whole."""
    return [
        part
        for line in text.split("\n")
        for part in textwrap.wrap(
            printable(line), max(width, 20), break_long_words=False, break_on_hyphens=False
        )
        or [""]
    ]


def continued(command: str, width: int) -> list[str]:
    """Wrap a command over several lines, as a shell takes it."""
    parts = textwrap.wrap(
        command, width - 2, subsequent_indent=" " * 6, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
    return [*(f"{part} \\" for part in parts[:-1]), parts[-1]]


def print_text(text: str) -> None:
    """Print sentences, wrapped; at once, as what follows may last."""
    print("\n".join(wrapped(text, room())), flush=True)


def print_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Print names and their texts, aligned and wrapped."""
    pairs = list(facts)
    width = max(len(name) for name, _ in pairs)
    for name, text in pairs:
        for k, line in enumerate(wrapped(text, room() - width - 2)):
            print(f"{'' if k else name:<{width}}  {line}".rstrip())


def print_table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table: the first column to the left, numbers to the right, a dash for none.

    On a narrow terminal names of columns and what is in the first of them take several lines.
    """
    body = [[_cell(value) for value in row] for row in rows]
    widths, gap = _widths(head, body, room())
    for k, cells in enumerate([list(head), *body]):
        parts = [_lines(text, width) for text, width in zip(cells, widths, strict=True)]
        height = max(map(len, parts))
        # Names of columns stand on the line above their numbers.
        filled = [[""] * (height - len(p)) + p if k == 0 else p + [""] * height for p in parts]
        for n in range(height):
            first, *rest = (part[n] for part in filled)
            aligned = (f"{text:>{width}}" for text, width in zip(rest, widths[1:], strict=True))
            print((" " * gap).join((f"{first:<{widths[0]}}", *aligned)).rstrip())


def _lines(text: str, width: int) -> list[str]:
    if len(text) <= width:
        return [text]
    return textwrap.wrap(text, width, break_long_words=True, break_on_hyphens=False)


def _widths(head: Sequence[str], body: list[list[str]], width: int) -> tuple[list[int], int]:
    """Widths of columns and of the gap between them: as wide as they need, or as they can be."""
    cells = [max((len(row[k]) for row in body), default=0) for k in range(len(head))]
    wide = [max(len(name), n) for name, n in zip(head, cells, strict=True)]
    if sum(wide) + 2 * (len(wide) - 1) <= width:
        return wide, 2
    words = [max(map(len, name.split()), default=0) for name in head]
    narrow = [max(word, n) for word, n in zip(words, cells, strict=True)]
    for gap in (2, 1):
        left = width - sum(narrow[1:]) - gap * (len(narrow) - 1)
        if left >= min(narrow[0], LEAST_FIRST):
            break
    return [min(wide[0], max(left, LEAST_FIRST)), *narrow[1:]], gap


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return short(value, 3) if math.isfinite(value) else "-"
    return printable(str(value))


def note(sentence: str, command: str = "") -> None:
    """Print a note to stderr: in one line, or wrapped at a terminal.

    A `command` at its end is wrapped as a shell takes it, so that it can be copied.
    """
    text = f"bayesmf: {cut_middle(' '.join(sentence.split()))}"
    if is_terminal(sys.stderr):
        width = screen_width(sys.stderr)
        command = printable(command)
        lines = wrapped(text, width) + (continued(f"  {command}", width) if command else [])
        text = "\n".join(lines)
    else:
        text = printable(f"{text} {command}".rstrip())
    with outside_of_lines(), contextlib.suppress(OSError, ValueError, RuntimeError):
        # A stderr that cannot be written must not end the command.
        print(text, file=sys.stderr, flush=True)


@contextmanager
def warnings_as_notes(debug: bool) -> Iterator[None]:
    """Print our warnings and log as notes; those of libraries only with --debug."""
    handler = _Notes(logging.WARNING)
    log = logging.getLogger("bayesmf")

    def show(message: Any, category: Any, *where: Any, **more: Any) -> None:
        if category.__module__.split(".")[0] == "bayesmf":
            note(f"warning: {message}")
        elif debug:
            note(f"{category.__name__}: {message}")

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)  # ours are of this class
        warnings.showwarning = show
        log.addHandler(handler)
        before, log.propagate = log.propagate, False
        try:
            yield
        finally:
            log.propagate = before
            log.removeHandler(handler)


class _Notes(logging.Handler):
    """Handler that prints a log as notes."""

    def emit(self, record: logging.LogRecord) -> None:
        note(f"{record.levelname.lower()}: {record.getMessage()}")


def peak_rss_mb() -> float | None:
    """Peak memory of this process in MB, None where the system does not report it."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak) / (1 << 20 if sys.platform == "darwin" else 1 << 10)


# -- files ----------------------------------------------------------------------------------------


@contextmanager
def during(what: str) -> Iterator[Line]:
    """Progress line that says what is under way, if it takes long."""
    with Line() as line:
        line.say(what)
        yield line


def check_file(path: Path, suffixes: Sequence[str], inputs: Sequence[Path] = ()) -> None:
    """Refuse now a file that could not be written after the work; leave nothing behind.

    `inputs` are files that must not be written over.
    """
    if path.suffix.lower() not in suffixes:
        raise InputError(f"{path} must end in {' or '.join(suffixes)}")
    as_path(path)
    with writing(path):
        same = any(path.exists() and other.exists() and path.samefile(other) for other in inputs)
    if same:
        raise InputError(f"{path} is also read from: choose another name")
    check_replaceable(path)


def write_frame(frame: pl.DataFrame, path: Path) -> None:
    """Write a CSV, JSON lines or Parquet file, which appears under its name only when complete."""
    with replacing(path) as file:
        if path.suffix.lower() == ".csv":
            frame.write_csv(file)
        elif path.suffix.lower() == ".jsonl":
            frame.write_ndjson(file)
        else:
            frame.write_parquet(file)


def print_traceback(error: BaseException) -> None:
    """Print where an error comes from, for --debug."""
    for line in "".join(traceback.format_exception(error)).splitlines():
        print(printable(line), file=sys.stderr)


def print_csv(frame: pl.DataFrame) -> None:
    """Print a table as CSV, in slices: a long one as one text would fill the memory.

    The text is always UTF-8, so that ids are unchanged; a terminal gets control characters as
    escapes.
    """
    sys.stdout.flush()
    for k, piece in enumerate(frame.iter_slices(_SLICE)):
        if is_terminal(sys.stdout):
            piece = _shown_ids(piece)
        sys.stdout.buffer.write(piece.write_csv(include_header=k == 0).encode())


def _shown_ids(frame: pl.DataFrame) -> pl.DataFrame:
    import polars as pl

    texts = [
        pl.Series(column.name, [printable(text) for text in column.to_list()])
        for column in frame
        if column.dtype == pl.String
    ]
    return frame.with_columns(texts)
