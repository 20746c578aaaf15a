"""The one way to start a run: settings are resolved, kernels compiled, chains run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from bayesmf.chains.callbacks import Callback
from bayesmf.chains.pairs import Validation
from bayesmf.chains.settings import RunSettings
from bayesmf.checkpoints.folder import Checkpoint
from bayesmf.data.training import TrainingData
from bayesmf.engines.base import Engine
from bayesmf.engines.registry import make_engine
from bayesmf.samplers.gibbs import Gibbs
from bayesmf.server.compile import compile_kernels
from bayesmf.server.report import RunReport
from bayesmf.server.run import run
from bayesmf.server.settings import FitSettings


def start_run(
    data: TrainingData,
    wanted: FitSettings,
    *,
    scale: float = 1.0,
    validation: Validation | None = None,
    callbacks: Sequence[Callback] = (),
    checkpoint: Checkpoint | None = None,
    stage: Callable[[str], None] = lambda what: None,
) -> RunReport:
    """Draw from the posterior given ratings in the units of a chain.

    Parameters
    ----------
    data : TrainingData
        The ratings, from `prepare`.
    wanted : FitSettings
        What is asked for.
    scale : float
        User's units in one unit of `data`.
    validation : Validation, optional
        Pairs whose RMSE is followed, in the same units.
    callbacks : sequence of callables
        Called after every epoch of every chain.
    checkpoint : Checkpoint, optional
        Where the run is written down, and whether to go on from there.
    stage : callable
        Told what goes on before the chains begin.
    """
    settings = wanted.resolve(data, scale)
    engine = make_engine(wanted.engine, wanted.n_workers)
    settings = _shared_out(settings, wanted, engine)
    stage("compiling")
    compiled = compile_kernels(settings, data)
    done = run(data, settings, engine, validation, callbacks, compiled.rehearsal, checkpoint)
    return replace(done, compile_seconds=compiled.seconds)


def _shared_out(settings: RunSettings, wanted: FitSettings, engine: Engine) -> RunSettings:
    """Settings with stripes for the engine's workers, where nobody has said how many."""
    rule, n = settings.sampler, wanted.n_workers or getattr(engine, "n_workers", None)
    if not isinstance(rule, Gibbs) or getattr(wanted.sampler, "n_stripes", None) or not n:
        return settings
    return replace(settings, sampler=rule.shared_out(n))
