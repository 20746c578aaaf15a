"""Settings found on a validation split, for `--settings tuned`.

For the optimisers: regularisation and step, the regularisation more closely, then smaller
mini-batches with a step that decays, and the number of passes after which the
validation error is lowest; with more factors the regularisation and the passes again. For the
samplers: how many mini-batches a pass has, and the step, for all numbers of factors. The test
ratings are not looked at.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from bayesmf.errors import InputError
from bayesmf.storage.atomic import replacing
from experiments.paper.datasets import Dataset
from experiments.paper.experiments import ExperimentSettings, Job, Record, perform_all, spec
from experiments.paper.presets import MCMC
from experiments.paper.trials import TrialSpec, best_rmse

REGULARIZATIONS = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
PACES = (1.0, 2.0, 4.0, 8.0)  # times the default step, which is on the safe side
CLOSER = (0.75, 1.25)  # times the best regularisation
DECAYING = {"mini_batches": 48.0, "decay": 1.0, "kappa": 20.0}
# (mini-batches of a pass, pace): the default step shrinks with the mini-batch.
SAMPLERS = ((64.0, 1.0), (64.0, 2.0), (256.0, 0.5), (256.0, 1.0), (256.0, 2.0))
SEARCH_EPOCHS = 40.0  # of the samplers; SGD has as many as it will have
Options = dict[str, float]
Searched = dict[str, dict[str, Options]]  # by algorithm and number of factors
Best = tuple[Options, Record]


def search(settings: ExperimentSettings, dataset: Dataset) -> tuple[Searched, list[Record]]:
    """Settings by algorithm, and the trials that they come from."""
    trials: list[Record] = []
    plain = replace(settings, settings="tuned", tuned={})

    def best_of(name: str, d: int, options: list[Options], epochs: float | None = None) -> Best:
        """Those of the options that give the lowest error, and the record of their trial."""
        specs = [_trial(plain, dataset, name, d, one, epochs) for one in options]
        jobs = [Job(one, settings, dataset) for one in specs]
        records = perform_all(jobs, f"search for {name}, D = {d}")
        found = [records[one.key] for one in specs]
        trials.extend(found)
        errors = [_error(record) for record in found]
        best = errors.index(min(errors))
        return options[best], found[best]

    found: Searched = {}
    fewest, *more = settings.dimensions
    for name in ("SGD", "DSGD"):
        best = _search_optimiser(partial(best_of, name, fewest))
        found[name] = {str(fewest): best}
        for d in more:
            best = _search_near(best, partial(best_of, name, d))
            found[name][str(d)] = best
    for name in MCMC:
        best, _ = best_of(name, fewest, _sampler_options(), SEARCH_EPOCHS)
        found[name] = {str(fewest): {key: best[key] for key in ("mini_batches", "pace")}}
    return found, trials


def first_trials(settings: ExperimentSettings, dataset: Dataset) -> list[TrialSpec]:
    """Most of the trials of a search: which others there are follows from what these find."""
    fewest, *more = settings.dimensions
    grid = _optimiser_grid()
    plain = replace(settings, settings="tuned", tuned={})
    out = [_trial(plain, dataset, name, fewest, one) for name in ("SGD", "DSGD") for one in grid]
    for name in MCMC:
        for one in _sampler_options():
            out.append(_trial(plain, dataset, name, fewest, one, SEARCH_EPOCHS))
    return out + [_trial(plain, dataset, "SGD", d, grid[0]) for d in more]


def _optimiser_grid() -> list[Options]:
    return [{"regularization": r, "pace": p} for r, p in itertools.product(REGULARIZATIONS, PACES)]


def _sampler_options() -> list[Options]:
    return [{"mini_batches": n, "pace": p} for n, p in SAMPLERS]


def _search_optimiser(best_of: Callable[[list[Options]], Best]) -> Options:
    # Together: a short step may end where overfitting begins, and would ask for less.
    best, _ = best_of(_optimiser_grid())
    strength = best["regularization"]
    best, _ = best_of([best, *({**best, "regularization": strength * k} for k in CLOSER)])
    best, record = best_of([best, {**best, **DECAYING}])
    return {**best, "epochs": _best_epoch(record)}


def _search_near(known: Options, best_of: Callable[[list[Options]], Best]) -> Options:
    """More factors want another regularisation, and fewer passes."""
    base = {key: value for key, value in known.items() if key != "epochs"}
    strength = base["regularization"]
    best, record = best_of([{**base, "regularization": strength * k} for k in (1.0, *CLOSER)])
    return {**best, "epochs": _best_epoch(record)}


def _trial(
    settings: ExperimentSettings,
    dataset: Dataset,
    name: str,
    d: int,
    changes: Options,
    epochs: float | None = None,
) -> TrialSpec:
    tuned = {name: {str(d): changes}}
    settings = replace(settings, tuned=tuned)
    return spec(settings, dataset, name, n_factors=d, epochs=epochs, validating=True)


def _error(record: Record) -> float:
    """The error of a sampler at its end, and of an optimiser where it is best."""
    sampling = record["plan"]["algorithm"] in MCMC
    error = record["final"] if sampling or record["failed"] else best_rmse(record["trace"])
    return float("inf") if error is None else float(error)


def _best_epoch(record: Record) -> float:
    points = zip(record["trace"]["rmse"], record["trace"]["epoch"], strict=True)
    return float(min((rmse, epoch) for rmse, epoch in points if None not in (rmse, epoch))[1])


def kept(settings: ExperimentSettings) -> Any:
    """What `keep` has written; None if there is none."""
    path = settings.out / "tuned.json"
    if not path.exists():
        return None
    try:
        return json.loads(path.read_bytes())
    except ValueError:
        raise InputError(f"{path} is not JSON: remove it to search again") from None


def keep(found: Searched, settings: ExperimentSettings) -> None:
    """Write tuned.json."""
    with replacing(settings.out / "tuned.json") as file:
        file.write((json.dumps(found, indent=1) + "\n").encode())
