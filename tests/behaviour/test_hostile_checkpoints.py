"""Checkpoints that are damaged or forged: refused with a sentence.

Forged ones have right digests (forged.py), so that only a look at the numbers can refuse them.
A test that fails here may end the whole run by a signal: kernels check nothing.
"""

import numpy as np
import pytest

from bayesmf import Gibbs
from bayesmf.checkpoints.folder import BATCH, CHAIN
from bayesmf.engines.local import Serial
from bayesmf.storage.artefact import peek
from checkpointed import run_kept, settings_of
from dying import Dying
from dying import Killed as Died
from forged import drop, edit, edit_meta, file_contents, put, refused, set_at

NAN = float("nan")


# -- checkpoints --------------------------------------------------------------------------------

CHECKPOINTS = {
    "users of another shape": ("users", lambda a: a[:-1].copy()),
    "items not finite": ("items", set_at((0, 0), NAN)),
    "precisions negative": ("user_lambda", lambda a: -a),
    "errors not finite": ("train_rmse", set_at(0, NAN)),
    "another type": ("items", lambda a: a.astype(np.float64)),
    "probes of other length": ("keeping_expected", lambda a: a[:-1].copy()),
}
PLAIN = {
    "tau of zero": lambda c: c["chain"]["state"].update(tau=0.0),
    "tau of text": lambda c: c["chain"]["state"].update(tau="1.0"),
    "rounds of text": lambda c: c["chain"].update(t="3"),
    "rounds of another": lambda c: c["chain"].update(t=10**6),
    "room for everything": lambda c: c.update(room=10**12),
    "batches elsewhere": lambda c: c.update(batches=[["../../run", "0" * 64, 1]]),
    "batches of another form": lambda c: c.update(batches=[["draws"]]),
    "errors below zero": lambda c: c["chain"].update(epoch_sse=-1.0),
    "burn-in ended below zero": lambda c: c["chain"]["keeping"].update(first=-1),
    "no keeping": lambda c: c["chain"].update(keeping={}),
    "visits below zero": lambda c: c["chain"]["state"].update(visits=[[0, -1]]),
    "a list of listeners": lambda c: c["chain"].update(listeners=[]),
}


@pytest.mark.parametrize("what", [*CHECKPOINTS, *PLAIN])
def test_a_forged_checkpoint_is_refused(stopped, what):
    for folder in stopped.glob("chain-0/round-*"):
        if what in PLAIN:
            edit_meta(folder, PLAIN[what], CHAIN)
        else:
            edit(folder, *CHECKPOINTS[what], CHAIN)
    refused(lambda folder: run_kept(folder, resume=True), stopped, "no checkpoint in .* is sound")


def test_a_checkpoint_without_room_for_draws_is_refused(stopped):
    for path in stopped.glob("chain-*/round-*"):
        edit_meta(path, lambda c: c["chain"]["keeping"].update(burning=True), CHAIN)
    refused(lambda folder: run_kept(folder, resume=True), stopped, "too little room")


@pytest.mark.parametrize("name", ["users", "tau", "chain"])
def test_forged_draws_are_refused(stopped, name):
    for folder in stopped.glob("chain-0/draws-*"):
        array = file_contents(folder, BATCH)[0][name]
        put(folder, name, np.full_like(array, -1)[..., :1], BATCH)
    refused(lambda folder: run_kept(folder, resume=True), stopped, "sound")


NOISE = ("user_tau", "item_tau")


@pytest.mark.parametrize("gone", [("user_tau",), ("item_tau",), NOISE])
@pytest.mark.parametrize("kind", ["round", "draws"])
def test_a_checkpoint_has_the_noise_of_its_run(tmp_path, gone, kind):
    settings = settings_of(Gibbs(n_chains=2, epochs=9, burn_in=3), noise_by="both")
    with pytest.raises(Died):
        run_kept(tmp_path / "run", settings, engine=Dying(Serial(), 120))
    for chain in (tmp_path / "run").glob("chain-*"):
        for path in chain.glob(f"{kind}-*"):
            for name in gone:
                drop(path, name, CHAIN if kind == "round" else BATCH)
                drop(path, f"{name}_prior", CHAIN if kind == "round" else BATCH)
        digests = {path.name: peek(path, BATCH) for path in chain.glob("draws-*")}

        def noted(meta, digests=digests):
            meta["batches"] = [[b, digests.get(b, d), n] for b, d, n in meta["batches"]]

        for path in chain.glob("round-*"):
            edit_meta(path, noted, CHAIN)
    refused(lambda folder: run_kept(folder, settings, resume=True), tmp_path / "run", "sound")
