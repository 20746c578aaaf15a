"""What commands print and write: JSON, aligned lines, tables, files that appear at once."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayesmf.errors import InputError

if TYPE_CHECKING:
    import polars as pl

_SLICE = 100_000


def print_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object on one line; what is not a finite number is null."""
    print(json.dumps(_plain(value), allow_nan=False))


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


def print_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Print names and what there is to say of them, aligned; a text may have several lines."""
    pairs = list(facts)
    width = max(len(name) for name, _ in pairs)
    for name, text in pairs:
        for k, line in enumerate(text.split("\n")):
            print(f"{'' if k else name:<{width}}  {line}")


def print_table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table: the first column to the left, numbers to the right, a dash for none."""
    cells = [list(head), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[k]) for row in cells) for k in range(len(head))]
    for first, *rest in cells:
        aligned = (f"{cell:>{width}}" for cell, width in zip(rest, widths[1:], strict=True))
        print("  ".join((f"{first:<{widths[0]}}", *aligned)).rstrip())


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return short(value, 3) if math.isfinite(value) else "-"
    return str(value)


def short(value: float, digits: int = 4) -> str:
    """A number with some decimals, or with as many digits where it is very large or small."""
    usual = value == 0 or 1e-3 <= abs(value) < 1e7
    return f"{value:.{digits}f}" if usual else f"{value:.{digits}g}"


def count(n: int, one: str, many: str | None = None) -> str:
    """A number with its noun: '1 user', '2 users'."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def note(sentence: str) -> None:
    """Say something that is no result: on stderr."""
    print(f"bayesmf: {sentence}", file=sys.stderr)


def peak_rss_mb() -> float | None:
    """The most memory that this process had, None where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak) / (1 << 20 if sys.platform == "darwin" else 1 << 10)


# -- files ----------------------------------------------------------------------------------------


def bar(total: int, unit: str) -> Any:
    """A bar on stderr for what takes over two seconds; nothing where stderr is no terminal."""
    from tqdm import tqdm

    return tqdm(
        total=total, unit=f" {unit}", unit_scale=True, disable=None, delay=2, leave=False,
        file=sys.stderr,
    )  # fmt: skip


def check_file(path: Path, suffixes: Sequence[str], inputs: Sequence[Path] = ()) -> None:
    """Refuse now a file that could not be written after the work; leave nothing behind.

    `inputs` are files that must not be written over.
    """
    if path.suffix.lower() not in suffixes:
        raise InputError(f"{path} must end in {' or '.join(suffixes)}")
    if path.exists() and not path.is_file():
        # A rename onto a device would take the device away.
        raise InputError(f"{path} is not a plain file: choose another name")
    if any(path.exists() and other.exists() and path.samefile(other) for other in inputs):
        raise InputError(f"{path} is also read from: choose another name")
    part = _part(path)
    try:
        part.open("xb").close()
        part.unlink()
    except OSError as error:
        raise _unwritable(path, error) from None


def write_frame(frame: pl.DataFrame, path: Path) -> None:
    """Write a CSV, JSON lines or Parquet file, which appears under its name only when complete."""
    part = _part(path)
    try:
        with part.open("xb") as file:
            if path.suffix.lower() == ".csv":
                frame.write_csv(file)
            elif path.suffix.lower() == ".jsonl":
                frame.write_ndjson(file)
            else:
                frame.write_parquet(file)
        os.replace(part, path.resolve())  # a link stays a link
    except OSError as error:
        raise _unwritable(path, error) from None
    finally:
        part.unlink(missing_ok=True)


def print_csv(frame: pl.DataFrame) -> None:
    """Print CSV, by slices: the text of all of a long table would need room of its own.

    It is UTF-8 whatever the terminal is, because ids must survive.
    """
    sys.stdout.flush()
    for k, piece in enumerate(frame.iter_slices(_SLICE)):
        sys.stdout.buffer.write(piece.write_csv(include_header=k == 0).encode())


def _part(path: Path) -> Path:
    target = path.resolve()
    return target.with_name(f".{target.name}.{os.getpid()}.part")


def _unwritable(path: Path, error: OSError) -> InputError:
    return InputError(f"{path} cannot be written: {error.strerror or error}")
