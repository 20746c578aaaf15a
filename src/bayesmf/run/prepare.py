"""Conversion of ratings to the units and row numbers of a run."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.chains.pairs import Validation, WatchedPairs, rated_pairs
from bayesmf.data.ratings import Ratings
from bayesmf.data.training import TrainingData
from bayesmf.errors import DataWarning, InputError, warn
from bayesmf.ids.id_map import IdMap
from bayesmf.kernels.csr import MOST_LEVELS
from bayesmf.model.mapped import allocate
from bayesmf.packed.ratings import PackedRatings

CHUNK = 1 << 22  # ratings scaled at a time
# Seconds since 1970 (in 1973): larger values are timestamps, not ratings.
TIME = 1e8
# An outlier is SLIP times farther from the other values than these are from each other.
SLIP = 10


@dataclass(frozen=True)
class Prepared:
    """Training ratings with their units: a chain's rating is (rating - center) / scale."""

    user_ids: IdMap
    item_ids: IdMap
    data: TrainingData
    center: float
    scale: float
    low: float
    high: float


def load_kernels() -> float:
    """Start numba and load the kernels that lay out ratings; returns the seconds it took.

    The first kernel of a process takes some tenths of a second, however little it has to do.
    """
    begin = time.monotonic()
    for levels in (1, MOST_LEVELS + 1):  # ratings as codes and as numbers
        rows = np.arange(levels, dtype=np.int32)
        TrainingData.from_triples(0 * rows, rows, rows.astype(np.float32), 1, levels)
    return time.monotonic() - begin


def prepare(ratings: Ratings | PackedRatings, standardize: bool) -> Prepared:
    """Centre and scale the ratings, and number their rows."""
    if isinstance(ratings, PackedRatings):
        return _prepare_packed(ratings, standardize)
    train = ratings.compact()
    low, high = train.range()
    _refuse_equal(len(train), low, high)
    std = float(np.std(train.rating, dtype=np.float64))
    _refuse_rounded(low, high, std)
    center = _rounded(float(np.mean(train.rating, dtype=np.float64)))
    scale = _scale(std, standardize)
    value = ((train.rating - center) / scale).astype(np.float32)
    data = TrainingData.from_triples(
        train.user_rows, train.item_rows, value, train.n_users, train.n_items
    )
    coded = data.by_user.value.dtype == np.uint8
    warn_of_odd_values(low, _as_rated(data.levels * scale + center) if coded else None)
    return Prepared(train.user_ids, train.item_ids, data, center, scale, float(low), float(high))


def as_packed(ratings: Any) -> PackedRatings | None:
    """Packed ratings, or those in a file; None for anything else."""
    if isinstance(ratings, PackedRatings):
        return ratings.verified()
    if isinstance(ratings, str | PathLike) and PackedRatings.is_packed(ratings):
        return PackedRatings.open(ratings, verify=True)  # seconds, for minutes of sampling
    return None


def _prepare_packed(packed: PackedRatings, standardize: bool) -> Prepared:
    """Prepare ratings on disk. Codes are unchanged: only their levels change."""
    _refuse_equal(len(packed), packed.low, packed.high)
    _refuse_rounded(packed.low, packed.high, packed.std())
    warn_of_odd_values(packed.low, packed.levels)
    center, scale = _rounded(packed.mean()), _scale(packed.std(), standardize)
    lists = packed.by_user, packed.by_item
    if packed.levels is None:
        levels = np.zeros(1, np.float32)
        lists = tuple(replace(side, value=_scaled(side.value, center, scale)) for side in lists)  # type: ignore[assignment]
    else:
        levels = ((packed.levels - center) / scale).astype(np.float32)
    # Ratings without codes have been scaled, so they are not in a file.
    origin = None if packed.levels is None else packed.origin
    data = TrainingData(lists[0], packed.n_items, levels, lists[1], origin)
    return Prepared(packed.user_ids, packed.item_ids, data, center, scale, packed.low, packed.high)


