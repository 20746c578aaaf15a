"""The rounds of any update rule, by the kind that the rule names."""

from __future__ import annotations

from typing import Any

from bayesmf.chains.clock_rounds import ClockRounds
from bayesmf.chains.gibbs_rounds import GibbsRounds
from bayesmf.chains.gradient_rounds import GradientRounds
from bayesmf.chains.state import Rounds
from bayesmf.chains.update_rounds import UpdateRounds
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
