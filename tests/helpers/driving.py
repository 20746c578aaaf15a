"""Rounds without a server: for tests that look at every state of a chain."""

from __future__ import annotations

from bayesmf.worker.tasks import run_task


def sweep(rounds, state, t):
    """One round of a chain, all its phases."""
    round_ = rounds.round(state, t)
    tasks = next(round_)
    while tasks:
        results = [run_task(rounds.held[task.partition], task) for task in tasks]
        try:
            tasks = round_.send(results)
        except StopIteration:
            return
