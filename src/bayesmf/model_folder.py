"""A fitted model to a folder, and back."""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np

import bayesmf
from bayesmf import storage
from bayesmf.draws import Draws
from bayesmf.errors import InputError
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
    posterior = model.posterior_
    arrays = posterior.draws.arrays()
    arrays |= {"seen_starts": model._seen.starts, "seen_items": model._seen.items}
    arrays["history"] = history_array(model.history_)
    for side, ids in (("user", model.user_ids_), ("item", model.item_ids_)):
        arrays |= {f"{side}_id_{k}": v for k, v in ids.to_arrays().items()}
    units = {k: getattr(posterior, k) for k in ("n_factors", "center", "scale", "low", "high")}
    made = model.get_params(deep=False)
    meta = {
        "bayesmf": bayesmf.__version__,
        "units": units,
        "report": model.report_,
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
        model._seen = Seen(arrays["seen_starts"], arrays["seen_items"])
        posterior = Posterior(Draws.from_arrays(arrays), model._seen, **meta["units"])
        for side in ("user", "item"):
            prefix = f"{side}_id_"
            parts = {k[len(prefix) :]: v for k, v in arrays.items() if k.startswith(prefix)}
            setattr(model, f"{side}_ids_", IdMap.from_arrays(parts))
    except (KeyError, TypeError) as error:
        raise InputError(f"{path} lacks a part of a model ({error}): fit again") from None
    model.report_ = report
    # Folders of earlier versions have none.
    columns = meta.get("history", ())
    model.history_ = history_events(columns, arrays["history"]) if columns else []
    posterior.check(len(model.user_ids_), len(model.item_ids_), str(path))
    model.posterior_ = posterior
    model._verification = Verification(claims)
    return model


def _plain(value: Any) -> Any:
    """A NumPy scalar as Python's own, for JSON."""
    return value.item() if isinstance(value, np.generic) else value
