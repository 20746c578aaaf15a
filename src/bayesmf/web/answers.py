"""Answers of version 1 of the API, as plain dicts.

Numbers are those of the library, bit for bit; the service adds titles and notes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import bayesmf.web.schemas as schemas
from bayesmf.errors import captured_warnings
from bayesmf.estimator.bayesian_mf import BayesianMF
from bayesmf.estimator.questions import folded_in
from bayesmf.kernels.mixture import shortest_runs
from bayesmf.posterior.posterior import known_ratings
from bayesmf.web.problems import ProblemError
from bayesmf.web.served import Served

NUMBERS = ("mean", "std", "low", "high")
# Ratings over which a user's noise is averaged, and number of other users it is compared with.
_SOME, _OTHERS = 50, 50


def recommend(served: Served, asked: schemas.RecommendRequest) -> dict[str, Any]:
    """The best items for a user, or for a person who sends ratings."""
    ratings = _sent(served, asked.ratings)
    if asked.user is None and ratings is None:
        raise ProblemError(
            422, "say for whom: give `user`, or `ratings` of a new person (an empty list returns "
            "what people in general rate highest)"
        )  # fmt: skip
    row = _user_row(served, asked.user, ratings)
    if asked.items and not (served.model.item_ids_.lookup(asked.items) >= 0).any():
        raise ProblemError(422, "none of `items` is in the training data: give ids of the model")
    with captured_warnings() as notes:
        model = _model(served, asked.user, ratings)
        found = model.recommend(
            asked.user,
            asked.n,
            items=asked.items,
            exclude=asked.exclude,
            policy=asked.policy,
            exclude_seen=asked.exclude_seen,
            level=asked.level,
            random_state=asked.seed,
        )
    items = [_named(served, one.item, asked.info) | one._asdict() for one in found]
    ids = [one["item"] for one in items]
    if asked.likely and items and served.levels is not None:
        with captured_warnings():  # which are in `notes`
            proba = model.predict_proba(asked.user, ids)
        _add_likely(served.levels, proba, asked.level, items)
    if asked.parts and items:
        _add_parts(model, asked.user, ids, items)
    return {
        "model_version": served.version,
        "notes": notes,
        "user": served.model.user_ids_[row] if row >= 0 else asked.user,
        "known": row >= 0 or bool(ratings),
        "policy": asked.policy,
        "level": asked.level,
        "items": items,
    }


def predict(served: Served, asked: schemas.PredictRequest) -> dict[str, Any]:
    """Mean, standard deviation, interval and star probabilities of pairs."""
    ratings, levels = _sent(served, asked.ratings), served.levels
    if (asked.pairs is None) == (asked.items is None):
        raise ProblemError(422, "give either `pairs`, or `items` for one person")
    users: Any
    if asked.pairs is not None:
        if asked.user is not None or ratings is not None:
            raise ProblemError(422, "`user` and `ratings` go with `items`, not with `pairs`")
        users, items = [pair.user for pair in asked.pairs], [pair.item for pair in asked.pairs]
    else:
        assert asked.items is not None
        if asked.user is None and ratings is None:
            raise ProblemError(422, "say for whom: give `user` or `ratings` with `items`")
        _user_row(served, asked.user, ratings)
        users, items = asked.user, asked.items
    with captured_warnings() as notes:
        model = _model(served, users, ratings)
        found = model.predict_table(users, items, asked.level)
    if not found.known.any() and not (asked.ratings is not None and not ratings):
        raise ProblemError(404, "no pair has both a user and an item of the training data")
    if unknown := int((~found.known).sum()):
        have = "has" if unknown == 1 else "have"
        notes.append(
            f"{unknown:,} of {len(items):,} predictions {have} an unknown id, and the prior's mean"
        )
    columns = [getattr(found, name).tolist() for name in (*NUMBERS, "known")]
    predictions = [
        {"user": users[k] if isinstance(users, list) else users, "probabilities": None}
        | _named(served, items[k])
        | dict(zip((*NUMBERS, "known"), numbers, strict=True))
        for k, numbers in enumerate(zip(*columns, strict=True))
    ]
    if asked.probabilities and levels is not None:
        with captured_warnings():  # of unknown ids, which are in `notes`
            proba = model.predict_proba(users, items)
        _add_likely(levels, proba, asked.level, predictions)
        for one, row in zip(predictions, proba.tolist(), strict=True):
            one["probabilities"] = row
    if asked.parts:
        _add_parts(model, users, items, predictions)
    return {
        "model_version": served.version,
        "notes": notes,
        "level": asked.level,
        "levels": levels if asked.probabilities else None,
        "predictions": predictions,
    }


def explain(served: Served, asked: schemas.ExplainRequest) -> dict[str, Any]:
    """A prediction as a sum of shares of the person's ratings."""
    ratings = _sent(served, asked.ratings)
    if asked.user is None and ratings is None:
        raise ProblemError(422, "say for whom: give `user` or `ratings`")
    _user_row(served, asked.user, ratings)
    _item_row(served, asked.item)
    with captured_warnings() as notes:
        found = served.model.explain(asked.user, asked.item, ratings=ratings)
    names = ("ratings", "shares", "share_std", "effects")
    columns = [found.items[: asked.n], *(getattr(found, name)[: asked.n] for name in names)]
    shares = [
        _named(served, item)
        | {"rating": rating, "share": share, "share_std": std, "effect": effect}
        for item, rating, share, std, effect in zip(*(c.tolist() for c in columns), strict=True)
    ]
    return {
        "model_version": served.version,
        "notes": notes,
        **_named(served, asked.item),
        "prediction": found.prediction,
        "rest": found.rest,
        "others": float(found.shares[asked.n :].sum()),
        "n_ratings": len(found),
        "shares": shares,
    }


