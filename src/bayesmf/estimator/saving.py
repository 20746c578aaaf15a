"""A fitted model saved to a file, and loaded from one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np

from bayesmf import __version__
from bayesmf.chains.callbacks import HISTORY_COLUMNS, history_array, history_events
from bayesmf.checks import whole, yes_or_no
from bayesmf.data.training import TrainingData
from bayesmf.errors import InputError
from bayesmf.estimator.fitted import FitResult
from bayesmf.ids.id_map import IdMap
from bayesmf.kernels.csr import RowLists
from bayesmf.model.contents import SAVED_PARAMS, model_expected, precise
from bayesmf.model.draws import ROW_NOISE, ROWS, SIDES, Draws, RatingLevels, spread_evenly
from bayesmf.posterior.levels import levels_of
from bayesmf.posterior.posterior import Posterior
from bayesmf.samplers.base import check_settings
from bayesmf.samplers.registry import sampler_from
from bayesmf.storage.artefact import MODEL, open_file, write_file

NO_IDS = np.empty(0, np.int64)
UNITS = ("n_factors", "center", "scale", "low", "high")
# Large arrays, verified in the background: `load` does not wait for them.
LARGE = (*ROWS, *ROW_NOISE, "seen_starts", "seen_items", "seen_values")


def save_model(
    model: Any, path: str | PathLike[str], users: bool = True, max_draws: int | None = None
) -> None:
    """Write a fitted model to a file; without `users`, nothing about users."""
    found, users = model._fitted(), yes_or_no("users", users)
    most = None if max_draws is None else whole("max_draws", max_draws)
    posterior, people = found.posterior, users and found.posterior.ratings.has_users
    arrays = _saved_draws(posterior.draws, users, most).arrays()
    arrays |= _ratings_arrays(posterior.ratings, people)
    arrays["history"] = history_array(found.history)
    for side, ids in (("user", found.user_ids), ("item", found.item_ids)):
        if people or side == "item":
            arrays |= {f"{side}_id_{k}": v for k, v in ids.to_arrays().items()}
    kept = {name for name in ("users", "items") if name in arrays}
    units = {name: getattr(posterior, name) for name in UNITS}
    made = model.get_params(deep=False)
    meta = {
        "bayesmf": __version__,
        "units": units,
        "report": {**found.report, "draws": len(arrays["tau"])},
        "history": HISTORY_COLUMNS,
        "params": {name: _plain(made[name]) for name in SAVED_PARAMS},
        "holds": {
            "keep": next(name for name, sides in SIDES.items() if set(sides) == kept),
            "ratings": "all" if people else "none",
        },
    }
    if not people and (levels := levels_of(posterior)) is not None:
        # Computed from the ratings, which are not saved.
        meta["levels"] = {name: list(numbers) for name, numbers in levels._asdict().items()}
    write_file(path, MODEL, arrays, meta)


def _saved_draws(draws: Draws, users: bool, most: int | None) -> Draws:
    """The draws to save: at most `most`, perhaps without rows of users."""
    if not users:
        if draws.items is None:
            raise InputError(
                'this model keeps draws of users and none of items (keep="users"), so that without '
                'users nothing would be left of it: fit it with keep="items"'
            )
        draws = replace(draws, users=None, user_means=None, user_tau=None)
    if most is None or most >= len(draws):
        return draws
    return draws.select(spread_evenly(draws.chain, most))


def _ratings_arrays(ratings: TrainingData, people: bool) -> dict[str, Any]:
    """Arrays of the ratings: coded, by user; or only the number of ratings of each item."""
    if not people:
        return {"item_counts": ratings.item_counts()}
    lists = ratings.by_user
    arrays = {
        "seen_starts": lists.starts, "seen_items": lists.other, "seen_values": lists.value,
    }  # fmt: skip
    if lists.value.dtype == np.uint8:
        arrays["levels"] = ratings.levels
    return arrays


def load_model(kind: type[Any], path: str | PathLike[str], verify: bool, mmap: bool) -> Any:
    """Load a model whose large arrays are still under verification."""
    for name, given in (("verify", verify), ("mmap", mmap)):
        if not isinstance(given, bool):
            raise InputError(f"{name} must be True or False, not {given!r}")
    arrays, meta, verification, _ = open_file(
        path, MODEL, model_expected, "r" if mmap else None, digests=verify
    )
    try:
        # Mapped arrays are verified in the background, read arrays now.
        if not mmap:
            verification.begin()
        verification.wait([n for n in arrays if n not in LARGE] if mmap else None)
        model, found = _build_model(kind, path, arrays, meta)
        verification.begin()
    except BaseException:
        verification.close()
        raise
    model._found = found._replace(verification=verification)
    return model


def _build_model(
    kind: type[Any], path: str | PathLike[str], arrays: Mapping[str, Any], meta: dict[str, Any]
) -> tuple[Any, FitResult]:
    """Make the model from arrays and meta data that were checked."""
    report = meta["report"]
    try:
        # With resolved settings a fit of the loaded model repeats the fit that was saved.
        model = kind(
            n_factors=report["factors"],
            sampler=check_settings(sampler_from(report["sampler"])),
            random_state=report["seed"],
            **meta["params"],
        )
    except (InputError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} names an unknown sampler ({error}): fit again") from None
    items = IdMap.from_arrays(arrays, "item_id_")
    ratings = _ratings_of(arrays, len(items))
    if ratings.counts is not None and ratings.counts.sum() != report["ratings"]:
        raise InputError(f"{path} holds counts of other ratings than its report: fit again")
    levels = None
    if "levels" in meta:
        levels = RatingLevels(tuple(meta["levels"]["levels"]), tuple(meta["levels"]["edges"]))
    units = {name: meta["units"][name] for name in UNITS}
    posterior = Posterior(Draws.from_arrays(arrays), ratings, **units, levels=levels)
    if not (precise(posterior.draws.user_Lambda) and precise(posterior.draws.item_Lambda)):
        raise InputError(f"{path} holds matrices that are not positive definite: fit again")
    users = IdMap.from_arrays(arrays, "user_id_") if ratings.has_users else IdMap(NO_IDS)
    history = history_events(meta["history"], arrays["history"])
    return model, FitResult(posterior, users, items, history, report)


def _ratings_of(arrays: Mapping[str, Any], n_items: int) -> TrainingData:
    """The ratings of a model, or the number of ratings of each item."""
    if "item_counts" in arrays:
        return TrainingData.without_users(np.array(arrays["item_counts"]))
    lists = RowLists(arrays["seen_starts"], arrays["seen_items"], arrays["seen_values"])
    return TrainingData(lists, n_items, np.array(arrays.get("levels", np.zeros(1, np.float32))))


def _plain(value: Any) -> Any:
    """A NumPy scalar as Python's own, for JSON."""
    return value.item() if isinstance(value, np.generic) else value
