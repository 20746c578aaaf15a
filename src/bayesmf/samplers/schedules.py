"""Schedules of a chain: its step sizes, and which rounds are kept."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StepSize:
    """epsilon_t = epsilon_0 (1 + t/kappa)^-gamma, t counting rounds (Section 4.2)."""

    step_size: float
    kappa: float
    decay: float

    def __call__(self, round_: int) -> float:
        return float(self.step_size * (1.0 + round_ / self.kappa) ** -self.decay)


@dataclass(frozen=True)
class Thinning:
    """Which of the rounds after burn-in are kept: `n_draws`, evenly spread, the last too."""

    n_rounds: int
    n_draws: int

    @classmethod
    def spread(cls, n_rounds: int, thin: float, cap: int) -> Thinning:
        """One draw in `thin` rounds, fewer where there would be more than `cap`."""
        return cls(n_rounds, max(1, min(int(n_rounds / max(thin, 1.0)), cap)))

    def keeps(self, k: int) -> bool:
        """Whether round k (from 0) after burn-in is kept."""
        return (k + 1) * self.n_draws // self.n_rounds > k * self.n_draws // self.n_rounds