def similar(served: Served, item: Any, n: int) -> dict[str, Any]:
    """Items that the same people like."""
    _item_row(served, item)
    found = served.model.similar_items(item, n)
    columns = (found.ids.tolist(), found.similarity.tolist(), found.std.tolist())
    return {
        "model_version": served.version,
        "notes": [],
        **_named(served, item),
        "items": [
            _named(served, other) | {"similarity": similarity, "std": std}
            for other, similarity, std in zip(*columns, strict=True)
        ],
    }


def search(served: Served, query: str, n: int) -> dict[str, Any]:
    """Items by name."""
    rows = served.items.search(query, n).tolist()
    ids = served.model.item_ids_
    found = [
        _named(served, ids[row], True) | {"n_ratings": int(served.items.counts[row])}
        for row in rows
    ]
    return {"model_version": served.version, "notes": [], "query": query, "items": found}


def item_facts(served: Served, item: Any, level: float) -> dict[str, Any]:
    """Facts about an item, and its prediction for an unknown person."""
    row, asked = _item_row(served, item), schemas.PredictRequest(items=[item], ratings=[])
    found = predict(served, asked.model_copy(update={"level": level, "parts": True}))
    prediction = found["predictions"][0]
    del prediction["user"], prediction["known"]
    return {
        **prediction,
        **_named(served, item, True),
        "model_version": served.version,
        "notes": [],
        "n_ratings": int(served.items.counts[row]),
        "level": level,
        "levels": found["levels"],
    }


