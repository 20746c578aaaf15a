"""Synthetic ratings to files as they are made: all to one, or some held out to a second."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO

import numpy as np

from bayesmf.errors import InputError
from bayesmf.storage.atomic import replacing, writing

if TYPE_CHECKING:
    import polars as pl

    from bayesmf.synthetic.chunks import Arrays

_SUFFIXES = (".csv", ".tsv", ".parquet")


def check_paths(path: Path, test: Path | None) -> None:
    """Refuse names that cannot be meant."""
    for each in (path, *([] if test is None else [test])):
        if each.suffix.lower() not in _SUFFIXES:
            raise InputError(f"{each}: ratings are written to .csv, .tsv or .parquet files")
    if test is not None and path.resolve() == test.resolve():
        raise InputError(f"{path} cannot hold both the ratings and the held-out ones")


def write_files(
    parts: Iterator[tuple[Arrays, Arrays]],
    path: Path,
    test: Path | None,
    progress: Callable[[int], Any],
) -> None:
    """Write the first of each pair of parts to `path`, the second to `test`.

    Files appear under their names only when all is complete. Memory is that of some chunks:
    polars takes frames for one file at a time, so what is held out waits in a nameless file.
    """
    with replacing(path) as file:
        if test is None:
            _sink(_frames(parts, None, progress), file, path)
            return
        with replacing(test) as other, tempfile.TemporaryFile(dir=test.parent) as held:
            # Told here of the first file: the second would be blamed otherwise.
            with writing(path):
                _sink(_frames(parts, held, progress), file, path)
            held.seek(0)
            _sink(_held_frames(held), other, test)


def _frames(
    parts: Iterator[tuple[Arrays, Arrays]],
    held: IO[bytes] | None,
    progress: Callable[[int], Any],
) -> Iterator[pl.DataFrame]:
    for train, test in parts:
        yield _frame(train)
        if held is not None:
            held.write(np.int64(len(test[0])).tobytes())
            for column in test:
                held.write(column.tobytes())
        progress(len(train[0]) + len(test[0]))


def _held_frames(held: IO[bytes]) -> Iterator[pl.DataFrame]:
    while size := held.read(8):
        n = int(np.frombuffer(size, np.int64)[0])
        user, item = (np.frombuffer(held.read(4 * n), np.int32) for _ in range(2))
        yield _frame((user, item, np.frombuffer(held.read(4 * n), np.float32)))


def _frame(ratings: Arrays) -> pl.DataFrame:
    import polars as pl

    user, item, rating = ratings
    # Ids are counted from 1.
    return pl.DataFrame({"user": user + np.int32(1), "item": item + np.int32(1), "rating": rating})


def _sink(frames: Iterator[pl.DataFrame], file: BinaryIO, path: Path) -> None:
    """Write frames to a file, which will be `path`."""
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        # By its name, which all versions of polars take, unless it cannot be said in UTF-8.
        _write_parquet(frames, file.name if file.name.isprintable() else file)
        return
    for k, frame in enumerate(frames):
        frame.write_csv(file, include_header=k == 0, separator="," if suffix == ".csv" else "\t")


def _write_parquet(frames: Iterator[pl.DataFrame], target: str | BinaryIO) -> None:
    import polars as pl
    from polars.io.plugins import register_io_source

    raised: list[Exception] = []

    def source(*_: object) -> Iterator[pl.DataFrame]:
        # The sink asks for all columns and rows, so what polars would push down is not looked at.
        try:
            yield from frames
        except Exception as error:
            raised.append(error)
            raise

    schema = {"user": pl.Int32, "item": pl.Int32, "rating": pl.Float32}
    try:
        register_io_source(source, schema=schema).sink_parquet(target)
    except Exception:
        # Polars reports an error of its source in an exception of its own: a full disk must
        # stay what it is.
        if raised:
            raise raised[0] from None
        raise
