"""`partial_fit` compared with a new fit.

    python -m benchmarks updates --data FOLDER [--set ml-1m] [--factors 30] [--json]

A tenth of the ratings is held out as test set. Of the rest, parts of 1% come later, each with users
and items of its own that were unknown before; the rest of each 1% are the latest ratings of the
others, or random ones without timestamps. Two comparisons:

- one part is added to a model of all the others: RMSE and NLL on the test set before, after, and of
  a fit on all; seconds of both, warm, in turn, the best of some runs.
- ten parts are added one after the other to a model of nine tenths; the same comparison at the end.

`--tune` scores a tenth of the training ratings instead of the test set; constants were chosen by
that.
"""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from bayesmf import BayesianMF, Ratings
from benchmarks.data_sets import find
from benchmarks.options import BenchParser, command

SHARE = 0.01
# Users and items of each part that are in no other, as shares of all.
NEW_USERS, NEW_ITEMS = 1 / 500, 1 / 500


def make_parts(train: Ratings, n_parts: int, seed: int = 0) -> list[np.ndarray]:
    """Positions of the ratings of each part."""
    rng = np.random.default_rng(seed)
    size = round(SHARE * len(train))
    users = _groups(rng, train.n_users, NEW_USERS, n_parts)
    items = _groups(rng, train.n_items, NEW_ITEMS, n_parts)
    part = np.full(len(train), -1)
    for k in range(n_parts):
        part[np.isin(train.user_rows, users[k])] = k
        part[np.isin(train.item_rows, items[k])] = k
    left = np.flatnonzero(part < 0)
    times = rng.random(len(left)) if train.timestamp is None else train.timestamp[left]
    left = left[np.argsort(times, kind="stable")]
    for k in reversed(range(n_parts)):
        n = max(0, size - int((part == k).sum()))
        part[left[len(left) - n :]] = k
        left = left[: len(left) - n]
    return [np.flatnonzero(part == k) for k in range(n_parts)]


def _groups(rng: np.random.Generator, n: int, share: float, n_parts: int) -> np.ndarray:
    each = max(2, round(share * n))
    return rng.permutation(n)[: each * n_parts].reshape(n_parts, each)


def without(train: Ratings, parts: list[np.ndarray]) -> Ratings:
    """All ratings but those of some parts."""
    mask = np.ones(len(train), np.bool_)
    for part in parts:
        mask[part] = False
    return train.take(mask).compact()


def scores(model: BayesianMF, test: Ratings, known: Ratings) -> dict[str, float]:
    """RMSE and NLL, and the RMSE where user or item were not `known` before."""
    found = model.evaluate(test)
    out = {"rmse": found.rmse, "nll": found.nll}
    for side in ("user", "item"):
        ids, rows = getattr(test, f"{side}_ids"), getattr(test, f"{side}_rows")
        new = (getattr(known, f"{side}_ids").lookup(ids) < 0)[rows]
        if new.any():
            out[f"new_{side}s"] = model.evaluate(test.take(new)).rmse
    return out


def timed(work: Any) -> tuple[float, float]:
    """Seconds of a call, by the wall and of the processor."""
    wall, busy = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - busy


def one_update(train: Ratings, test: Ratings, D: int, repeats: int) -> dict[str, Any]:
    """A part is added to a model of the others."""
    parts = make_parts(train, 1)
    known, more = without(train, parts), train.take(parts[0]).compact()
    refit, model = BayesianMF(D, random_state=0), BayesianMF(D, random_state=0).fit(known)
    out: dict[str, Any] = {"ratings": len(train), "new": len(more)}
    out["before"] = scores(model, test, known)
    before, times = model._found, {"update": [], "refit": []}
    model.partial_fit(more)  # compiled
    for _ in range(repeats):
        model._found = before
        times["update"].append(timed(lambda: model.partial_fit(more)))
        times["refit"].append(timed(lambda: refit.fit(train)))
    out["update"], out["refit"] = scores(model, test, known), scores(refit, test, known)
    for name, found in times.items():
        out[name] |= dict(zip(("seconds", "cpu_seconds"), np.min(found, axis=0), strict=True))
    return out


def many_updates(train: Ratings, test: Ratings, D: int, n_parts: int) -> dict[str, Any]:
    """Parts that are added one after the other."""
    parts = make_parts(train, n_parts)
    known = without(train, parts)
    model = BayesianMF(D, random_state=0).fit(known)
    out: dict[str, Any] = {"ratings": len(train), "new": sum(map(len, parts))}
    out["before"] = scores(model, test, known)
    spent = [timed(lambda part=part: model.partial_fit(train.take(part))) for part in parts]
    missed = model.posterior_.draws.missed
    assert missed is not None
    out["most_missed"] = float(missed.max()) / len(train)
    out["update"] = scores(model, test, known)
    refit = BayesianMF(D, random_state=0)
    took = timed(lambda: refit.fit(train))
    out["refit"] = scores(refit, test, known)
    for name, found in (("update", np.sum(spent, axis=0)), ("refit", took)):
        out[name] |= dict(zip(("seconds", "cpu_seconds"), map(float, found), strict=True))
    return out


def show(name: str, found: dict[str, Any]) -> None:
    """Print one comparison."""
    print(f"\n{name}: {found['new']:,} of {found['ratings']:,} ratings are new")
    columns = ("rmse", "nll", "new_users", "new_items", "seconds", "cpu_seconds")
    print("| |" + "|".join(columns) + "|")
    print("|---" * (len(columns) + 1) + "|")
    for row in ("before", "update", "refit"):
        cells = [found[row].get(c) for c in columns]
        print(f"|{row}|" + "|".join("" if x is None else f"{x:.4f}" for x in cells) + "|")
    update, refit = found["update"], found["refit"]
    print(
        f"RMSE {100 * (update['rmse'] / refit['rmse'] - 1):+.3f}% of the refit, "
        f"NLL {update['nll'] - refit['nll']:+.4f}, in {update['seconds'] / refit['seconds']:.3f} "
        f"of its time ({update['cpu_seconds'] / refit['cpu_seconds']:.3f} of the processor's)"
    )
    if "most_missed" in found:
        print(f"no draw lacks more than {100 * found['most_missed']:.1f}% of all ratings")


@command
def main(argv: list[str] | None = None) -> None:
    """Run both comparisons and print them."""
    parser = BenchParser("updates", __doc__)
    add = parser.add_argument
    add("--data", type=Path, required=True, help="folder of data sets")
    add("--set", default="ml-1m", metavar="NAME", help="which of them (ml-1m)")
    add("--factors", type=int, default=30)
    add("--repeats", type=int, default=3, help="runs of which the best counts (3)")
    add("--updates", type=int, default=10, help="parts that are added in a row (10); 0 for none")
    add("--tune", action="store_true", help="score training ratings, not the test set")
    add("--json", action="store_true")
    args = parser.parse_args(argv)
    known = find(args.data)
    if args.set not in known:
        parser.error(f"--set is one of {', '.join(known) or 'none: there are no data'}")
    train, test = known[args.set]()
    if args.tune:
        train, test = train.split(0.1, random_state=1)
    train = train.compact()
    warnings.simplefilter("ignore")  # of ids that are not known yet
    found = {"one update": one_update(train, test, args.factors, args.repeats)}
    if not args.json:
        show("one update", found["one update"])
    if args.updates:
        name = f"{args.updates} updates"
        found[name] = many_updates(train, test, args.factors, args.updates)
        if not args.json:
            show(name, found[name])
    if args.json:
        print(json.dumps(found))
