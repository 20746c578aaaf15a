"""What the files of packed ratings must hold, so that kernels can index with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from bayesmf.kernels.csr import MOST_LEVELS
from bayesmf.storage.contents import (
    ASCENDING,
    FINITE,
    NUMBER,
    WHOLE,
    Expected,
    below,
    check_plain,
    ids_expected,
    starts_misfit,
)

SIDES = ("user", "item")
LISTS = ("starts", "other", "value")

_META = {
    "n_ratings": WHOLE, "n_users": WHOLE, "n_items": WHOLE, "low": NUMBER, "high": NUMBER,
    "mean": NUMBER, "squared_deviations": NUMBER, "levels": (None, [NUMBER]),
}  # fmt: skip


def packed_expected(
    arrays: Mapping[str, NDArray[Any]], meta: dict[str, Any]
) -> Mapping[str, Expected]:
    """What each array of packed ratings must be; ValueError where that does not fit together."""
    _check_meta(meta)
    n, levels = meta["n_ratings"], meta["levels"]
    expected: dict[str, Expected] = {}
    sizes = meta["n_users"], meta["n_items"]
    values = (
        Expected("f4", (n,), FINITE) if levels is None else Expected("u1", (n,), below(len(levels)))
    )
    for side, n_rows, n_others in zip(SIDES, sizes, sizes[::-1], strict=True):
        ids, n_ids = ids_expected(arrays, side)
        if n_ids != n_rows or starts_misfit(arrays[f"by_{side}_starts"], n):
            raise ValueError(f"by_{side}_starts.npy does not fit the ratings and their {side}s")
        expected |= ids
        expected[f"by_{side}_starts"] = Expected("i8", (n_rows + 1,), ASCENDING)
        expected[f"by_{side}_other"] = Expected("i4", (n,), below(n_others))
        expected[f"by_{side}_value"] = values
    return expected


def _check_meta(meta: dict[str, Any]) -> None:
    check_plain(meta, _META, "meta")
    levels = meta["levels"]
    if min(meta["n_ratings"], meta["n_users"], meta["n_items"]) < 1:
        raise ValueError("meta tells of no ratings")
    if meta["low"] > meta["high"] or meta["squared_deviations"] < 0:
        raise ValueError("meta.low, meta.high and the moments are not those of ratings")
    if levels is not None and not (0 < len(levels) <= MOST_LEVELS and levels == sorted(levels)):
        raise ValueError("meta.levels are not those of ratings")
