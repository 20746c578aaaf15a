"""Odd things in memory: arrays of every dtype and shape, masks, frames, matrices, odd ids."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import fractions
import warnings
from typing import Any

import numpy as np

from benchmarks.attack.case import Case, Refused
from benchmarks.attack.registry import attack
from benchmarks.attack.text import as_found

DTYPES = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "g", "?", "c8", "c16",
    "O", "U8", "S8",
          "M8[s]", "M8[ns]", "M8[D]", "m8[s]", "m8[D]", ">i4", ">f8", "V8")  # fmt: skip
ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 3, 2.5, float("nan"), float("inf"), 2**63, -(2**63), 2**64, 10**30,
    "", " ", "7", "007",
    "a", "\x1b[31m", "\ud800", "a\0b", b"7", 1j, [], [1], (), (1,), {}, {1: 2}, set(), object,
        print, ...,
    datetime.date(2024, 1, 1), datetime.datetime(2024, 1, 1), datetime.timedelta(1),
    decimal.Decimal("2.5"),
    decimal.Decimal("NaN"), fractions.Fraction(1, 3), range(3), np.float32(2), np.int8(3),
    np.datetime64("2024"),
    np.timedelta64(3, "D"), np.array(3), np.array([3]), np.ma.masked, np.nan, np.str_("x"),
    np.bool_(True),
    "x" * 10_000, slice(None), memoryview(b"ab"), bytearray(b"ab"), type, NotImplemented, 1e308,
    -0.0, 5e-324,
)  # fmt: skip


def odd(case: Case, depth: int = 0) -> Any:
    """A value of an odd kind, perhaps a container of such."""
    if depth < 2 and case.rng.random() < 0.3:
        n = case.rng.choice((0, 1, 2, 3, 4, 9))
        values = [odd(case, depth + 1) for _ in range(n)]
        return case.rng.choice(
            (list, tuple, lambda v: dict(enumerate(v)), lambda v: {"user": v}, _objects)
        )(values)
    return case.rng.choice(ODD_VALUES)


def _objects(values: list[Any]) -> np.ndarray:
    out = np.empty(len(values), object)
    out[:] = values
    return out


def array(case: Case, n: int) -> np.ndarray:
    """Numbers of any dtype."""
    dtype = np.dtype(case.rng.choice(DTYPES))
    base = case.numbers.integers(0, 100, n)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = np.zeros(n, dtype) if dtype.kind == "V" else base.astype(dtype)
    return made


def column(case: Case, n: int, role: str) -> tuple[Any, Any]:
    """A column, and what it must be read as: None where it must be refused, ... if unclear."""
    import polars as pl

    kind = case.rng.choice(("sane", "sane", "sane", "array", "masked", "series", "list", "pandas",
        "arrow", "times",
                            "strided", "readonly", "long double", "nothing"))  # fmt: skip
    numbers = (
        case.numbers.integers(0, 50, n) if role != "rating" else case.numbers.integers(1, 11, n) / 2
    )
    case.say(f"{role}: {kind}")
    if kind == "array":
        return array(case, n), ...
    if kind == "masked":
        mask = case.numbers.random(n) < case.rng.choice((0.0, 0.3, 1.0))
        return np.ma.array(numbers, mask=mask), None if mask.any() else numbers
    if kind == "series":
        return pl.Series(numbers.tolist()), numbers
    if kind == "list":
        values = numbers.tolist()
        if case.rng.random() < 0.5 and values:
            values[case.rng.randrange(n)] = odd(case)
            return values, ...
        return values, numbers
    if kind == "pandas":
        return _pandas(case, numbers)
    if kind == "arrow":
        import pyarrow

        return pyarrow.array(numbers.tolist()), numbers
    if kind == "times":
        unit = case.rng.choice(("M8[s]", "M8[D]", "m8[s]", "m8[ns]"))
        return numbers.astype("i8").astype(unit), None if n else ...
    if kind == "strided":
        return np.repeat(numbers, 2)[::2], numbers
    if kind == "readonly":
        frozen = numbers.copy()
        frozen.flags.writeable = False
        return frozen, numbers
    if kind == "long double":
        return numbers.astype(np.longdouble), numbers
    if kind == "nothing":
        return odd(case), ...
    return numbers, numbers


def _pandas(case: Case, numbers: np.ndarray) -> tuple[Any, Any]:
    import pandas as pd

    how = case.rng.choice(
        ("plain", "Int64", "Float32", "category", "string", "datetime", "missing", "index")
    )
    case.say(f"pandas {how}")
    if how in ("Int64", "Float32"):
        with np.errstate(all="ignore"):
            return pd.Series(np.floor(numbers)).astype(how), np.floor(numbers)
    if how == "category":
        return pd.Series(numbers).astype("category"), numbers
    if how == "string":
        return pd.Series([f"{x:g}" for x in numbers], dtype="string"), ...
    if how == "datetime":
        return pd.Series(pd.to_datetime(numbers.astype("i8"), unit="s")), None if len(
            numbers
        ) else ...
    if how == "missing":
        values = pd.Series(numbers, dtype="Float64")
        if len(values):
            values.iloc[0] = pd.NA
        return values, None if len(values) else ...
    return (pd.Index(numbers) if how == "index" else pd.Series(numbers, index=numbers)), numbers


@attack("typed", 6)
def columns(case: Case) -> None:
    """Columns of all kinds, apart or in a table."""
    from bayesmf import Ratings

    n = case.rng.choice((0, 1, 2, 20, 20, 20))
    made = {role: column(case, n, role) for role in ("user", "item", "rating")}
    given = {role: of for role, (of, _) in made.items()}
    truths = [of for _, of in made.values()]
    shape = case.rng.choice(("apart", "tuple", "dict", "pandas", "polars", "ratings"))
    case.say(shape)
    data: Any = tuple(given.values())
    if shape == "dict":
        data = given
    elif shape in ("pandas", "polars"):
        try:
            data = __import__(shape).DataFrame(given)
            truths = [...] * 3  # what the frame made of it
        except BaseException:  # not ours; polars panics
            case.streams.reset()
            return
    asked = case.rng.choice(("of", "fit")) if n == 20 else "of"
    if asked == "fit":
        model = case.call(lambda: quick_model().fit(data))
        if any(of is None for of in truths):
            case.find("other answers", f"fitted to other data: {'; '.join(case.said)}")
        answer = case.call(lambda: model.predict(model.user_ids_[0], model.item_ids_[0]))
        if not np.isfinite(answer):
            case.find("other answers", f"a prediction of {answer}")
        return
    ratings = case.call(lambda: Ratings(*data) if shape == "ratings" else Ratings.from_data(data))
    if any(of is None for of in truths):
        case.find("other answers", f"read as ratings: {'; '.join(case.said)}: {ratings!r}")
    elif all(of is not ... for of in truths):
        expected = {}
        for u, i, r in zip(*truths, strict=True):
            expected[f"{u:g}", f"{i:g}"] = np.float32(r)
        if as_found(ratings) != expected:
            case.find("other answers", f"other ratings than were given: {'; '.join(case.said)}")


def quick_model() -> Any:
    """A model of little work."""
    from bayesmf import BayesianMF, Gibbs

    sampler = Gibbs(epochs=3, burn_in=1, n_chains=1)
    return BayesianMF(2, sampler=sampler, random_state=1, engine="serial", progress=False)


@attack("typed", 3)
def matrices(case: Case) -> None:
    """SciPy's sparse matrices, with repeats, indices out of range, odd types."""
    import scipy.sparse as sp

    from bayesmf import Ratings

    n, n_rows, n_columns = case.rng.choice((0, 1, 30)), 12, 9
    row, col = case.numbers.integers(0, n_rows, n), case.numbers.integers(0, n_columns, n)
    data = case.numbers.integers(1, 6, n).astype(float)
    kind = case.rng.choice(("coo", "coo", "csr", "csc", "lil", "dok", "dia", "bsr", "array"))
    harm = case.rng.choice(
        ("none", "none", "negative", "beyond", "huge", "dtype", "nan", "zeros", "falling", "short")
    )
    case.say(f"{kind} matrix, {harm}")
    matrix = (sp.coo_array if kind == "array" else sp.coo_matrix)(
        (data, (row, col)), (n_rows, n_columns)
    )
    dense = np.zeros((n_rows, n_columns))
    np.add.at(dense, (row, col), data)
    if kind not in ("coo", "array"):
        matrix = matrix.asformat(kind)
    valid = True
    if harm in ("negative", "beyond", "huge") and n and kind in ("coo", "csr", "csc", "array"):
        bad = {"negative": -1, "beyond": 12, "huge": 2**31 - 1}[harm]
        at = case.rng.randrange(n)
        if kind in ("coo", "array"):
            matrix.coords[0][at % len(matrix.coords[0])] = bad
        else:
            matrix.indices[at % len(matrix.indices)] = bad
        valid = False
    elif harm == "falling" and kind in ("csr", "csc") and n > 1:
        matrix.indptr[1], matrix.indptr[-1] = 2**30, case.rng.choice((0, 5, 2**30))
        valid = False
    elif harm == "short" and kind in ("csr", "csc") and n > 1:
        matrix.data = matrix.data[:-1]
        valid = False
    elif harm == "nan" and n and hasattr(matrix, "data") and kind in ("coo", "csr", "csc", "array"):
        matrix.data[0] = np.nan
        valid = False
    elif harm == "dtype":
        matrix = matrix.astype(case.rng.choice(("?", "i1", "c16", "f4", "u8")))
        dense = None  # type: ignore[assignment]
    asked = case.rng.choice(("of", "fit"))
    if asked == "fit":
        case.call(lambda: quick_model().fit(matrix))
        if not valid:
            case.find("other answers", f"fitted to an invalid matrix: {'; '.join(case.said)}")
        return
    ratings = case.call(lambda: Ratings.from_data(matrix))
    if not valid:
        case.find("other answers", f"read from an invalid matrix: {'; '.join(case.said)}")
    elif dense is not None:
        expected = {
            (str(i), str(j)): np.float32(dense[i, j])
            for i, j in zip(*np.nonzero(dense), strict=True)
        }
        if as_found(ratings) != expected:
            case.find("other answers", f"another matrix than was given: {'; '.join(case.said)}")


