"""The steps of `fit`, and its warnings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np

from bayesmf.chains.callbacks import Callback, History, Progress
from bayesmf.checkpoints.folder import Checkpoint, recorded_run
from bayesmf.checks import yes_or_no
from bayesmf.data.ratings import Ratings
from bayesmf.errors import CallbackWarning, ConvergenceWarning, DataWarning, InputError
from bayesmf.estimator.fitted import FitResult
from bayesmf.packed.ratings import PackedRatings
from bayesmf.posterior.posterior import Posterior
from bayesmf.reading.memory import Columns
from bayesmf.run.driver import make_report, start_run
from bayesmf.run.prepare import Prepared, as_packed, load_kernels, prepare, prepare_validation
from bayesmf.run.settings import FitSettings

Warnings = list[tuple[str, type[Warning]]]


def training_ratings(X: Any, y: Any, columns: Columns | None) -> Ratings | PackedRatings:
    """The training ratings of `fit`: X alone, or pairs in X and ratings in y."""
    if y is None:
        packed = as_packed(X)
        if packed is None:
            return Ratings.from_data(X, columns=columns)
        if columns is not None:
            raise InputError("columns does nothing for packed ratings: give it to pack")
        return packed
    if _is_table(y):
        raise InputError(
            "the second argument of fit is y, one rating for each pair in X: pass a validation set "
            "as validation=..."
        )
    return Ratings.from_pairs(X, _flat(y), columns)


def _flat(y: Any) -> Any:
    """A table of one column as a column."""
    if len(getattr(y, "shape", ())) != 2:
        return y
    if hasattr(y, "iloc"):
        return y.iloc[:, 0]
    return (y if isinstance(y, np.ma.MaskedArray) else np.asarray(y))[:, 0]


def _is_table(y: Any) -> bool:
    """Whether y is a table of ratings, not a column of numbers."""
    if isinstance(y, Ratings | PackedRatings | str | PathLike):
        return True
    shape: Any = getattr(y, "shape", ())
    if len(shape) == 2:
        return bool(shape[1] > 1)
    return isinstance(y, tuple) and len(y) in (3, 4) and all(hasattr(c, "__len__") for c in y)


def validation_ratings(validation: Any, columns: Columns | None) -> Ratings | None:
    """The validation set: as ratings are given, or (X, y)."""
    if validation is None:
        return None
    if isinstance(validation, tuple) and len(validation) == 2:
        return Ratings.from_pairs(*validation, columns)
    path = isinstance(validation, str | PathLike)
    if isinstance(validation, PackedRatings) or (path and PackedRatings.is_packed(validation)):
        raise InputError("packed ratings are for fit: validate with a file or a table of ratings")
    has_names = not isinstance(validation, Ratings | tuple) and not hasattr(validation, "tocoo")
    try:
        return Ratings.from_data(validation, columns=columns if has_names else None)
    except InputError as error:
        raise InputError(f"the validation set: {error}") from None


def learn(
    wanted: FitSettings,
    standardize: bool,
    train: Ratings | PackedRatings,
    known: Ratings | None,
    checkpoint: Checkpoint | None,
    callbacks: Sequence[Callback],
    progress: Progress,
) -> tuple[FitResult, Warnings]:
    """Draw from the posterior; returns the result, and warnings with their categories.

    Parameters
    ----------
    wanted : FitSettings
        Settings of the model.
    standardize : bool
        Whether centred ratings are divided by their standard deviation.
    train, known : Ratings
        Ratings to learn from, and to validate with.
    checkpoint : Checkpoint, optional
        Where the run is saved.
    callbacks : sequence of callables
        Called after every epoch of every chain.
    progress : Progress
        Shows the stages before and after the chains; it may be one of the callbacks.
    """
    if checkpoint is not None:
        begun = recorded_run(checkpoint)
        if begun is not None and wanted.random_state is None:
            wanted = replace(wanted, random_state=begun["seed"])
    progress.stage("compiling")
    loading = load_kernels()
    made = prepare(train, yes_or_no("standardize", standardize))
    pairs = None if known is None else prepare_validation(known, made)
    history = History()
    all_callbacks = (history, *callbacks, *(() if progress in callbacks else (progress,)))
    done = start_run(
        made.data,
        wanted,
        scale=made.scale,
        validation=pairs,
        callbacks=all_callbacks,
        checkpoint=checkpoint,
        stage=progress.stage,
    )
    units = (made.center, made.scale, made.low, made.high)
    posterior = Posterior(done.draws, made.data, done.settings.n_factors, *units)
    report = make_report(made.data, done)
    report["compile_seconds"] += loading
    report["step_size"] = history.events[-1]["step_size"] if history.events else None
    report["noise_std"] = posterior.noise() ** 0.5
    report["validation_rmse"] = None
    if known is not None:
        progress.stage("scoring the validation set")
        report["validation_rmse"] = _validation_rmse(posterior, known, made)
    warnings: Warnings = [(sentence, CallbackWarning) for sentence in done.failures]
    warnings += _warnings(report, 0 if pairs is None else int(pairs.pairs.rated.sum()))
    ids = made.user_ids, made.item_ids
    return FitResult(posterior, *ids, history.events, report), warnings


def _validation_rmse(posterior: Posterior, known: Ratings, made: Prepared) -> float:
    """RMSE on the validation set as `evaluate` computes it, unknown ids included."""
    user = made.user_ids.lookup(known.user_ids)[known.user_rows]
    item = made.item_ids.lookup(known.item_ids)[known.item_rows]
    squares = 0.0
    for chunk in posterior.chunks(user, item):
        error = known.rating[chunk.lo : chunk.hi].astype(np.float64) - chunk.mean
        squares += float((error * error).sum())
    return float(np.sqrt(squares / len(known)))


def _warnings(report: Mapping[str, Any], rated: int) -> Warnings:
    found = report["convergence"]
    warnings: Warnings = []
    if found["advice"] or found["burn_in"]:
        warnings.append((f"{found['verdict']} {found['advice']}".rstrip(), ConvergenceWarning))
    if rated:
        warnings.append(
            (
                f"{rated:,} of the validation ratings are training ratings too, so their RMSE is "
                "too low: validate with other ratings",
                DataWarning,
            )
        )
    return warnings