def user_facts(served: Served, user: Any, n: int) -> dict[str, Any]:
    """Facts about a user: their ratings, and how noisy they are."""
    row, posterior = _user_row(served, user, None), served.model.posterior_
    own = known_ratings(posterior, np.array([row]), "a user's ratings")
    rated = own.other.astype(np.int64)
    value = posterior.center + posterior.scale * posterior.ratings.decode(own.value)
    # Without the rounding errors of scaling, as `explain` returns them.
    value = np.array([float(f"{x:.6g}") for x in value.astype(np.float64)])
    some = rated[np.linspace(0, len(rated) - 1, min(len(rated), _SOME)).astype(int)]
    others = np.linspace(0, posterior.n_users - 1, min(posterior.n_users, _OTHERS)).astype(int)
    noise, usual = (
        float(
            np.sqrt(posterior.noise_of(np.repeat(who, len(some)), np.tile(some, len(who))).mean())
        )
        for who in (np.array([row]), others)
    )
    best = np.lexsort((-served.items.counts[rated], -value))[:n]
    ids = served.model.item_ids_
    return {
        "model_version": served.version,
        "notes": [],
        "user": served.model.user_ids_[row],
        "n_ratings": len(rated),
        "mean_rating": float(value.mean()) if len(value) else None,
        "noise": noise,
        "usual_noise": usual,
        "ratings": [_named(served, ids[int(rated[k])]) | {"rating": float(value[k])} for k in best],
    }


# -- shared by several answers --------------------------------------------------------------------


def _sent(
    served: Served, ratings: Sequence[schemas.SentRating] | None
) -> list[tuple[Any, float]] | None:
    """Ratings as the library takes them; refused if none is of a known item."""
    if ratings is None:
        return None
    pairs = [(one.item, one.rating) for one in ratings]
    if pairs and not (served.model.item_ids_.lookup([item for item, _ in pairs]) >= 0).any():
        raise ProblemError(
            422,
            "none of the rated items is in the training data: send ratings of the model's items, "
            "which /v1/items lists",
            "ratings",
        )
    return pairs


def _model(served: Served, users: Any, ratings: Any) -> BayesianMF:
    """The model, with sent ratings folded in for all that is asked about their person."""
    if ratings is None:
        return served.model
    made: BayesianMF = folded_in(served.model, users, ratings)
    return made


def _user_row(served: Served, user: Any, ratings: Any) -> int:
    """Row number of a user; -1 for one who is known by the sent ratings alone."""
    row = -1 if user is None else served.model.user_ids_.index(user)
    if row < 0 and ratings is None:
        why = "is not in the training data"
        if not len(served.model.user_ids_):
            why = "is unknown, as the model was saved without its users"
        raise ProblemError(
            404, f"user {user!r} {why}: POST to /v1/recommend or /v1/predict with `ratings`", "user"
        )
    return row


def _item_row(served: Served, item: Any) -> int:
    row = served.model.item_ids_.index(item)
    if row < 0:
        raise ProblemError(
            404, f"item {item!r} is not in the training data: /v1/items lists its items", "item"
        )
    return row


def _named(served: Served, item: Any, info: bool = False) -> dict[str, Any]:
    """An item with its title, and with its other columns if `info`."""
    ids = served.model.item_ids_
    row = ids.index(item)
    title = served.items.title(row) if row >= 0 else None
    named: dict[str, Any] = {"item": ids[row] if row >= 0 else item, "title": title}
    if info:
        named["info"] = served.items.info(row) if row >= 0 else {}
    return named


def _add_likely(
    levels: list[float], proba: Any, level: float, predictions: list[dict[str, Any]]
) -> None:
    """Add the shortest run of levels that holds a rating with probability `level`."""
    runs = zip(*(column.tolist() for column in shortest_runs(proba, level)), strict=True)
    for one, (first, last, held) in zip(predictions, runs, strict=True):
        one["likely"] = {"low": levels[first], "high": levels[last], "probability": held}


def _add_parts(
    model: BayesianMF, users: Any, items: list[Any], predictions: list[dict[str, Any]]
) -> None:
    """Split each standard deviation into uncertainty and noise."""
    pairs, posterior = model._pairs(users, items)
    noise = posterior.noise_of(pairs.user, pairs.item)
    for one, variance in zip(predictions, noise.tolist(), strict=True):
        one["noise"] = variance**0.5
        one["unknown"] = max(one["std"] ** 2 - variance, 0.0) ** 0.5
