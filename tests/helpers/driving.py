"""Rounds without a server: for tests that look at every state of a chain."""

from __future__ import annotations

import math

import numpy as np

from bayesmf.chains.chain import STARTS, first_precisions
from bayesmf.chains.state import ChainState
from bayesmf.kernels.keys import make_key
from bayesmf.model.priors import Params


def start_chain(number, settings, shape):
    """The first state of a chain, with all rows in this process."""
    key, d = make_key(settings.seed, number), settings.n_factors
    params = Params.initial(shape.n_users, shape.n_items, d, bias=settings.prior.bias, key=key)
    apart = STARTS[number % len(STARTS)] if settings.sampler.starts_apart else 1.0
    shrink = np.float32(math.sqrt(apart))
    params = Params(params.users / shrink, params.items / shrink, d)
    return ChainState(number, key, params, first_precisions(number, settings, shape))


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
        results = [task.execute(rounds.held[task.partition]) for task in tasks]
