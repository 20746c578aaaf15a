"""Ratings that are added to a fitted model: what `partial_fit` does."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from bayesmf.data.ratings import Ratings
from bayesmf.data.training import add_ratings
from bayesmf.errors import InputError
from bayesmf.estimator.fitted import FitResult
from bayesmf.estimator.questions import check_scale, outside
from bayesmf.ids.id_map import MergedIds, merge_ids
from bayesmf.packed.ratings import PackedRatings
from bayesmf.posterior.posterior import Posterior
from bayesmf.process import counting
from bayesmf.run.carried_rows import MUCH_NEW
from bayesmf.run.settings import GAMMA, WISHART, FitSettings
from bayesmf.run.update import Addition, update_draws
from bayesmf.samplers.base import Sampler
from bayesmf.samplers.gibbs import Auto, Gibbs
from bayesmf.samplers.registry import sampler_from


def update_fit(
    model: Any,
    found: FitResult,
    more: Ratings | PackedRatings,
    threads: int | None,
    progress: bool | None,
) -> tuple[FitResult, list[str]]:
    """Add ratings to the result of a fit, which stays as it was.

    Returns the new result, and warnings as sentences.
    """
    begin = time.monotonic()
    if isinstance(more, PackedRatings):
        raise InputError("packed ratings are for fit: add ratings from a file or a table")
    sampler = _sampler(found)
    if not len(more):
        raise InputError("there are no ratings to add: give at least one")
    more = more.compact()
    ids = (
        merge_ids(found.user_ids, more.user_ids, "user"),
        merge_ids(found.item_ids, more.item_ids, "item"),
    )
    posterior, report = found.posterior, found.report
    check_scale(posterior, more.rating)
    added = _addition(posterior, more, *ids)
    low, high = more.range()
    number = report.get("updates", 0) + 1
    settings = FitSettings(
        n_factors=report["factors"],
        sampler=sampler,
        prior=report["prior"],
        tau=model.tau,
        noise_by=posterior.draws.noise_by,
        max_draws=len(posterior.draws),
        random_state=report["seed"],
        **{name: getattr(model, name) for name in GAMMA + WISHART},
    ).resolve(added.data, posterior.scale)
    with counting("adding ratings", len(posterior.draws), "draws", progress) as done:
        draws = update_draws(posterior.draws, added, settings, number, threads, done)
    made = replace(
        posterior,
        draws=draws,
        ratings=added.data,
        low=min(posterior.low, low),
        high=max(posterior.high, high),
    )
    now = report | {
        "ratings": len(added.data),
        "users": made.n_users,
        "items": made.n_items,
        "draws": len(draws),
        "tau": float(draws.tau.mean()) / posterior.scale**2,
        "noise_std": made.noise() ** 0.5,
        "updates": number,
        "update_seconds": time.monotonic() - begin,
    }
    warnings = [
        outside(posterior, more.rating, "ratings"),
        _large_share_warning(len(added), len(added.data)),
    ]
    return FitResult(made, ids[0].ids, ids[1].ids, found.history, now), [x for x in warnings if x]


def _sampler(found: FitResult) -> Sampler | Auto:
    """The Gibbs sampler of the fit, or the default one for draws of another sampler."""
    if found.report["sampler"]["rule"] == "SGD":
        raise InputError(
            "a model fitted by SGD has no draws to continue chains from: fit it again with all "
            "ratings, or use another sampler"
        )
    found.posterior.need_ratings("partial_fit")
    rule: Sampler = sampler_from(found.report["sampler"])
    return rule if isinstance(rule, Gibbs) else Auto()


def _addition(posterior: Posterior, more: Ratings, users: MergedIds, items: MergedIds) -> Addition:
    """The new ratings in the chain's units, among all ratings."""
    value = ((more.rating - posterior.center) / posterior.scale).astype(np.float32)
    user, item = users.new[more.user_rows], items.new[more.item_rows]
    sizes = len(users.ids), len(items.ids)
    data = add_ratings(
        posterior.ratings, (users.old, items.old), sizes,
        user.astype(np.int32), item.astype(np.int32), value,
    )  # fmt: skip
    new = np.bincount(user, minlength=sizes[0]), np.bincount(item, minlength=sizes[1])
    return Addition(data, (users.old, items.old), new)


def _large_share_warning(n_new: int, n_ratings: int) -> str:
    if n_new < MUCH_NEW * n_ratings:
        return ""
    return (
        f"{100 * n_new / n_ratings:.0f}% of the ratings are new or replaced: all draws were "
        "replaced; a fit with all ratings from the beginning is better"
    )
