"""Rules for the arrays and the metadata of a model, checked before anything is computed."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.kernels.csr import MOST_LEVELS
from bayesmf.model.draws import SIDES
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
    between,
    check_plain,
    ids_expected,
    once_in_rows,
    starts_misfit,
)

_MAYBE = (NUMBER, None)
_UNITS = {"n_factors": WHOLE, "center": NUMBER, "scale": NUMBER, "low": NUMBER, "high": NUMBER}
_REPORT = {
    "ratings": WHOLE, "users": WHOLE, "items": WHOLE, "factors": WHOLE, "prior": TEXT,
    "sampler": {"rule": TEXT}, "target?": (TEXT, None), "max_seconds?": _MAYBE, "seed": WHOLE,
    "seconds": NUMBER, "compile_seconds?": NUMBER, "epochs": NUMBER, "draws": WHOLE,
    "ratings_per_second?": NUMBER, "noise_by": (TEXT, None), "tau": NUMBER,
    "noise_std?": NUMBER, "repairs?": WHOLE, "step_size?": _MAYBE,
    "validation_rmse?": _MAYBE, "engine?": ANYTHING, "updates?": WHOLE, "update_seconds?": NUMBER,
    "convergence?": (None, {
        "state?": TEXT, "converged?": (FLAG, None), "verdict?": TEXT, "advice?": TEXT,
        "loss?": _MAYBE, "rhat?": _MAYBE, "rhat_noise?": _MAYBE,
        "slowest?": (TEXT, None), "ess?": _MAYBE, "limit?": _MAYBE, "passes?": WHOLE,
        "chains?": WHOLE, "draws?": WHOLE, "epochs?": NUMBER, "target?": (TEXT, None),
        "rule?": TEXT, "ended_by?": (TEXT, None), "burn_in?": TEXT,
    }),
}  # fmt: skip
# Constructor arguments that are saved as they are; the rest is in the report.
_PARAMS = {
    "target?": (TEXT, None), "max_seconds?": _MAYBE, "prior?": TEXT, "tau?": (TEXT, NUMBER),
    "alpha_0?": NUMBER, "beta_0?": NUMBER, "standardize?": FLAG, "max_draws?": (WHOLE, None),
    "keep?": TEXT, "noise_by?": (TEXT, None), "mu_0?": NUMBER, "kappa_0?": NUMBER,
    "nu_0?": _MAYBE, "W_0?": NUMBER,
}  # fmt: skip
SAVED_PARAMS = tuple(name.removesuffix("?") for name in _PARAMS)
# Side whose draws were kept, with all ratings saved, or without users.
_HELD = {"all": tuple(SIDES), "none": ("items",)}
_META = {
    "units": _UNITS, "report": _REPORT, "params": _PARAMS, "history": [TEXT],
    "holds": {"keep": TEXT, "ratings": TEXT},
    "levels?": {"levels": [NUMBER], "edges": [NUMBER]},
}  # fmt: skip


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
    if "levels" in meta:
        check_levels(**meta["levels"])
    if meta["report"].get("updates", 0) < 0:
        raise ValueError("meta.report.updates is not a number of updates")
    if extra := sorted(set(meta["params"]) - set(SAVED_PARAMS)):
        raise ValueError(f"meta.params.{extra[0]} is not a parameter of a model")
    holds = meta["holds"]
    keep, ratings = holds["keep"], holds["ratings"]
    if keep not in _HELD.get(ratings, ()):
        raise ValueError("meta.holds is not one of a model")
    # One that kept both sides may have been saved without users.
    asked = meta["params"].get("keep", "auto")
    if asked not in ("auto", keep) and (asked, ratings) != ("both", "none"):
        raise ValueError("meta.params.keep does not fit meta.holds.keep")


def check_levels(levels: list[float], edges: list[float]) -> None:
    """Raise ValueError where numbers are not levels of ratings with an edge between any two."""
    rising = all(a < b for a, b in itertools.pairwise(levels))
    in_order = all(a <= b for a, b in itertools.pairwise(edges))
    fitting = len(levels) == len(edges) + 1 <= MOST_LEVELS
    if not (rising and in_order and fitting) or any(abs(x) > 1e30 for x in levels + edges):
        raise ValueError("meta.levels are not those of ratings")


def draws_expected(
    arrays: Mapping[str, NDArray[Any]],
    n_users: int,
    n_items: int,
    width: int,
    Lambda_shape: tuple[int, ...],
    keep: str,
) -> dict[str, Expected]:
    """Expected arrays of draws; their number is that of `tau`."""
    n = arrays["tau"].size
    Lambda = Expected("f8", (n, *Lambda_shape), USABLE if len(Lambda_shape) == 2 else POSITIVE)
    mu = Expected("f8", (n, width))
    expected = {
        "user_mu": mu, "item_mu": mu, "user_lambda": Lambda, "item_lambda": Lambda,
        "tau": Expected("f8", (n,), POSITIVE), "chain": Expected("i8", (n,), _CHAINS),
    }  # fmt: skip
    sizes, sides = {"users": n_users, "items": n_items}, SIDES[keep]
    has_means = any(f"{side[:-1]}_means" in arrays for side in sides)
    for side in sides:
        rows = Expected("f4", (n, sizes[side], width))
        expected |= {side: rows, f"{side[:-1]}_means": rows} if has_means else {side: rows}
    for side, size in (("user", n_users), ("item", n_items)):
        if f"{side}_tau_prior" in arrays:
            expected[f"{side}_tau_prior"] = Expected("f8", (n, 2), POSITIVE)
            # All known on the kept side.
            kept = side == ("user" if keep == "users" else "item")
            rule = PRECISE if kept else PRECISE_OR_NAN
            expected[f"{side}_tau"] = Expected("f4", (n, size), rule)
    return expected


def model_expected(
    arrays: Mapping[str, NDArray[Any]], meta: dict[str, Any]
) -> Mapping[str, Expected]:
    """Expected arrays of a model; ValueError if they are inconsistent."""
    check_meta(meta)
    report, n_factors = meta["report"], meta["units"]["n_factors"]
    holds = meta["holds"]
    people = holds["ratings"] != "none"
    item_ids, n_items = ids_expected(arrays, "item")
    user_ids, n_users = ids_expected(arrays, "user") if people else ({}, report["users"])
    kept = arrays[SIDES[holds["keep"]][0]]
    width = n_factors + (kept.shape[-1:] == (n_factors + 1,))
    full = arrays["user_lambda"].ndim == 3
    shape = (width, width) if full else (width,)
    expected = draws_expected(arrays, n_users, n_items, width, shape, holds["keep"])
    expected |= {**user_ids, **item_ids}
    if not people:
        expected.pop("user_tau", None)
    own = report.get("noise_by")
    for side in ("user", "item"):
        if (f"{side}_tau_prior" in arrays) != (own in (side, "both")):
            raise ValueError("meta.report.noise_by does not fit the arrays")
    if report.get("updates", 0):  # ratings were added
        expected["missed"] = Expected("i8", arrays["tau"].shape, below(1 << 62))
    n_ratings = arrays["seen_items"].size if people else report["ratings"]
    if people:
        expected |= _rated_expected(arrays, n_users, n_items)
        expected |= _values_expected(arrays, meta["units"], n_ratings)
    else:
        expected["item_counts"] = Expected("i8", (n_items,), below(n_ratings + 1))
    rows = arrays["history"].shape[:1]
    expected["history"] = Expected("f8", (*rows, len(meta["history"])), ANY)
    sizes = report["users"], report["items"], report["ratings"], report["draws"], report["factors"]
    if sizes != (n_users, n_items, n_ratings, arrays["tau"].size, n_factors) or min(sizes) < 1:
        raise ValueError("meta.report does not fit the arrays")
    return expected


def _rated_expected(
    arrays: Mapping[str, NDArray[Any]], n_users: int, n_items: int
) -> dict[str, Expected]:
    """Expected lists of the items rated by users."""
    starts, n_ratings = arrays["seen_starts"], arrays["seen_items"].size
    if starts_misfit(starts, n_ratings):
        raise ValueError("seen_starts does not fit seen_items")
    return {
        "seen_starts": Expected("i8", (n_users + 1,), ASCENDING),
        "seen_items": Expected("i4", (n_ratings,), once_in_rows(n_items, starts)),
    }


def _values_expected(
    arrays: Mapping[str, NDArray[Any]], units: Mapping[str, float], n_ratings: int
) -> dict[str, Expected]:
    """Expected ratings: codes of levels, or numbers in the chain's units."""
    low, high = ((units[name] - units["center"]) / units["scale"] for name in ("low", "high"))
    dust = 1e-4 * max(1.0, abs(low), abs(high))
    # Limit of magnitude, far above any rating.
    rated = between(max(low - dust, -1e18), min(high + dust, 1e18))
    if arrays["seen_values"].dtype != np.uint8:
        return {"seen_values": Expected("f4", (n_ratings,), rated)}
    n = arrays["levels"].size
    if not 0 < n <= MOST_LEVELS:
        raise ValueError("levels holds none, or more than there are codes")

    def holds(piece: NDArray[Any], before: Any, at: int) -> bool:
        return ASCENDING.holds(piece, before, at) and rated.holds(piece, before, at)

    return {
        "seen_values": Expected("u1", (n_ratings,), below(n)),
        "levels": Expected("f4", (n,), Rule(holds, "is not a list of ratings, ascending")),
    }


def precise(Lambda: NDArray[np.float64]) -> bool:
    """Whether precisions are positive definite."""
    if Lambda.ndim < 3:
        return True  # the rule has seen them
    try:
        np.linalg.cholesky(Lambda)
    except np.linalg.LinAlgError:
        return False
    return True


# Two precisions are multiplied in float32.
PRECISE = Rule(lambda piece, *_: bool(_precise(piece).all()), POSITIVE.fault)
# NaN if drawn on demand: rows with new ratings (run/update.py).
PRECISE_OR_NAN = Rule(
    lambda piece, *_: bool((_precise(piece) | np.isnan(piece)).all()), POSITIVE.fault
)


def _precise(piece: NDArray[Any]) -> NDArray[np.bool_]:
    return np.asarray((piece > 1e-15) & (piece < 1e15))


_CHAINS = Rule(
    lambda piece, before, at: bool(
        piece[0] >= (before or 0) and ASCENDING.holds(piece, before, at)
    ),
    "is not a list of chains",
)
