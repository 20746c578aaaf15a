"""The skeleton in CONTRIBUTING.md is a whole sampler: one file, and one line of the registry."""

import doctest
import importlib
import re
from pathlib import Path

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
    (folder / "clipped.py").write_text(file)
    name, kind = re.fullmatch(r'\s*"(\w+)": (\w+),\s*', line).groups()
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        made = getattr(importlib.import_module("clipped"), kind)
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
    """R^2 on ratings held out; with gradients clipped to nothing, only noise is added."""
    train, test = ratings.split(0.2)
    sampler = {"epochs": 200, "pace": 4.0}
    good = _fit(rule(**sampler), train).score(test)
    held = _fit(rule(clip=1e-6, **sampler), train).score(test)
    assert good > 0.1 > 0 > held


def test_its_name_is_known_everywhere(rule, ratings, tmp_path, capsys):
    assert bayesmf.ClippedSGLD is rule
    with pytest.raises(InputError, match="'sgd', 'clipped' or a sampler object"):
        _fit("sgdl", ratings)
    with pytest.raises(InputError, match="clip must be a positive number"):
        _fit(rule(clip=-1), ratings)
    assert re.search(r"clip : float, default 100.0\n +The largest gradient", rule.__doc__)
    assert rule.__doc__.index("grid :") < rule.__doc__.index("clip :") < rule.__doc__.index(">>>")
    model = _fit(rule(**QUICK), ratings)
    model.save(tmp_path / "model")
    assert BayesianMF.load(tmp_path / "model").sampler.clip == 100.0


def test_the_command_line_offers_it(rule, capsys):
    parser = fit.parser()
    told = " ".join(parser.format_help().split())
    assert "--clip G clipped: largest gradient (100)" in told
    assert "sgld, clipped: variance of the noise" in told
    needed = ["ratings.csv", "--out", "model", "--clip", "50", "--sampler"]
    args = parser.parse_args([*needed, "clipped", "--chains", "2"])
    assert fit_options.make_sampler(args) == rule(clip=50, n_chains=2)
    args = parser.parse_args([*needed, "sgld"])
    with pytest.raises(InputError, match="--clip does nothing in sgld: use --sampler clipped"):
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
    test, *_ = doctest.DocTestFinder().find(rule, "ClippedSGLD", globs={})
    ran = doctest.DocTestRunner().run(test)
    assert (ran.failed, ran.attempted) == (0, 3)
