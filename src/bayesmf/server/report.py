"""What a run did: for the caller of `fit`, and for people."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from bayesmf.chains.settings import RunSettings
from bayesmf.data.training import TrainingData
from bayesmf.diagnostics.convergence import AGREE, LARGEST_RHAT, told
from bayesmf.model.draws import Draws
from bayesmf.samplers.registry import settings_dict
from bayesmf.server.stopping import Convergence, target_named


@dataclass(frozen=True)
class RunReport:
    """What a run did.

    `convergence` is what the probe pairs say; `engine` is who did what; `failures` are sentences
    about callbacks that failed. Seconds are those of the engine's clock, without compiling.
    """

    settings: RunSettings
    draws: Draws
    seconds: float
    ratings_read: int
    epochs: float
    convergence: dict[str, Any]
    repairs: int
    engine: dict[str, Any]
    failures: list[str]
    compile_seconds: float = 0.0


def convergence_found(found: Convergence, settings: RunSettings, **run: Any) -> dict[str, Any]:
    """What the probe pairs say of a run, and what follows from it, in plain values."""
    known: dict[str, Any] = {
        name: None if isinstance(x, float) and math.isnan(x) else x
        for name, x in found._asdict().items()
        if name != "loss_of_all"
    }
    known["slowest"] = found.slowest or None
    for name in ("rhat", "rhat_noise"):
        if known[name] is not None:  # JSON has no infinity
            known[name] = min(known[name], LARGEST_RHAT)
    target = settings.target if settings.sampler.adaptive else None
    about = {
        "limit": AGREE if target is None else target_named(target).rhat,
        "target": target,
        "rule": type(settings.sampler).__name__,
        "chains": settings.sampler.n_chains,
    }
    return told({**known, **about, **run})


def make_report(data: TrainingData, done: RunReport) -> dict[str, Any]:
    """What a fit did, in plain values."""
    settings = done.settings
    prior = type(settings.prior).__name__.removesuffix("Prior").lower()
    full_bias = prior == "wishart" and settings.prior.bias
    return {
        "ratings": len(data),
        "users": data.n_users,
        "items": data.n_items,
        "factors": settings.n_factors,
        "prior": "wishart-bias" if full_bias else prior,
        "sampler": settings_dict(settings.sampler),
        "target": settings.target,
        "max_seconds": settings.max_seconds,
        "seed": settings.seed,
        "seconds": done.seconds,
        "compile_seconds": done.compile_seconds,
        "epochs": done.epochs,
        "draws": len(done.draws),
        "ratings_per_second": done.ratings_read / max(done.seconds, 1e-9),
        "tau": float(done.draws.tau.mean()) / settings.scale**2,
        "noise_by": settings.noise_by,
        "convergence": done.convergence,
        "repairs": done.repairs,
        "engine": done.engine,
    }