def _refuse_equal(count: int, low: float, high: float) -> None:
    """Raise InputError if all ratings are equal: recommendations would be arbitrary."""
    if low < high:
        return
    equal = f"all {count:,} ratings are {low:g}" if count > 1 else f"the only rating is {low:g}"
    raise InputError(
        f"{equal}: a model needs ratings that differ; where they stand for"
        " clicks or purchases, rate them (by counts, by time spent), or use a library for implicit"
        " feedback, such as implicit"
    )


def _refuse_rounded(low: float, high: float, std: float) -> None:
    """Raise InputError if ratings differ by little more than the rounding of single precision.

    A rounding error is uniform between -e and e, with variance e^2 / 3; at most a thousandth of the
    variance of the ratings is allowed.
    """
    error = 2.0**-24 * max(abs(low), abs(high))
    if error**2 / 3 > 1e-3 * std**2:
        raise InputError(
            f"ratings from {low:.12g} to {high:.12g} differ by {std:.2g} (their standard"
            f" deviation), and single precision, in which they are kept, rounds by up to"
            f" {error:.2g}: subtract their mean first"
        )


def _as_rated(levels: NDArray[Any]) -> NDArray[np.float64]:
    """Levels in the user's units, without the rounding errors of scaling them."""
    dust = 1e-6 * float(levels.max() - levels.min())
    return np.array([0.0 if abs(x) < dust else float(f"{x:.6g}") for x in levels.tolist()])


def warn_of_odd_values(low: float, values: NDArray[Any] | None) -> None:
    """Warn about values that are probably not ratings: times, marks for "not rated", typing errors.

    `values` are the different ones, ascending, where they are few: the lowest and the highest are
    compared with the steps between the others.
    """
    if low >= TIME:
        warn(
            f"ratings are {low:.10g} and above, like times since 1970: is the rating in another "
            "column?",
            DataWarning,
        )
    elif values is not None and len(values) > 3:
        for value, others in ((values[0], values[1:]), (values[-1], values[:-1])):
            step = float(min(abs(value - others[0]), abs(value - others[-1])))
            usual = float(np.diff(others).max())
            slip = step > max(1.001 * SLIP * usual, float(others[-1] - others[0]))
            if slip or (value < 0 <= others[0] and step > 1.5 * usual):
                warn(
                    f"the rating {value:g} stands apart from all others, {others[0]:g} to "
                    f"{others[-1]:g}, and is used like them: leave it out if it stands for "
                    '"not rated", or is a slip',
                    DataWarning,
                )


def _scale(spread: float, standardize: bool) -> float:
    """The number that ratings are divided by."""
    if spread > 0 and not 1e-12 < spread < 1e12:
        raise InputError(
            f"ratings vary by {spread:.2g}, out of the range of single precision: rescale them"
        )
    return _rounded(spread) if standardize and spread > 0 else 1.0


def _rounded(value: float) -> float:
    """Round to single precision: the last bits of a sum depend on the order of summing."""
    return float(np.float32(value))


def _scaled(rating: NDArray[np.float32], center: float, scale: float) -> NDArray[np.float32]:
    """(rating - center) / scale, on disk where it is large."""
    out: NDArray[np.float32] = allocate(1, rating.shape)[0]
    for lo in range(0, len(rating), CHUNK):
        part = slice(lo, lo + CHUNK)
        out[part] = (rating[part] - center) / scale
    return out


def prepare_validation(known: Ratings, made: Prepared) -> Validation:
    """A validation set in the chain's units; row -1 is a user or item without training ratings."""
    center, scale = made.center, made.scale
    user = made.user_ids.lookup(known.user_ids)[known.user_rows].astype(np.int32)
    item = made.item_ids.lookup(known.item_ids)[known.item_rows].astype(np.int32)
    if not ((user >= 0) & (item >= 0)).any():
        raise InputError(
            "no validation rating has both a user and an item of the training ratings: leave "
            "validation out, or check its ids"
        )
    value = ((known.rating - center) / scale).astype(np.float32)
    bounds = (made.low - center) / scale, (made.high - center) / scale
    rated = rated_pairs(user, item, made.data)
    return Validation(WatchedPairs(user, item, rated), value, *bounds)
