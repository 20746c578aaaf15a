"""Parquet and Arrow files, damaged, or sound but odd."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np

from benchmarks.attack.artefacts import damage_bytes
from benchmarks.attack.case import Case, Refused
from benchmarks.attack.registry import attack
from benchmarks.attack.text import as_found

NAMES = ("ratings.parquet", "ratings.arrow", "ratings.feather", "names.parquet", "names.arrow")


@attack("binary", 6)
def damaged(case: Case) -> None:
    """Some bytes are other ones, near the ends above all, where the formats' own heads are."""
    name = case.rng.choice(NAMES)
    file = case.copy(name)
    for _ in range(case.rng.choice((1, 1, 2, 8))):
        if case.rng.random() < 0.5:
            damage_bytes(case, file)
        else:
            _damage_ends(case, file)
    _read(case, file, name)


def _damage_ends(case: Case, file: Any) -> None:
    raw = bytearray(file.read_bytes())
    if not raw:
        return
    n = min(len(raw), case.rng.choice((8, 64, 600)))
    at = case.rng.randrange(n) if case.rng.random() < 0.3 else len(raw) - 1 - case.rng.randrange(n)
    case.say(f"byte {at} of {len(raw)}")
    raw[at] = case.rng.choice((0, 255, 127, 128, raw[at] ^ 1, raw[at] ^ 128))
    file.write_bytes(raw)


def _read(case: Case, file: Any, name: str) -> None:
    """Neither format has digests, so that other numbers are not a finding, but crashes are."""
    from bayesmf import Ratings

    how = case.rng.random()
    if how < 0.6:
        as_found(case.call(lambda: Ratings.read(file)))
    elif how < 0.8:
        case.cli("pack", file, "--out", case.work / "packed")
    else:
        model = case.material.folder / ("model_str" if name.startswith("names") else "model")
        case.cli(case.rng.choice(("predict", "evaluate")), model, file)


COLUMNS: dict[str, Any] = {
    "ints": lambda n: list(range(n)), "floats": lambda n: [k + 0.5 for k in range(n)],
    "strings": lambda n: [f"a{k}" for k in range(n)],
    "bools": lambda n: [k % 2 == 0 for k in range(n)],
    "dates": lambda n: [datetime.date(2024, 1, 1 + k % 28) for k in range(n)],
    "times": lambda n: [datetime.datetime(2024, 1, 1 + k % 28, 3) for k in range(n)],
    "clock": lambda n: [datetime.time(k % 24, 5) for k in range(n)],
    "spans": lambda n: [datetime.timedelta(seconds=k) for k in range(n)],
    "bytes": lambda n: [bytes([k % 256]) for k in range(n)],
    "lists": lambda n: [[k] for k in range(n)],
    "structs": lambda n: [{"a": k} for k in range(n)], "nulls": lambda n: [None] * n,
    "some nulls": lambda n: [None if k == 3 else k for k in range(n)],
    "nan": lambda n: [float("nan") if k == 3 else k / 2 for k in range(n)],
    "huge": lambda n: [10**18 + k for k in range(n)],
    "close": lambda n: [1e8 + k % 3 - 1 for k in range(n)],
    "numbers as text": lambda n: [str(k) for k in range(n)],
}  # fmt: skip
# Columns that are not ratings for any reader.
NO_RATINGS = ("dates", "times", "clock", "spans", "bytes", "lists", "structs", "nulls",
    "some nulls", "nan",
              "strings", "close")  # fmt: skip
TIMES = ("dates", "times", "clock", "spans")
NO_IDS = (
    "lists",
    "structs",
    "nulls",
    "some nulls",
    "nan",
    "bytes",
    "floats",
    "dates",
    "times",
    "clock",
    "spans",
)


@attack("binary", 3)
def kinds(case: Case) -> None:
    """Sound files with columns of all kinds."""
    import polars as pl

    from bayesmf import Ratings

    roles = ("user", "item", "rating", *(("timestamp",) if case.rng.random() < 0.5 else ()))
    sane = {"user": "ints", "item": "strings", "rating": "floats", "timestamp": "ints"}
    chosen = {
        role: case.rng.choice(list(COLUMNS)) if case.rng.random() < 0.4 else sane[role]
        for role in roles
    }
    n = case.rng.choice((0, 1, 2, 30))
    case.say(f"{n} rows of {chosen}")
    frame = pl.DataFrame(
        {role: pl.Series(COLUMNS[of](n), strict=False) for role, of in chosen.items()}
    )
    frame = _cast(case, frame)
    suffix = case.rng.choice(("parquet", "arrow", "pyarrow", "feather"))
    file = case.work / f"a.{'parquet' if suffix == 'pyarrow' else suffix}"
    try:
        _write(frame, file, suffix)
    except Exception:  # what cannot be written cannot be read
        return
    ratings = case.call(lambda: Ratings.read(file))
    as_numbers = chosen["rating"] in TIMES and frame["rating"].dtype.is_numeric()  # by the cast
    if n > 3 and chosen["rating"] in NO_RATINGS and not as_numbers:
        case.find("other answers", f"ratings were read from {chosen['rating']}: {ratings!r}")
    for role in ("user", "item"):
        cast = chosen[role] in ("floats", *TIMES) and frame[role].dtype.is_integer()
        if n > 3 and chosen[role] in NO_IDS and not cast:
            case.find("other answers", f"ids were read from {chosen[role]}: {ratings.users[:4]}")


def _cast(case: Case, frame: Any) -> Any:
    """To a smaller or rarer type now and then, values as they were or null."""
    import polars as pl

    types = (pl.Int8, pl.UInt64, pl.Float32, pl.Categorical, pl.Decimal(20, 2), pl.Int128, pl.UInt8)
    for name in frame.columns:
        if case.rng.random() < 0.2:
            try:
                frame = frame.with_columns(pl.col(name).cast(case.rng.choice(types)))
            except pl.exceptions.PolarsError:
                continue
    return frame


def _write(frame: Any, file: Any, suffix: str) -> None:
    if suffix == "parquet":
        frame.write_parquet(file)
    elif suffix == "pyarrow":
        import pyarrow.parquet

        pyarrow.parquet.write_table(frame.to_arrow(), file)
    elif suffix == "arrow":
        frame.write_ipc(file)
    else:
        import pyarrow.feather

        pyarrow.feather.write_feather(frame.to_arrow(), str(file))


@attack("binary")
def archives(case: Case) -> None:
    """An .npz file in place of a truth or a table."""
    from bayesmf import Ratings
    from bayesmf.synthetic.truth import Truth

    file = case.work / case.rng.choice(("a.npz", "a.parquet", "a.csv", "a.arrow"))
    with file.open("wb") as stream:
        np.savez(stream, U=np.zeros((2, 2), np.float32), a=np.zeros(2))
    if case.rng.random() < 0.7:
        damage_bytes(case, file)
    for ask in (lambda: Truth.load(file), lambda: Ratings.read(file)):
        try:
            case.call(ask)
        except Refused:
            continue
        case.find("other answers", f"{file.name} was read")
