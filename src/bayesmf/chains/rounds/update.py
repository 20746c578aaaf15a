"""Rounds of rules whose update is written in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bayesmf.chains.rounds.gradient import GradientRounds
from bayesmf.chains.state import ChainState
from bayesmf.worker.update_tasks import UpdateGiven, UpdateTask


class UpdateRounds(GradientRounds):
    """One step size for all rows, and `rule.update` in place of the compiled update."""

    def tasks(self, state: ChainState, t: int, group: Sequence[int], first_batch: int) -> list[Any]:
        shared = UpdateGiven(**self.round_given(state, t, first_batch), rule=self._rule)
        return [UpdateTask(**self.sides(state, p), shared=shared) for p in group]
