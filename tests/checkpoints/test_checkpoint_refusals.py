"""Checkpoints that are not resumed: of other runs, or without their run."""

from dataclasses import replace

import pytest

import bayesmf
from bayesmf import SGD, BayesianMF, Checkpoint, InputError
from bayesmf.engines.local import Serial
from bayesmf.model.priors import GammaPrior, WishartPrior
from bayesmf.run.driver import run
from checkpointed import DATA, KNOWN, SETTINGS, SHAPE, names, run_kept
from problems import random_data


def test_a_folder_with_checkpoints_is_resumed_or_left_alone(stopped):
    before = sorted(stopped.rglob("*"))
    with pytest.raises(InputError, match=r"holds checkpoints of an earlier run: .*--resume"):
        run_kept(stopped)
    assert sorted(stopped.rglob("*")) == before


def test_files_of_others_stay(tmp_path, reference):
    (tmp_path / "thesis.tex").write_text("all of it")
    for resume in (False, True):
        with pytest.raises(InputError, match="is a file and not a folder"):
            run_kept(tmp_path / "thesis.tex" / "c", resume=resume)
    assert run_kept(tmp_path) == reference
    assert names(tmp_path) == ["chain-0", "chain-1", "run", "thesis.tex"]
    assert (tmp_path / "thesis.tex").read_text() == "all of it"


def test_checkpoints_without_their_run_are_refused(stopped):
    (stopped / "run").unlink()
    with pytest.raises(InputError, match="no run file"):
        run_kept(stopped, resume=True)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"seed": 1}, "seed 0 there, 1 here"),
        ({"n_factors": 3}, "n_factors 2 there, 3 here"),
        ({"tau": 2.0}, "tau none there, 2.0 here"),
        ({"max_draws": 10}, "max_draws 50 there, 10 here"),
        ({"keep": "users"}, "keep both there, users here"),
        ({"scale": 2.0}, "scale 1.0 there, 2.0 here"),
        ({"target": "fast"}, "target balanced there, fast here"),
        ({"prior": GammaPrior(alpha_0=2.0)}, "prior alpha_0 1.0 there, 2.0 here"),
        ({"prior": WishartPrior(False)}, "prior name GammaPrior there, WishartPrior here"),
        ({"sampler": replace(SETTINGS.sampler, epochs=10.0)}, "sampler epochs 9.0 there, 10.0"),
        ({"sampler": replace(SETTINGS.sampler, n_chains=3)}, "sampler n_chains 2 there, 3 here"),
        ({"sampler": SGD(epochs=9).resolve(SHAPE)}, "sampler rule Gibbs there, SGD here"),
    ],
)
def test_another_run_is_refused(stopped, change, says):
    with pytest.raises(InputError, match="of another run") as info:
        run_kept(stopped, replace(SETTINGS, **change), resume=True)
    assert f": {says}" in str(info.value)


def test_other_ratings_are_refused(stopped, monkeypatch):
    checkpoint = Checkpoint(stopped, resume=True)
    with pytest.raises(InputError, match="ratings number 500 there, 501 here"):
        run(random_data(40, 30, 501), SETTINGS, Serial(), checkpoint=checkpoint)
    code = DATA.by_user.value.copy()
    code[[0, 1]] = code[[1, 0]]  # two ratings exchanged
    other = replace(DATA, by_user=replace(DATA.by_user, value=code))
    with pytest.raises(InputError, match=r"ratings digest [0-9a-f]{12} there, \w{12} here"):
        run(other, SETTINGS, Serial(), checkpoint=checkpoint)
    with pytest.raises(InputError, match="validation number none there, 9 here"):
        run(DATA, SETTINGS, Serial(), KNOWN, checkpoint=checkpoint)
    monkeypatch.setattr("bayesmf.checkpoints.folder.__version__", "9.9")
    with pytest.raises(InputError, match=rf"version {bayesmf.__version__} there, 9.9 here"):
        run_kept(stopped, resume=True)


def test_another_validation_set_is_refused(tmp_path):
    checkpoint = Checkpoint(tmp_path / "c")
    run(DATA, SETTINGS, Serial(), KNOWN, checkpoint=checkpoint)
    again = replace(checkpoint, resume=True)
    with pytest.raises(InputError, match="validation digest"):
        run(DATA, SETTINGS, Serial(), replace(KNOWN, value=KNOWN.value + 1), checkpoint=again)
    with pytest.raises(InputError, match="validation"):
        run(DATA, SETTINGS, Serial(), checkpoint=again)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (Checkpoint("c", every=-1), "every"),
        (Checkpoint("c", every=float("nan")), "every"),
        (Checkpoint("c", every="often"), "every"),
        (Checkpoint("c", keep=0), "keep"),
        (7, "a folder or a Checkpoint"),
    ],
)
def test_what_cannot_be_meant(given, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = BayesianMF(2, sampler=SGD(epochs=1))
    with pytest.raises(InputError, match=says):
        model.fit(([1, 2], [1, 2], [3.0, 4.0]), checkpoint=given)
    assert names(tmp_path) == []
