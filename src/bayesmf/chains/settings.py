"""What a run depends on besides the data."""

from __future__ import annotations

from dataclasses import dataclass

from bayesmf.model.priors import Prior
from bayesmf.samplers.base import Sampler


@dataclass(frozen=True)
class RunSettings:
    """Settings of a run: checked, with no default left open (server/settings.py)."""

    sampler: Sampler
    prior: Prior
    n_factors: int
    tau: float | None  # None where the noise precision is drawn
    seed: int
    max_draws: int
    noise_by: str | None = None  # rows that have noise of their own: "user", "item" or "both"
    keep: str = "both"  # the side whose draws are kept: "items", "users" or "both"
    scale: float = 1.0  # user's units in one unit of the chain: for what is reported
    target: str = "balanced"
    max_seconds: float | None = None
    last_draw_only: bool = False  # for runs of which the errors alone are wanted
