"""The rounds of any update rule, by the kind that the rule names."""

from __future__ import annotations

from typing import Any

from bayesmf.chains.rounds.clock import ClockRounds
from bayesmf.chains.rounds.gibbs import GibbsRounds
from bayesmf.chains.rounds.gradient import GradientRounds
from bayesmf.chains.rounds.update import UpdateRounds
from bayesmf.chains.state import Rounds
from bayesmf.data.training import TrainingData
from bayesmf.samplers.base import Sampler

# Kinds are few, samplers many: a sampler says which of these it is made of.
ROUNDS: dict[str, Any] = {
    "gradient": GradientRounds,
    "update": UpdateRounds,
    "clock": ClockRounds,
    "gibbs": GibbsRounds,
}


def make_rounds(data: TrainingData, rule: Sampler, seed: int) -> Rounds:
    """The rounds of a resolved rule on one data set."""
    made: Rounds = ROUNDS[rule.kind_of_rounds](data, rule, seed)
    return made
