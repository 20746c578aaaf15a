"""What the files of a model must hold, so that nothing is computed from what cannot be one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.storage.contents import (
    ANY,
    ANYTHING,
    ASCENDING,
    FLAG,
    NUMBER,
    POSITIVE,
    TEXT,
    USABLE,
    WHOLE,
    Expected,
    Rule,
    below,
    check_plain,
    ids_expected,
    starts_misfit,
)

_MAYBE = (NUMBER, None)
_UNITS = {"n_factors": WHOLE, "center": NUMBER, "scale": NUMBER, "low": NUMBER, "high": NUMBER}
_REPORT = {
    "ratings": WHOLE, "users": WHOLE, "items": WHOLE, "factors": WHOLE, "prior": TEXT,
    "sampler": {"rule": TEXT}, "target?": (TEXT, None), "max_seconds?": _MAYBE, "seed": WHOLE,
    "seconds": NUMBER, "compile_seconds?": NUMBER, "epochs": NUMBER, "draws": WHOLE,
    "ratings_per_second?": NUMBER, "tau": NUMBER, "repairs?": WHOLE, "step_size?": _MAYBE,
    "validation_rmse?": _MAYBE, "engine?": ANYTHING,
    "convergence?": (None, {
        "state?": TEXT, "converged?": (FLAG, None), "verdict?": TEXT, "advice?": TEXT,
        "loss?": _MAYBE, "rhat?": _MAYBE, "ess?": _MAYBE, "limit?": _MAYBE, "passes?": WHOLE,
        "chains?": WHOLE, "draws?": WHOLE, "epochs?": NUMBER, "target?": (TEXT, None),
        "rule?": TEXT, "ended_by?": (TEXT, None),
    }),
}  # fmt: skip
# Constructor arguments that a model folder keeps as they are; the rest is in its report.
_PARAMS = {
    "target?": (TEXT, None), "max_seconds?": _MAYBE, "prior?": TEXT, "tau?": (TEXT, NUMBER),
    "alpha_0?": NUMBER, "beta_0?": NUMBER, "standardize?": FLAG, "max_draws?": (WHOLE, None),
}  # fmt: skip
SAVED_PARAMS = tuple(name.removesuffix("?") for name in _PARAMS)
_META = {"units": _UNITS, "report": _REPORT, "params": _PARAMS, "history?": [TEXT]}


def check_meta(meta: dict[str, Any]) -> None:
    """Raise ValueError where the meta data of a model are not of the types they must be."""
    check_plain(meta, _META, "meta")
    units = meta["units"]
    # Squares of these are computed with in single precision.
    large = max(abs(units[name]) for name in ("center", "scale", "low", "high")) > 1e19
    # The center is the mean of ratings, rounded.
    dust = 1e-6 * max(abs(units["low"]), abs(units["high"]))
    inside = units["low"] - dust <= units["center"] <= units["high"] + dust
    if units["n_factors"] < 1 or units["scale"] <= 0 or not inside or large:
        raise ValueError("meta.units are not those of ratings")
    if extra := sorted(set(meta["params"]) - set(SAVED_PARAMS)):
        raise ValueError(f"meta.params.{extra[0]} is no parameter of a model")


def draws_expected(
    arrays: Mapping[str, NDArray[Any]],
    n_users: int,
    n_items: int,
    width: int,
    Lambda_shape: tuple[int, ...],
) -> dict[str, Expected]:
    """What arrays of draws must be, their number being that of `tau`."""
    n = arrays["tau"].size
    Lambda = Expected("f8", (n, *Lambda_shape), USABLE if len(Lambda_shape) == 2 else POSITIVE)
    mu = Expected("f8", (n, width))
    expected = {
        "users": Expected("f4", (n, n_users, width)), "items": Expected("f4", (n, n_items, width)),
        "user_mu": mu, "item_mu": mu, "user_lambda": Lambda, "item_lambda": Lambda,
        "tau": Expected("f8", (n,), POSITIVE), "chain": Expected("i8", (n,), _CHAINS),
    }  # fmt: skip
    if "user_means" in arrays or "item_means" in arrays:
        expected |= {"user_means": expected["users"], "item_means": expected["items"]}
    return expected


def model_expected(
    arrays: Mapping[str, NDArray[Any]], meta: dict[str, Any]
) -> Mapping[str, Expected]:
    """What each array of a model must be; ValueError where that does not fit together."""
    check_meta(meta)
    report, n_factors = meta["report"], meta["units"]["n_factors"]
    (user_ids, n_users), (item_ids, n_items) = (ids_expected(arrays, s) for s in ("user", "item"))
    n_ratings = arrays["seen_items"].size
    width = n_factors + (arrays["users"].shape[-1:] == (n_factors + 1,))
    full = arrays["user_lambda"].ndim == 3
    shape = (width, width) if full else (width,)
    expected = draws_expected(arrays, n_users, n_items, width, shape)
    expected |= {
        "seen_starts": Expected("i8", (n_users + 1,), ASCENDING),
        "seen_items": Expected("i4", (n_ratings,), below(n_items)),
        **user_ids, **item_ids,
    }  # fmt: skip
    # Folders of earlier versions have none.
    columns = meta.get("history", [])
    if columns or "history" in arrays:
        rows = arrays["history"].shape[:1]
        expected["history"] = Expected("f8", (*rows, len(columns)), ANY)
    told = report["users"], report["items"], report["ratings"], report["draws"], report["factors"]
    if told != (n_users, n_items, n_ratings, arrays["tau"].size, n_factors) or 0 in told:
        raise ValueError("meta.report does not fit the arrays")
    if starts_misfit(arrays["seen_starts"], n_ratings):
        raise ValueError("seen_starts.npy does not fit seen_items.npy")
    return expected


def precise(Lambda: NDArray[np.float64]) -> bool:
    """Whether precisions are matrices that belong to distributions."""
    if Lambda.ndim < 3:
        return True  # the rule has seen them
    try:
        np.linalg.cholesky(Lambda)
    except np.linalg.LinAlgError:
        return False
    return True


_CHAINS = Rule(
    lambda piece, before: bool(piece[0] >= (before or 0) and ASCENDING.holds(piece, before)),
    "is not a list of chains",
)
