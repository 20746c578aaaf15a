"""Noise of rows through folders and engines, to the bit; test_resume.py has checkpoints."""

import numpy as np
import pytest

from bayesmf import BayesianMF, Gibbs
from problems import stars

NAMES = ("user_tau", "item_tau", "user_tau_prior", "item_tau_prior", "tau", "items")


def _model(by="both", n_stripes=8, **more):
    sampler = Gibbs(epochs=8, burn_in=4, n_chains=2, n_stripes=n_stripes)
    return BayesianMF(3, sampler=sampler, noise_by=by, random_state=0, progress=False, **more)


def _same(one, other):
    for name in NAMES:
        a, b = (getattr(m.posterior_.draws, name) for m in (one, other))
        assert (a is None) == (b is None), name
        assert a is None or np.array_equal(a, b), name
    users, items = stars().users[:40], stars().items[40:80]
    told = [m.predict(users, items, return_std=True) for m in (one, other)]
    assert np.array_equal(*told)
    sent = {int(stars().items[0]): 5.0, int(stars().items[5]): 1.0}
    assert one.recommend(ratings=sent, policy="ucb") == other.recommend(ratings=sent, policy="ucb")


@pytest.fixture(scope="module", params=["user", "item", "both"])
def fitted(request):
    return _model(request.param).fit(stars())


def test_a_folder_has_all_of_it(fitted, tmp_path):
    draws = fitted.posterior_.draws
    assert (draws.user_tau is None) == (fitted.noise_by == "item")
    assert (draws.item_tau_prior is None) == (fitted.noise_by == "user")
    fitted.save(tmp_path / "model")
    _same(fitted, BayesianMF.load(tmp_path / "model"))


def test_engines_and_stripes_have_the_same_bits(fitted):
    _same(fitted, _model(fitted.noise_by, n_stripes=3, engine="serial").fit(stars()))
