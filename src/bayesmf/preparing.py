"""Between the user's ratings and a run: units, row numbers, and the report afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bayesmf.batches import TrainingData
from bayesmf.chain import Settings
from bayesmf.errors import InputError
from bayesmf.monitor import Pairs, Validation, among
from bayesmf.ratings import Ratings
from bayesmf.samplers import settings_dict
from bayesmf.server import RunReport


@dataclass(frozen=True)
class Prepared:
    """Training ratings with their units: a chain's rating is (rating - center) / scale."""

    train: Ratings
    data: TrainingData
    center: float
    scale: float
    low: float
    high: float


def prepare(ratings: Any, standardize: bool) -> Prepared:
    """Centre and scale the ratings, and number their rows."""
    train = Ratings.of(ratings).compact()
    low, high = train.range()
    center = float(np.mean(train.rating, dtype=np.float64))
    spread = float(np.std(train.rating, dtype=np.float64))
    if spread > 0 and not 1e-12 < spread < 1e12:
        raise InputError(
            f"ratings vary by {spread:.2g}, which single precision cannot carry: rescale them"
        )
    scale = spread if standardize and spread > 0 else 1.0
    value = ((train.rating - center) / scale).astype(np.float32)
    data = TrainingData(train.user, train.item, value, train.n_users, train.n_items)
    return Prepared(train, data, center, scale, float(low), float(high))


def prepare_validation(known: Ratings, made: Prepared) -> Validation:
    """The pairs of a validation set whose rows are known, in the chain's units."""
    train, center, scale = made.train, made.center, made.scale
    user = train.user_ids.lookup(known.user_ids.ids)[known.user]
    item = train.item_ids.lookup(known.item_ids.ids)[known.item]
    both = (user >= 0) & (item >= 0)
    if not both.any():
        raise InputError(
            "no validation rating has both a user and an item of the training ratings: nothing "
            "can be followed; leave validation out, or check its ids"
        )
    rows, columns = user[both].astype(np.int32), item[both].astype(np.int32)
    value = ((known.rating[both] - center) / scale).astype(np.float32)
    bounds = (made.low - center) / scale, (made.high - center) / scale
    return Validation(Pairs(rows, columns, among(rows, columns, made.data)), value, *bounds)


def make_report(
    data: TrainingData, settings: Settings, done: RunReport, compile_seconds: float
) -> dict[str, Any]:
    """What a fit did, in plain values."""
    prior = type(settings.prior).__name__.removesuffix("Prior").lower()
    full_bias = prior == "wishart" and settings.prior.bias
    return {
        "ratings": len(data),
        "users": data.n_users,
        "items": data.n_items,
        "factors": settings.n_factors,
        "prior": "wishart-bias" if full_bias else prior,
        "sampler": settings_dict(settings.sampler),
        "target": settings.target,
        "max_seconds": settings.max_seconds,
        "seed": settings.seed,
        "seconds": done.seconds,
        "compile_seconds": compile_seconds,
        "epochs": done.epochs,
        "draws": len(done.draws),
        "ratings_per_second": done.ratings_read / max(done.seconds, 1e-9),
        "tau": float(done.draws.tau.mean()) / settings.scale**2,
        "convergence": done.convergence,
        "repairs": done.repairs,
    }
