"""Rounds without a server: for tests that look at every state of a chain."""

from __future__ import annotations

from bayesmf.worker.tasks import run_task


def sweep(rounds, state, t):
    """One round of a chain, all its phases."""
    return do(rounds.round(state, t), rounds)


def do(phases, rounds):
    """Do the tasks of some phases; returns what these return."""
    results = None
    while True:
        try:
            tasks = phases.send(results)
        except StopIteration as end:
            return end.value
        results = [run_task(rounds.held[task.partition], task) for task in tasks]
