"""Synthetic ratings chunk by chunk, in memory and to files; some of them held out."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO

import numpy as np

from bayesmf.errors import InputError
from bayesmf.kernels.keys import STREAM_SYNTHETIC, generator, make_key
from bayesmf.kernels.plant import alias_table, fill, hold
from bayesmf.storage.atomic import replacing, writing

if TYPE_CHECKING:
    import polars as pl

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]

_SUFFIXES = (".csv", ".tsv", ".parquet")
_STRIPES = 64  # a shuffled chunk has about this many ranges of users


def make_parts(
    plan: Any, max_ratings: int, held: int = 0, shuffle: bool = False
) -> Iterator[tuple[Arrays, Arrays]]:
    """Yield chunks of the ratings of a `Synthetic`, each as ratings to train and held-out ones."""
    maker = Maker(plan, held)
    for number, group in enumerate(maker.groups(max_ratings, shuffle)):
        columns, tested = maker.make(group)
        if shuffle:
            order = _generator(plan, number + 1).permutation(len(tested))
            columns, tested = _take(columns, order), tested[order]
        if held:
            yield _take(columns, ~tested), _take(columns, tested)
        else:
            yield columns, empty(0)


class Maker:
    """Makes ratings of users; item tables and the starts of users are computed once."""

    def __init__(self, plan: Any, held: int = 0) -> None:
        self.plan = plan
        activity = plan.activity()
        self.offsets = np.concatenate(([0], np.cumsum(activity)))
        # Rounded as in `activity`, but each user keeps one.
        spare = np.cumsum(activity - 1)
        self.held = np.diff(spare * held // max(1, spare[-1]), prepend=0)
        chance = plan.popularity()
        self.tables = (*alias_table(chance), (1.0 / chance).astype(np.float32))
        self.item_rows = plan.item_factors(0, plan.n_items)

    def pieces(self, max_ratings: int) -> Iterator[tuple[int, int]]:
        """Ranges of users with at most `max_ratings` ratings, or of one user."""
        first = 0
        while first < self.plan.n_users:
            end = self.offsets[first] + max_ratings
            last = max(first + 1, int(np.searchsorted(self.offsets, end, side="right")) - 1)
            yield first, last
            first = last

    def groups(self, max_ratings: int, shuffle: bool) -> Iterator[list[tuple[int, int]]]:
        """Ranges of users whose ratings make a chunk: one, or many random ones."""
        if not shuffle:
            yield from ([piece] for piece in self.pieces(max_ratings))
            return
        pieces = list(self.pieces(max(1, max_ratings // _STRIPES)))
        group: list[tuple[int, int]] = []
        size = 0
        for k in _generator(self.plan, 0).permutation(len(pieces)):
            n = self.size(pieces[k])
            if group and size + n > max_ratings:
                yield group
                group, size = [], 0
            group.append(pieces[k])
            size += n
        yield group

    def size(self, piece: tuple[int, int]) -> int:
        """Number of ratings of a range of users."""
        return int(self.offsets[piece[1]] - self.offsets[piece[0]])

    def make(self, group: list[tuple[int, int]]) -> tuple[Arrays, np.ndarray]:
        """Ratings of ranges of users, and which of them are held out."""
        total = sum(map(self.size, group))
        out, tested, begin = empty(total), np.zeros(total, dtype=bool), 0
        for piece in group:
            at = slice(begin, begin := begin + self.size(piece))
            self._fill(*piece, _take(out, at), tested[at])
        return out, tested

    def _fill(self, first: int, last: int, out: Arrays, tested: np.ndarray) -> None:
        plan, key = self.plan, make_key(self.plan.random_state)
        rows = (*plan.user_factors(first, last), *self.item_rows)
        bounds = self.offsets[first : last + 1] - self.offsets[first]
        scalars = np.float32(plan.mean), np.float32(plan.noise), bool(plan.stars)
        fill(out, first, bounds, rows, self.tables, scalars, key)
        hold(tested, first, bounds, self.held[first:last], *key)


def empty(n: int) -> Arrays:
    return np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.float32)


def _take(columns: Arrays, at: Any) -> Arrays:
    user, item, rating = columns
    return user[at], item[at], rating[at]


def _generator(plan: Any, number: int) -> np.random.Generator:
    return generator(make_key(plan.random_state), number, STREAM_SYNTHETIC)


# -- files ---


def check_paths(path: Path, test: Path | None) -> None:
    """Refuse names of files that cannot be written."""
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

    Files appear under their names when all is complete. Memory is bounded by the chunks: polars
    takes frames for one file at a time, so held-out ratings are kept in a temporary file.
    """
    with replacing(path) as file:
        if test is None:
            _sink(_frames(parts, None, progress), file, path)
            return
        with replacing(test) as other, tempfile.TemporaryFile(dir=test.parent) as held:
            # Errors name the first file; else they would name the second.
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
        # By its name, which all versions of polars take, unless it is not UTF-8.
        _write_parquet(frames, file.name if file.name.isprintable() else file)
        return
    for k, frame in enumerate(frames):
        frame.write_csv(file, include_header=k == 0, separator="," if suffix == ".csv" else "\t")


def _write_parquet(frames: Iterator[pl.DataFrame], target: str | BinaryIO) -> None:
    import polars as pl
    from polars.io.plugins import register_io_source

    raised: list[Exception] = []

    def source(*_: object) -> Iterator[pl.DataFrame]:
        # The sink asks for all columns and rows, so arguments of polars are not used.
        try:
            yield from frames
        except Exception as error:
            raised.append(error)
            raise

    schema = {"user": pl.Int32, "item": pl.Int32, "rating": pl.Float32}
    try:
        register_io_source(source, schema=schema).sink_parquet(target)
    except Exception:
        # Polars wraps errors of its source; a full disk must stay an OSError.
        if raised:
            raise raised[0] from None
        raise
