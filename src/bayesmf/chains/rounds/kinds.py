"""The rounds of any update rule, by the kind that the rule names."""

from __future__ import annotations

from typing import Any

from bayesmf.chains.rounds.clock import ClockRounds
from bayesmf.chains.rounds.gibbs import GibbsRounds
from bayesmf.chains.rounds.gradient import GradientRounds
from bayesmf.chains.rounds.propagation import PropagationRounds
from bayesmf.chains.rounds.update import UpdateRounds
from bayesmf.chains.settings import RunSettings
from bayesmf.chains.state import Rounds
from bayesmf.data.training import TrainingData
from bayesmf.samplers.base import Sampler

# Kinds are few, samplers many: a sampler says which of these it is made of.
ROUNDS: dict[str, Any] = {
    "gradient": GradientRounds,
    "update": UpdateRounds,
    "clock": ClockRounds,
    "gibbs": GibbsRounds,
    "propagation": PropagationRounds,
}


def make_rounds(
    data: TrainingData, rule: Sampler, seed: int, settings: RunSettings | None = None
) -> Rounds:
    """The rounds of a resolved rule on one data set; `settings` for those that draw priors."""
    made: Rounds = ROUNDS[rule.kind_of_rounds](data, rule, seed)
    if isinstance(made, PropagationRounds) and settings is not None:
        made.settle(settings)
    return made