@attack("typed", 4)
def questions(case: Case) -> None:
    """Ids and settings of odd kinds, asked of a sound model."""
    from bayesmf import BayesianMF

    name = case.rng.choice(("model", "model_str"))
    model = BayesianMF.load(case.material.folder / name)
    users, items = odd(case), odd(case)
    if case.rng.random() < 0.4:
        users = case.rng.choice((1, [1, 2], "u1x", ["u1x"] * 3, np.arange(4)))
    if case.rng.random() < 0.4:
        items = case.rng.choice((1, [1, 2], "the 1", None, np.arange(4)))
    asked = case.rng.choice(
        ("predict", "predict_interval", "predict_table", "recommend", "evaluate", "columns", "rank")
    )
    case.say(f"{asked} of {users!r:.60}, {items!r:.60}")
    level = case.rng.choice((0.9, 0.5, odd(case)))
    more = odd(case)
    calls: dict[str, Any] = {
        "predict": lambda: model.predict(users, items),
        "predict_interval": lambda: model.predict_interval(users, items, level),
        "predict_table": lambda: model.predict_table(users, items, level).to_polars(),
        "recommend": lambda: model.recommend(users, n=case.rng.choice((3, 0, -1, 10**9))),
        "rank": lambda: model.recommend(1, n=more, policy=case.rng.choice(("mean", "ucb",
            "thompson", more))),
        "evaluate": lambda: model.evaluate((users, items, more)),
        "columns": lambda: model.predict(users, columns=more),
    }  # fmt: skip
    found = case.call(calls[asked])
    if asked == "predict" and not np.all(np.isfinite(found)):
        case.find("other answers", f"a prediction that is not finite: {'; '.join(case.said)}")


