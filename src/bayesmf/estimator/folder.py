"""Save a fitted model to a folder, and load it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np

from bayesmf import __version__
from bayesmf.chains.history import HISTORY_COLUMNS, history_array, history_events
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
from bayesmf.storage.reader import open_folder
from bayesmf.storage.verify import Verification, close_all, verify_all
from bayesmf.storage.writer import Standing, write_folder

NO_IDS = np.empty(0, np.int64)
# Arrays that only answers need: nearly all bytes of a model, none of which a load has to read.
LARGE = (*ROWS, *ROW_NOISE, "seen_starts", "seen_items", "seen_values")


def save_model(
    model: Any,
    path: str | PathLike[str],
    users: bool = True,
    max_draws: int | None = None,
    instead_of: Standing | None = None,
) -> None:
    """Write a fitted model to a folder; without `users` nothing about any of them.

    With `instead_of` only if that is what stands there still.
    """
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
    held = "all" if posterior.has_ratings else "pairs"
    units = {k: getattr(posterior, k) for k in ("n_factors", "center", "scale", "low", "high")}
    made = model.get_params(deep=False)
    meta = {
        "bayesmf": __version__,
        "units": units,
        "report": {**found.report, "draws": len(arrays["tau"])},
        "history": HISTORY_COLUMNS,
        "params": {name: _plain(made[name]) for name in SAVED_PARAMS},
        "holds": {
            "keep": next(name for name, sides in SIDES.items() if set(sides) == kept),
            "ratings": held if people else "none",
        },
    }
    if not people and (levels := levels_of(posterior)) is not None:
        # Found from the ratings, which are left out.
        meta["levels"] = {name: list(numbers) for name, numbers in levels._asdict().items()}
    write_folder(path, arrays, meta, instead_of=instead_of)


def _saved_draws(draws: Draws, users: bool, most: int | None) -> Draws:
    """The draws that are saved: perhaps not all, perhaps without users' rows."""
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
    """What is saved of the ratings: by user and coded, or how many each item has."""
    if not people:
        return {"item_counts": ratings.item_counts()}
    lists = ratings.by_user
    arrays = {"seen_starts": lists.starts, "seen_items": lists.other}
    if ratings.has_values:
        arrays["seen_values"] = lists.value
        if lists.value.dtype == np.uint8:
            arrays["levels"] = ratings.levels
    return arrays


def load_model(kind: type[Any], path: str | PathLike[str], verify: bool, mmap: bool) -> Any:
    """Load a model whose large arrays are still under verification."""
    for name, given in (("verify", verify), ("mmap", mmap)):
        if not isinstance(given, bool):
            raise InputError(f"{name} must be True or False, not {given!r}")
    mode = "r" if mmap else None
    arrays, meta, claims, _ = open_folder(path, expects=model_expected, mode=mode)
    if not verify:  # leaves out digests alone: numbers are checked all the same
        claims = {name: claim._replace(sha256=None) for name, claim in claims.items()}
    # What is mapped is verified beside other work; what was read is verified now.
    later = LARGE if mmap else ()
    try:
        verify_all(claims[name] for name in claims if name not in later)
        model, found = _made(kind, path, arrays, meta)
    except BaseException:
        close_all(claims.values())
        raise
    large = [claims[name] for name in later if name in claims]
    model._found = found._replace(verification=Verification(large))
    return model


def _made(
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
            **{"noise_by": None, **meta["params"]},  # of earlier versions: one number for all
        )
    except (InputError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} names no sampler that is known ({error}): fit again") from None
    items = IdMap.from_arrays(arrays, "item_id_")
    ratings = _ratings_of(arrays, len(items))
    if ratings.counts is not None and ratings.counts.sum() != report["ratings"]:
        raise InputError(f"{path} holds counts of other ratings than it tells of: fit again")
    levels = None
    if "levels" in meta:
        levels = RatingLevels(tuple(meta["levels"]["levels"]), tuple(meta["levels"]["edges"]))
    posterior = Posterior(Draws.from_arrays(arrays), ratings, **meta["units"], levels=levels)
    if not (precise(posterior.draws.user_Lambda) and precise(posterior.draws.item_Lambda)):
        raise InputError(f"{path} holds matrices that are no precisions: fit again")
    users = IdMap.from_arrays(arrays, "user_id_") if ratings.has_users else IdMap(NO_IDS)
    columns = meta.get("history", ())
    history = history_events(columns, arrays["history"]) if columns else []
    return model, FitResult(posterior, users, items, history, report)


def _ratings_of(arrays: Mapping[str, Any], n_items: int) -> TrainingData:
    """The ratings that a folder holds, or what it holds in their place."""
    if "item_counts" in arrays:
        return TrainingData.without_users(np.array(arrays["item_counts"]))
    lists = RowLists(arrays["seen_starts"], arrays["seen_items"], arrays.get("seen_values"))
    return TrainingData(lists, n_items, np.array(arrays.get("levels", np.zeros(1, np.float32))))


def _plain(value: Any) -> Any:
    """A NumPy scalar as Python's own, for JSON."""
    return value.item() if isinstance(value, np.generic) else value
