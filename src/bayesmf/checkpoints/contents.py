"""What the files of a checkpoint must hold, so that a chain can go on from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from bayesmf.chains.chain import Chain
from bayesmf.model.contents import draws_expected
from bayesmf.model.noise import N_PARAMETERS
from bayesmf.storage.contents import (
    ANY,
    ASCENDING,
    FLAG,
    POSITIVE,
    TEXT,
    USABLE,
    WHOLE,
    Expected,
    check_plain,
)

_META = {
    "chain": {
        "state": {
            "tau": TEXT, "sse": TEXT, "count": WHOLE, "visits": [[WHOLE]], "pace": TEXT,
            "repairs": WHOLE, "safe_tau?": TEXT, "version?": WHOLE, "safe_version?": WHOLE,
        },
        "keeping": {
            "burning": FLAG, "first?": WHOLE, "n_rounds?": WHOLE, "n_draws?": WHOLE, "every?": WHOLE
        },
        "mean": (None, [(WHOLE, [WHOLE])]), "t": WHOLE, "epoch": WHOLE, "kept": WHOLE,
        "rmse": (TEXT, None), "since_epoch": [(TEXT, WHOLE)], "ratings_read": WHOLE,
        "told_to_stop": FLAG, "seconds": TEXT, "listeners": {},
    },
    "room": WHOLE,
    "batches": [[(TEXT, WHOLE)]],
    "of?": TEXT,
}  # fmt: skip


def check_snapshot(meta: dict[str, Any], most_room: int) -> None:
    """Raise ValueError where plain values of a checkpoint are not what they must be."""
    check_plain(meta, _META, "meta")
    chain, keeping = meta["chain"], meta["chain"]["keeping"]
    numbers = [meta["room"], chain["t"], chain["epoch"], chain["kept"], chain["ratings_read"]]
    if min(numbers) < 0 or meta["room"] > most_room:
        raise ValueError("meta counts what cannot be counted so")
    if min(keeping.get(name, 1) for name in ("n_rounds", "n_draws", "every")) < 1:
        raise ValueError("meta.chain.keeping keeps nothing")
    for name, text in (*chain.items(), *chain["state"].items()):
        if name in ("tau", "safe_tau", "sse", "pace", "seconds") and not 0 <= _number(text) < 1e300:
            raise ValueError(f"meta.chain {name} is not a number that can be used")
    if min(_number(chain["state"].get(name, "1")) for name in ("tau", "safe_tau", "pace")) <= 0:
        raise ValueError("meta.chain.state has a precision that is not positive")
    sse, count = chain["since_epoch"] if len(chain["since_epoch"]) == 2 else (None, None)
    if not isinstance(sse, str) or not isinstance(count, int) or not 0 <= _number(sse) < 1e300:
        raise ValueError("meta.chain.since_epoch is not a sum and a count")
    if any(len(batch) != 3 or batch[2] < 1 for batch in meta["batches"]):
        raise ValueError("meta.batches are not those of draws")


def _number(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        raise ValueError(f"{text[:20]} is not a number") from None


class Expecting:
    """What the arrays of a chain's checkpoints and of its batches of draws must be."""

    def __init__(self, chain: Chain) -> None:
        prior, shape = chain.state.precisions.users, chain.run.shape
        width = len(prior.mu)
        self._users, self._items = (
            Expected("f4", (n, width)) for n in (shape.n_users, shape.n_items)
        )
        self._mu = Expected("f8", prior.mu.shape)
        full = prior.Lambda.ndim == 2
        self._lambda = Expected("f8", prior.Lambda.shape, USABLE if full else POSITIVE)
        self._width, self._factors = width, chain.settings.n_factors
        self._noisy = chain.settings.noise_by
        self._most_room, self._keep = max(1, chain.run.store.per_chain), chain.run.store.keep

    def chain(
        self, arrays: Mapping[str, NDArray[Any]], meta: dict[str, Any]
    ) -> Mapping[str, Expected]:
        """Rules for the arrays of a checkpoint."""
        check_snapshot(meta, self._most_room)
        expected: dict[str, Expected] = {}
        for prefix in ("", "safe_", "means_"):
            if not prefix or f"{prefix}users" in arrays:
                expected |= {f"{prefix}users": self._users, f"{prefix}items": self._items}
        if "momenta_users" in arrays:
            # A rule may have a thermostat beside the momenta of a row.
            more = arrays["momenta_users"].shape[-1:] == (self._width + 1,)
            for side, rows in (("users", self._users), ("items", self._items)):
                expected[f"momenta_{side}"] = Expected("f4", (rows.shape[0], self._width + more))
        for prefix in ("", "safe_"):
            if not prefix or f"{prefix}user_mu" in arrays:
                for side in ("user", "item"):
                    expected[f"{prefix}{side}_mu"] = self._mu
                    expected[f"{prefix}{side}_lambda"] = self._lambda
                    own = f"{prefix}{side}_tau"
                    if self._noisy in (side, "both"):
                        n = (self._users if side == "user" else self._items).shape[0]
                        expected[own] = Expected("f4", (n,), POSITIVE)
                        expected[f"{own}_prior"] = Expected("f8", (2,), POSITIVE)
                        if f"{own}_sums" in arrays:
                            expected[f"{own}_sums"] = Expected("f8", (4,), ANY)
        if "moments_users" in arrays:
            widths = (self._factors,), (self._width,)
            shape = arrays["moments_users"].shape
            moments = Expected("f8", shape if shape in widths else widths[0])
            expected |= {"moments_users": moments, "moments_items": moments}
        return expected | self._traces(arrays)

    def _traces(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, Expected]:
        """Rules for traces of errors and predictions: any length, the same for all of a kind."""
        expected = {
            name: Expected("f8", (arrays[name].size,), ANY)
            for name in ("train_rmse", "validation_rmse")
        }
        for name in ("keeping_at", "keeping_probed_at"):
            if name in arrays:
                expected[name] = Expected("i8", (arrays[name].size,), ASCENDING)
        if "keeping_expected" in arrays:
            probed = expected["keeping_probed_at"].shape
            pairs = Expected("f4", (*probed, *arrays["keeping_expected"].shape[1:2]))
            expected |= {"keeping_expected": pairs, "keeping_drawn": pairs}
            if "keeping_noise" in arrays:  # of which NaN is what there is none of
                expected["keeping_noise"] = Expected("f8", (*probed, N_PARAMETERS + 1), ANY)
        if "mean_totals" in arrays:
            expected["mean_totals"] = Expected("f4", arrays["mean_totals"].shape[:2])
        return expected

    def batch(
        self, arrays: Mapping[str, NDArray[Any]], meta: dict[str, Any]
    ) -> Mapping[str, Expected]:
        """Rules for the arrays of a batch of draws."""
        for side in ("user", "item"):
            if (f"{side}_tau_prior" in arrays) != (self._noisy in (side, "both")):
                raise ValueError("draws have not the noise that the run has")
        return draws_expected(
            arrays, self._users.shape[0], self._items.shape[0], self._width, self._lambda.shape,
            self._keep,
        )  # fmt: skip