@attack("typed", 2)
def things(case: Case) -> None:
    """Anything at all where ratings are asked for."""
    from bayesmf import PackedRatings, Ratings, pack

    data, more = odd(case), odd(case)
    case.say(f"{data!r:.80}, {more!r:.60}")
    calls = (
        lambda: Ratings.from_data(data), lambda: quick_model().fit(data),
        lambda: Ratings(data, data, more),
        lambda: Ratings.read(data), lambda: quick_model().fit(data, more),
        lambda: PackedRatings.open(data),
        lambda: pack(data, case.work / "out"),
        lambda: Ratings.from_data(([1, 2], [3, 4], [1.0, 2.0]), columns=more),
        lambda: Ratings.from_pairs(data, more), lambda: quick_model().fit(([1, 2], [3, 4], [1, 2]),
            validation=data),
    )  # fmt: skip
    case.call(case.rng.choice(calls))


@attack("typed", 2)
def settings(case: Case) -> None:
    """Odd settings of models, samplers and checkpoints."""
    import bayesmf
    from bayesmf import BayesianMF, Checkpoint, Gibbs

    value = odd(case)
    names = ("n_factors", "sampler", "target", "max_seconds", "prior", "tau", "alpha_0", "beta_0",
        "mu_0", "kappa_0", "nu_0", "W_0", "standardize",
             "max_draws", "engine", "n_workers", "callbacks", "random_state",
             "progress")  # fmt: skip
    name = case.rng.choice(names)
    sampler = case.rng.choice(("Gibbs", "SGLD", "SGD", "SGHMC", "SGNHT", "Auto"))
    made = getattr(bayesmf, sampler)
    field = case.rng.choice(
        [f.name for f in dataclasses.fields(made) if f.init and f.name != "n_chains"]
    )
    ratings = ([1, 2, 3, 1, 2], [3, 4, 3, 4, 3], [1.0, 2.0, 3.0, 2.0, 1.0])
    if type(value) in (int, float) and value > 1e6:
        value = -1  # a long wait is what was asked for
    case.say(f"{name} or {sampler}.{field} or a checkpoint: {value!r:.80}")
    few = {"sampler": Gibbs(epochs=2, burn_in=1, n_chains=1), "progress": False, "engine": "serial"}
    lots = {"epochs": 2} if "epochs" in made.__dataclass_fields__ else {}
    calls = (
        lambda: BayesianMF(**{**few, "n_factors": 2, name: value}).fit(ratings),
        lambda: BayesianMF(2, **{**few, "sampler": made(**{**lots, field: value}),
            "max_seconds": 2}).fit(ratings),
        lambda: BayesianMF(2, **few).fit(ratings, checkpoint=value),
        lambda: BayesianMF(2, **few).fit(ratings, checkpoint=Checkpoint("c", every=value)),
        lambda: BayesianMF(2, **few).fit(ratings, columns=value),
        lambda: BayesianMF.load(value), lambda: BayesianMF(2, **few).fit(ratings).save(value),
    )  # fmt: skip
    try:
        case.call(case.rng.choice(calls))
    except Refused:
        raise
    finally:
        case.untidy = True  # it may have been asked to write anywhere
