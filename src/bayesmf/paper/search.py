"""Steps (and SGD's regularisation) found on a validation split, for `--settings tuned`.

One thing after the other, around the default: the step, then the regularisation of SGD, and for SGD
the number of passes after which the validation error is lowest. The test ratings are not looked at.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bayesmf.paper.experiments import Record, Settings, perform_all, spec
from bayesmf.paper.presets import MCMC
from bayesmf.paper.runs import RunSpec, shown
from bayesmf.paper.studies import Study

PACES = (1.0, 2.0, 4.0, 8.0, 16.0)  # times the default step, which is on the safe side
REGULARIZATIONS = (2.0, 4.0, 8.0, 16.0, 32.0)
SEARCH_EPOCHS = 60.0  # of the samplers; SGD has as many as it will have
Found = dict[str, dict[str, float]]


def search(settings: Settings, study: Study, bar: Callable[..., Any]) -> tuple[Found, list[Record]]:
    """Settings by algorithm, and the runs that they come from."""
    trials: list[Record] = []

    def make(specs: list[RunSpec]) -> list[Record]:
        records = perform_all(specs, settings, study, bar)
        found = [records[one.key] for one in specs]
        trials.extend(found)
        return found

    plain = replace(settings, settings="tuned", tuned={})
    found: Found = {}
    for name in ("SGD", "DSGD"):
        found[name] = _search_optimiser(name, plain, study, make)
    for name in MCMC:
        records = make([_trial(plain, study, name, {"pace": k}, SEARCH_EPOCHS) for k in PACES])
        found[name] = {"pace": min(records, key=_error)["plan"]["sampler"]["pace"]}
    return found, trials


def _search_optimiser(
    name: str,
    settings: Settings,
    study: Study,
    make: Callable[[list[RunSpec]], list[Record]],
) -> dict[str, float]:
    by_strength = make(
        [_trial(settings, study, name, {"regularization": r}) for r in REGULARIZATIONS]
    )
    best = min(by_strength, key=_lowest)
    strength = best["plan"]["sampler"]["regularization"]
    records = make(
        [_trial(settings, study, name, {"regularization": strength, "pace": k}) for k in PACES]
    )
    best = min(records, key=_lowest)
    pace = best["plan"]["sampler"]["pace"]
    return {"regularization": strength, "pace": pace, "epochs": _best_epoch(best)}


def _trial(
    settings: Settings,
    study: Study,
    name: str,
    changes: dict[str, float],
    epochs: float | None = None,
) -> RunSpec:
    one = spec(replace(settings, tuned={name: changes}), study, name, epochs=epochs)
    return replace(one, validating=True)


def _error(record: Record) -> float:
    return float("inf") if record["final"] is None else float(record["final"])


def _lowest(record: Record) -> float:
    """An optimiser may be stopped where it is best."""
    if record["final"] is None:
        return float("inf")
    return min(rmse for _, rmse, _ in shown(record["trace"]))


def _best_epoch(record: Record) -> float:
    rmse = record["trace"]["rmse"]
    return float(record["trace"]["epoch"][min(range(len(rmse)), key=rmse.__getitem__)])


def keep(found: Found, settings: Settings) -> None:
    """Write tuned.json."""
    path = settings.out / "tuned.json"
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.write_text(json.dumps(found, indent=1) + "\n")
    os.replace(part, path)
