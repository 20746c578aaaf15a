"""A fitted model to a folder, and back."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

import numpy as np

import bayesmf
from bayesmf import storage
from bayesmf.draws import Draws
from bayesmf.errors import InputError
from bayesmf.fitted import Found
from bayesmf.history import HISTORY_COLUMNS, history_array, history_events
from bayesmf.ids import IdMap
from bayesmf.posterior import Posterior
from bayesmf.samplers import sampler_from
from bayesmf.seen import Seen
from bayesmf.verifying import Verification

# Constructor arguments that a model folder keeps as they are; the rest is in its report.
SAVED_PARAMS = (
    "target", "max_seconds", "prior", "tau", "alpha_0", "beta_0", "standardize", "max_draws",
)  # fmt: skip
# Arrays that answers alone are made of: nearly all bytes, and nothing of them is read in a load.
LARGE = ("users", "items", "user_means", "item_means", "seen_starts", "seen_items")


def save_model(model: Any, path: str | PathLike[str]) -> None:
    """Write a fitted model to a folder."""
    found = model._fitted()
    posterior = found.posterior
    arrays = posterior.draws.arrays()
    arrays |= {"seen_starts": found.seen.starts, "seen_items": found.seen.items}
    arrays["history"] = history_array(found.history)
    for side, ids in (("user", found.user_ids), ("item", found.item_ids)):
        arrays |= {f"{side}_id_{k}": v for k, v in ids.to_arrays().items()}
    units = {k: getattr(posterior, k) for k in ("n_factors", "center", "scale", "low", "high")}
    made = model.get_params(deep=False)
    meta = {
        "bayesmf": bayesmf.__version__,
        "units": units,
        "report": found.report,
        "history": HISTORY_COLUMNS,
        "params": {name: _plain(made[name]) for name in SAVED_PARAMS},
    }
    storage.write_folder(path, arrays, meta)


def load_model(kind: type[Any], path: str | PathLike[str], verify: bool) -> Any:
    """A model of a folder, the digests of its large arrays still being compared if asked for."""
    if not isinstance(verify, bool):
        raise InputError(f"verify must be True or False; got {verify!r}")
    arrays, meta, claims = storage.open_folder(path, later=LARGE if verify else None)
    try:
        report = meta["report"]
        # As it was resolved: a fit of the loaded model repeats the fit that was saved.
        model = kind(
            n_factors=report["factors"],
            sampler=sampler_from(report["sampler"]),
            random_state=report["seed"],
            **meta["params"],
        )
        seen = Seen(arrays["seen_starts"], arrays["seen_items"])
        posterior = Posterior(Draws.from_arrays(arrays), seen, **meta["units"])
        users, items = (_ids(arrays, f"{side}_id_") for side in ("user", "item"))
    except (KeyError, TypeError) as error:
        raise InputError(f"{path} lacks a part of a model ({error}): fit again") from None
    posterior.check(len(users), len(items), str(path))
    # Folders of earlier versions have none.
    columns = meta.get("history", ())
    history = history_events(columns, arrays["history"]) if columns else []
    verification = Verification(claims)
    model._found = Found(posterior, users, items, seen, history, report, verification)
    return model


def _ids(arrays: Mapping[str, Any], prefix: str) -> IdMap:
    parts = {k[len(prefix) :]: v for k, v in arrays.items() if k.startswith(prefix)}
    return IdMap.from_arrays(parts)


def _plain(value: Any) -> Any:
    """A NumPy scalar as Python's own, for JSON."""
    return value.item() if isinstance(value, np.generic) else value
