"""A small run with checkpoints, that tests stop, damage and go on with."""

import os
from dataclasses import replace

import numpy as np
import pytest

from bayesmf import Checkpoint, Gibbs
from bayesmf.chains.callbacks import History
from bayesmf.chains.pairs import Validation, WatchedPairs
from bayesmf.chains.rounds.blocks import data_shape
from bayesmf.chains.state import RunSettings
from bayesmf.engines.local import Serial
from bayesmf.model.priors import GammaPrior
from bayesmf.run.driver import run
from dying import Dying, Killed, facts
from problems import random_data

DATA = random_data(40, 30, 500)
SHAPE = data_shape(DATA)
KNOWN = Validation(
    WatchedPairs(*(part[:9] for part in DATA.triples()[:2]), np.ones(9, bool)),
    DATA.triples()[2][:9],
)


def settings_of(sampler, **more):
    return replace(RunSettings(sampler.resolve(SHAPE), GammaPrior(), 2, None, 0, 50), **more)


SETTINGS = settings_of(Gibbs(n_chains=2, epochs=9, burn_in=3))


def run_kept(folder, settings=SETTINGS, engine=None, **how):
    history = History()
    checkpoint = None if folder is None else Checkpoint(folder, **{"every": 0, **how})
    report = run(DATA, settings, engine or Serial(), None, [history], checkpoint=checkpoint)
    return facts(report, history)


def stop(folder):
    """Kill a run after six or seven of its nine rounds, and leave its folder."""
    with pytest.raises(Killed):
        run_kept(folder, engine=Dying(Serial(), 66))
    return folder


def names(folder):
    return sorted(os.listdir(folder))
