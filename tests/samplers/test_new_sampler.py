"""The skeleton in CONTRIBUTING.md is a whole sampler: one file, and one line of the registry."""

import doctest
import importlib
import re
from pathlib import Path

import numpy as np
import pytest

import bayesmf
from bayesmf import BayesianMF, Checkpoint, InputError, Synthetic
from bayesmf.cli import fit, fit_options
from bayesmf.samplers.registry import REGISTRY
from contract import draws_digest

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"
QUICK = {"epochs": 12, "burn_in": 4}


@pytest.fixture(scope="module")
def rule(tmp_path_factory):
    """The class of the skeleton, registered by the line that the page gives."""
    file, line = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    folder = tmp_path_factory.mktemp("samplers")
    (folder / "cyclical.py").write_text(file)
    name, kind = re.fullmatch(r'\s*"(\w+)": (\w+),\s*', line).groups()
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        made = getattr(importlib.import_module("cyclical"), kind)
        patch.setitem(REGISTRY, name, made)
        yield made


@pytest.fixture(scope="module")
def ratings():
    return Synthetic(60, 40, 1200).ratings()


def _fit(sampler, ratings, **settings):
    return BayesianMF(2, sampler=sampler, random_state=0, **settings).fit(ratings)


@pytest.mark.parametrize("settings", [{}, {"grid": (2, 2), "n_chains": 2}, {"noise": "paper"}])
def test_engines_agree_to_the_bit(rule, ratings, settings):
    sampler = rule(**QUICK, **settings)
    serial, threads = (
        draws_digest(_fit(sampler, ratings, engine=engine, n_workers=2))
        for engine in ("serial", "threads")
    )
    assert serial == threads


def test_it_learns_and_its_setting_matters(rule, ratings):
    """R^2 on ratings held out; the steps of a history are those of the cycle."""
    train, test = ratings.split(0.2)
    model = _fit(rule(epochs=200, pace=4.0, cycle=8), train)
    assert model.score(test) > 0.1
    steps = np.array([event["step_size"] * event["tau"] for event in model.history_])
    assert steps[104::8].mean() > 3 * steps[111::8].mean()


def test_its_name_is_known_everywhere(rule, ratings, tmp_path, capsys):
    assert bayesmf.CyclicalSGLD is rule
    with pytest.raises(InputError, match="'sgd', 'cyclical' or a sampler object"):
        _fit("sgdl", ratings)
    with pytest.raises(InputError, match="cycle must be a positive number"):
        _fit(rule(cycle=-1), ratings)
    assert re.search(r"cycle : float, default 10.0\n +Epochs of a cycle", rule.__doc__)
    assert rule.__doc__.index("grid :") < rule.__doc__.index("cycle :") < rule.__doc__.index(">>>")
    model = _fit(rule(**QUICK), ratings)
    model.save(tmp_path / "model")
    assert BayesianMF.load(tmp_path / "model").sampler.cycle == 10.0


def test_the_command_line_offers_it(rule, capsys):
    parser = fit.parser()
    told = " ".join(parser.format_help().split())
    assert "--cycle C cyclical: epochs of a cycle (10)" in told
    assert "sgld, cyclical: variance of the noise" in told
    needed = ["ratings.csv", "--out", "model", "--cycle", "5", "--sampler"]
    args = parser.parse_args([*needed, "cyclical", "--chains", "2"])
    assert fit_options.make_sampler(args) == rule(cycle=5, n_chains=2)
    args = parser.parse_args([*needed, "sgld"])
    with pytest.raises(InputError, match="--cycle does nothing in sgld: use --sampler cyclical"):
        fit_options.make_sampler(args)


def test_a_checkpoint_of_it_goes_on(rule, ratings, tmp_path):
    def stop(event):
        if event.epoch == 5:
            raise KeyboardInterrupt

    sampler = rule(**QUICK)
    with pytest.raises(KeyboardInterrupt):
        _fit_to(sampler, ratings, Checkpoint(tmp_path / "c", every=0), callbacks=[stop])
    again = _fit_to(sampler, ratings, Checkpoint(tmp_path / "c", resume=True))
    assert draws_digest(again) == draws_digest(_fit(sampler, ratings))


def _fit_to(sampler, ratings, checkpoint, **settings):
    model = BayesianMF(2, sampler=sampler, random_state=0, **settings)
    return model.fit(ratings, checkpoint=checkpoint)


def test_its_example_runs(rule):
    test, *_ = doctest.DocTestFinder().find(rule, "CyclicalSGLD", globs={})
    ran = doctest.DocTestRunner().run(test)
    assert (ran.failed, ran.attempted) == (0, 3)
