"""Snapshots of a chain between two rounds: arrays and plain values, restored to the bit.

Draws are stored apart, in batches. The rules at the end check the files.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmf.chains.callbacks import Callback
from bayesmf.chains.chain import Chain, Errors
from bayesmf.chains.monitor import RunningMean
from bayesmf.chains.state import ChainState, ColumnSquares, Safe
from bayesmf.kernels.types import Rows
from bayesmf.model.contents import draws_expected
from bayesmf.model.noise import N_PARAMETERS, Noise, NoiseSums, RowNoise
from bayesmf.model.priors import Params, Precisions, RowPrior
from bayesmf.model.refs import Fetch, Pieces, shape_of, whole
from bayesmf.storage.contents import (
    ANY,
    ASCENDING,
    FINITE,
    FLAG,
    NUMBER,
    POSITIVE,
    TEXT,
    USABLE,
    WHOLE,
    Expected,
    check_plain,
)

Arrays = dict[str, NDArray[Any]]
Plain = dict[str, Any]


def take(chain: Chain) -> tuple[Arrays, Plain]:
    """A snapshot: all that the rest of a chain depends on, except settings, data and draws."""
    arrays, plain = _take_state(chain.state, chain.run.fetch)
    kept, how = chain.retention.export()
    arrays |= {f"keeping_{name}": a for name, a in (kept | chain.probe.export()).items()}
    arrays["train_rmse"] = np.array(chain.trace.train_rmse, np.float64)
    arrays["validation_rmse"] = np.array(chain.trace.validation_rmse, np.float64)
    mean = chain.monitor.means.get(chain.number)
    if mean is not None:
        arrays["mean_totals"] = np.array(mean.totals)
    return arrays, {
        "state": plain,
        "keeping": how,
        "mean": None if mean is None else [mean.n_segments, mean.room, mean.counts],
        "t": chain.t,
        "epoch": chain.epoch,
        "kept": chain.kept,
        "rmse": None if chain.rmse is None else float(chain.rmse),
        "epoch_sse": float(chain.since_epoch.sse),
        "epoch_count": int(chain.since_epoch.count),
        "ratings_read": int(chain.ratings_read),
        "stopped_by_callback": bool(chain.stopped_by_callback),
        "seconds": float(chain.monitor.clock.seconds()),
        "listeners": _callback_states(chain),
    }


def put_back(chain: Chain, arrays: Mapping[str, NDArray[Any]], plain: Plain) -> None:
    """Restore a snapshot in a chain that has not begun, except its time."""
    _put_back_state(chain.state, arrays, plain["state"])
    prefix = "keeping_"
    kept = {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
    chain.retention.restore(kept, plain["keeping"])
    chain.probe.restore(kept)
    chain.trace.train_rmse[:] = arrays["train_rmse"].tolist()
    chain.trace.validation_rmse[:] = arrays["validation_rmse"].tolist()
    if plain["mean"] is not None:
        n_segments, room, counts = plain["mean"]
        totals = [np.array(total) for total in arrays["mean_totals"]]
        chain.monitor.means[chain.number] = RunningMean(n_segments, totals, counts, room)
    chain.t, chain.epoch, chain.kept = plain["t"], plain["epoch"], plain["kept"]
    chain.rmse = plain["rmse"]
    chain.since_epoch = Errors(plain["epoch_sse"], plain["epoch_count"])
    chain.ratings_read = plain["ratings_read"]
    chain.monitor.ratings_read += chain.ratings_read
    chain.stopped = chain.stopped_by_callback = plain["stopped_by_callback"]
    for name, callback in _stateful_callbacks(chain.monitor.callbacks):
        if name in plain["listeners"]:
            try:
                callback.restore(chain.number, json.loads(plain["listeners"][name]))
            except Exception as error:
                chain.monitor.note_state_failure(callback, error)


def _take_state(state: ChainState, fetch: Fetch) -> tuple[Arrays, Plain]:
    now, safe, moments = state.precisions, state.safe, state.column_squares
    arrays = {**_rows("", state.params.users, state.params.items, fetch), **_priors("", now, fetch)}
    plain = {
        "tau": float(now.tau),
        "version": now.version,
        "sse": float(state.sse),
        "count": int(state.count),
        "visits": sorted(state.visits.items()),
        "step_factor": float(state.step_factor),
        "repairs": state.repairs,
    }
    if safe is not None:
        arrays |= _rows("safe_", safe.users, safe.items, fetch)
        if safe.precisions.version != now.version:
            arrays |= _priors("safe_", safe.precisions, fetch)
            plain["safe_tau"] = float(safe.precisions.tau)
            plain["safe_version"] = safe.precisions.version
    if state.momenta is not None:
        users, items = map(_filled, state.momenta)
        arrays |= _rows("momenta_", users, items, fetch)
    if moments is not None and moments.version == now.version:  # older ones are computed again
        arrays |= {"moments_users": moments.users, "moments_items": moments.items}
    if state.means is not None:
        arrays |= _rows("means_", state.means.users, state.means.items, fetch)
    return arrays, plain


def _filled(momenta: Any) -> Any:
    """Momenta with zeros for stripes that have not moved yet."""
    if not isinstance(momenta, Pieces) or all(part is not None for part in momenta.parts):
        return momenta
    width = next(shape_of(part)[1] for part in momenta.parts if part is not None)
    sizes = momenta.layout.sizes()
    parts = [
        np.zeros((size, width), np.float32) if part is None else part
        for part, size in zip(momenta.parts, sizes, strict=True)
    ]
    return Pieces(tuple(parts), momenta.layout)


def _put_back_state(state: ChainState, arrays: Mapping[str, NDArray[Any]], plain: Plain) -> None:
    def rows(prefix: str) -> tuple[Rows, Rows]:
        return np.array(arrays[f"{prefix}users"]), np.array(arrays[f"{prefix}items"])

    n_factors = state.params.n_factors
    state.params = Params(*rows(""), n_factors)
    now = _precisions("", arrays, plain["tau"], plain["version"])
    state.precisions = now
    state.sse, state.count = plain["sse"], plain["count"]
    state.visits = dict(plain["visits"])
    state.step_factor, state.repairs = plain["step_factor"], plain["repairs"]
    if "safe_users" in arrays:
        then = now
        if "safe_tau" in plain:
            then = _precisions("safe_", arrays, plain["safe_tau"], plain["safe_version"])
        state.safe = Safe(*rows("safe_"), then)
    if "momenta_users" in arrays:
        state.momenta = rows("momenta_")
    if "moments_users" in arrays:
        state.column_squares = ColumnSquares(*rows("moments_"), now.version)  # type: ignore[arg-type]
    if "means_users" in arrays:
        state.means = Params(*rows("means_"), n_factors)


def _rows(prefix: str, users: Any, items: Any, fetch: Fetch) -> Arrays:
    return {f"{prefix}users": whole(users, fetch), f"{prefix}items": whole(items, fetch)}


def _priors(prefix: str, precisions: Precisions, fetch: Fetch) -> Arrays:
    sides = (("user", precisions.users), ("item", precisions.items))
    arrays: Arrays = {
        f"{prefix}{side}_{name}": array
        for side, prior in sides
        for name, array in (("mu", prior.mu), ("lambda", prior.Lambda))
    }
    noise = precisions.noise or Noise()
    for side, own in (("user", noise.users), ("item", noise.items)):
        if own is not None:
            value = own.value
            if isinstance(value, float):
                value = np.full(own.known_sums().n, value, np.float32)
            arrays[f"{prefix}{side}_tau"] = whole(value, fetch)
            arrays[f"{prefix}{side}_tau_prior"] = np.array([own.shape, own.rate])
            arrays[f"{prefix}{side}_tau_sums"] = np.array(own.known_sums(), np.float64)
    return arrays


def _precisions(
    prefix: str, arrays: Mapping[str, NDArray[Any]], tau: float, version: int
) -> Precisions:
    users, items = (
        RowPrior(np.array(arrays[f"{prefix}{side}_mu"]), np.array(arrays[f"{prefix}{side}_lambda"]))
        for side in ("user", "item")
    )
    return Precisions(users, items, tau, version, _noise(prefix, arrays))


def _noise(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> Noise | None:
    def side(name: str) -> RowNoise | None:
        if name not in arrays:
            return None
        shape, rate = (float(x) for x in arrays[f"{name}_prior"])
        value: Any = np.array(arrays[name])
        n, *more = (float(x) for x in arrays[f"{name}_sums"])
        sums = NoiseSums(int(n), *more)
        if math.isnan(sums.by_rating):  # equal rows: one number for all
            value = float(value[0])
        return RowNoise(value, shape, rate, sums=sums)

    users, items = side(f"{prefix}user_tau"), side(f"{prefix}item_tau")
    if users is None and items is None:
        return None
    if users is not None and items is not None:
        items = replace(items, mean_one=True)
    return Noise(users, items)


def _callback_states(chain: Chain) -> dict[str, str]:
    """States of callbacks as JSON texts, because the settings of a file must not contain NaN.

    If a callback fails, or its state is not JSON, the checkpoint is written without it.
    """
    out = {}
    for name, callback in _stateful_callbacks(chain.monitor.callbacks):
        try:
            out[name] = json.dumps(callback.state(chain.number))
        except Exception as error:
            chain.monitor.note_state_failure(callback, error)
    return out


def _stateful_callbacks(callbacks: Sequence[Callback]) -> Iterator[tuple[str, Any]]:
    """Callbacks with a state, by names that are the same in another process."""
    counts: dict[str, int] = {}
    for callback in callbacks:
        if all(callable(getattr(callback, name, None)) for name in ("state", "restore")):
            name = type(callback).__name__
            counts[name] = counts.get(name, -1) + 1
            yield f"{name} {counts[name]}", callback


# -- rules for files ------------------------------------------------------------------------------

_META = {
    "chain": {
        "state": {
            "tau": NUMBER, "sse": NUMBER, "count": WHOLE, "visits": [[WHOLE]],
            "step_factor": NUMBER, "repairs": WHOLE, "version": WHOLE,
            "safe_tau?": NUMBER, "safe_version?": WHOLE,
        },
        "keeping": {
            "burning": FLAG, "first?": WHOLE, "cut?": (NUMBER, None), "every?": WHOLE
        },
        "mean": (None, [(WHOLE, [WHOLE])]), "t": WHOLE, "epoch": WHOLE, "kept": WHOLE,
        "rmse": (NUMBER, None), "epoch_sse": NUMBER, "epoch_count": WHOLE, "ratings_read": WHOLE,
        "stopped_by_callback": FLAG, "seconds": NUMBER, "listeners": {},
    },
    "room": WHOLE,
    "batches": [[(TEXT, WHOLE)]],
    "of": TEXT,
}  # fmt: skip


def check_snapshot(meta: dict[str, Any], most_room: int) -> None:
    """Raise ValueError where plain values of a checkpoint are not what they must be."""
    check_plain(meta, _META, "meta")
    chain, state, keeping = meta["chain"], meta["chain"]["state"], meta["chain"]["keeping"]
    visits = [number for pair in state["visits"] for number in pair]
    counts = [chain[name] for name in ("t", "epoch", "kept", "ratings_read", "epoch_count")]
    sums = state["sse"], chain["epoch_sse"], chain["seconds"], keeping.get("first", 0)
    if min(*counts, *sums, *visits, meta["room"]) < 0 or meta["room"] > most_room:
        raise ValueError("meta has a negative count or sum, or too much room")
    every = keeping.get("every", 1)
    if min(state["tau"], state["step_factor"], state.get("safe_tau", 1.0), every) <= 0:
        raise ValueError("meta.chain has a precision, a step or a count that is not positive")
    if any(len(batch) != 3 or batch[2] < 1 for batch in meta["batches"]):
        raise ValueError("meta.batches are not those of draws")


class SnapshotRules:
    """Rules for the arrays of a chain's checkpoints and of its batches of draws."""

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
            name: Expected("f8", (arrays[name].size,), FINITE)
            for name in ("train_rmse", "validation_rmse")
        }
        for name in ("keeping_at", "keeping_probed_at"):
            if name in arrays:
                expected[name] = Expected("i8", (arrays[name].size,), ASCENDING)
        if "keeping_expected" in arrays:
            probed = expected["keeping_probed_at"].shape
            pairs = Expected("f4", (*probed, *arrays["keeping_expected"].shape[1:2]))
            expected |= {"keeping_expected": pairs, "keeping_drawn": pairs}
            if "keeping_noise" in arrays:  # NaN where there is none
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
                raise ValueError("the draws and the run differ in noise_by")
        return draws_expected(
            arrays, self._users.shape[0], self._items.shape[0], self._width, self._lambda.shape,
            self._keep,
        )  # fmt: skip
