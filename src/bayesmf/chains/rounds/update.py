"""Rounds of rules whose update is written in NumPy."""

from __future__ import annotations

from bayesmf.chains.rounds.gradient import GradientRounds
from bayesmf.chains.state import ChainState
from bayesmf.worker.update_tasks import UpdateTask


class UpdateRounds(GradientRounds):
    """One step size for all rows, and `rule.update` in place of the compiled update."""

    def task(self, state: ChainState, t: int, partition: int, first_batch: int) -> UpdateTask:
        task = super().task(state, t, partition, first_batch)
        return UpdateTask(**vars(task), rule=self._rule)
